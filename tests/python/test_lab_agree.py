"""python3 -m attune.lab agree: what was measured beside what was recorded."""

import json
import os
import subprocess
import sys

import pytest
from support import REPO

FULL = "fwd b1 h2/2 q4 k4 d8 bf16"
CAUSAL = "fwd b1 h2/2 q4 k4 d8 f16 causal-br"


def agree(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-S", "-m", "attune.lab", "agree", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPO / "python")},
    )


@pytest.fixture
def record(tmp_path):
    speeds = {"cudnn_again": [1, 1, 1], "sdpa_flash": [0.5, 0.4, 0.6]}
    rows = [
        {"B": 1, "H": 2, "S": 4, "D": 8, "causal": causal, "dt": dtype, "speed_vs_cudnn": speeds}
        for causal, dtype in ((False, "bf16"), (True, "fp16"))
    ]
    path = tmp_path / "ratios.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def lines(path, speeds: dict[str, list[float]], cudnn: float = 1e-3):
    """A file with flash's speed over cuDNN's in each round."""
    objects = [{"environment": {}, "protocol": {}}]
    for problem, rounds in speeds.items():
        seconds = {"cudnn": [[cudnn]] * len(rounds), "flash": [[cudnn / speed] for speed in rounds]}
        contenders = [{"name": name, "seconds": samples} for name, samples in seconds.items()]
        objects.append({"problem": problem, "result": {"measurement": {"contenders": contenders}}})
    path.write_text("\n".join(map(json.dumps, objects)))
    return path


def test_agrees(record, tmp_path):
    result = agree("--recorded", record, lines(tmp_path / "a", {FULL: [0.51] * 9, CAUSAL: [0.495] * 9}))
    assert result.returncode == 0, result.stderr
    assert "a: 2 compared, 0 beyond 3 %, the farthest apart by +2.0 %" in result.stdout
    assert result.stdout.index(FULL) < result.stdout.index(CAUSAL)


def test_runs_count_together(record, tmp_path):
    runs = [lines(tmp_path / "low", {FULL: [0.48] * 9}), lines(tmp_path / "high", {FULL: [0.505] * 11})]
    assert agree("--recorded", record, runs[0]).returncode == 1
    result = agree("--recorded", record, *runs)
    assert result.returncode == 0, result.stdout
    assert "low: 1 compared, 1 beyond 3 %, the farthest apart by -4.0 %" in result.stdout
    assert "together: 1 compared, 0 beyond 3 %, the farthest apart by +1.0 %" in result.stdout


def test_ratios_are_formed_inside_rounds(record, tmp_path):
    """A clock that changes between rounds changes both times, and no ratio."""
    path = tmp_path / "a"
    contenders = [{"name": "cudnn", "seconds": [[1e-3], [2e-3]]}, {"name": "flash", "seconds": [[2e-3], [4e-3]]}]
    path.write_text(json.dumps({"problem": FULL, "result": {"measurement": {"contenders": contenders}}}))
    (row,) = (json.loads(line) for line in agree("--recorded", record, path, "--json").stdout.splitlines())
    assert (row["speed"], row["interval"], row["apart"]) == (0.5, [0.5, 0.5], 0)


def test_cycles_leave_the_clocks_out(record, tmp_path):
    path = tmp_path / "a"
    contenders = [
        {"name": "cudnn", "seconds": [[1e-3]] * 9, "clock_hz": [[1.5e9]] * 9},
        {"name": "flash", "seconds": [[1.875e-3]] * 9, "clock_hz": [[1.6e9]] * 9},
    ]
    path.write_text(json.dumps({"problem": FULL, "result": {"measurement": {"contenders": contenders}}}))
    assert "farthest apart by +6.7 %" in agree("--recorded", record, path).stdout
    assert "farthest apart by +0.0 %" in agree("--recorded", record, path, "--cycles").stdout


def test_the_interval_is_that_of_the_median(record, tmp_path):
    """Of 21 rounds the 6th and the 16th."""
    path = lines(tmp_path / "a", {FULL: [0.40 + i / 100 for i in range(21)]})
    (row,) = (json.loads(line) for line in agree("--recorded", record, path, "--json").stdout.splitlines())
    assert row["interval"] == pytest.approx([0.45, 0.55])


def test_short_problems_are_left_out(record, tmp_path):
    path = lines(tmp_path / "a", {FULL: [0.7] * 9}, cudnn=50e-6)
    result = agree("--recorded", record, path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "no problem has flash and cudnn in the lines and flash in the record" in result.stderr
    assert agree("--recorded", record, path, "--above", "1e-5").returncode == 1


@pytest.mark.parametrize(
    ("content", "complaint"),
    [(None, "No such file"), ("{", "not lines of JSON"), ('{"problem": "x", "result": {}, "y": 1}', "no problem has")],
)
def test_refuses_with_a_sentence(record, tmp_path, content, complaint):
    path = tmp_path / "lines"
    if content is not None:
        path.write_text(content)
    result = agree("--recorded", record, path)
    assert result.returncode == 2
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_a_record_of_something_else(record, tmp_path):
    path = lines(tmp_path / "a", {FULL: [0.5] * 9})
    assert "has no speed of sdpa_math" in agree("--recorded", record, path, "--peer", "math").stderr
    assert "not a recorded ratio" in agree("--recorded", path, path).stderr


def test_help_has_an_example():
    assert "python3 -m attune.lab agree --recorded ratios.jsonl" in agree("--help").stdout
