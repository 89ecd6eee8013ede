"""Models that are trained by two processes at once, on the CPU over gloo: DDP, and FSDP in both of torch's forms."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

PROGRAM = pathlib.Path(__file__).with_name("trained_in_parallel.py")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each of the two processes said. They meet at a file, so that no port has to be free."""
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo")
    meeting = tmp_path_factory.mktemp("gloo") / "meeting"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", str(PROGRAM), str(meeting)]
    processes = [
        subprocess.Popen([*command, str(rank)], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    outputs = []
    for process in processes:
        out, error = process.communicate(timeout=120)
        assert process.returncode == 0, error
        outputs.append(out.splitlines())
    return outputs


@pytest.mark.parametrize("way", ["DDP", "FSDP", "fully_shard"])
def test_two_processes_learn_what_one_does(printed, way):
    lines = [next(line for line in output if line.startswith(f"{way}: ")) for output in printed]
    if lines[0].endswith("is not there"):
        pytest.skip(f"this torch has no {way}")
    assert lines == [f"{way}: as one process"] * 2
