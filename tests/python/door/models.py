"""The calls of real models, small enough for a CPU, with lengths as `attune` would give them."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from attune.lab.lengths import Lengths
from attune.lab.problem import Problem, parse
from support import REPO

_CALL = re.compile(r'^    \{"(b\d[^"]*)"', re.MULTILINE)
_LONGEST = 40
_FEW = 5


def model_calls() -> list[str]:
    """As lab/model_sets.cpp lists them."""
    return _CALL.findall((REPO / "lab/model_sets.cpp").read_text())


def small(call: str, dtype: str) -> Problem:
    """With the same features. Softcap and windows are as narrow for these lengths as they are for the real ones."""
    text = re.sub(r"\b(bf16|f16)\b", dtype, call)
    text = re.sub(r"^b(\d+)", lambda match: f"b{min(3, int(match[1]))}", text)
    text = re.sub(r"h(\d+)/(\d+)", _fewer_heads, text)
    longest = max(int(length) for length in re.findall(r" [qk](\d+)", text))
    shrink = max(1.0, longest / _LONGEST)

    def shorter(match: re.Match) -> str:
        length = int(match[2])
        return f"{match[1]}{max(min(length, _FEW), round(length / shrink))}"

    text = re.sub(r"\b([qkw])(\d+)", shorter, text)
    text = re.sub(r"cap\d+", "cap1.5", text)
    text = re.sub(r"var=\S+", "var=50,50", text)
    return with_lengths(f"fwd {text}")


def _fewer_heads(match: re.Match) -> str:
    groups = min(2, int(match[1]) // int(match[2]))
    kv = min(2, int(match[2]))
    return f"h{groups * kv}/{kv}"


def with_lengths(text: str, seed: int = 1) -> Problem:
    """parse() of a problem that has lengths: every one between 1 and the longest, some sequence being that."""
    draw = random.Random(seed)

    def some(count: int, longest: int) -> list[int]:
        lengths = [draw.randint(1, longest) for _ in range(count - 1)] + [longest]
        draw.shuffle(lengths)
        return lengths

    # Without lengths the rest of the problem is read, to know which ones it needs.
    words = text.split()
    bare = [word for word in words if word not in ("used-q", "used-k") and not re.match("var|mask", word)]
    p = parse(" ".join(bare))
    lists = {}
    packed = next((word for word in words if word.startswith("var")), None)
    if packed:
        total = re.match(r"var=(\d+)", packed)
        lengths = some(p.batch, p.seq_q)
        spare = p.batch * p.seq_q - sum(lengths)
        wanted = int(total[1]) if total else sum(lengths)
        while sum(lengths) > wanted:
            lengths[lengths.index(max(lengths))] -= 1
        for place in range(p.batch if spare else 0):
            lengths[place] += min(p.seq_q - lengths[place], wanted - sum(lengths))
        offsets = [sum(lengths[:entry]) for entry in range(p.batch + 1)]
        lists = {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets}
    if "used-q" in words:
        lists["used_q"] = some(p.batch, p.seq_q)
    if "used-k" in words:
        # No row is without keys, which torch would make NaN.
        lists["used_k"] = [max(length, min(p.seq_q, p.seq_k)) for length in some(p.batch, p.seq_k)]
    if padded := next((word for word in words if re.fullmatch("mask=[b1]11k", word)), None):
        lists["padding"] = some(p.batch if "b" in padded else 1, p.seq_k)
    return parse(text, lengths=Lengths.given(lists))


def without(problem: Problem, **changes) -> Problem:
    """The problem that a peer computes which forgets something."""
    return replace(problem, **changes)
