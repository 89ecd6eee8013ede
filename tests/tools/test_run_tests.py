"""The test runner itself, on programs that pretend to be tests: whatever goes wrong must end as a failure."""

import copy
import json

import pytest
import run_tests
from run_tests import Runner

GOOD = {"testsuites": [{"testsuite": [{"name": "A", "classname": "S", "status": "RUN", "result": "COMPLETED"}]}]}
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
    runner.gtests("release", tmp_path, ["core"])
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
    runner.gtests("release", tmp_path, ["core"])
    assert words in runner.rows[0].failures[0]


def test_a_missing_test_binary_fails(runner, tmp_path):
    runner.gtests("release", tmp_path, ["core"])
    assert "No such file" in runner.rows[0].failures[0]


def test_a_hanging_program_is_ended_with_its_children(runner, tmp_path, monkeypatch):
    monkeypatch.setattr(run_tests, "TEST_TIMEOUT", 0.2)
    program(tmp_path / "hang", "sleep 60 &", "wait")
    assert runner.one_test("hang", [tmp_path / "hang"]).failures == ["still running after 0.2 s"]


def test_a_run_without_a_test_on_the_gpu_fails(runner, tmp_path):
    program(tmp_path / "tests/test_core", writes(GOOD))
    program(tmp_path / "attune", "exit 0")
    runner.prebuilt(tmp_path)
    assert runner.rows[-1].failures == ["no test ran on a GPU"]
    marked = copy.deepcopy(GOOD)
    marked["testsuites"][0]["testsuite"][0]["gpu"] = "used"
    program(tmp_path / "tests/test_core", writes(marked))
    runner.rows.clear()
    runner.prebuilt(tmp_path)
    assert runner.rows[-1].failures == []


@pytest.mark.parametrize(
    ("lines", "failures"),
    [
        ([f"echo '{SUMMARY}'"], []),
        (["echo '========= Error: Race A'", f"echo '{SUMMARY}'"], []),
        (["echo '========= Error: Race B'", f"echo '{SUMMARY}'"], ["Error: Race B"]),
        (["exit 0"], ["it did not reach its summary"]),
        ([f"echo '{SUMMARY}'", "exit 3"], ["exit status 3"]),
    ],
)
def test_sanitizer_reports_must_be_known(runner, tmp_path, monkeypatch, lines, failures):
    plan = tmp_path / "sanitizer.toml"
    plan.write_text(
        '[tools.racecheck]\narguments = []\ntests = { gpu = "*" }\n'
        '[[known]]\ntool = "racecheck"\npattern = "Race A"\nreason = "ordered by a barrier the tool does not see"\n'
    )
    monkeypatch.setattr(run_tests, "SANITIZER_PLAN", plan)
    program(tmp_path / "compute-sanitizer", *lines)
    runner.sanitizer(tmp_path)
    assert [row.failures for row in runner.rows] == [failures]
