"""python3 -m attune.lab llama and host: whole runs on the CPU, with the real engine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import attune
import pytest
from attune.c_api import library_path

ENGINE = library_path().parent / "libattune_lab_engine.so"


def lab(name, *arguments):
    if not ENGINE.is_file():
        pytest.skip(f"{ENGINE.name} is not beside the library")
    package = Path(attune.__file__).parents[1]
    paths = [str(package), *filter(None, [os.environ.get("PYTHONPATH")])]
    few = ["--engine", ENGINE, "--device", "cpu", "--rounds", "3", "--samples", "1"]
    return subprocess.run(
        [sys.executable, "-m", "attune.lab", name, *few, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
    )


def test_host_times_every_door(tmp_path):
    result = lab("host", "--json", tmp_path / "samples.jsonl")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("eager call: torch SDPA ")
    for line in ("  attune.sdpa ", "  attune.attention ", "eager call with a boolean mask: torch SDPA "):
        assert line in result.stdout
    head, *rows = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    assert "processor" in head["environment"]
    assert [len(row["result"]["measurement"]["contenders"]) for row in rows] == [4, 3]


def test_llama_compares_and_times():
    pytest.importorskip("transformers", reason="transformers is not installed")
    size = ["--layers", "1", "--hidden", "256", "--lengths", "24", "--prompt", "8", "--new-tokens", "2"]
    result = lab("llama", *size)
    assert result.returncode == 0, result.stderr
    for line in ("logits differ by 0.0", "prefill of 24 tokens: sdpa ", "generate() of 2 tokens after 8: sdpa "):
        assert line in result.stdout
    assert result.stdout.count("  attune ") == 2


def test_masked_compares_times_and_names_the_kernel():
    result = lab("masked", "--shape", "1,2,32,64")
    assert (result.returncode, result.stderr) == (0, "")
    for title in ("boolean mask (row, key)", "float bias (row, key)"):
        assert f"{title}: kernel: " in result.stdout and f"{title}: torch SDPA " in result.stdout


def test_without_a_gpu_it_says_so():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = lab("host", "--device", "cuda")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "attune.lab: torch finds no GPU; --device cpu measures without one\n"
