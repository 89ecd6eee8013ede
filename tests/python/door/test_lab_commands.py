"""python3 -m attune.lab llama, host and masked: whole runs on the CPU, with the real engine."""

import json
import runpy
from types import SimpleNamespace

import pytest
from attune.c_api import library_path

ENGINE = library_path().parent / "libattune_lab_engine.so"


@pytest.fixture
def lab(monkeypatch, capsys):
    """Runs a command in this process: another one would spend its time importing torch."""

    def run(name, *arguments):
        if not ENGINE.is_file():
            pytest.skip(f"{ENGINE.name} is not beside the library")
        few = ["--engine", ENGINE, "--device", "cpu", "--rounds", "3", "--samples", "1"]
        monkeypatch.setattr("sys.argv", ["attune.lab", name, *map(str, (*few, *arguments))])
        with pytest.raises(SystemExit) as ended:
            runpy.run_module("attune.lab", run_name="__main__")
        said = capsys.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=said.out, stderr=said.err)

    return run


def test_host_times_every_door(lab, tmp_path):
    result = lab("host", "--json", tmp_path / "samples.jsonl")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith("eager call: torch SDPA ")
    for line in ("  attune.sdpa ", "  attune.attention ", "eager call with a boolean mask: torch SDPA "):
        assert line in result.stdout
    head, *rows = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    assert "processor" in head["environment"]
    assert [len(row["result"]["measurement"]["contenders"]) for row in rows] == [4, 3]


def test_llama_compares_and_times(lab):
    pytest.importorskip("transformers", reason="transformers is not installed")
    size = ["--layers", "1", "--hidden", "256", "--lengths", "24", "--prompt", "8", "--new-tokens", "2"]
    result = lab("llama", *size)
    assert result.returncode == 0, result.stderr
    for line in ("logits differ by 0.0", "prefill of 24 tokens: sdpa ", "generate() of 2 tokens after 8: sdpa "):
        assert line in result.stdout
    assert result.stdout.count("  attune ") == 2


def test_masked_compares_times_and_names_the_kernel(lab):
    result = lab("masked", "--shape", "1,2,32,64")
    assert (result.returncode, result.stderr) == (0, "")
    for title in ("boolean mask (row, key)", "float bias (row, key)"):
        assert f"{title}: kernel: " in result.stdout and f"{title}: torch SDPA " in result.stdout


def test_a_small_budget_lowers_the_rounds(lab, tmp_path):
    arguments = ["--rounds", "40", "--budget", "0.001", "--json", tmp_path / "samples.jsonl"]
    assert lab("masked", "--shape", "1,2,32,64", *arguments).returncode == 0
    _, *rows = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    assert [row["result"]["measurement"]["protocol"]["rounds"] for row in rows] == [6, 6]


def test_without_a_gpu_it_says_so(lab):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = lab("host", "--device", "cuda")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "attune.lab: torch finds no GPU; --device cpu measures without one\n"
