"""Reads what compute-sanitizer printed, and tells the reports that are known, with a reason, from new ones."""

import re
from dataclasses import dataclass

MARK = "========="
# Lines that open or close a run or sum it up. Everything else at the left edge opens a report.
FRAME = re.compile(r"(COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY|LEAK SUMMARY|Target application|No attachable)")


@dataclass
class Known:
    tool: str
    pattern: str
    reason: str


def reports(log: str) -> list[str]:
    """The single reports: a headline at the left edge and the indented lines that belong to it."""
    found = []
    inside = False
    for line in log.splitlines():
        if not line.startswith(MARK):
            continue
        text = line.removeprefix(MARK).rstrip()
        if not text.strip():
            inside = False
        elif text.startswith("  "):
            if inside:
                found[-1] += "\n" + text.strip()
        elif FRAME.match(text.strip()):
            inside = False
        else:
            found.append(text.strip())
            inside = True
    return found


def unknown(found: list[str], tool: str, known: list[Known]) -> list[str]:
    patterns = [re.compile(entry.pattern, re.DOTALL) for entry in known if entry.tool == tool]
    return [report for report in found if not any(pattern.search(report) for pattern in patterns)]


def finished(log: str) -> bool:
    """Whether the tool reached its summary: a program that dies early leaves none."""
    return re.search(rf"^{MARK} \w+ SUMMARY: ", log, re.MULTILINE) is not None
