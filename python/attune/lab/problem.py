"""Problems as text (docs/problems.md): forward passes with all their features, and gradients of those without."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from attune.lab.errors import BadInput
from attune.lab.gate import DEFAULT_GATE, Gate
from attune.lab.lengths import NO_LENGTHS, Lengths, SequenceRows

DTYPES = ("f16", "bf16", "f32")
_NUMBER = r"(\d+)"
UNBOUNDED = -1


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
    window: tuple[int, int] = (UNBOUNDED, UNBOUNDED)  # to the left and to the right of the diagonal
    softcap: float = 0.0  # 0: none
    sink: bool = False
    bias: str = ""  # the dimensions it has, such as "1hqk"; "" is no bias
    bias_dtype: str = ""
    mask: str = ""
    packed: bool = False
    total_q: int = 0
    total_k: int = 0
    used_q: bool = False
    used_k: bool = False
    scale: float | None = None
    lse: bool = True
    backward: bool = False  # the gradients of q, k and v
    heads_first: bool = False  # storage: bhsd instead of bshd
    lengths: Lengths = NO_LENGTHS
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

    @property
    def windowed(self) -> bool:
        return self.window != (UNBOUNDED, UNBOUNDED)

    @property
    def least_offset(self) -> int | None:
        """How far to the left of the diagonal a row sees, as a negative number; None: without a bound."""
        return None if self.window[0] == UNBOUNDED else -self.window[0]

    @property
    def most_offset(self) -> int | None:
        """How far to the right of the diagonal a row sees; None: without a bound."""
        if self.causal:
            return 0
        return None if self.window[1] == UNBOUNDED else self.window[1]

    @property
    def mask_pads(self) -> bool:
        """The mask says the same for all heads and rows (lab/check/lengths.hpp)."""
        return self.mask[1:] == "11k"

    @property
    def stored_q(self) -> tuple[int, int]:
        """Batch and rows of q and o in memory."""
        return (1, self.total_q) if self.packed else (self.batch, self.seq_q)

    @property
    def stored_k(self) -> tuple[int, int]:
        return (1, self.total_k) if self.packed else (self.batch, self.seq_k)

    def diagonal(self, rows: int, keys: int) -> int:
        """The key on the diagonal of row 0."""
        return 0 if self.causal == "causal-tl" else keys - rows

    def sequence(self, batch: int) -> SequenceRows:
        given = self.lengths
        first_row, rows = _span(given.cu_seqlens_q, batch) if self.packed else (0, self.seq_q)
        first_key, keys = _span(given.cu_seqlens_k, batch) if self.packed else (0, self.seq_k)
        if self.used_q:
            rows = min(rows, given.used_q[batch])
        if self.used_k:
            keys = min(keys, given.used_k[batch])
        return SequenceRows(0 if self.packed else batch, first_row, first_key, rows, keys)

    def with_lengths(self, lengths: Lengths) -> Problem:
        """Raises BadInput for lengths that are not those of this problem."""
        counts = dict.fromkeys(["cu_seqlens_q", "cu_seqlens_k"] if self.packed else [], self.batch + 1)
        counts |= {"used_q": self.batch * self.used_q, "used_k": self.batch * self.used_k}
        if self.mask_pads:
            counts["padding"] = self.batch if self.mask[0] == "b" else 1
        if complaint := lengths.wrong_for(counts):
            raise BadInput(f"'{self.text}': its length list {complaint}; attune bench --peers gives the lists")
        return replace(self, lengths=lengths)


def _span(offsets: tuple[int, ...], batch: int) -> tuple[int, int]:
    return offsets[batch], offsets[batch + 1] - offsets[batch]


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


_SCORES = r"([b1][h1][q1][k1])"


def _feature(word: str) -> dict | None:
    """The fields of a word of forward passes alone."""
    if word in ("sink", "used-q", "used-k", "nolse"):
        return {"lse": False} if word == "nolse" else {word.replace("-", "_"): True}
    if match := re.fullmatch(r"w(-1|\d+),(-1|\d+)", word):
        return {"window": (int(match[1]), int(match[2]))}
    if match := re.fullmatch(r"cap([.\d]+(?:e[-+]?\d+)?)", word):
        return {"softcap": float(match[1])}
    if match := re.fullmatch(rf"bias={_SCORES}(:f32)?", word):
        return {"bias": match[1], "bias_dtype": "f32" if match[2] else ""}
    if match := re.fullmatch(rf"mask={_SCORES}", word):
        return {"mask": match[1]}
    if match := re.fullmatch(r"var(?:=(\d+),(\d+))?", word):
        return {"packed": True, "total_q": int(match[1] or 0), "total_k": int(match[2] or 0)}
    return None


def parse(
    text: str,
    flops: float | None = None,
    gate: Gate = DEFAULT_GATE,
    without: Iterable[str] = (),
    lengths: Lengths = NO_LENGTHS,
) -> Problem:
    given = text.split()
    words = dict.fromkeys(given)
    if not given or given[0] not in ("fwd", "bwd") or len(words) != len(given):
        raise BadInput(f"'{text}' is no problem; one is 'fwd b1 h8/8 q512 k512 d64 f16 causal-br'")
    del words[given[0]]
    fields = {**_extents(words, text), "backward": given[0] == "bwd"}
    for word in words:
        feature = None if fields["backward"] else _feature(word)
        if feature is not None:
            fields |= feature
        elif word in DTYPES and "dtype" not in fields:
            fields["dtype"] = word
        elif word in ("causal-tl", "causal-br", "causal"):
            fields["causal"] = "causal-br" if word == "causal" else word
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
    fields["bias_dtype"] = fields.get("bias_dtype") or fields["dtype"]
    if fields.get("packed"):
        for side in "qk":
            fields[f"total_{side}"] = fields[f"total_{side}"] or fields["batch"] * fields[f"seq_{side}"]
    problem = Problem(text=text, flops=flops, gate=gate, without=tuple(without), **fields)
    return problem.with_lengths(lengths)


def read_lines(lines: Iterable[str]) -> list[Problem]:
    """One problem per line: its text, or an object with `problem`, the `flops` of it, the bounds of its `gate`, the
    plug-ins that it is timed `without`, and its `lengths` where it has such."""
    problems = []
    for line in lines:
        line = line.strip()
        if line.startswith("{"):
            try:
                given = json.loads(line)
                gate, lengths = Gate(**given.get("gate", {})), Lengths.given(given.get("lengths", {}))
                problems.append(parse(given["problem"], given.get("flops"), gate, given.get("without", ()), lengths))
            except (ValueError, KeyError, TypeError) as error:
                raise BadInput(f"the line {line} is no problem: {error!r}") from error
        elif line:
            problems.append(parse(line))
    return problems
