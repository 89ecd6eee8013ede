"""The attune command as the package has it: inside the engine, started by Python."""

import os
import subprocess
import sys

import pytest
from attune import command

PROBLEM = ("--backend", "cpu", "fwd b1 h2/2 q20 k30 d16 f32")


def attune(*arguments, **environment):
    paths = os.pathsep.join(path for path in sys.path if path)
    words = [sys.executable, "-m", "attune.command", *arguments]
    return subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths, **environment}, timeout=300
    )


@pytest.fixture(autouse=True)
def engine():
    if command.engine_path() is None:
        pytest.skip("the engine is not here")


def test_it_is_the_command():
    passed = attune("check", *PROBLEM)
    assert passed.returncode == 0, passed.stderr
    assert "1 check passed, 0 failed" in passed.stdout
    bad = attune("check", "no problem")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert bad.stderr.startswith("attune: ")


def test_it_starts_processes_of_itself():
    library = command.engine_path().parent / "libattune.so"
    judged = attune("check", "--against", str(library), *PROBLEM)
    assert judged.returncode == 0, judged.stdout + judged.stderr
    assert "1 check passed, 0 failed" in judged.stdout


def test_without_the_engine_it_says_so(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "ENGINE", "libabsent.so")
    assert command.main() == 3
    assert "the command is not in this installation: libabsent.so is missing" in capsys.readouterr().err
