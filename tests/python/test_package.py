"""The package where something is missing: torch, the library, the right library."""

import os
import subprocess
import sys

import pytest
from attune import c_api
from support import REPO, compile_c


def python(code: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-S", "-c", code],  # -S: without a torch that may be installed
        env={**os.environ, "PYTHONPATH": str(REPO / "python"), **environment},
        capture_output=True,
        text=True,
    )


def test_without_torch_it_can_be_imported_and_says_what_it_needs():
    result = python("import attune; print(attune.__version__, issubclass(attune.Unsupported, NotImplementedError))")
    assert (result.stdout, result.returncode) == ("0.1.0 True\n", 0)
    assert "No module named 'torch'" in python("import attune; attune.attention").stderr
    assert "has no attribute 'attenton'" in python("import attune; attune.attenton").stderr


def test_a_library_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("ATTUNE_LIBRARY", str(tmp_path / "libattune.so"))
    with pytest.raises(c_api.AttuneError, match=r"libattune\.so cannot be loaded: "):
        c_api.Library(c_api.library_path())


def test_a_library_of_another_kind_or_age(tmp_path):
    source = tmp_path / "other.c"
    source.write_text("int attune_other(void) { return 0; }")
    other = compile_c(source, tmp_path / "libother.so", "-shared", "-fPIC")
    with pytest.raises(c_api.AttuneError, match="undefined symbol: attune_create"):
        c_api.Library(other)
    functions = "".join(f"unsigned {name}(void) {{ return 0; }}" for name in c_api.FUNCTIONS)
    source.write_text(functions)
    old = compile_c(source, tmp_path / "libold.so", "-shared", "-fPIC")
    with pytest.raises(c_api.AttuneError, match=f"has ABI version 0; this package needs {c_api.ABI_VERSION} or newer"):
        c_api.Library(old)


def test_versions_agree():
    cmake = (REPO / "CMakeLists.txt").read_text()
    import attune

    assert f"project(attune VERSION {attune.__version__} " in cmake
