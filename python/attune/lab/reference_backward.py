"""The gradients of attention in float64, on the GPU, head by head; beside them what Ideal gives, for a sample of the KV
heads (docs/accuracy.md): scores in float32, o, weights and the gradients of scores rounded to the element type before
the products, one rounding at the end. Each gradient is held to a multiple of Ideal's relative RMS error."""

from __future__ import annotations

from attune.lab.gate import Check, Gate
from attune.lab.problem import Problem
from attune.lab.reference import CHUNK_SCORES, hide, relative_rms
from attune.lab.tensors import Tensors, torch_dtype

_IDEAL_KV_HEADS = 2


class BackwardReference:
    """dq, dk and dv, each (batch, row, head, dim)."""

    def __init__(self, torch, problem: Problem, tensors: Tensors):
        self._torch = torch
        self._problem = problem
        self._tensors = tensors
        self.gradients = tuple(
            torch.empty(*tensor.shape, dtype=torch.float64, device=tensors.device)
            for tensor in (tensors.q, tensors.k, tensors.v)
        )
        places = problem.batch * problem.heads_kv
        count = min(places, _IDEAL_KV_HEADS)
        sampled = {place * places // count for place in range(count)}
        errors, totals = [0.0] * 3, [0.0] * 3
        for place in range(places):
            batch, head_kv = divmod(place, problem.heads_kv)
            exact = self._of(batch, head_kv, ideal=False)
            heads = slice(head_kv * self._group, (head_kv + 1) * self._group)
            for gradient, found, at in zip(self.gradients, exact, (heads, head_kv, head_kv)):
                gradient[batch, :, at] = found
            if place in sampled:
                for i, (ideal, right) in enumerate(zip(self._of(batch, head_kv, ideal=True), exact)):
                    errors[i] += (ideal - right).square().sum().item()
                    totals[i] += right.square().sum().item()
        self.ideal_rms = [relative_rms(error, total) for error, total in zip(errors, totals)]

    @property
    def _group(self) -> int:
        return self._problem.heads_q // self._problem.heads_kv

    def _of(self, batch: int, head_kv: int, ideal: bool) -> tuple:
        """dq of the query heads that share one KV head (row, head, dim), and its dk and dv (row, dim)."""
        torch, p, tensors = self._torch, self._problem, self._tensors
        dtype = torch_dtype(torch, p.dtype)
        sums = torch.float32 if ideal and p.dtype == "f32" else torch.float64

        def rounded(tensor):
            return tensor.to(dtype).to(sums) if ideal else tensor

        k, v = tensors.k[batch, :, head_kv].to(sums), tensors.v[batch, :, head_kv].to(sums)
        dq = torch.empty(p.seq_q, self._group, p.dim_qk, dtype=torch.float64, device=tensors.device)
        dk, dv = k * 0.0, v * 0.0
        rows = max(1, CHUNK_SCORES // p.seq_k)
        for at in range(self._group):
            for begin in range(0, p.seq_q, rows):
                end = min(begin + rows, p.seq_q)
                head = head_kv * self._group + at
                q = tensors.q[batch, begin:end, head].to(sums)
                dout = tensors.dout[batch, begin:end, head].to(sums)
                p_exact, o = self._weights(q, k, v, begin, end, ideal)
                delta = (dout * rounded(o)).sum(-1, keepdim=True)
                ds = rounded(p_exact * (dout.matmul(v.t()) - delta))
                dq[begin:end, at] = rounded(ds.matmul(k) * p.softmax_scale).double()
                dk = dk + ds.t().matmul(q)
                dv = dv + rounded(p_exact).t().matmul(dout)
        return dq, rounded(dk * p.softmax_scale).double(), rounded(dv).double()

    def _weights(self, q, k, v, begin: int, end: int, ideal: bool) -> tuple:
        product = q.float().matmul(k.float().t()).to(q.dtype) if ideal else q.matmul(k.t())
        scores = product * self._problem.softmax_scale
        hide(self._torch, self._problem, scores, begin, end)
        # A row that sees no key: its weights are exp(-inf - (-inf)).
        weights = (scores - scores.logsumexp(1).unsqueeze(1)).exp().nan_to_num(0.0)
        return weights, weights.matmul(v)

    def check(self, outputs, lse, gate: Gate) -> Check:
        """Of the gradient that is nearest to its bound. `outputs`: dq, dk and dv."""
        checks = [
            self._check(output, expected, ideal_rms, gate)
            for output, expected, ideal_rms in zip(outputs, self.gradients, self.ideal_rms)
        ]
        wrong = [check for check in checks if check.complaint]
        return wrong[0] if wrong else max(checks, key=lambda check: check.rel_rms / max(check.rel_rms_bound, 1e-300))

    def _check(self, output, expected, ideal_rms: float, gate: Gate) -> Check:
        squares = total = 0.0
        for batch in range(self._problem.batch):
            squares += (output[batch].double() - expected[batch]).square().sum().item()
            total += expected[batch].square().sum().item()
        return Check(
            rel_rms=relative_rms(squares, total),
            rel_rms_bound=gate.rms_factor * ideal_rms,
            max_ulp=None,
            max_ulp_bound=gate.max_ulp,
            lse_err=None,
            lse_bound=gate.lse,
        )
