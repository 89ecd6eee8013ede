"""The whole run beside fakes of torch, engine, libattune and driver: from the problems to lines and exit status."""

import json
import subprocess
import sys

import pytest
from attune.lab import output
from attune.lab.errors import BadInput
from support import FAKES, REPO

CAUSAL = "fwd b2 h2/2 q3 k3 d4 f32 causal-br"
PACKAGES = FAKES / "packages"
GROUPED = "fwd b1 h4/2 q3 k5 d4 f32 scale0.7 bhsd"


def lines_of(result: subprocess.CompletedProcess) -> list[dict]:
    """Without the head."""
    return [json.loads(line) for line in result.stdout.splitlines()][1:]


def seconds_of(line: dict) -> dict:
    return {contender["name"]: contender["seconds"][0][0] for contender in line["result"]["measurement"]["contenders"]}


def test_times_kernel_and_peers_in_the_same_rounds(lab):
    given = {"problem": CAUSAL, "flops": 2e7, "gate": {"rms_factor": 3.0, "max_ulp": 3.0, "lse": 1e-5}}
    result = lab("--peers=cudnn,flash", stdin=f"{json.dumps(given)}\n{GROUPED}\n{CAUSAL}\n")
    assert result.returncode == 0, result.stderr
    first, second, again = lines_of(result)
    assert (first["problem"], first["flops"], first["kernels"]) == (CAUSAL, 2e7, ["attune"])
    assert seconds_of(first) == {"attune": 1e-5, "attune (A/A)": 1e-5, "cudnn": 1.2e-5, "flash": 8e-6}
    assert first["checks"]["attune"]["rel_rms_bound"] == pytest.approx(2 * again["checks"]["attune"]["rel_rms_bound"])
    assert first["checks"]["attune"]["lse_bound"] == 1e-5
    assert (second["problem"], second["flops"]) == (GROUPED, None)
    assert set(seconds_of(second)) == {"attune", "attune (A/A)", "cudnn", "flash"}


def test_all_problems_are_checked_before_the_first_is_timed(lab):
    log = lab("--peers=cudnn", CAUSAL, GROUPED).stderr
    assert log.index(f"2/2  checked {GROUPED}: attune right") < log.index(f"1/2  timed {CAUSAL}: attune 10.00 us")


def test_every_kernel_asked_for_takes_part(lab):
    (line,) = lines_of(lab("--peers=cudnn", "--kernel=fake/one", "--kernel=fake/other", CAUSAL))
    assert line["kernels"] == ["fake/one", "fake/other"]
    assert list(seconds_of(line)) == ["fake/one", "fake/one (A/A)", "fake/other", "cudnn"]
    assert line["facts"]["fake/other"] == {"kernel": "fake/other"}


def test_peers_alone_are_without_attune(lab):
    result = lab("--peers=cudnn,flash", "--peers-alone", CAUSAL)
    assert result.returncode == 0, result.stderr
    (line,) = lines_of(result)
    assert line["kernels"] == []
    assert list(seconds_of(line)) == ["cudnn", "cudnn (A/A)", "flash"]
    assert f"checked {CAUSAL}: cudnn right; flash right" in result.stderr


def test_names_the_backend_behind_the_default(lab):
    (line,) = lines_of(lab("--peers=default", CAUSAL))
    assert line["facts"]["default"]["backend"] == "CUDNN_ATTENTION"


def test_says_who_is_absent_and_why(lab):
    result = lab("--peers=all", CAUSAL, "fwd b1 h1/1 q2 k3 d4 f32 causal-br")
    assert result.returncode == 0
    first, second = lines_of(result)
    assert first["absent"]["efficient"].startswith(
        "RuntimeError: No available kernel. Aborting execution. (functional.py:"
    )
    assert first["absent"]["math"].startswith("RuntimeError: operation not permitted when stream is capturing (")
    assert second["absent"]["flex"].startswith("beside torch's SDPA it takes part where")
    assert second["absent"]["varlen"] == "varlen_attn is measured on packed sequences and windows"
    assert {"default", "cudnn", "flash"} <= set(seconds_of(second)), "with a mask, aligned bottom-right"
    for line in (first, second):
        assert line["absent"]["fa2"] == "flash_attn cannot be imported: No module named 'flash_attn'"
        assert line["absent"]["flashinfer"] == "flashinfer cannot be imported: No module named 'flashinfer'"
        assert line["absent"]["triton"] == "triton cannot be imported: No module named 'triton'"
        assert "fa3" in line["absent"]


OTHERS = ("fa2", "fa3", "flashinfer", "flex", "triton")


@pytest.mark.parametrize("mask", ["", " causal-br", " causal-tl"])
def test_peers_beside_torch_compute_what_is_asked(lab, mask):
    square, other = f"fwd b2 h2/2 q3 k3 d4 f32{mask}", f"fwd b2 h4/2 q3 k5 d4 f32{mask}"
    arguments = [f"--peers={','.join(OTHERS)}", f"--triton={PACKAGES / 'tutorial.py'}"]
    result = lab(*arguments, square, other, packages=True)
    assert result.returncode == 0, result.stderr
    first, second = lines_of(result)
    assert (first["wrong"], first["absent"]) == ({}, {})
    assert list(seconds_of(first))[2:] == list(OTHERS)
    assert second["wrong"] == {}
    unable = {"fa2", "fa3", "flashinfer", "triton"} if mask == " causal-tl" else {"triton"}
    assert set(second["absent"]) == unable


def test_triton_needs_its_tutorial(lab):
    (line,) = lines_of(lab("--peers=triton", CAUSAL, packages=True))
    assert line["absent"]["triton"].startswith("the triton package has no attention; give its tutorial")


def test_a_wrong_kernel_is_not_timed(lab):
    result = lab("--peers=cudnn,flash", "--kernel=fake/wrong", CAUSAL)
    assert result.returncode == 1
    (line,) = lines_of(result)
    assert line["kernels"] == []
    assert line["wrong"]["fake/wrong"].startswith("relative RMS error")
    assert list(seconds_of(line)) == ["cudnn", "cudnn (A/A)", "flash"]
    assert "checked" in result.stderr and "fake/wrong wrong: relative RMS error" in result.stderr


def test_plugins_stand_beside_peers(lab, fake_library):
    plugin = f"--plugin={fake_library}"
    (line,) = lines_of(lab("--peers=cudnn", plugin, CAUSAL))
    assert list(seconds_of(line)) == ["attune", "attune (A/A)", "outsider", "cudnn"]
    assert line["facts"]["outsider"] == {"plugin": str(fake_library)}
    wrong = lab("--peers=cudnn", plugin, CAUSAL, FAKE_PLUGIN_WRONG="1")
    assert wrong.returncode == 1
    (line,) = lines_of(wrong)
    assert line["wrong"]["outsider"].startswith("relative RMS error"), "judged as strictly as Attune's kernels"
    assert "outsider" not in seconds_of(line)


def test_plugins_that_did_not_pass_take_no_part(lab, fake_library):
    given = json.dumps({"problem": CAUSAL, "without": [str(fake_library)]})
    result = lab("--peers=cudnn", f"--plugin={fake_library}", stdin=f"{given}\n{GROUPED}\n")
    first, second = lines_of(result)
    assert first["absent"]["outsider"] == "it did not pass in a process of its own"
    assert "outsider" in seconds_of(second)
    unknown = lab("--peers=cudnn", "--plugin=/nowhere.so", CAUSAL)
    assert unknown.returncode == 3
    assert "--plugin /nowhere.so: " in unknown.stderr


def test_a_wrong_peer_is_not_timed_and_fails_nothing(lab):
    result = lab("--peers=cudnn,flash", CAUSAL, FAKE_WRONG_PEER="flash")
    assert result.returncode == 0
    (line,) = lines_of(result)
    assert "flash" in line["wrong"] and "flash" not in seconds_of(line)


def test_a_problem_no_kernel_takes(lab):
    result = lab("--peers=cudnn", "fwd b1 h1/1 q2 k2 d7 f32")
    assert result.returncode == 3
    assert lines_of(result)[0]["absent"]["attune"] == "no kernel here takes head dimension 7"


def test_rounds_that_fail_are_reported_and_the_others_go_on(lab):
    result = lab("--peers=cudnn", CAUSAL, GROUPED, FAKE_FAILURE="1")
    assert result.returncode == 1
    for line in lines_of(result):
        assert (line["failed"], line["result"]) == ("cuGraphLaunch: the fake had enough", None)
    assert f"2/2  timed {GROUPED}: cuGraphLaunch: the fake had enough" in result.stderr


BACKWARD = "bwd b2 h2/2 q3 k3 d4 f32 causal-br"
BACKWARD_GROUPED = "bwd b1 h4/2 q3 k5 d4 f32 scale0.7 bhsd"


def gradients_of(*problems: str) -> str:
    """Lines of problems with a gate for a few elements, where Ideal may be luckier than others."""
    return "".join(json.dumps({"problem": each, "gate": {"rms_factor": 8.0}}) + "\n" for each in problems)


def test_times_gradients_and_those_of_peers(lab):
    result = lab(
        "--peers=cudnn,flash,efficient,default,fa3",
        "--kernel=fake/other",
        stdin=gradients_of(BACKWARD, BACKWARD_GROUPED),
    )
    assert result.returncode == 0, result.stderr
    first, second = lines_of(result)
    assert first["wrong"] == {} and second["wrong"] == {}
    assert list(seconds_of(first)) == ["fake/other", "fake/other (A/A)", "cudnn", "flash", "default"]
    assert first["facts"]["fake/other"] == {"kernel": "fake/other/bwd"}
    assert first["facts"]["default"]["backend"] == "CUDNN_ATTENTION"
    for line in (first, second):
        check = line["checks"]["fake/other"]
        assert 0 < check["rel_rms"] <= check["rel_rms_bound"] and check["max_ulp"] is None
        assert line["absent"]["fa3"] == "only its forward pass is measured here"
    assert first["absent"]["efficient"].startswith("RuntimeError: No available kernel.")
    assert list(seconds_of(second)) == ["fake/other", "fake/other (A/A)"]
    assert second["absent"]["cudnn"] == "the operators of SDPA's gradients take as many key-value heads as query heads"


@pytest.mark.parametrize("mask", ["", " causal-tl", " causal-br"])
def test_gradients_of_other_lengths(lab, mask):
    (line,) = lines_of(lab("--peers=math", stdin=gradients_of(f"bwd b1 h2/1 q3 k5 d4/3 f32{mask}")))
    assert list(seconds_of(line)) == ["attune", "attune (A/A)"]


def test_wrong_gradients_are_not_timed(lab, fake_library):
    result = lab("--peers=cudnn,flash,math", "--kernel=fake/wrong", f"--plugin={fake_library}",
                 stdin=gradients_of(BACKWARD), FAKE_WRONG_PEER="flash")  # fmt: skip
    assert result.returncode == 1
    (line,) = lines_of(result)
    assert set(line["wrong"]) == {"fake/wrong", "flash"}
    assert line["wrong"]["fake/wrong"].startswith("relative RMS error")
    assert line["absent"] == {
        "outsider": "a plug-in computes the forward pass",
        "math": "the gradients of MATH are no operator of torch",
    }
    assert list(seconds_of(line)) == ["cudnn", "cudnn (A/A)"]


def test_gradients_that_no_kernel_takes(lab):
    result = lab("--peers=cudnn", "bwd b1 h1/1 q2 k2 d7 f32")
    assert result.returncode == 3


def test_lines_go_to_a_file_too(lab, tmp_path):
    file = tmp_path / "lines.jsonl"
    result = lab("--peers=cudnn,fa3", "--rounds=7", f"--json={file}", CAUSAL)
    assert (result.returncode, result.stdout) == (0, "")
    head, line = [json.loads(text) for text in file.read_text().splitlines()]
    assert head["environment"] == {"processor": "fake", "torch": "0.fake"}
    assert head["protocol"] == {"mode": "steady", "seed": 1, "rounds": 7}
    attune = line["checks"]["attune"]
    assert 0 < attune["rel_rms"] <= attune["rel_rms_bound"]
    assert 0 < attune["max_ulp"] < 1 and attune["max_ulp_bound"] == 48
    assert attune["lse_err"] < 1e-6
    assert line["checks"]["cudnn"]["lse_err"] is None
    assert line["checks"]["cudnn"]["rel_rms_bound"] == pytest.approx(4 * attune["rel_rms_bound"])
    assert line["facts"]["attune"]["kernel"] == "fake/choice"
    assert [c["role"] for c in line["result"]["measurement"]["contenders"]] == ["baseline", "twin", "contender"]


@pytest.mark.parametrize("arguments", [("--peers=cudnn", CAUSAL), ("--help",), ("llama", "--help")])
@pytest.mark.parametrize(("target", "why"), [(">/dev/full", "No space left on device"), (">&-", "is closed")])
def test_output_that_cannot_be_written_is_an_error(lab, arguments, target, why):
    result = lab(*arguments, redirect=target)
    assert result.returncode == 5
    assert "attune.lab: the output cannot be written: " in result.stderr and why in result.stderr
    assert "Traceback" not in result.stderr and "Exception ignored" not in result.stderr


def test_a_full_disk_under_the_lines_is_an_error(lab):
    result = lab("--peers=cudnn", "--json=/dev/full", CAUSAL)
    assert result.returncode == 5
    assert "attune.lab: the output cannot be written: No space left on device" in result.stderr


def test_a_pipe_nobody_reads_is_an_error(lab):
    result = lab("--peers=cudnn", *[CAUSAL] * 3, redirect="| true")
    assert result.returncode == 5
    assert "attune.lab: the output cannot be written: Broken pipe" in result.stderr
    assert "Exception ignored" not in result.stderr


def test_files_are_written_as_a_whole(tmp_path):
    lines = tmp_path / "lines"
    output.write_whole(str(lines), "first\n")
    output.write_whole(str(lines), "second\n")
    assert lines.read_text() == "second\n"
    assert list(tmp_path.iterdir()) == [lines]
    with pytest.raises(BadInput, match="cannot be written"):
        output.write_whole(str(tmp_path / "nowhere" / "lines"), "")


def test_graphs_that_fork_are_refused(lab):
    result = lab("--peers=cudnn", CAUSAL, FAKE_FORK="1")
    assert result.returncode == 3
    (line,) = lines_of(result)
    assert line["result"] is None
    for name in ("attune", "cudnn"):
        assert line["absent"][name] == "the captured graph is not linear: 3 nodes, 2 edges"


@pytest.mark.parametrize(
    ("arguments", "status", "complaint"),
    [
        (["--peers=cudnnn", CAUSAL], 2, "there is no peer 'cudnnn'; the peers are default, cudnn"),
        (["fwd b1"], 2, "needs one word h#"),
        ([], 2, "no problem was given"),
        (["--rounds=0", CAUSAL], 2, "argument --rounds: '0'; a whole number from 1 to 10000 is allowed"),
        (["--samples=-1", CAUSAL], 2, "argument --samples: '-1'; a whole number from 1 to 10000 is allowed"),
        (["--budget=nan", CAUSAL], 2, "argument --budget: 'nan'; a number of at least 0 is allowed"),
        (["--seed=-1", CAUSAL], 2, "argument --seed: '-1'; a whole number from 0 to 18446744073709551615 is allowed"),
        (["--device=x", CAUSAL], 2, "argument --device: 'x'; a whole number from 0 to 1023 is allowed"),
        (
            ["--json=/nowhere/lines", CAUSAL],
            2,
            "--json is '/nowhere/lines', where no file can be written: No such file",
        ),
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


def test_a_torch_that_keeps_its_graphs_is_named(lab):
    (line,) = lines_of(lab("--peers=cudnn", CAUSAL, FAKE_OLD_TORCH="1"))
    assert line["absent"]["attune"].startswith("torch 0.fake does not hand out its graphs")


def test_help_has_an_example():
    result = subprocess.run(
        [sys.executable, "-m", "attune.lab", "--help"],
        capture_output=True,
        text=True,
        cwd=REPO / "python",
    )
    assert result.returncode == 0
    assert "example:\n  python3 -m attune.lab --engine" in result.stdout
