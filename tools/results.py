"""What a test run found: rows of counts and seconds, read from the result files of the test runners, and the report."""

import json
import re
import xml.etree.ElementTree
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path


@dataclass
class Row:
    """One line of the table: a test binary, a build, a fuzzing run."""

    name: str
    seconds: float = 0
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)  # the reason of each skipped test
    used_gpu: int = 0  # how many of the tests ran on a GPU
    note: str = ""


def read_gtest(row: Row, result: Path, log: str) -> None:
    """Adds the cases of one GoogleTest binary. The reasons of skips stand only in what it printed."""
    suites = json.loads(result.read_text())["testsuites"]
    reasons = skip_reasons(log)
    for case in (case for suite in suites for case in suite["testsuite"]):
        name = f"{case['classname']}.{case['name']}"
        if case.get("failures"):
            row.failures.append(name)
        elif case["status"] == "NOTRUN":
            row.skipped.append(f"{name} is disabled")
        elif case["result"] == "SKIPPED":
            row.skipped.append(reasons.get(name, "no reason given"))
        else:
            row.passed += 1
        row.used_gpu += "gpu" in case  # tests/support/gpu.hpp


def skip_reasons(log: str) -> dict[str, str]:
    """Of each skipped GoogleTest case, the first line of its message."""
    reasons, message = {}, ""
    for line, following in pairwise([*log.splitlines(), ""]):
        if line.startswith("[ RUN "):
            message = ""
        elif line.endswith(": Skipped"):
            message = message or following.strip()
        elif match := re.match(r"\[  SKIPPED \] (\S+) \(\d+ ms\)", line):
            reasons[match[1]] = message or "no reason given"
    return reasons


def read_junit(row: Row, result: Path) -> None:
    """Adds the cases of a runner that writes JUnit's format, such as pytest and ctest."""
    for case in xml.etree.ElementTree.parse(result).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        skip = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None:
            row.failures.append(name)
        elif skip is not None:
            row.skipped.append(skip.get("message") or "no reason given")
        else:
            row.passed += 1
            row.used_gpu += case.find("properties/property[@name='gpu']") is not None  # tests/python/door/conftest.py


def clock(seconds: float) -> str:
    return f"{int(seconds + 0.5) // 60}:{int(seconds + 0.5) % 60:02d}"


def report(rows: list[Row], seconds: float) -> str:
    """Skips and failures in full, then where the time went, then the count."""
    lines = []
    skips = Counter((row.name, reason) for row in rows for reason in row.skipped)
    if skips:
        lines += ["", f"SKIPPED, which is not passed: {skips.total()}"]
        lines += [f"  {name}: {count} x {reason}" for (name, reason), count in skips.items()]
    failed = sum(len(row.failures) for row in rows)
    if failed:
        lines += ["", f"FAILED: {failed}"]
        lines += [f"  {row.name}: {failure}" for row in rows for failure in row.failures]
    title = "where the time went"
    width = max(len(name) for name in [title, *(row.name for row in rows)])
    lines += ["", f"{title:{width}}   time  passed  failed  skipped"]
    for row in rows:
        counts = [row.passed, len(row.failures), len(row.skipped)]
        cells = "".join(f"{count or '':>{wide}}" for count, wide in zip(counts, (8, 8, 9), strict=True))
        lines.append(f"{row.name:{width}} {clock(row.seconds):>6}{cells}  {row.note}".rstrip())
    lines.append(f"{'in all':{width}} {clock(seconds):>6}")
    passed = sum(row.passed for row in rows)
    lines += ["", f"{passed} passed, {failed} failed" + (f", {skips.total()} skipped" if skips else "")]
    return "\n".join(lines)
