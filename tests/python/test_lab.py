"""The whole run beside fakes of torch, engine, libattune and driver: from the problems to table, JSON, exit status."""

import json
import subprocess
import sys

import pytest
from conftest import FAKES, REPO

CAUSAL = "fwd b2 h2/2 q3 k3 d4 f32 causal-br"
PACKAGES = FAKES / "packages"
GROUPED = "fwd b1 h4/2 q3 k5 d4 f32 scale0.7 bhsd"


def rows_of(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("fwd ")]


def test_times_kernel_and_peers_in_one_table(lab):
    flops = json.dumps({"problem": CAUSAL, "flops": 2e7})
    result = lab("--peers=cudnn,flash", stdin=f"{flops}\n{GROUPED}\n")
    assert (result.returncode, result.stderr) == (0, "")
    first, second = rows_of(result.stdout)
    assert first.startswith(CAUSAL)
    assert "fake/choice  10.00 [9.90, 10.10]  2.0 " in first
    assert "1.200 [1.188, 1.212] faster" in first
    assert "0.800 [0.792, 0.808] slower" in first
    assert second.startswith(GROUPED)
    assert "fake/choice  10.00 [9.90, 10.10]  - " in second
    assert "over cudnn" in result.stdout.splitlines()[0]


def test_every_kernel_asked_for_has_its_row(lab):
    result = lab("--peers=cudnn", "--kernel=fake/one", "--kernel=fake/other", CAUSAL)
    assert result.returncode == 0
    one, other = rows_of(result.stdout)
    assert "fake/one" in one and "0.400 [0.396, 0.404] slower" in one
    assert "fake/other" in other and "1.091 [1.080, 1.102] faster" in other


def test_names_the_backend_behind_the_default(lab):
    result = lab("--peers=default", CAUSAL)
    assert "over default (CUDNN_ATTENTION)" in result.stdout


def test_lists_who_is_absent_and_why(lab):
    result = lab("--peers=all", CAUSAL, "fwd b1 h1/1 q2 k3 d4 f32 causal-br")
    assert result.returncode == 0
    assert "over fa3" not in result.stdout
    for line in (
        "absent: efficient (in 1 of 2 problems): No available kernel. Aborting execution.",
        "absent: efficient (in 1 of 2 problems): SDPA's is_causal is aligned top-left",
        "absent: math (in 1 of 2 problems): operation not permitted when stream is capturing",
        "absent: fa2: flash_attn cannot be imported: No module named 'flash_attn'",
        "absent: fa3: flash_attn_interface cannot be imported: No module named 'flash_attn_interface'",
        "absent: flashinfer: flashinfer cannot be imported: No module named 'flashinfer'",
        "absent: triton: triton cannot be imported: No module named 'triton'",
    ):
        assert line in result.stdout.splitlines()


OTHERS = ("fa2", "fa3", "flashinfer", "flex", "triton")


@pytest.mark.parametrize("mask", ["", " causal-br", " causal-tl"])
def test_peers_beside_torch_compute_what_is_asked(lab, tmp_path, mask):
    file = tmp_path / "lines.jsonl"
    square, other = f"fwd b2 h2/2 q3 k3 d4 f32{mask}", f"fwd b2 h4/2 q3 k5 d4 f32{mask}"
    arguments = [f"--peers={','.join(OTHERS)}", f"--triton={PACKAGES / 'tutorial.py'}", f"--json={file}"]
    result = lab(*arguments, square, other, packages=True)
    assert (result.returncode, result.stderr) == (0, "")
    first, second = [json.loads(line) for line in file.read_text().splitlines()[1:]]
    assert (first["wrong"], first["absent"]) == ({}, {})
    assert [row["name"] for row in first["result"]["analysis"]["comparisons"]] == list(OTHERS)
    assert second["wrong"] == {}
    unable = {"fa2", "fa3", "flashinfer", "triton"} if mask == " causal-tl" else {"triton"}
    assert set(second["absent"]) == unable


def test_triton_needs_its_tutorial(lab):
    result = lab("--peers=triton", CAUSAL, packages=True)
    assert "absent: triton: the triton package has no attention; give its tutorial" in result.stdout


def test_a_wrong_kernel_is_not_timed(lab, tmp_path):
    file = tmp_path / "lines.jsonl"
    result = lab("--peers=cudnn,flash", "--kernel=fake/wrong", f"--json={file}", CAUSAL)
    assert result.returncode == 1
    assert f"not timed, because it is wrong: fake/wrong: {CAUSAL}: relative RMS error" in result.stdout
    (row,) = rows_of(result.stdout)
    assert "cudnn (no kernel of Attune)  12.00" in row
    line = json.loads(file.read_text().splitlines()[1])
    assert line["kernels"] == []
    assert "fake/wrong" in line["wrong"]
    timed = [contender["name"] for contender in line["result"]["measurement"]["contenders"]]
    assert timed == ["cudnn", "cudnn (A/A)", "flash"]


def test_a_wrong_peer_is_not_timed_and_fails_nothing(lab):
    result = lab("--peers=cudnn,flash", CAUSAL, FAKE_WRONG_PEER="flash")
    assert result.returncode == 0
    assert "not timed, because it is wrong: flash" in result.stdout
    assert "over flash" not in result.stdout


def test_a_problem_no_kernel_takes(lab):
    result = lab("--peers=cudnn", "fwd b1 h1/1 q2 k2 d7 f32")
    assert result.returncode == 3
    assert "absent: attune: no kernel here takes head dimension 7" in result.stdout


def test_json_has_everything(lab, tmp_path):
    file = tmp_path / "lines.jsonl"
    assert lab("--peers=cudnn,fa3", "--rounds=7", f"--json={file}", CAUSAL).returncode == 0
    head, line = [json.loads(text) for text in file.read_text().splitlines()]
    assert head["environment"] == {"processor": "fake"}
    assert head["protocol"] == {"mode": "steady", "seed": 1, "rounds": 7}
    assert line["problem"] == CAUSAL
    assert line["checks"]["attune"]["rms"] < 0.2
    assert line["checks"]["attune"]["lse"] < 1e-6
    assert line["checks"]["cudnn"]["lse"] is None
    assert line["facts"]["attune"]["kernel"] == "fake/choice"
    assert "fa3" in line["absent"]
    contenders = line["result"]["measurement"]["contenders"]
    assert [c["role"] for c in contenders] == ["baseline", "twin", "contender"]
    assert contenders[2]["seconds"] == [[1.2e-05]]
    assert line["by_baseline"]["cudnn"]["comparisons"][0]["name"] == "attune"


def test_says_when_the_machine_is_unfit(lab):
    result = lab("--peers=cudnn", CAUSAL, FAKE_UNFIT="1")
    assert f"unfit to measure: {CAUSAL}: two copies of the baseline differ" in result.stdout


def test_graphs_that_fork_are_refused(lab):
    result = lab("--peers=cudnn", CAUSAL, FAKE_FORK="1")
    assert result.returncode == 3
    assert "nothing was timed" in result.stdout
    for name in ("attune", "cudnn"):
        assert f"absent: {name}: the captured graph is not linear: 3 nodes, 2 edges" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["--peers=cudnnn", CAUSAL], 2, "there is no peer 'cudnnn'; the peers are cudnn, flash"),
        (["fwd b1"], 2, "needs one word h#"),
        ([], 2, "no problem was given"),
        (["--recorded=nowhere.jsonl", CAUSAL], 2, "nowhere.jsonl: No such file"),
        (["--rounds=0", CAUSAL], 2, "rounds is 0"),
        (["--kernel=other", CAUSAL], 2, "there is no such kernel"),
        (["--engine=nowhere.so", CAUSAL], 3, "the measuring engine cannot be loaded"),
        (["--library=nowhere.so", CAUSAL], 3, "libattune cannot be loaded"),
        (["--driver=nowhere.so", CAUSAL], 3, "the CUDA driver (12.3 or newer) cannot be loaded"),
    ],
)
def test_refuses_with_a_sentence(lab, arguments, status, complaint):
    result = lab(*arguments)
    assert result.returncode == status
    assert complaint in result.stderr
    assert "Traceback" not in result.stderr


def test_without_torch_or_gpu_it_says_so(lab):
    without = lab("--peers=cudnn", CAUSAL, torch=False)
    assert without.returncode == 3
    assert "the peers need torch, which" in without.stderr
    blind = lab("--peers=cudnn", CAUSAL, FAKE_NO_GPU="1")
    assert blind.returncode == 3
    assert "torch finds none" in blind.stderr


def test_recorded_ratios_are_shown_as_derived(lab, tmp_path):
    ratios = tmp_path / "ratios.jsonl"
    row = {"B": 2, "H": 2, "S": 3, "D": 4, "causal": True, "dt": "bf16", "speed_vs_cudnn": {"fa3": [1.5, 1.2, 2.0]}}
    ratios.write_text(json.dumps(row) + "\n")
    result = lab("--peers=cudnn", f"--recorded={ratios}", CAUSAL)
    assert "over FA3 by its recorded ratio (derived, not measured)" in result.stdout
    assert rows_of(result.stdout)[0].endswith(" -"), "bf16 was recorded, f32 was asked for"


def test_help_has_an_example():
    result = subprocess.run(
        [sys.executable, "-m", "attune.lab", "--help"],
        capture_output=True,
        text=True,
        cwd=REPO / "python",
    )
    assert result.returncode == 0
    assert "example:\n  python3 -m attune.lab --engine" in result.stdout
