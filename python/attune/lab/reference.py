"""The check before the timing: every row of every output against float64, on the GPU, head by head.

Attune's kernels are held to the gate of `attune check` (docs/accuracy.md): their relative RMS error to a multiple of
Ideal's, which is made for a sample of the heads, their largest error to ulps of its row. Peers only have to compute the
same thing: with another mask, another scale or a row too few nobody is compared.
"""

from __future__ import annotations

from attune.lab.gate import Check, Gate
from attune.lab.problem import Problem
from attune.lab.tensors import Tensors, torch_dtype

_FRACTION_BITS = {"f16": 10, "bf16": 7, "f32": 23}
_LOG2_E = 1.4426950408889634
CHUNK_SCORES = 1 << 25
_F32_SUMS_WANDER = 16.0  # where nothing is rounded to 16 bits, the order of float32 sums is what shows
_IDEAL_ROWS = 2048  # so many at least, where there are as many


class Reference:
    """Outputs (batch, row, head, dim) and log-sum-exps (batch, head, row) in float64, and Ideal's error."""

    def __init__(self, torch, problem: Problem, tensors: Tensors):
        p = problem
        self._torch = torch
        self._problem = p
        self._tensors = tensors
        self.output = torch.empty(p.batch, p.seq_q, p.heads_q, p.dim_v, dtype=torch.float64, device=tensors.device)
        self.lse = torch.empty(p.batch, p.heads_q, p.seq_q, dtype=torch.float64, device=tensors.device)
        rows = max(1, CHUNK_SCORES // p.seq_k)
        sampled = self._sampled_heads()
        squares = total = 0.0
        for place in range(p.batch * p.heads_q):
            batch, head = divmod(place, p.heads_q)
            for begin in range(0, p.seq_q, rows):
                end = min(begin + rows, p.seq_q)
                expected = self._exact(batch, head, begin, end)
                if place in sampled:
                    squares += (self._ideal(batch, head, begin, end) - expected).square().sum().item()
                    total += expected.square().sum().item()
        self.ideal_rms = relative_rms(squares, total)

    def _sampled_heads(self) -> set[int]:
        places = self._problem.batch * self._problem.heads_q
        count = min(places, max(2, -(-_IDEAL_ROWS // self._problem.seq_q)))
        return {place * places // count for place in range(count)}

    def _operands(self, batch: int, head: int, begin: int, end: int):
        p, tensors = self._problem, self._tensors
        kv_head = head // (p.heads_q // p.heads_kv)
        return tensors.q[batch, begin:end, head], tensors.k[batch, :, kv_head], tensors.v[batch, :, kv_head]

    def _exact(self, batch: int, head: int, begin: int, end: int):
        q, k, v = self._operands(batch, head, begin, end)
        scores = q.double().matmul(k.double().t()) * self._problem.softmax_scale
        self._hide(scores, begin, end)
        lse = scores.logsumexp(1)
        # A row that sees no key: its weights are exp(-inf - (-inf)), and its output is 0.
        weights = (scores - lse.unsqueeze(1)).exp().nan_to_num(0.0)
        self.lse[batch, head, begin:end] = lse
        self.output[batch, begin:end, head] = weights.matmul(v.double())
        return self.output[batch, begin:end, head]

    def _ideal(self, batch: int, head: int, begin: int, end: int):
        """What a fused kernel that does everything right gives: float32 scores, weights of the element type."""
        dtype = torch_dtype(self._torch, self._problem.dtype)
        sums = self._torch.float32 if self._problem.dtype == "f32" else self._torch.float64
        q, k, v = self._operands(batch, head, begin, end)
        scores = q.float().matmul(k.float().t()) * (self._problem.softmax_scale * _LOG2_E)
        self._hide(scores, begin, end)
        weights = (scores - scores.amax(-1, keepdim=True)).exp2().nan_to_num(0.0).to(dtype).to(sums)
        total = weights.sum(-1, keepdim=True).clamp(min=1e-30)
        return (weights.matmul(v.to(sums)) / total).to(dtype).double()

    def _hide(self, scores, begin: int, end: int) -> None:
        hide(self._torch, self._problem, scores, begin, end)

    def check(self, output, lse, gate: Gate) -> Check:
        """`output` as (batch, row, head, dim), `lse` as (batch, head, row) or None."""
        squares = total = worst = 0.0
        for batch in range(self._problem.batch):
            expected = self.output[batch]
            error = output[batch].double() - expected
            squares += error.square().sum().item()
            total += expected.square().sum().item()
            worst = _larger(worst, (error.abs() / self._ulp_of_rows(expected)).max().item())
        return Check(
            rel_rms=relative_rms(squares, total),
            rel_rms_bound=gate.rms_factor * self.ideal_rms,
            max_ulp=worst,
            max_ulp_bound=gate.max_ulp * (_F32_SUMS_WANDER if self._problem.dtype == "f32" else 1),
            lse_err=None if lse is None else self._lse_error(lse),
            lse_bound=gate.lse,
        )

    def _ulp_of_rows(self, expected):
        """One unit in the last place at the largest element of each row."""
        largest = expected.abs().amax(-1, keepdim=True).clamp(min=1e-30)
        return (largest.log2().floor() - _FRACTION_BITS[self._problem.dtype]).exp2()

    def _lse_error(self, lse) -> float:
        error = (lse.double() - self.lse).abs() / self.lse.abs().clamp(min=1.0)
        # -inf where no key is seen: equal infinities differ by NaN, and are no error.
        return error.masked_fill(lse.double() == self.lse, 0.0).max().item()


def hide(torch, problem: Problem, scores, begin: int, end: int) -> None:
    """What the rows from `begin` on do not see becomes -inf."""
    if not problem.causal:
        return
    diagonal = 0 if problem.causal == "causal-tl" else problem.seq_k - problem.seq_q
    rows = torch.arange(begin, end, device=scores.device).unsqueeze(1)
    keys = torch.arange(0, problem.seq_k, device=scores.device).unsqueeze(0)
    scores.masked_fill_(keys > rows + diagonal, float("-inf"))


def relative_rms(squares: float, total: float) -> float:
    return (squares / max(total, 1e-300)) ** 0.5


def _larger(a: float, b: float) -> float:
    """max() forgets a NaN that comes second."""
    return b if b != b or b > a else a
