"""The examples of docs/your-kernel.md, brought to the real command as the page says."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from attune.c_api import library_path

REPO = Path(__file__).resolve().parents[3]
COMMAND = library_path().parent / "attune"
PAGE = (REPO / "docs/your-kernel.md").read_text()
QUICK = ("--backend", "cpu", "--rounds", "3", "--samples", "1", "--budget", "0.2")


def example(language: str) -> str:
    (text,) = re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)
    return text


@pytest.fixture
def attune(tmp_path):
    if not (COMMAND.is_file() and (COMMAND.parent / "libattune_lab_engine.so").is_file()):
        pytest.skip("the command and its engine are not beside the library")

    def run(*arguments):
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = {**os.environ, "PYTHONPATH": paths}
        return subprocess.run(
            [COMMAND, *arguments], capture_output=True, text=True, cwd=tmp_path, env=environment, timeout=600
        )

    return run


def test_the_plugin_is_right(attune, tmp_path):
    (tmp_path / "mine.c").write_text(example("c"))
    build = re.search(r"^    (cc -shared .*)$", PAGE, flags=re.MULTILINE)[1].split()
    subprocess.run([*build, "-I", REPO / "include", "-Wall", "-Werror"], cwd=tmp_path, check=True)
    problem = re.search(r"try ./libmine.so '(.*)'", PAGE)[1]
    result = attune("try", "./libmine.so", problem, *QUICK)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "8 checks passed, 0 failed" in result.stdout
    assert "mine" in result.stdout.split("verdict")[1]


def test_the_function_is_right(attune, tmp_path):
    (tmp_path / "mine.py").write_text(example("python"))
    problem = "fwd b1 h4/2 q20 k30 d32 f32 causal-br"
    result = attune("try", "mine.py:attention", "--python", sys.executable, problem, *QUICK)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "8 checks passed, 0 failed" in result.stdout
    assert "mine.py:attention" in result.stdout.split("verdict")[1]


def test_the_kernel_compiles_for_every_architecture(attune, tmp_path):
    if not (shutil.which("nvcc") or list(Path("/usr/local").glob("cuda*/lib64/libnvrtc.so*"))):
        pytest.skip("there is no CUDA toolkit with headers here")
    (tmp_path / "mine.cu").write_text(example("cuda"))
    for problem in ("fwd b2 h4/4 q100 k77 d64 f16 nolse", "fwd b1 h1/1 q8 k8 d128 f32 nolse"):
        result = attune("try", "mine.cu", "--resources", problem)
        assert result.returncode == 0, result.stderr
        for arch in ("sm_80", "sm_89", "sm_90a"):
            assert re.search(rf"^{arch} +\d+ +0 ", result.stdout, flags=re.MULTILINE), result.stdout


def test_keys_and_options_of_the_page_are_those_of_the_command(attune):
    said = attune("try", "--help").stdout + attune("bench", "--help").stdout
    for option in set(re.findall(r"`(--[a-z]+)", PAGE)) | set(re.findall(r"attune try (--[a-z]+)", PAGE)):
        assert option in said, option
