"""Makes the wheel: what `./dev wheel` does once everything is installed and build/attune is built.

    python3 tools/wheel.py FOLDER [PACKS]

One wheel for every Python and every torch: it holds Python, the library with its runtimes inside, and the packs of the
folder PACKS.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
NEWEST_GLIBC = (2, 36)  # that of Debian 12


def run(*command: str | Path) -> str:
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\nwheel: {' '.join(map(str, command))} failed with status {done.returncode}")
    return done.stdout


def build(folder: Path, packs: Path | None) -> Path:
    os.environ.update(CC="cc", CXX="c++")  # as plain CMake has it, and not as Python was built
    pack = [f"--config-settings=cmake.define.ATTUNE_PACK_DIR={packs.resolve() if packs else ''}"]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, *pack, REPO)
    return next(folder.glob("*.whl"))


def platform(wheel: Path) -> str:
    """The oldest systems that auditwheel finds it to run on."""
    said = run(sys.executable, "-m", "auditwheel", "show", wheel)
    found = re.search(r'platform tag:\s+"(manylinux_(\d+)_(\d+)_\w+)"', said)
    if not found or (int(found[2]), int(found[3])) > NEWEST_GLIBC:
        sys.exit(f"{said}\nwheel: it does not run on glibc {'.'.join(map(str, NEWEST_GLIBC))}")
    return found[1]


def main() -> None:
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    wheel = build(folder, Path(sys.argv[2]) if len(sys.argv) > 2 else None)
    run(sys.executable, "-m", "wheel", "tags", "--remove", "--platform-tag", platform(wheel), wheel)
    wheel = next(folder.glob("*.whl"))
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
