"""Functions of Python judged and timed by the attune command, with the real engine: --callable of check and bench."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from attune.c_api import library_path

COMMAND = library_path().parent / "attune"
FAULTY = Path(__file__).resolve().parent / "faulty.py"
PROBLEM = "fwd b1 h4/2 q20 k30 d16 f32 causal-br"


@pytest.fixture
def attune():
    if not (COMMAND.is_file() and (COMMAND.parent / "libattune_lab_engine.so").is_file()):
        pytest.skip("the command and its engine are not beside the library")

    def run(*arguments):
        command = [COMMAND, *arguments, "--backend", "cpu", "--python", sys.executable]
        paths = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, timeout=300
        )
        objects = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        return SimpleNamespace(returncode=done.returncode, stdout=done.stdout, stderr=done.stderr, objects=objects)

    return run


def bench(attune, name, problem=PROBLEM):
    few = ("--rounds", "3", "--samples", "1", "--budget", "0.2", "--limit", "10", "--json")
    return attune("bench", "--callable", f"{FAULTY}:{name}", *few, problem)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("zeros", "wrong", "units of its row"),
        ("mask", "wrong", ""),
        ("nan", "wrong", ""),
        ("outside", "wrong", "written"),
        ("crash", "lost", "crashed: signal 6"),
        ("hang", "lost", "hung: one step took longer than 10 s"),
        ("raises", "wrong", "NotImplementedError: only on Sundays (faulty.py:"),
        ("crashes_later", "lost", "while it was timed"),
        ("no_lse", "wrong", "no lse was given"),
        ("wrong_shape", "wrong", "(batch, row, head, dim) is (1, 20, 4, 16)"),
        ("absent", "lost", "has no function absent"),
    ],
)
def test_what_is_wrong_is_not_timed(attune, name, kind, said):
    result = bench(attune, name)
    assert result.returncode == 1, result.stderr
    wrong, ours = result.objects
    assert wrong["not_timed"] == kind
    assert said in wrong["failure"]
    assert "us" not in wrong
    assert ours["us"] > 0


@pytest.mark.parametrize("name", ["right", "into_out"])
def test_what_is_right_is_timed(attune, name):
    result = bench(attune, name)
    assert result.returncode in (0, 4), result.stderr
    ours, function = result.objects
    assert function["contender"] == f"{FAULTY}:{name}"
    assert function["ok"]
    assert function["us"] > ours["us"] > 0


def test_check_takes_functions(attune):
    result = attune(
        "check", "--callable", f"{FAULTY}:right", "--input", "normal", "--json", PROBLEM, "fwd b2 h2/2 q9 k9 d32 bf16"
    )
    assert result.returncode == 0, result.stdout
    assert [line["ok"] for line in result.objects] == [True, True]
    refused = attune("check", "--callable", f"{FAULTY}:right", "fwd b1 h2/2 q9 k9 d32 f32 cap20")
    assert refused.returncode == 3
    assert "and no other features" in refused.stdout
