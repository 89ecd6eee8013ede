"""The check before the timing: outputs against float64 on the GPU, head by head and in chunks of rows.

It is coarser than `attune check`, which knows what the best 16-bit kernel could do; it finds what computes something
else: another mask, another scale, a row too few.
"""

from __future__ import annotations

from dataclasses import dataclass

from attune.lab.problem import Problem
from attune.lab.tensors import Tensors

# Rounding error of one operation; f32 gets room for long sums.
UNIT = {"f16": 2.0**-11, "bf16": 2.0**-8, "f32": 2.0**-20}
MOST_RMS = 1.0  # relative RMS error, in units
MOST_ELEMENT = 4.0  # largest error, in units of the largest element of its row
MOST_LSE = 2e-5  # |LSE - LSE64| / max(1, |LSE64|)
_CHUNK_SCORES = 1 << 25


@dataclass
class Check:
    rms: float
    element: float
    lse: float | None = None

    @property
    def complaint(self) -> str:
        """Empty if it passed. Written so that NaN fails."""
        if not self.rms <= MOST_RMS:
            return f"relative RMS error {self.rms:.3g} units, allowed {MOST_RMS:g}"
        if not self.element <= MOST_ELEMENT:
            return f"largest error {self.element:.3g} units of its row, allowed {MOST_ELEMENT:g}"
        if self.lse is not None and not self.lse <= MOST_LSE:
            return f"error of the log-sum-exp {self.lse:.3g}, allowed {MOST_LSE:g}"
        return ""


class Reference:
    """Outputs (batch, row, head, dim) and log-sum-exps (batch, head, row) in float64."""

    def __init__(self, torch, problem: Problem, tensors: Tensors):
        p = problem
        self._torch = torch
        self._problem = p
        self.output = torch.empty(p.batch, p.seq_q, p.heads_q, p.dim_v, dtype=torch.float64, device=tensors.device)
        self.lse = torch.empty(p.batch, p.heads_q, p.seq_q, dtype=torch.float64, device=tensors.device)
        rows = max(1, _CHUNK_SCORES // p.seq_k)
        for batch in range(p.batch):
            for head in range(p.heads_q):
                kv_head = head // (p.heads_q // p.heads_kv)
                keys = tensors.k[batch, :, kv_head].double().t()
                values = tensors.v[batch, :, kv_head].double()
                for begin in range(0, p.seq_q, rows):
                    end = min(begin + rows, p.seq_q)
                    scores = tensors.q[batch, begin:end, head].double().matmul(keys) * p.softmax_scale
                    self._hide(scores, begin, end)
                    lse = scores.logsumexp(1)
                    # A row that sees no key: its weights are exp(-inf - (-inf)), and its output is 0.
                    weights = (scores - lse.unsqueeze(1)).exp().nan_to_num(0.0)
                    self.output[batch, begin:end, head] = weights.matmul(values)
                    self.lse[batch, head, begin:end] = lse

    def _hide(self, scores, begin: int, end: int) -> None:
        p = self._problem
        if not p.causal:
            return
        diagonal = 0 if p.causal == "causal-tl" else p.seq_k - p.seq_q
        device = scores.device
        rows = self._torch.arange(begin, end, device=device).unsqueeze(1)
        keys = self._torch.arange(0, p.seq_k, device=device).unsqueeze(0)
        scores.masked_fill_(keys > rows + diagonal, float("-inf"))

    def check(self, output, lse=None) -> Check:
        """`output` as (batch, row, head, dim), `lse` as (batch, head, row)."""
        unit = UNIT[self._problem.dtype]
        squares = total = worst = 0.0
        for batch in range(self._problem.batch):
            expected = self.output[batch]
            error = output[batch].double() - expected
            squares += error.square().sum().item()
            total += expected.square().sum().item()
            scale = expected.abs().amax(-1, keepdim=True).clamp(min=1e-30)
            worst = _larger(worst, (error.abs() / scale).max().item())
        rms = (squares / max(total, 1e-300)) ** 0.5
        return Check(rms / unit, worst / unit, None if lse is None else self._lse_error(lse))

    def _lse_error(self, lse) -> float:
        error = (lse.double() - self.lse).abs() / self.lse.abs().clamp(min=1.0)
        # -inf where no key is seen: equal infinities differ by NaN, and are no error.
        return error.masked_fill(lse.double() == self.lse, 0.0).max().item()


def _larger(a: float, b: float) -> float:
    """max() forgets a NaN that comes second."""
    return b if b != b or b > a else a
