"""What conftest.py and the tests of this folder share."""

import os
import shutil
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FAKES = Path(__file__).resolve().parent / "fakes"


def compile_c(source: Path, output: Path, *options: str) -> Path:
    compiler = os.environ.get("CC") or shutil.which("cc") or "gcc"
    includes = ["-I", str(REPO), "-I", str(REPO / "include")]
    subprocess.run([compiler, "-Wall", "-Wextra", "-Werror", *includes, source, "-o", output, *options], check=True)
    return output
