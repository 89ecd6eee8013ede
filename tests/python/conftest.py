"""The package under test, and the libraries that stand in for a GPU."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
FAKES = Path(__file__).resolve().parent / "fakes"
if importlib.util.find_spec("attune") is None:  # one that is installed, or on PYTHONPATH, is the one to test
    sys.path.insert(0, str(REPO / "python"))


def compile_c(source: Path, output: Path, *options: str) -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    includes = ["-I", str(REPO), "-I", str(REPO / "include")]
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", *includes, source, "-o", output, *options], check=True)
    return output


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    output = tmp_path_factory.mktemp("fakes") / "libfakes.so"
    return compile_c(FAKES / "fake_libraries.c", output, "-shared", "-fPIC", "-lm")


@pytest.fixture
def lab(fake_library):
    """Runs python3 -m attune.lab beside the fakes; `torch=False` leaves their torch out, `packages` adds more peers."""

    def run(
        *arguments: str, torch: bool = True, packages: bool = False, stdin: str = "", **environment: str
    ) -> subprocess.CompletedProcess:
        paths = [
            str(REPO / "python"),
            *([str(FAKES)] if torch else []),
            *([str(FAKES / "packages")] if packages else []),
        ]
        fakes = {"PYTHONPATH": os.pathsep.join(paths), "FAKE_LIBRARY": str(fake_library)}
        libraries = [f"--{name}={fake_library}" for name in ("engine", "library", "driver")]
        return subprocess.run(
            # -S: a real torch of this machine would take the place of none.
            [sys.executable, "-S", "-m", "attune.lab", *libraries, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, **fakes, **environment},
        )

    return run
