"""Makes the wheel: what `./dev wheel` does once build/venv is there and build/attune is built.

    build/venv/bin/python tools/wheel.py FOLDER [PACKS]

One wheel for every Python and every torch: it holds Python, the library and the command with their C++ runtime inside,
linked for an old glibc (cmake/old_glibc.cmake), and the packs of the folder PACKS.

What it takes, zig among it, comes from PyPI into the Python that runs this: tools/wheel-requirements.txt.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
REQUIREMENTS = REPO / "tools/wheel-requirements.txt"
GLIBC = (2, 28)  # the oldest that the wheel loads with
PLATFORM = "manylinux_{}_{}_{}".format(*GLIBC, platform.machine())


def run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nwheel: {' '.join(map(str, command))} failed with status {done.returncode}")
    return done.stdout


def install_tools() -> None:
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "-r", REQUIREMENTS)


def build(folder: Path, packs: Path | None) -> Path:
    os.environ.update(CC="cc", CXX="c++")  # as plain CMake has it, and not as Python was built
    define = {
        "ATTUNE_GLIBC": ".".join(map(str, GLIBC)),
        "ATTUNE_ZIG": Path(sysconfig.get_path("purelib")) / "ziglang/zig",
        "ATTUNE_PACK_DIR": packs.resolve() if packs else "",
        "ATTUNE_LAB": "ON",
    }
    settings = [f"--config-settings=cmake.define.{name}={value}" for name, value in define.items()]
    settings.append("--config-settings=build.targets=libattune.so;libattune_lab_engine.so")
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *settings, REPO)
    return next(folder.glob("*.whl"))


def judge(wheel: Path) -> None:
    """Ends the program if auditwheel finds that the wheel needs more than PLATFORM has."""
    said = run(sys.executable, "-m", "auditwheel", "show", wheel)
    found = re.search(r'platform tag:\s+"manylinux_(\d+)_(\d+)_\w+"', said)
    if not found or (int(found[1]), int(found[2])) > GLIBC:
        sys.exit(f"{said}\nwheel: it needs more than {PLATFORM} has")


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    install_tools()
    wheel = build(folder, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    judge(wheel)
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", PLATFORM, wheel)
    wheel = next(folder.glob("*.whl"))
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
