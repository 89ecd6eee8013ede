"""clang-tidy over the C++ that the build compiles, each file once: a clean verdict is kept under build/tidy, by a hash
of all that it depends on, until the file, a header of this repository that it includes, or a check changes."""

import hashlib
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
DATABASE = REPO / "build/compile_commands.json"
KEPT = REPO / "build/tidy"
PROGRAM = "clang-tidy-19"
# The commands are g++'s: clang does not know all of its warnings, and its own find fault with g++'s stable_sort.
CLANG_FLAGS = ["--extra-arg=-Wno-unknown-warning-option", "--extra-arg=-Wno-deprecated-declarations"]
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def closure(source: Path, roots: list[Path]) -> list[Path]:
    """The source and every header under `roots` that it includes, directly or not, whatever the preprocessor would
    say: a header too many only costs a needless run."""
    found, open_files = set(), [source]
    while open_files:
        path = open_files.pop()
        if path in found:
            continue
        found.add(path)
        for name in INCLUDE.findall(path.read_text(errors="replace")):
            for folder in (path.parent, *roots):
                if (header := (folder / name).resolve()).is_file():
                    open_files.append(header)
                    break
    return sorted(found)


def include_roots(command: str) -> list[Path]:
    """The include folders of a compiler command that lie in this repository."""
    folders = re.findall(r"-(?:I|isystem )(\S+)", command)
    return [path for folder in folders if (path := Path(folder).resolve()).is_relative_to(REPO)]


def key(source: Path, command: str, configuration: bytes) -> str:
    digest = hashlib.sha256(configuration)
    # Where the checkout lies does not change the verdict.
    digest.update(" ".join(shlex.split(command)).replace(str(REPO), "").encode())
    for path in closure(source, include_roots(command)):
        digest.update(str(path).removeprefix(str(REPO)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def check_one(source: Path, command: str, configuration: bytes) -> str:
    verdict = KEPT / key(source, command, configuration)
    if verdict.exists():
        return ""
    done = subprocess.run(
        [PROGRAM, "--quiet", "-p", DATABASE.parent, *CLANG_FLAGS, source],
        cwd=REPO, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        verdict.touch()
        return ""
    return done.stdout + ("" if done.stdout.strip() else done.stderr)


def check(files: set[Path], jobs: int) -> str:
    """What clang-tidy complains of in those of `files` that the build compiles."""
    version = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout
    configuration = version + (REPO / ".clang-tidy").read_bytes()
    commands = {Path(entry["file"]): entry["command"] for entry in json.loads(DATABASE.read_text())}
    # What users link. The lab and the tests are left to the compiler's warnings and clang-format.
    product = [REPO / folder for folder in ("src", "kernels")]
    sources = [
        path
        for path in commands
        if path in files and path.suffix == ".cpp" and any(folder in path.parents for folder in product)
    ]
    sources.sort(key=lambda path: -path.stat().st_size)  # long ones first, so that the last ones end together
    KEPT.mkdir(parents=True, exist_ok=True)

    done = 0

    def one(source: Path) -> str:
        nonlocal done
        complaint = check_one(source, commands[source], configuration)
        done += 1
        if sys.stdout.isatty():
            print(f"\r\033[Kclang-tidy {done} of {len(sources)}", end="\r", flush=True)
        return complaint

    with ThreadPoolExecutor(jobs) as pool:
        # The same header may be complained of by many sources.
        blocks = dict.fromkeys(block for text in pool.map(one, sources) for block in re.split(r"\n(?=/)", text))
    return "\n".join(blocks).replace(f"{REPO}/", "")
