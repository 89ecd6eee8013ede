"""The check before the timing: every row of every output against float64, on the GPU, head by head.

Attune's kernels are held to the gate of `attune check` (docs/accuracy.md): their relative RMS error to a multiple of
Ideal's, which is made for a sample of the heads, their largest error to ulps of its row. Peers only have to compute the
same thing: with another mask, another scale or a row too few nobody is compared. What they write where a row sees no
key, NaN as it may be, is not judged.
"""

from __future__ import annotations

from attune.lab.gate import Check, Gate
from attune.lab.lengths import SequenceRows
from attune.lab.problem import Problem
from attune.lab.tensors import Tensors, torch_dtype

_FRACTION_BITS = {"f16": 10, "bf16": 7, "f32": 23}
_LOG2_E = 1.4426950408889634
CHUNK_SCORES = 1 << 25
_F32_SUMS_WANDER = 16.0  # where nothing is rounded to 16 bits, the order of float32 sums is what shows
_IDEAL_ROWS = 2048  # so many at least, where there are as many


class Reference:
    """Outputs (batch, row, head, dim) and log-sum-exps (batch, head, row) in float64, as they are stored: packed ones
    have a batch of 1. And Ideal's error."""

    def __init__(self, torch, problem: Problem, tensors: Tensors):
        p = problem
        self._torch = torch
        self._problem = p
        self._tensors = tensors
        batch, stored = p.stored_q
        self.output = torch.zeros(batch, stored, p.heads_q, p.dim_v, dtype=torch.float64, device=tensors.device)
        self.lse = torch.zeros(batch, p.heads_q, stored, dtype=torch.float64, device=tensors.device)
        self.lse.fill_(float("-inf"))  # of rows that are not in use
        rows = max(1, CHUNK_SCORES // max(1, p.seq_k))
        sampled = self._sampled_heads()
        squares = total = 0.0
        for place in range(p.batch * p.heads_q):
            entry, head = divmod(place, p.heads_q)
            sequence = p.sequence(entry)
            for begin in range(0, sequence.rows, rows):
                scores = _Scores(self, entry, sequence, head, begin, min(begin + rows, sequence.rows))
                expected = scores.exact()
                if place in sampled:
                    squares += (scores.ideal() - expected).square().sum().item()
                    total += expected.square().sum().item()
        self.ideal_rms = relative_rms(squares, total)

    def _sampled_heads(self) -> set[int]:
        places = self._problem.batch * self._problem.heads_q
        count = min(places, max(2, -(-_IDEAL_ROWS // self._problem.seq_q)))
        return {place * places // count for place in range(count)}

    def check(self, output, lse, gate: Gate) -> Check:
        """`output` as (batch, row, head, dim), `lse` as (batch, head, row) or None."""
        squares = total = worst = 0.0
        for batch in range(self.output.shape[0]):
            expected = self.output[batch]
            error = self._judged(output[batch].double() - expected, batch, gate)
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

    def _judged(self, error, batch: int, gate: Gate):
        """Without the rows that nobody has promised anything for."""
        if not gate.blind_rows:
            # Rows first, as in the output; one head after the other would do, but there may be thousands.
            blind = (self.lse[batch] == float("-inf")).t().unsqueeze(2)
            error = error.masked_fill(blind, 0.0)
        if (tail := self._tail()) is not None:
            error[tail:] = 0.0
        return error

    def _tail(self) -> int | None:
        """From which packed row on no sequence has them."""
        p = self._problem
        return p.lengths.cu_seqlens_q[-1] if p.packed else None

    def _ulp_of_rows(self, expected):
        """One unit in the last place at the largest element of each row."""
        largest = expected.abs().amax(-1, keepdim=True).clamp(min=1e-30)
        return (largest.log2().floor() - _FRACTION_BITS[self._problem.dtype]).exp2()

    def _lse_error(self, lse) -> float:
        error = (lse.double() - self.lse).abs() / self.lse.abs().clamp(min=1.0)
        # -inf where no key is seen: equal infinities differ by NaN, and are no error.
        error = error.masked_fill(lse.double() == self.lse, 0.0)
        if (tail := self._tail()) is not None:
            error[:, :, tail:] = 0.0
        return error.max().item()


class _Scores:
    """Some rows of one head of one batch entry, their keys and values."""

    def __init__(self, reference: Reference, entry: int, sequence: SequenceRows, head: int, begin: int, end: int):
        self._torch = reference._torch
        self._problem = p = reference._problem
        self._tensors = tensors = reference._tensors
        self._entry, self._sequence, self._head = entry, sequence, head
        self._rows = slice(begin, end)
        kv_head = head // (p.heads_q // p.heads_kv)
        stored = slice(sequence.first_row + begin, sequence.first_row + end)
        keys = slice(sequence.first_key, sequence.first_key + sequence.keys)
        self._q = tensors.q[sequence.batch, stored, head]
        self._k = tensors.k[sequence.batch, keys, kv_head]
        self._v = tensors.v[sequence.batch, keys, kv_head]
        self._output = reference.output[sequence.batch, stored, head]
        self._lse = reference.lse[sequence.batch, head, stored]

    def exact(self):
        """Written to its place, and returned."""
        if self._sequence.keys == 0:
            if self._problem.sink:
                self._lse.fill_(self._tensors.sink[self._head].item())
            return self._output
        scores = self._finished(self._q.double().matmul(self._k.double().t()) * self._problem.softmax_scale)
        lse = scores.logsumexp(1)
        if self._problem.sink:
            lse = self._torch.logaddexp(lse, self._tensors.sink[self._head].double())
        # A row that sees no key: its weights are exp(-inf - (-inf)), and its output is 0.
        weights = (scores - lse.unsqueeze(1)).exp().nan_to_num(0.0)
        self._lse[:] = lse
        self._output[:] = weights.matmul(self._v.double())
        return self._output

    def ideal(self):
        """What a fused kernel that does everything right gives: float32 scores, weights of the element type."""
        if self._sequence.keys == 0:
            return self._output
        dtype = torch_dtype(self._torch, self._problem.dtype)
        sums = self._torch.float32 if self._problem.dtype == "f32" else self._torch.float64
        product = self._q.float().matmul(self._k.float().t())
        if self._problem.softcap or self._problem.bias:
            scores = self._finished(product * self._problem.softmax_scale) * _LOG2_E
        else:
            scores = self._finished(product * (self._problem.softmax_scale * _LOG2_E))
        top = scores.amax(-1, keepdim=True)
        weights = (scores - top).exp2().nan_to_num(0.0).to(dtype).to(sums)
        total = weights.sum(-1, keepdim=True)
        if self._problem.sink:
            total = total + (self._tensors.sink[self._head].double() * _LOG2_E - top).exp2().to(sums)
        # Where a sink outweighs all keys by far, or there are none, the total is infinite, and the output 0.
        return (weights.matmul(self._v.to(sums)) / total.clamp(min=1e-30)).to(dtype).double()

    def _finished(self, scores):
        """All that comes between the scaled product and the softmax, in the order of the contract."""
        p, tensors = self._problem, self._tensors
        if p.softcap:
            scores = (scores / p.softcap).tanh() * p.softcap
        if p.bias:
            scores = scores + self._part(tensors.bias)
        hide(self._torch, p, scores, self._rows.start, self._rows.stop, self._sequence)
        if p.mask:
            scores.masked_fill_(self._part(tensors.mask) == 0, float("-inf"))
        return scores

    def _part(self, of_scores):
        """What a bias or a mask says of these rows."""
        batches, heads, rows, keys = of_scores.shape
        return of_scores[
            self._entry if batches > 1 else 0,
            self._head if heads > 1 else 0,
            self._rows if rows > 1 else slice(0, 1),
            slice(0, self._sequence.keys if keys > 1 else 1),
        ]


def hide(torch, problem: Problem, scores, begin: int, end: int, sequence: SequenceRows | None = None) -> None:
    """What the rows from `begin` on do not see, by causality and window, becomes -inf."""
    least, most = problem.least_offset, problem.most_offset
    if least is None and most is None:
        return
    sequence = sequence or problem.sequence(0)
    diagonal = problem.diagonal(sequence.rows, sequence.keys)
    rows = torch.arange(begin, end, device=scores.device).unsqueeze(1)
    keys = torch.arange(0, sequence.keys, device=scores.device).unsqueeze(0)
    if most is not None:
        scores.masked_fill_(keys > rows + (diagonal + most), float("-inf"))
    if least is not None:
        scores.masked_fill_(keys < rows + (diagonal + least), float("-inf"))


def relative_rms(squares: float, total: float) -> float:
    return (squares / max(total, 1e-300)) ** 0.5


def _larger(a: float, b: float) -> float:
    """max() forgets a NaN that comes second."""
    return b if b != b or b > a else a
