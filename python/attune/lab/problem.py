"""Problems as text (docs/problems.md), as far as torch's attentions and their gradients go: full or causal, grouped
heads, a scale."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

from attune.lab.errors import BadInput
from attune.lab.gate import DEFAULT_GATE, Gate

DTYPES = ("f16", "bf16", "f32")
_NUMBER = r"(\d+)"


@dataclass(frozen=True)
class Problem:
    text: str
    batch: int
    heads_q: int
    heads_kv: int
    seq_q: int
    seq_k: int
    dim_qk: int
    dim_v: int
    dtype: str
    causal: str = ""  # "", "causal-tl" or "causal-br"
    scale: float | None = None
    lse: bool = True
    backward: bool = False  # the gradients of q, k and v
    heads_first: bool = False  # storage: bhsd instead of bshd
    flops: float | None = None  # counted by the command, in the one place that counts them
    gate: Gate = DEFAULT_GATE
    without: tuple[str, ...] = ()  # plug-ins that take no part, by their files

    @property
    def softmax_scale(self) -> float:
        return 1 / math.sqrt(self.dim_qk) if self.scale is None else self.scale

    @property
    def square(self) -> bool:
        """Both causal alignments are the same."""
        return self.seq_q == self.seq_k


def _extents(words: dict, text: str) -> dict:
    patterns = {
        "b": (rf"b{_NUMBER}", ["batch"]),
        "h": (rf"h{_NUMBER}(?:/{_NUMBER})?", ["heads_q", "heads_kv"]),
        "q": (rf"q{_NUMBER}", ["seq_q"]),
        "k": (rf"k{_NUMBER}", ["seq_k"]),
        "d": (rf"d{_NUMBER}(?:/{_NUMBER})?", ["dim_qk", "dim_v"]),
    }
    fields = {}
    for letter, (pattern, names) in patterns.items():
        matches = [(word, re.fullmatch(pattern, word)) for word in words]
        found = [(word, match) for word, match in matches if match]
        if len(found) != 1:
            raise BadInput(f"'{text}': needs one word {letter}#, has {len(found)}")
        word, match = found[0]
        words.pop(word)
        numbers = [int(number) for number in match.groups() if number is not None]
        for index, name in enumerate(names):
            fields[name] = numbers[min(index, len(numbers) - 1)]
            if fields[name] < 1:
                raise BadInput(f"'{text}': '{word}' leaves nothing to time")
    return fields


def parse(text: str, flops: float | None = None, gate: Gate = DEFAULT_GATE, without: Iterable[str] = ()) -> Problem:
    given = text.split()
    words = dict.fromkeys(given)
    if not given or given[0] not in ("fwd", "bwd") or len(words) != len(given):
        raise BadInput(f"'{text}' is no problem; one is 'fwd b1 h8/8 q512 k512 d64 f16 causal-br'")
    del words[given[0]]
    fields = {**_extents(words, text), "backward": given[0] == "bwd"}
    for word in words:
        if word in DTYPES and "dtype" not in fields:
            fields["dtype"] = word
        elif word in ("causal-tl", "causal-br", "causal"):
            fields["causal"] = "causal-br" if word == "causal" else word
        elif word == "nolse" and not fields["backward"]:
            fields["lse"] = False
        elif word == "bhsd":
            fields["heads_first"] = True
        elif re.fullmatch(r"scale[-+.\deE]+", word):
            fields["scale"] = float(word[len("scale") :])
        elif word not in ("full", "bshd"):
            raise BadInput(f"'{text}': '{word}' cannot be measured beside peers")
    if "dtype" not in fields:
        raise BadInput(f"'{text}': an element type is missing: {', '.join(DTYPES)}")
    if fields["heads_q"] % fields["heads_kv"] != 0:
        raise BadInput(f"'{text}': {fields['heads_kv']} key-value heads do not divide {fields['heads_q']} query heads")
    return Problem(text=text, flops=flops, gate=gate, without=tuple(without), **fields)


def read_lines(lines: Iterable[str]) -> list[Problem]:
    """One problem per line: its text, or an object with `problem`, the `flops` of it, the bounds of its `gate` and the
    plug-ins that it is timed `without`."""
    problems = []
    for line in lines:
        line = line.strip()
        if line.startswith("{"):
            try:
                given = json.loads(line)
                problems.append(
                    parse(given["problem"], given.get("flops"), Gate(**given.get("gate", {})), given.get("without", ()))
                )
            except (ValueError, KeyError, TypeError) as error:
                raise BadInput(f"the line {line} is no problem: {error!r}") from error
        elif line:
            problems.append(parse(line))
    return problems
