"""Recorded ratios and the table, on outcomes made by hand."""

import json
import re

import pytest
from attune.lab.errors import BadInput
from attune.lab.measure import Outcome
from attune.lab.problem import parse
from attune.lab.recorded import Recorded
from attune.lab.report import json_line, table

ROW = {"B": 4, "H": 16, "S": 4096, "D": 128, "causal": True, "dt": "bf16", "speed_vs_cudnn": {"fa3": [1.25, 1.2, 1.3]}}
PROBLEM = "fwd b4 h16/16 q4096 k4096 d128 bf16 causal-br"


@pytest.fixture
def recorded(tmp_path):
    file = tmp_path / "ratios.jsonl"
    file.write_text(json.dumps(ROW) + "\n")
    return Recorded(str(file))


def outcome_of(text: str, verdict: str = "unclear") -> Outcome:
    def summary(name, seconds):
        return {"name": name, "seconds": seconds, "interval": [seconds, seconds]}

    comparison = {"name": "cudnn", "ratio": 1.25, "interval": [1.2, 1.3], "verdict": verdict}
    contenders = [summary("attune", 400e-6), summary("cudnn", 500e-6)]
    analysis = {"contenders": contenders, "comparisons": [comparison], "noise_floor": None}
    outcome = Outcome(parse(text, flops=4e11), kernels=["attune"], facts={"attune": {"kernel": "sm90/a"}})
    outcome.result = {"measurement": {}, "analysis": analysis}
    outcome.by_baseline = {"attune": analysis}
    return outcome


def test_a_derived_time_is_cudnns_time_by_the_recorded_ratio(recorded):
    derived = recorded.derive(outcome_of(PROBLEM))
    assert derived.seconds == pytest.approx(400e-6)
    assert derived.lower == pytest.approx(500e-6 / 1.3)
    assert derived.upper == pytest.approx(500e-6 / 1.2)
    text = table([outcome_of(PROBLEM)], ["cudnn"], recorded)
    assert "400.00 us, 1.000 [0.962, 1.042]" in text
    assert json_line(outcome_of(PROBLEM), recorded)["derived"]["peer"] == "fa3"


@pytest.mark.parametrize(
    "other",
    [
        PROBLEM.replace("bf16", "f16"),
        PROBLEM.replace(" causal-br", ""),
        PROBLEM.replace("h16/16", "h16/4"),
        PROBLEM.replace("k4096", "k8192"),
    ],
)
def test_nothing_is_derived_for_other_problems(recorded, other):
    assert recorded.derive(outcome_of(other)) is None
    assert "derived" not in json_line(outcome_of(other), recorded)


def test_a_file_of_something_else_is_refused(tmp_path):
    file = tmp_path / "other.jsonl"
    file.write_text(json.dumps(ROW) + '\n{"tag": "ceiling"}\n')
    with pytest.raises(BadInput, match=r"other.jsonl, line 2: not a recorded ratio"):
        Recorded(str(file))


@pytest.mark.parametrize(
    ("of_the_peer", "of_the_row"),
    [("slower", "faster"), ("faster", "slower"), ("same", "same"), ("unclear", "unclear")],
)
def test_verdicts_are_turned_to_the_row(of_the_peer, of_the_row):
    row = table([outcome_of(PROBLEM, of_the_peer)], ["cudnn"]).splitlines()[1]
    assert re.split(r"\s{2,}", row) == [
        PROBLEM,
        "sm90/a",
        "400.0 [400.0, 400.0]",
        "1000.0",
        f"1.250 [1.200, 1.300] {of_the_row}",
    ]
