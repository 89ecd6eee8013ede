"""python3 -m attune.lab cpu, host, llama, masked and train: whole runs on the CPU, with the real engine."""

import json
import os
import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
from attune import torch_openmp
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


TINY_LLAMA = ["--layers", "1", "--hidden", "256", "--intermediate", "128", "--lengths", "24", "--prompt", "8",
              "--new-tokens", "2"]  # fmt: skip


def test_llama_compares_and_times(lab):
    pytest.importorskip("transformers", reason="transformers is not installed")
    result = lab("llama", *TINY_LLAMA, "--kv-heads", "1", "--price", "3.6")
    assert result.returncode == 0, result.stderr
    assert "logits differ by 0.0" in result.stdout
    for tokens, title in ((24, "prefill of 24"), (2, "decoding of 2"), (2, "generate() of 2")):
        row = next(line for line in result.stdout.splitlines() if line.startswith(f"{title} tokens"))
        seconds, rate, cost = re.search(r": sdpa (\S+) ms, (\S+) tokens/s, (\S+) per million tokens", row).groups()
        assert float(rate) == pytest.approx(1e3 * tokens / float(seconds), rel=1e-3)
        assert float(cost) == pytest.approx(1000 / float(rate), rel=2e-3), "a thousandth of a unit for each second"
    assert result.stdout.count("  attune ") == 3


def test_llama_models_share_their_weights(lab):
    pytest.importorskip("transformers", reason="transformers is not installed")
    import torch
    from attune.lab import llama

    models = llama.make_models(torch, llama.parser().parse_args(["--engine", "x", "--device", "cpu", *TINY_LLAMA]))
    first, second = (dict(model.named_parameters()) for model in models.values())
    assert [models[name].config._attn_implementation for name in models] == ["sdpa", "attune"]
    assert first.keys() == second.keys() and len(first) > 5
    assert all(first[name].data_ptr() == second[name].data_ptr() for name in first)


def test_llama_counts_cost():
    from attune.lab.llama import cost_of_million, rate_text

    assert cost_of_million(1000, 3.6) == pytest.approx(1.0)  # 1000 s are 0.2778 h
    assert cost_of_million(500, 1) == pytest.approx(2000 / 3600)
    assert rate_text(0.5, 100, None) == "500.000 ms, 200 tokens/s"
    assert rate_text(0.5, 100, 7.2) == "500.000 ms, 200 tokens/s, 10 per million tokens"


@pytest.mark.parametrize(
    "wrong",
    ["--price 0", "--price nan", "--layers 0", "--hidden 100", "--hidden 256 --kv-heads 3", "--new-tokens -1",
     "--lengths 8,,9"],
)  # fmt: skip
def test_llama_refuses(lab, wrong):
    pytest.importorskip("transformers", reason="transformers is not installed")
    assert lab("llama", *TINY_LLAMA, *wrong.split()).returncode == 2


TINY_STEP = ["--layers", "1", "--hidden", "256", "--kv-heads", "1", "--intermediate", "128", "--length", "24"]


def test_train_compares_and_times(lab, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    result = lab("train", *TINY_STEP, "--json", tmp_path / "samples.jsonl")
    assert result.returncode == 0, result.stderr
    assert re.search(r"^attune, cpu/bwd: the loss differs by \S+ of it, gradients by 0\.0", result.stdout, re.MULTILINE)
    assert "training step of 24 tokens, 1 layers: sdpa " in result.stdout and "\n  attune, cpu/bwd " in result.stdout
    _, row = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    names = [each["name"] for each in row["result"]["measurement"]["contenders"]]
    assert names[0] == "sdpa" and names[-1] == "attune, cpu/bwd"


def test_train_times_nothing_that_differs(lab, monkeypatch):
    pytest.importorskip("transformers", reason="transformers is not installed")
    from attune import hugging_face

    right = hugging_face.attend
    monkeypatch.setattr(hugging_face, "attend", lambda *arguments: 1.5 * right(*arguments))
    result = lab("train", *TINY_STEP)
    assert result.returncode == 1 and ": nothing is timed" in result.stderr
    assert "training step" not in result.stdout


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


TINY = ["--shape", "1,2,40,32", "--shape", "1,2,40,32,causal", "--budget", "0.1"]
TINY_ROWS = [
    f"B1 H2 S40 D32 {mask} {dtype} on 1 thread" for dtype in ("bf16", "f16", "f32") for mask in ("full", "causal")
]


def test_cpu_compares_times_and_sums_up(lab, tmp_path):
    result = lab("cpu", "--threads", "1", *TINY, "--json", tmp_path / "samples.jsonl")
    assert (result.returncode, result.stderr.splitlines()) == (0, TINY_ROWS)
    table, means = (part.splitlines() for part in result.stdout.split("\n\ngeometric means\n"))
    assert [line.split()[:6] for line in table[-6:]] == [row.split()[:6] for row in TINY_ROWS]
    assert all("cpu/" in line for line in table[-6:])
    assert [line.split(":")[0] for line in means] == [f"{dtype} on 1 thread" for dtype in ("bf16", "f16", "f32")]
    assert "bar" not in result.stdout, "bars are for the shapes they were set for"

    head, *lines = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    assert {"processor", "torch", "ONEDNN_MAX_CPU_ISA"} <= head["environment"].keys()
    threads = "those of torch" if torch_openmp.find() else "its own"
    assert head["environment"]["attune_threads"] == threads
    assert f", Attune's threads are {threads}\n" in result.stdout
    assert [line["title"] for line in lines[:6]] == TINY_ROWS
    for line, following in zip(lines[6:], (lines[0:2], lines[2:4], lines[4:6])):
        mean, rows = line["mean"], [each["result"]["analysis"]["comparisons"][0]["ratio"] for each in following]
        assert mean["speed"] == pytest.approx((rows[0] * rows[1]) ** -0.5)
        assert mean["lo"] <= mean["speed"] <= mean["hi"]


def test_cpu_times_gradients(lab, tmp_path):
    arguments = ["--threads", "1", "--dtypes", "f32", *TINY, "--json", tmp_path / "samples.jsonl"]
    result = lab("cpu", "--backward", *arguments)
    assert result.returncode == 0 and "gradients of q, k and v\n" in result.stdout
    assert result.stdout.count("cpu/bwd") == 2
    _, *lines = map(json.loads, (tmp_path / "samples.jsonl").read_text().splitlines())
    assert [line["backward"] for line in lines if "title" in line] == [True, True]


def test_cpu_has_bars_for_both_directions():
    from attune.lab import cpu

    for arguments, direction, bar in (([], cpu.FORWARD, 2.5), (["--backward"], cpu.BACKWARD, 1.5)):
        options = cpu.parser().parse_args(["--engine", "x", *arguments])
        assert cpu.direction_of(options) is direction
        assert len(direction.shapes) == len({row.shape for row in cpu.rows_of(options)}) == 5
        line = {"dtype": "bf16", "threads": 2, "result": {"analysis": {"comparisons": [{"ratios": [0.5] * 6}]}}}
        assert cpu.mean_of([line], "bf16", 2, options)["bar"] == bar


def test_cpu_runs_few_threads_on_the_quickest_cpus(lab, tmp_path, monkeypatch):
    import attune.lab.cpu

    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("there is one CPU")
    measure, inside = attune.lab.cpu.measure, []

    def spy(engine, options, title, contenders, **rest):
        def seen(call):
            call()
            inside.append({len(os.sched_getaffinity(int(task.name))) for task in Path("/proc/self/task").iterdir()})

        contenders = {name: lambda call=call: seen(call) for name, call in contenders.items()}
        return measure(engine, options, title, contenders, **rest)

    monkeypatch.setattr("attune.lab.cpu.measure", spy)
    samples = tmp_path / "samples.jsonl"
    arguments = ["--dtypes", "f32", *TINY, "--json", samples]
    said = f"\nrows with fewer threads than the {len(before)} CPUs ran on the quickest of them, "

    result = lab("cpu", "--threads", f"1,{len(before)}", *arguments)
    assert result.returncode == 0 and said in result.stdout
    assert inside[-1] == {len(before)} and {1} in inside, "all threads of the process"
    assert os.sched_getaffinity(0) == before
    lines = [json.loads(line) for line in samples.read_text().splitlines()]
    measured = [(line["threads"], line["result"]["measurement"]) for line in lines if "result" in line]
    for threads, measurement in measured:
        assert ("cpus" in measurement) == (threads == 1)
        assert all(len(cpus) == 1 and before.issuperset(cpus) for cpus in measurement.get("cpus", []))
    assert [threads for threads, _ in measured] == [1, 1, len(before), len(before)]

    inside.clear()
    result = lab("cpu", "--threads", "1", "--any-cpu", *arguments)
    assert result.returncode == 0 and said not in result.stdout
    assert {1} not in inside


def test_cpu_mean_is_geometric_and_its_interval_that_of_the_rounds():
    from attune.lab.cpu import mean_speed

    assert mean_speed([[0.5] * 6, [0.125] * 7], seed=1) == pytest.approx((4, 4, 4))
    noisy = [0.4, 0.45, 0.5, 0.5, 0.55, 0.6]
    mean, low, high = mean_speed([noisy, noisy], seed=1)
    assert mean == pytest.approx(2)
    assert 1 / 0.6 < low < 1.95 < 2.05 < high < 1 / 0.4


@pytest.mark.parametrize(
    ("speed", "low", "rows", "said"),
    [
        (2.6, 2.48, 5, "bar 2.5: met"),
        (2.6, 2.47, 5, "bar 2.5: not met"),
        (2.4, 2.39, 5, "bar 2.5: not met"),
        (2.6, 2.55, 4, "over 4 of 5 shapes"),
    ],
)
def test_cpu_bars(speed, low, rows, said):
    from attune.lab.cpu import text_of_mean

    mean = {"dtype": "bf16", "threads": 2, "rows": rows, "of": 5, "speed": speed, "lo": low, "hi": 2.7, "bar": 2.5}
    assert text_of_mean(mean) == f"bf16 on 2 threads: {speed:.2f} [{low:.2f}, 2.70] times as fast, {said}"


def test_cpu_gives_both_the_same_threads(lab, monkeypatch):
    import attune.c_api
    import torch

    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("there is one CPU")
    seen, before, library = [], torch.get_num_threads(), attune.c_api.Library

    def spy(path, threads, openmp):
        seen.append((threads, torch.get_num_threads()))
        return library(path, threads, openmp)

    monkeypatch.setattr("attune.c_api.Library", spy)
    assert lab("cpu", "--threads", "2,1", "--dtypes", "f32", *TINY).returncode == 0
    assert seen == [(2, 2), (1, 1)]
    assert torch.get_num_threads() == before


def test_cpu_names_the_row_that_torch_dies_in(lab, monkeypatch):
    def die(*_, **__):
        raise SystemExit(132)

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", die)
    result = lab("cpu", "--threads", "1", *TINY)
    assert (result.returncode, result.stderr) == (132, f"{TINY_ROWS[0]}\n")


def test_cpu_times_nothing_that_differs(lab, monkeypatch):
    monkeypatch.setattr("attune.sdpa", lambda q, k, v, is_causal: 1.1 * v)
    result = lab("cpu", "--threads", "1", *TINY)
    assert result.returncode == 1
    assert f"attune.lab: {TINY_ROWS[0]}: the outputs differ by " in result.stderr


def test_cpu_leaves_out_what_the_limit_does_not_allow(lab):
    result = lab("cpu", "--threads", "1", "--dtypes", "f32", *TINY, "--limit", "0.000001")
    assert result.returncode == 1
    assert result.stdout.count("not timed: no time is left of --limit") == 2
    assert result.stdout.endswith("f32 on 1 thread: nothing was timed\n")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--shape", "1,2,3"], "--shape 1,2,3: four numbers are needed, and maybe causal"),
        (["--threads", "0"], "--threads 0: this process may use 1 to "),
        (["--threads", "two"], "--threads two: numbers with commas are needed"),
        (["--dtypes", "f64"], "--dtypes f64: f64 is none of bf16, f16, f32"),
        (["--device", "cuda"], "--device cuda: this command measures the CPU"),
    ],
)
def test_cpu_refuses_with_a_sentence(lab, arguments, complaint):
    result = lab("cpu", *arguments)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"attune.lab: {complaint}")


def test_without_a_gpu_it_says_so(lab):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = lab("host", "--device", "cuda")
    assert (result.returncode, result.stdout) == (3, "")
    assert result.stderr == "attune.lab: torch finds no GPU; --device cpu measures without one\n"
