"""Ratios that were recorded elsewhere, for a peer that is not here today: its time is derived, never measured."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from attune.lab.errors import BadInput
from attune.lab.measure import Outcome
from attune.lab.problem import Problem

_DTYPES = {"fp16": "f16", "bf16": "bf16"}


@dataclass
class Derived:
    seconds: float
    lower: float
    upper: float


def _key(problem: Problem):
    p = problem
    if not p.square or p.heads_q != p.heads_kv or p.dim_qk != p.dim_v:
        return None
    return p.batch, p.heads_q, p.seq_q, p.dim_qk, bool(p.causal), p.dtype


class Recorded:
    """Speed of `peer` over cuDNN's by problem: lines of JSON with B, H, S, D, causal, dt and speed_vs_cudnn."""

    def __init__(self, path: str, peer: str = "fa3"):
        self.peer = peer
        self._ratios = {}
        try:
            lines = Path(path).read_text().splitlines()
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                ratio = row["speed_vs_cudnn"].get(peer)
                key = (*(row[name] for name in ("B", "H", "S", "D", "causal")), _DTYPES[row["dt"]])
                if ratio is not None:
                    self._ratios[key] = tuple(float(value) for value in ratio)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise BadInput(f"{path}, line {number}: not a recorded ratio: {error!r}") from error

    def derive(self, outcome: Outcome) -> Derived | None:
        """cuDNN's time of this run divided by the recorded ratio; the interval is the recorded one's alone."""
        ratio, cudnn = self._ratios.get(_key(outcome.problem)), outcome.seconds("cudnn")
        if ratio is None or cudnn is None:
            return None
        estimate, lower, upper = ratio
        return Derived(cudnn[0] / estimate, cudnn[0] / upper, cudnn[0] / lower)
