"""What can go wrong, and the exit status of each."""

import traceback


class LabError(Exception):
    """Ends the run; the text is one sentence for the reader."""

    status = 1


class BadInput(LabError):
    status = 2


class NotHere(LabError):
    """Something the run needs is not on this machine."""

    status = 3


class OutputLost(LabError):
    """Standard output cannot be written: a full disk, a pipe that nobody reads, a descriptor that was closed."""

    status = 5


def refusal(status: int, text: str) -> LabError:
    """What a library refused to create: ATTUNE_INVALID_ARGUMENT is the reader's fault, the rest the machine's."""
    return (BadInput if status == 1 else NotHere)(text)


class Absent(Exception):
    """A contender that cannot take part, and why. The others go on."""


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def described(error: BaseException) -> str:
    """One line. What was not meant for readers comes with its kind and place, so that it can be looked into."""
    if isinstance(error, (LabError, Absent)):
        return first_line(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {first_line(error)}{place}"
