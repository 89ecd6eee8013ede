"""The attune command of an installed package: `attune` on PATH, or python3 -m attune.command.

It is inside the measuring engine, a library that tools/wheel.py puts into the wheel.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from ctypes import POINTER, c_char_p, c_int32
from pathlib import Path

ENGINE = "libattune_lab_engine.so"


def engine_path() -> Path | None:
    """In the folder that ATTUNE_LAB_LIBRARY_DIR names, in this package, or in the build of the checkout it lies in."""
    package = Path(__file__).resolve().parent
    named = os.environ.get("ATTUNE_LAB_LIBRARY_DIR")
    places = [*([Path(named)] if named else []), package, package.parents[1] / "build"]
    return next((place / ENGINE for place in places if (place / ENGINE).is_file()), None)


def array(words: list[str]):
    return (c_char_p * len(words))(*(os.fsencode(word) for word in words))


def main() -> int:
    path = engine_path()
    if path is None:
        print(
            f"attune: the command is not in this installation: {ENGINE} is missing. `./dev wheel` makes a wheel that "
            "has it; ATTUNE_LAB_LIBRARY_DIR may name its folder",
            file=sys.stderr,
        )
        return 3
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Python would wait for the command to return
    command = ctypes.CDLL(str(path)).attune_lab_command
    command.restype, command.argtypes = c_int32, [c_int32, POINTER(c_char_p), POINTER(c_char_p), c_int32]
    words = ["attune", *sys.argv[1:]]
    own = [sys.executable, "-m", "attune.command"]
    return command(len(words), array([*words, ""]), array(own), len(own))


if __name__ == "__main__":
    sys.exit(main())
