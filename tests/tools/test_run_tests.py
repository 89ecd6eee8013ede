"""The test runner itself, on programs that pretend to be tests: whatever goes wrong must end as a failure."""

import copy
import importlib.util
import json
import sys
import tomllib

import pytest
import run_tests
from run_tests import Runner

GOOD = {"testsuites": [{"testsuite": [{"name": "A", "classname": "S", "status": "RUN", "result": "COMPLETED"}]}]}
MARKED = copy.deepcopy(GOOD)
MARKED["testsuites"][0]["testsuite"][0]["gpu"] = "used"
FAILED = copy.deepcopy(MARKED)
FAILED["testsuites"][0]["testsuite"][0]["failures"] = [{"failure": "no"}]
SUMMARY = "========= ERROR SUMMARY: 0 errors"


@pytest.fixture
def runner(tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "REPO", tmp_path)
    monkeypatch.setattr(run_tests, "LOG", tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "tests").mkdir()
    return Runner([], jobs=2, env={})


def program(path, *lines):
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)


def writes(result):
    """A line of a test binary that leaves this result where it was told to: `--gtest_output=json:PATH`."""
    return f"cat >\"${{1#--gtest_output=json:}}\" <<'END'\n{json.dumps(result)}\nEND"


def test_a_good_test_binary_passes(runner, tmp_path):
    program(tmp_path / "tests/test_core", writes(GOOD))
    runner.gtest("release", tmp_path, "core")
    assert [(row.passed, row.failures) for row in runner.rows] == [(1, [])]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["kill -SEGV $$"], "ended by signal 11"),
        (["exit 0"], "left no results"),
        ([writes(GOOD), "exit 1"], "exit status 1"),
        ([writes({"testsuites": []})], "it ran no test"),
        ([writes({}), "exit 0"], "left no results"),
    ],
)
def test_a_bad_test_binary_fails(runner, tmp_path, lines, words):
    program(tmp_path / "tests/test_core", *lines)
    runner.gtest("release", tmp_path, "core")
    assert words in runner.rows[0].failures[0]


def test_a_missing_test_binary_fails(runner, tmp_path):
    runner.gtest("release", tmp_path, "core")
    assert "No such file" in runner.rows[0].failures[0]


def test_a_hanging_program_is_ended_with_its_children(runner, tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "TEST_TIMEOUT", 0.2)
    program(tmp_path / "hang", "sleep 60 &", "wait")
    assert runner.one_test("hang", [tmp_path / "hang"]).failures == ["still running after 0.2 s"]


def test_the_longest_tests_begin_and_evidence_finds_what_jit_compiled(runner, tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(runner, "start", lambda step, *arguments: jobs.append([]) or step(*arguments))
    monkeypatch.setattr(runner, "gtest", lambda part, build, folder, *rest: jobs[-1].append(folder))
    runner.start_gtests("release", tmp_path, ["api", "evidence", "jit", "lab", "ptx"])
    assert jobs == [["jit", "evidence"], ["lab"], ["api"], ["ptx"]]
    jobs.clear()
    runner.start_gtests("release", tmp_path, ["evidence"])
    assert jobs == [["evidence"]]


def test_tests_run_while_the_next_part_is_built(runner, tmp_path):
    program(tmp_path / "cmake", f"case $3 in asan) timeout 5 sh -c 'until [ -e {tmp_path}/ran ]; do :; done' ;; esac")
    program(tmp_path / "ran_beside", f"touch {tmp_path}/ran")
    assert runner.build("release", ["all"])
    runner.start(runner.one_test, "beside", [tmp_path / "ran_beside"])
    assert runner.build("asan", ["test_core"])
    runner.finish()
    assert [(row.name, row.passed) for row in runner.rows] == [("beside", 1)]


def test_what_is_complete_is_not_built_again(runner, tmp_path):
    program(tmp_path / "cmake", f"echo $1 >>{tmp_path}/calls")
    for targets in (["all"], ["attune_command"]):
        assert runner.build("release", targets)
    assert (tmp_path / "calls").read_text().split() == ["--preset", "--build"]


def test_a_build_that_failed_is_tried_again(runner, tmp_path):
    program(tmp_path / "cmake", "exit 1")
    assert not runner.build("release", ["all"])
    assert not runner.build("release", ["attune_command"])
    assert [row.failures for row in runner.rows] == [["exit status 1"], ["exit status 1"]]


def test_a_step_that_breaks_ends_the_run(runner):
    def broken():
        raise OSError("no")

    runner.start(broken)
    with pytest.raises(OSError, match="no"):
        runner.finish()


def test_a_run_without_a_test_on_the_gpu_fails(runner, tmp_path):
    program(tmp_path / "tests/test_core", writes(GOOD))
    program(tmp_path / "attune", "exit 0")
    runner.prebuilt(tmp_path)
    assert runner.rows[-1].failures == ["no test ran on a GPU"]
    program(tmp_path / "tests/test_core", writes(MARKED))
    runner.rows.clear()
    runner.prebuilt(tmp_path)
    assert runner.rows[-1].failures == []


def test_only_folders_with_gpu_tests_wait_for_each_other(runner, tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for folder, text in {"core": "TEST(A, B)", "gpu": "ATTUNE_REQUIRE_GPU();", "sm90": "public test::CardTest"}.items():
        (tmp_path / "tests" / folder).mkdir()
        (tmp_path / "tests" / folder / "some_test.cpp").write_text(text)
        program(tmp_path / f"tests/test_{folder}", writes(MARKED))
    program(tmp_path / "attune", "exit 0")
    runner.prebuilt(tmp_path)
    assert [row.name for row in runner.rows] == [
        "cpu core",
        "gpu gpu",
        "gpu sm90",
        "python",
        "check",
        "tests on the GPU",
    ]
    assert runner.rows[3].skipped == [f"{sys.executable} has no torch and no pytest"]


def test_a_build_made_elsewhere_finds_its_surroundings(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", "/somewhere")
    assert "ATTUNE_PACK_DIR" not in run_tests.prebuilt_environment(tmp_path)
    (tmp_path / "attune-sm_90a.pack").touch()
    env = run_tests.prebuilt_environment(tmp_path)
    assert env["ATTUNE_PACK_DIR"] == str(tmp_path)
    assert env["LD_LIBRARY_PATH"] == f"{tmp_path}:/somewhere"


def sanitizes(*lines, result=None):
    """A compute-sanitizer whose program leaves these results and that prints these lines."""
    left = json.dumps(MARKED if result is None else result)
    return [
        "for word; do case $word in --gtest_output=json:*) result=${word#*json:} ;; esac; done",
        f"cat >\"$result\" <<'END'\n{left}\nEND",
        *lines,
    ]


PLAN = """
[tools.racecheck]
arguments = []
tests = { gpu = "*" }

[[known]]
tool = "racecheck"
pattern = "Race A"
reason = "ordered by a barrier the tool does not see"
"""
PLANTED = """
[[planted]]
tool = "racecheck"
folder = "ptx"
tests = "Sync.DISABLED_Race"
report = "Race P"
"""


def run_sanitizer(runner, tmp_path, monkeypatch, plan):
    monkeypatch.setattr(run_tests, "SANITIZER_PLAN", tmp_path / "sanitizer.toml")
    (tmp_path / "sanitizer.toml").write_text(plan)
    runner.sanitizer(tmp_path)


@pytest.mark.parametrize(
    ("lines", "failures"),
    [
        (sanitizes(f"echo '{SUMMARY}'"), []),
        (sanitizes("echo '========= Error: Race A'", f"echo '{SUMMARY}'"), []),
        (sanitizes("echo '========= Error: Race B'", f"echo '{SUMMARY}'"), ["Error: Race B"]),
        (sanitizes("exit 0"), ["it did not reach its summary"]),
        (sanitizes(f"echo '{SUMMARY}'", "exit 3"), ["exit status 3"]),
        (sanitizes(f"echo '{SUMMARY}'", result=GOOD), ["no test ran on a GPU"]),
        (sanitizes(f"echo '{SUMMARY}'", result=FAILED), ["S.A"]),
    ],
)
def test_sanitizer_reports_must_be_known(runner, tmp_path, monkeypatch, lines, failures):
    program(tmp_path / "compute-sanitizer", *lines)
    run_sanitizer(runner, tmp_path, monkeypatch, PLAN)
    assert [row.failures for row in runner.rows] == [failures]


@pytest.mark.parametrize(
    ("lines", "caught"),
    [
        (["echo '========= Error: Race P'", f"echo '{SUMMARY}'"], True),
        (["echo '========= Error: Race P'", f"echo '{SUMMARY}'", "exit 1"], True),
        (["echo '========= Error: Race A'", f"echo '{SUMMARY}'"], False),
        ([f"echo '{SUMMARY}'"], False),
        (["exit 1"], False),
    ],
)
def test_a_planted_mistake_must_be_reported(runner, tmp_path, monkeypatch, lines, caught):
    asked = 'case "$*" in *"tests/test_ptx"*also_run_disabled*Sync.DISABLED_Race*) ;; *) exec echo wrong ;; esac'
    clean = f'case "$*" in *tests/test_gpu*) echo "{SUMMARY}"; exit ;; esac'
    program(tmp_path / "compute-sanitizer", *sanitizes(clean, asked, *lines))
    run_sanitizer(runner, tmp_path, monkeypatch, PLAN + PLANTED)
    planted, clean_row = runner.rows
    assert (planted.passed, len(planted.failures)) == ((1, 0) if caught else (0, 1))
    assert clean_row.failures == []


def test_the_plan_of_this_repository_is_sound():
    plan = tomllib.loads(run_tests.SANITIZER_PLAN.read_text())
    assert set(plan["tools"]) == {"memcheck", "racecheck", "initcheck", "synccheck"}
    folders = [folder for options in plan["tools"].values() for folder in options["tests"]]
    folders += [planted["folder"] for planted in plan["planted"]]
    assert set(folders) <= set(run_tests.test_folders())
    assert all(known["tool"] in plan["tools"] and known["reason"] for known in plan.get("known", []))
    assert any(planted["tool"] == "racecheck" for planted in plan["planted"])
