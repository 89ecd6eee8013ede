"""The static checks: what `./dev lint` does once everything is installed (`./dev lint --help` says how to call it).

Each check returns what it complains about; an empty text is content.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import tidy

REPO = Path(__file__).resolve().parent.parent
VENV = REPO / "build/venv/bin"
CXX = {".c", ".cpp", ".h", ".hpp", ".cuh", ".cu"}
LONGEST_FILE = 900  # lines; a file should be readable in one sitting
# Written apart, so that this file does not complain of itself.
UNFINISHED = re.compile(r"\b(?:" + "|".join(["TO" + "DO", "FIX" + "ME", "X" * 3]) + r")\b")


def tracked() -> list[Path]:
    """Every file of the tree that git knows or would take, without those deleted in the work tree."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=REPO, check=True, capture_output=True).stdout
    return sorted(path for name in names.decode().split("\0") if name and (path := REPO / name).is_file())


def output_of(command: list[str | Path]) -> str:
    """What a command printed if it failed."""
    done = subprocess.run(command, cwd=REPO, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout or f"{command[0]} failed with status {done.returncode}"


def with_suffix(files: list[Path], suffixes: set[str]) -> list[Path]:
    return [path for path in files if path.suffix in suffixes]


def clang_format(files: list[Path], fix: bool) -> str:
    sources = with_suffix(files, CXX)
    if not sources:
        return ""
    complaint = output_of(["clang-format-19", *(["-i"] if fix else ["--dry-run", "-Werror"]), *sources])
    places = Counter(re.findall(rf"^{REPO}/(.*?):\d+:\d+: error", complaint, re.MULTILINE))
    return "\n".join(f"{name}: {count} places to format" for name, count in places.items()) or complaint


def ruff(files: list[Path], fix: bool) -> str:
    sources = with_suffix(files, {".py"})
    if not sources:
        return ""
    formatted = output_of([VENV / "ruff", "format", "--quiet", *([] if fix else ["--diff"]), *sources])
    return formatted + output_of([VENV / "ruff", "check", "--quiet", *(["--fix"] if fix else []), *sources])


def shellcheck(files: list[Path], fix: bool) -> str:
    scripts = [path for path in files if not path.suffix and path.read_bytes()[:20].startswith(b"#!/usr/bin/env bash")]
    return output_of(["shellcheck", *scripts, *with_suffix(files, {".sh"})])


def words(files: list[Path], fix: bool) -> str:
    """Paths of one machine, marks of unfinished work, and files too long to read."""
    complaints = []
    for path in files:
        name = path.relative_to(REPO)
        try:
            lines = path.read_text().splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if str(REPO) in line or f"{Path.home()}/" in line:
                complaints.append(f"{name}:{number}: a path of this machine: {line.strip()}")
            if UNFINISHED.search(line):
                complaints.append(f"{name}:{number}: unfinished work belongs in an issue: {line.strip()}")
        if path.suffix in CXX | {".py"} and len(lines) > LONGEST_FILE:
            complaints.append(f"{name}: {len(lines)} lines, more than {LONGEST_FILE}")
    return "\n".join(complaints)


def clang_tidy(files: list[Path], fix: bool) -> str:
    """Every source that the build compiles, against the verdicts kept from earlier runs."""
    return output_of(["cmake", "--preset", "release"]) or tidy.check(set(files), os.cpu_count() or 1)


CHECKS: dict[str, Callable[[list[Path], bool], str]] = {
    "clang-format": clang_format,
    "ruff": ruff,
    "shellcheck": shellcheck,
    "words and paths": words,
    "clang-tidy": clang_tidy,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev lint", usage="see ./dev lint --help")
    parser.add_argument("--fix", action="store_true")
    fix = parser.parse_args().fix
    files = tracked()
    failed = []
    for name, check in CHECKS.items():
        started = time.monotonic()
        complaint = check(files, fix).strip()
        if complaint:
            failed.append(name)
            print(complaint)
        print(f"{name:20} {time.monotonic() - started:6.1f} s  {'FAILED' if complaint else 'ok'}", flush=True)
    if failed:
        print(f"lint: {', '.join(failed)} failed" + ("" if fix else "; ./dev lint --fix mends the formatting"))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
