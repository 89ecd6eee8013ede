"""The package's annotations as mypy --strict sees them from a program that uses it, where no torch is installed."""

import os
import re
import subprocess
import sys

import pytest
from support import REPO

PROGRAM = """\
from typing import assert_type
import attune
from attune.flash_attn import flash_attn_func

class Floats:
    def __dlpack__(self, *, stream: int | None = None) -> object: ...

def lse_as_asked(x: Floats, asked: bool) -> None:
    assert_type(attune.attention(x, x, x, return_lse=asked), Floats | tuple[Floats, Floats])

x = Floats()
assert_type(attune.attention(x, x, x), Floats)
assert_type(attune.attention(x, x, x, window=(3, 0), return_lse=True), tuple[Floats, Floats])
assert_type(attune.attention_varlen(x, x, x, x, x, 3, 3, check=True), Floats)
assert_type(attune.attention_varlen(x, x, x, x, x, used_k=x, return_lse=True), tuple[Floats, Floats])
assert_type(attune.sdpa(x, x, x, is_causal=True), Floats)
assert_type(attune.explain(x, x, x, causal="top-left"), str)
flash_attn_func(x, x, x, window_size=(None, 0), num_splits=2)
attune.register_transformers(fallback=True)
with attune.patch_sdpa():
    pass
attune.patch_sdpa()
attune.unpatch_sdpa()
"""
MISTAKES = {
    "attune.attention(x, x, x, window=5)": "call-overload",
    "attune.attention(x, x, x, causal=True)": "call-overload",
    "attune.attention([1.0], x, x)": "call-overload",
    "attune.attention(x, x, x, layout='sbhd')": "call-overload",
    "attune.attention_varlen(x, x, x)": "call-overload",
    "attune.sdpa(x, x)": "call-arg",
    "attune.attenton(x, x, x)": "attr-defined",
    "flash_attn_func(x, x, x, window_size=3)": "arg-type",
}


@pytest.fixture(scope="module")
def complaints(tmp_path_factory):
    """By line of the program, which has a mistake in each of its last lines."""
    folder = tmp_path_factory.mktemp("types")
    (folder / "program.py").write_text(PROGRAM + "\n".join(MISTAKES) + "\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={folder}"]
    result = subprocess.run(
        [*command, "program.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(REPO / "python")},
        capture_output=True,
        text=True,
    )
    assert result.stderr == ""
    found = re.findall(r"^program\.py:(\d+): error: (.*) \[([a-z-]+)\]$", result.stdout, re.MULTILINE)
    return {int(line): (code, text) for line, text, code in found}


def test_a_sound_program_is_sound(complaints):
    assert {line: text for line, (_, text) in complaints.items() if line <= PROGRAM.count("\n")} == {}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_seen(complaints, mistake):
    line = PROGRAM.count("\n") + 1 + list(MISTAKES).index(mistake)
    assert complaints[line][0] == MISTAKES[mistake]
