"""Runs the tests: what `./dev test` does once everything is installed (`./dev test --help` says how to call it).

Each part of the run is one function of Runner below: it builds, then starts its tests, which run while the next part is
built. A failing step does not stop the run: it is a row with a failure in the table that closes it.
"""

import argparse
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import cpu_torch
import results
import sanitizer_log
from results import Row

REPO = Path(__file__).resolve().parent.parent
BUILD = REPO / "build"
LOG = BUILD / "log"
VENV_PYTHON = BUILD / "venv/bin/python"
TORCH_TESTS = REPO / "tests/python/door"
WHEEL_TESTS = REPO / "tests/python/wheel"
SANITIZER_PLAN = REPO / "tests/sanitizer.toml"
FUZZ_SECONDS = 45
TEST_TIMEOUT = 900  # seconds for one program; a hang must not eat the whole run
SANITIZER_TIMEOUT = 240  # seconds for one tool on one folder
BUILD_TIMEOUT = 3600  # a build does not hang, but the machine may be busy

# The compiler of the kernels that was fetched for this checkout, and a cache that no other program fills.
KERNEL_OPTIONS = {"ATTUNE_NVRTC": str(BUILD / "nvrtc"), "ATTUNE_CACHE_DIR": str(BUILD / "kernel-cache")}
SYMBOLIZER = "external_symbolizer_path=/usr/bin/addr2line"  # clang's own is in a package of 70 MB
SANITIZER_OPTIONS = {
    "ASAN_OPTIONS": f"detect_stack_use_after_return=1:strict_string_checks=1:{SYMBOLIZER}",
    "UBSAN_OPTIONS": f"print_stacktrace=1:{SYMBOLIZER}",
    "TSAN_OPTIONS": f"die_after_fork=0:second_deadlock_stack=1:{SYMBOLIZER}",
    "ATTUNE_TEST_BUDGET": "small",
}
# Kernels with mistakes, among them stores past the end, are there for `attune check` to notice; what needs a GPU or
# computes with constants has no memory to look at. The emulator of Hopper kernels looks at their memory itself.
NOT_FOR_SANITIZERS = ("mutants", "ptx", "sm90", "sm90_emulated")
# The folders that take longest begin, so that no core is idle at the end.
LONGEST = ["jit", "any", "mutants", "cpu", "lab"]
# jit compiles the promised kernels, which others then find in the cache: side by side, each would compile them.
AFTER = {"evidence": "jit", "lab_report": "jit"}
# Where a log begins to tell what went wrong.
COMPLAINT = re.compile(r"error:|FAILED|ERROR: |WARNING: ThreadSanitizer|: Failure$")

Env = dict[str, str] | None


class Runner:
    def __init__(self, folders: list[str], jobs: int, env: dict[str, str]):
        self.folders = folders  # only these folders of tests/, if any are named
        self.jobs = jobs
        self.env = env
        self.rows: list[Row] = []  # as they ended
        self.pool = ThreadPoolExecutor(jobs)
        self.started: list[Future] = []
        self.installs: dict[str, Future] = {}  # of torch, by version
        self.complete: set[str] = set()  # presets of which everything is built

    # Parts.

    def release(self) -> None:
        if self.build("release", test_targets(self.folders) or ["all"]):
            self.start_gtests("release", BUILD, self.folders or test_folders())

    def asan(self) -> None:
        folders = self.folders or [folder for folder in test_folders() if folder not in NOT_FOR_SANITIZERS]
        if self.build("asan", [*test_targets(folders), *([] if self.folders else ["fuzz_forward"])]):
            self.start_gtests("asan", BUILD / "asan", folders, env=SANITIZER_OPTIONS)

    def tsan(self) -> None:
        if self.build("tsan", ["test_threads"]):
            self.start_gtests("tsan", BUILD / "tsan", ["threads"], ["--gtest_filter=*Thread*"], SANITIZER_OPTIONS)

    def fuzz(self) -> None:
        if self.build("asan", ["fuzz_forward"]):
            self.start(self.run_fuzzer)

    def run_fuzzer(self) -> None:
        found = BUILD / "fuzz"  # what the runs of this checkout add to the kept corpus
        found.mkdir(exist_ok=True)
        command = [BUILD / "asan/tests/fuzz_forward", f"-max_total_time={FUZZ_SECONDS}", "-timeout=20"]
        command += ["-rss_limit_mb=4096", "-print_final_stats=1", f"-artifact_prefix={LOG}/fuzz-"]
        row = self.one_test("fuzz", [*command, found, REPO / "tests/fuzz/corpus"], SANITIZER_OPTIONS)
        runs = re.search(r"stat::number_of_executed_units: (\d+)", log_text("fuzz"))
        row.note = f"{runs[1]} runs" if runs else ""
        if not row.failures and (not runs or int(runs[1]) < 1000):
            row.passed, row.failures = 0, ["fewer than 1000 runs: the target does not fuzz"]

    def check(self) -> None:
        if self.build("release", ["attune_command"]):
            self.start(self.one_test, "check", [BUILD / "attune", "check", "--all"])

    def python(self) -> None:
        """Scripts, the lab's host on fakes of torch; then the package on the oldest torch it serves and the newest."""
        self.start(self.pytest, "python", [REPO / "tests", f"--ignore={TORCH_TESTS}", f"--ignore={WHEEL_TESTS}"])
        if self.build("release", ["libattune.so", "libattune_lab_engine.so"]):
            for name in torch_names():
                self.start(self.torch, name)
            self.start(self.wheel)

    def wheel(self) -> None:
        """What the wheel says of itself and needs, and the examples of the documents, on the wheel unpacked."""
        made, unpacked = BUILD / "wheel", BUILD / "unpacked"
        self.install("wheel", [VENV_PYTHON, REPO / "tools/wheel.py", made])
        shutil.rmtree(unpacked, ignore_errors=True)
        unpack = [VENV_PYTHON, "-m", "pip", "install", "--no-index", "--no-deps", "--target", unpacked]
        self.install("wheel", [*unpack, *made.glob("*.whl")])
        self.installed_torch("newest")
        env = {"PYTHONPATH": f"{unpacked}{os.pathsep}{cpu_torch.folder(BUILD, 'newest')}", "ATTUNE_LIBRARY": ""}
        self.pytest("torch wheel", [WHEEL_TESTS, TORCH_TESTS / "test_docs.py"], env)

    def torch(self, name: str) -> None:
        env = {"PYTHONPATH": str(self.installed_torch(name)), "OMP_NUM_THREADS": "1"}
        self.pytest(f"torch {name}", [TORCH_TESTS], env)

    def start_installing_torch(self) -> None:
        """Waits for the network more than for a core, so it has threads of its own."""
        pool = ThreadPoolExecutor(len(torch_names()))
        for name in torch_names():
            if not cpu_torch.is_installed(BUILD, name):
                command = [VENV_PYTHON, REPO / "tools/cpu_torch.py", BUILD, name]
                self.installs[name] = pool.submit(self.install, f"install torch {name}", command)

    def installed_torch(self, name: str) -> Path:
        if name in self.installs:
            self.installs[name].result()
        return cpu_torch.folder(BUILD, name)

    # On a machine with a GPU, from a build made elsewhere.

    def prebuilt(self, build: Path) -> None:
        named = self.folders or [*built_folders(build), "python"]
        folders = [folder for folder in named if folder != "python"]
        self.start_gtests("cpu", build, [folder for folder in folders if not uses_gpu(folder)])
        self.finish()
        # One after the other: a GPU is not shared, since tests look at its memory and at the clock.
        for folder in filter(uses_gpu, folders):
            self.gtest("gpu", build, folder)
        if "python" in named:
            self.prebuilt_python(build)
        if not self.folders:
            self.one_test("check", [build / "attune", "check", "--all"])
        used = sum(row.used_gpu for row in self.rows)
        self.add(
            Row("tests on the GPU", note=f"{used} of the above", failures=[] if used else ["no test ran on a GPU"])
        )

    def prebuilt_python(self, build: Path) -> None:
        """The package, with the torch of the Python that runs this."""
        missing = [name for name in ("torch", "pytest") if importlib.util.find_spec(name) is None]
        if missing:
            self.add(Row("python", skipped=[f"{sys.executable} has no {' and no '.join(missing)}"]))
        else:
            env = {"ATTUNE_LIBRARY": str(build / "libattune.so")}
            self.pytest("python", [TORCH_TESTS], env, Path(sys.executable))

    def sanitizer(self, build: Path) -> None:
        """GPU tests under compute-sanitizer. A report that is not in the list of known ones is a failure, and so is a
        planted mistake without a report: then a clean run would mean nothing."""
        plan = tomllib.loads(SANITIZER_PLAN.read_text())
        known = [sanitizer_log.Known(**entry) for entry in plan.get("known", [])]
        for planted in plan.get("planted", []):
            if not self.folders or planted["folder"] in self.folders:
                self.planted(build, plan, **planted)
        for tool, options in plan["tools"].items():
            for folder, tests in options["tests"].items():
                if not self.folders or folder in self.folders:
                    self.sanitized(build, plan, known, tool, folder, tests)

    def sanitized(
        self, build: Path, plan: dict, known: list[sanitizer_log.Known], tool: str, folder: str, tests: str
    ) -> None:
        row, complaint, log = self.sanitize(build, plan, tool, folder, [f"--gtest_filter={tests}"])
        take_results(row, complaint, lambda: results.read_gtest(row, result_path(row.name), log))
        found = sanitizer_log.reports(log)
        new = sanitizer_log.unknown(found, tool, known)
        row.note = f"{len(found)} reports, {len(found) - len(new)} of them known"
        row.failures += dict.fromkeys(report.replace("\n", "; ")[:300] for report in new)
        if not sanitizer_log.finished(log):
            row.failures.append("it did not reach its summary")
        if not row.used_gpu:
            row.failures.append("no test ran on a GPU")
        self.add(row)

    def planted(self, build: Path, plan: dict, tool: str, folder: str, tests: str, report: str) -> None:
        """A mistake made on purpose. How its test itself ends does not matter."""
        chosen = ["--gtest_also_run_disabled_tests", f"--gtest_filter={tests}"]
        row, complaint, log = self.sanitize(build, plan, tool, folder, chosen, " planted")
        caught = [text for text in sanitizer_log.reports(log) if re.search(report, text, re.DOTALL)]
        row.note = f"{len(caught)} reports of the planted mistake"
        if caught:
            row.passed = 1
        else:
            row.failures = [f"the planted mistake {tests} was not reported ({complaint or 'it ended well'})"]
            show_log(row.name)
        self.add(row)

    def sanitize(
        self, build: Path, plan: dict, tool: str, folder: str, arguments: list[str], mark: str = ""
    ) -> tuple[Row, str, str]:
        """Runs tests of a folder under one of compute-sanitizer's tools. Returns row, complaint and log."""
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        name = f"{tool} {folder}{mark}"
        command = [program, "--tool", tool, *plan["tools"][tool]["arguments"], build / f"tests/test_{folder}"]
        command += [f"--gtest_output=json:{result_path(name)}", *arguments]
        row, complaint = self.execute(name, command, timeout=SANITIZER_TIMEOUT)
        return row, complaint, log_text(name)

    # How a part does its work.

    def build(self, preset: str, targets: list[str]) -> bool:
        """Configures and builds. Success counts no test; a build that had nothing to do is not worth a row. The build
        takes no more cores than the tests beside it, some of which look at the clock."""
        if preset in self.complete:
            return True
        name = f"build {preset}"
        build = ["cmake", "--build", "--preset", preset, "--parallel", str(self.jobs), "--target", *targets]
        row, complaint = self.execute(name, ["cmake", "--preset", preset])
        if not complaint:
            compiled, complaint = self.execute(name, build, timeout=BUILD_TIMEOUT)
            row.seconds += compiled.seconds
        if complaint:
            row.failures.append(complaint)
            show_log(name)
        elif targets == ["all"]:
            self.complete.add(preset)
        if complaint or row.seconds >= 2:
            self.add(row)
        return not complaint

    def install(self, name: str, command: Sequence[str | Path]) -> None:
        """A command whose success counts no test."""
        row, complaint = self.execute(name, command)
        if complaint:
            row.failures.append(complaint)
            show_log(name)
        self.add(row)

    def one_test(self, name: str, command: Sequence[str | Path], env: Env = None) -> Row:
        """A command that is one test: passed if it exits with 0."""
        row, complaint = self.execute(name, command, env)
        if complaint:
            row.failures.append(complaint)
            show_log(name)
        else:
            row.passed = 1
        self.add(row)
        return row

    def pytest(self, name: str, arguments: list[str | Path], env: Env = None, python: Path = VENV_PYTHON) -> None:
        result = LOG / f"{name.replace(' ', '-')}.xml"
        row, complaint = self.execute(name, [python, "-m", "pytest", "-q", f"--junitxml={result}", *arguments], env)
        take_results(row, complaint, lambda: results.read_junit(row, result))
        self.add(row)

    def gtest(self, part: str, build: Path, folder: str, arguments: Sequence[str] = (), env: Env = None) -> None:
        """The test binary of a folder."""
        name = f"{part} {folder}"
        result = result_path(name)
        command = [build / f"tests/test_{folder}", f"--gtest_output=json:{result}", *arguments]
        row, complaint = self.execute(name, command, env)
        take_results(row, complaint, lambda: results.read_gtest(row, result, log_text(name)))
        self.add(row)

    def start_gtests(
        self, part: str, build: Path, folders: list[str], arguments: Sequence[str] = (), env: Env = None
    ) -> None:
        def run(folder: str) -> None:
            self.gtest(part, build, folder, arguments, env)
            for next_folder in folders:
                if AFTER.get(next_folder) == folder:
                    run(next_folder)

        order = [*LONGEST, *(folder for folder in folders if folder not in LONGEST)]
        for folder in sorted(folders, key=order.index):
            if AFTER.get(folder) not in folders:
                self.start(run, folder)

    def start(self, step: Callable, *arguments) -> None:
        """Runs a step as soon as one of the jobs is free."""
        self.started.append(self.pool.submit(step, *arguments))

    def finish(self) -> None:
        """Waits for all that was started."""
        for step in [*self.started, *self.installs.values()]:
            step.result()

    def execute(
        self, name: str, command: Sequence[str | Path], env: Env = None, timeout: float | None = None
    ) -> tuple[Row, str]:
        """Runs one command into the log of that name. Returns its row, and why it did not end well or ""."""
        announce(name)
        started = time.monotonic()
        with log_path(name).open("ab") as log:
            complaint = run(
                [str(word) for word in command],
                log,
                {**os.environ, **self.env, **(env or {})},
                timeout or TEST_TIMEOUT,
            )
        return Row(name, time.monotonic() - started), complaint

    def add(self, row: Row) -> None:
        self.rows.append(row)
        announce_row(row)


def take_results(row: Row, complaint: str, read: Callable[[], None]) -> None:
    """Fills the row from the runner's result file; a runner that failed without saying where is a failure too."""
    try:
        read()
    except (OSError, LookupError, SyntaxError, ValueError) as error:
        row.failures.append(f"{complaint or 'it ended well'}, but left no results: {error}")
    if complaint and not row.failures:
        row.failures.append(complaint)
    if not row.passed and not row.failures and not row.skipped:
        row.failures.append("it ran no test")
    if row.failures:
        show_log(row.name)


def run(command: list[str], output, env: dict[str, str], timeout: float) -> str:
    """Why the command did not end well, or "". It gets a process group of its own, so that nothing of it survives."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=env, cwd=REPO,
            start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return str(error)
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        process.wait()
        return f"still running after {timeout} s"
    return "" if status == 0 else f"ended by signal {-status}" if status < 0 else f"exit status {status}"


def announce(text: str, done: bool = False) -> None:
    """What is under way on a terminal, replaced by what was done; in a pipe only the latter."""
    if sys.stdout.isatty():
        print(f"\r\033[K{text}", end="\n" if done else "", flush=True)
    elif done:
        print(text, flush=True)


def announce_row(row: Row) -> None:
    counts = [f"{row.passed} passed"] * bool(row.passed) + [f"{len(row.failures)} FAILED"] * bool(row.failures)
    announce(f"{row.name:28} {results.clock(row.seconds):>6}  {', '.join(counts)}", done=True)


def log_path(name: str) -> Path:
    return LOG / f"{name.replace(' ', '-')}.log"


def result_path(name: str) -> Path:
    return log_path(name).with_suffix(".json")


def log_text(name: str) -> str:
    return log_path(name).read_text(errors="replace")


def show_log(name: str) -> None:
    """The part of a failing step's log that tells why: from the first complaint on, or else its end."""
    lines = log_text(name).splitlines()
    first = next((i for i, line in enumerate(lines) if COMPLAINT.search(line)), len(lines) - 60)
    shown = lines[max(first, 0) :][:60]
    print("\n".join(["", f"--- {log_path(name).relative_to(REPO)}", *shown, "---", ""]), flush=True)


def test_folders() -> list[str]:
    return sorted({path.parent.name for path in (REPO / "tests").glob("*/*_test.cpp")})


def built_folders(build: Path) -> list[str]:
    return sorted(path.name.removeprefix("test_") for path in (build / "tests").glob("test_*") if path.is_file())


def uses_gpu(folder: str) -> bool:
    """Whether the tests of a folder want a GPU for themselves (tests/support/gpu.hpp, card.hpp)."""
    mark = re.compile(r"ATTUNE_REQUIRE_GPU|CardTest")
    return any(mark.search(path.read_text()) for path in (REPO / "tests" / folder).glob("*.[ch]pp"))


def prebuilt_environment(build: Path) -> dict[str, str]:
    """For programs built elsewhere: where the tree, the pack and the shared libraries are now."""
    env = {"ATTUNE_REPO": str(REPO), "ATTUNE_CACHE_DIR": KERNEL_OPTIONS["ATTUNE_CACHE_DIR"]}
    if list(build.glob("*.pack")):
        env["ATTUNE_PACK_DIR"] = str(build)
    env["LD_LIBRARY_PATH"] = os.pathsep.join([str(build), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
    return env


def torch_names() -> list[str]:
    return [requirements.stem for requirements in cpu_torch.REQUIREMENTS]


def test_targets(folders: list[str]) -> list[str]:
    return [f"test_{folder}" for folder in folders]


# In an order that leaves the many short tests for the end: see LONGEST.
PARTS = ["release", "check", "python", "fuzz", "asan", "tsan"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev test", usage="see ./dev test --help")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--prebuilt", type=Path)
    parser.add_argument("--sanitizer", action="store_true")
    options = parser.parse_args()
    prebuilt = options.prebuilt.resolve() if options.prebuilt else None

    known = [*built_folders(prebuilt), "python"] if prebuilt else test_folders()
    parts = [name for name in options.names if name in PARTS and not prebuilt]
    folders = [name.removeprefix("tests/") for name in options.names if name not in parts]
    for folder in folders:
        if folder not in known:
            parser.error(f"'{folder}' is no part ({', '.join(PARTS)}) and no test binary ({', '.join(known)})")

    shutil.rmtree(LOG, ignore_errors=True)
    LOG.mkdir(parents=True)
    if prebuilt:
        # Not one job per CPU: a virtual machine may be given far fewer than it lists.
        runner = Runner(folders, jobs=2, env=prebuilt_environment(prebuilt))
    else:
        runner = Runner(folders, jobs=os.cpu_count() or 1, env=KERNEL_OPTIONS)
    started = time.monotonic()
    if options.sanitizer:
        runner.sanitizer(prebuilt or BUILD)
    elif prebuilt:
        runner.prebuilt(prebuilt)
    else:
        chosen = parts or (["release"] if folders else PARTS)
        if "python" in chosen:
            runner.start_installing_torch()
        for part in chosen:
            getattr(runner, part)()
        runner.finish()
    print(results.report(runner.rows, time.monotonic() - started))
    return 1 if any(row.failures for row in runner.rows) else 0


if __name__ == "__main__":
    sys.exit(main())
