"""The package under test, and the libraries that stand in for a GPU."""

import importlib.util
import os
import shlex
import subprocess
import sys

import pytest
from support import FAKES, REPO, compile_c

if importlib.util.find_spec("attune") is None:  # one that is installed, or on PYTHONPATH, is the one to test
    sys.path.insert(0, str(REPO / "python"))


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    output = tmp_path_factory.mktemp("fakes") / "libfakes.so"
    return compile_c(FAKES / "fake_libraries.c", output, "-shared", "-fPIC", "-lm")


@pytest.fixture
def lab(fake_library):
    """Runs python3 -m attune.lab beside the fakes; `torch=False` leaves their torch out, `packages` adds more peers."""

    def run(
        *arguments: str,
        torch: bool = True,
        packages: bool = False,
        stdin: str = "",
        redirect: str = "",
        **environment: str,
    ) -> subprocess.CompletedProcess:
        paths = [
            str(REPO / "python"),
            *([str(FAKES)] if torch else []),
            *([str(FAKES / "packages")] if packages else []),
        ]
        fakes = {"PYTHONPATH": os.pathsep.join(paths), "FAKE_LIBRARY": str(fake_library)}
        libraries = [f"--{name}={fake_library}" for name in ("engine", "library", "driver")]
        # -S: a real torch of this machine would take the place of none.
        command = [sys.executable, "-S", "-m", "attune.lab", *libraries, *arguments]
        if redirect:
            command = ["bash", "-o", "pipefail", "-c", f"{shlex.join(command)} {redirect}"]
        return subprocess.run(
            command,
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, **fakes, **environment},
        )

    return run
