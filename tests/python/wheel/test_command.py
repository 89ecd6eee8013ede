"""The command of the wheel: on PATH once it is installed, and complete without a build beside it."""

import subprocess
import sys
from importlib.metadata import distribution


def test_it_is_on_the_path():
    (script,) = [point for point in distribution("attune").entry_points if point.group == "console_scripts"]
    assert (script.name, script.value) == ("attune", "attune.command:main")


def test_it_checks_kernels_and_libraries():
    library = distribution("attune").locate_file("attune/libattune.so")
    words = [
        "check",
        "--against",
        library,
        "--kernel",
        "cpu/portable",
        "--backend",
        "cpu",
        "fwd b1 h2/2 q20 k30 d16 f32",
    ]
    done = subprocess.run([sys.executable, "-m", "attune.command", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 checks passed, 0 failed" in done.stdout
