"""What the lab writes: standard output, which has to arrive, and files, tried before anything is measured."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from attune.lab.errors import BadInput, OutputLost


def flush() -> None:
    """Everything printed so far has been written."""
    if sys.stdout is None:  # closed before Python began
        raise OutputLost("the output cannot be written: standard output is closed")
    try:
        sys.stdout.flush()
    except OSError as error:
        raise lost(error) from error


def lost(error: OSError) -> OutputLost:
    # What is left in the buffer cannot be written either, and Python would say so at its end.
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115  # until the end
    return OutputLost(f"the output cannot be written: {error.strerror}")


def try_file(option: str, path: str | None) -> None:
    """Whether a file can be written there, asked before minutes are spent on what it shall hold."""
    if not path or (Path(path).exists() and not Path(path).is_file()):
        return
    try:
        with tempfile.TemporaryFile(dir=Path(path).absolute().parent) as probe:
            probe.write(b"attune\n")
            probe.flush()
    except OSError as error:
        raise BadInput(f"{option} is '{path}', where no file can be written: {error.strerror}") from error


def write_whole(path: str, text: str) -> None:
    """Written beside its place and renamed; what is no regular file, such as /dev/stdout, is written in place."""
    place = Path(path).resolve()
    try:
        if place.exists() and not place.is_file():
            place.write_text(text)
            return
        part = place.with_name(f"{place.name}.{os.getpid():x}.part")
        try:
            with part.open("x") as file:
                file.write(text)
            part.replace(place)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {error.strerror}") from error
