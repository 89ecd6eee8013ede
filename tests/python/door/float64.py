"""What attention is, in float64 and without any trick; and how far an output may be from it (docs/accuracy.md)."""

import math
from dataclasses import dataclass

import torch


def differentiable(q, k, v, sink=None, **options):
    """(out, lse) in float64 with their gradients, which are 0 for a row that sees nothing."""
    s = scores(q, k, **options)
    logits = s
    if sink is not None:
        logits = torch.cat([s, sink.double().view(1, -1, 1, 1).expand(*s.shape[:3], 1)], dim=3)
    blind = logits.isneginf().all(3, keepdim=True)
    lse = logits.masked_fill(blind, 0.0).logsumexp(3)
    weights = (s - lse.unsqueeze(3)).exp().masked_fill(blind, 0.0)
    v = v.repeat_interleave(q.shape[2] // v.shape[2], dim=2).double()
    return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse.masked_fill(blind.squeeze(3), -math.inf)


@dataclass
class Truth:
    out: torch.Tensor  # (batch, row, head, dim), float64
    lse: torch.Tensor  # (batch, head, row), float64
    ideal: torch.Tensor  # what the best kernel could give: weights rounded to the dtype, one rounding of the output
    largest_logit: float


def visible(rows, keys, causal=None, window=None):
    """(row, key), True where seen."""
    diagonal = torch.arange(rows).unsqueeze(1) + (0 if causal == "top-left" else keys - rows)
    key = torch.arange(keys).unsqueeze(0)
    seen = torch.ones(rows, keys, dtype=torch.bool)
    if causal:
        seen &= key <= diagonal
    left, right = window or (-1, -1)
    if left >= 0:
        seen &= key >= diagonal - left
    if right >= 0:
        seen &= key <= diagonal + right
    return seen


def scores(q, k, scale=None, causal=None, window=None, softcap=None, bias=None, mask=None):
    """(batch, head, row, key), hidden ones -inf. q and k are (batch, row, head, dim)."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], dim=2)
    s = torch.einsum("bqhd,bkhd->bhqk", q.double(), k.double())
    s = s * (1 / math.sqrt(q.shape[3]) if scale is None else scale)
    if softcap is not None:
        s = softcap * torch.tanh(s / softcap)
    if bias is not None:
        s = s + bias.double()
    if mask is not None:
        s = s.masked_fill(~mask, -math.inf)
    return s.masked_fill(~visible(*s.shape[2:], causal, window).to(s.device), -math.inf)


def truth(q, k, v, sink=None, **options) -> Truth:
    s = scores(q, k, **options)
    v = v.repeat_interleave(q.shape[2] // v.shape[2], dim=2).double()
    logits = s
    if sink is not None:
        logits = torch.cat([s, sink.double().view(1, -1, 1, 1).expand(*s.shape[:3], 1)], dim=3)
    lse = logits.logsumexp(3)
    if logits.shape[3] == 0:
        lse = torch.full(s.shape[:3], -math.inf, dtype=torch.float64, device=s.device)
    weights = (s - lse.unsqueeze(3)).exp().nan_to_num(0.0)
    top = s.amax(3, keepdim=True) if s.shape[3] else lse.unsqueeze(3)
    p = (s - top).float().exp().nan_to_num(0.0)
    rounded = p.to(q.dtype).double()
    denominator = (lse.unsqueeze(3) - top).exp()
    ideal = torch.einsum("bhqk,bkhd->bqhd", rounded, v) / denominator.transpose(1, 2)
    out = torch.einsum("bhqk,bkhd->bqhd", weights, v)
    finite = s[s.isfinite()].abs()
    largest = finite.max().item() if finite.numel() else 0.0
    return Truth(out, lse, ideal.nan_to_num(0.0).to(q.dtype).double(), largest)


_UNIT = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}


def relative_rms(out, expected) -> float:
    return ((out.double() - expected).square().sum() / expected.square().sum().clamp(min=1e-300)).sqrt().item()


def complaint(out, expected: Truth, lse=None) -> str:
    """Empty if the output (batch, row, head, dim) is within the gate. Written so that NaN fails."""
    if out.shape != expected.out.shape:
        return f"shape {tuple(out.shape)}, expected {tuple(expected.out.shape)}"
    if out.numel() == 0:
        return ""
    # Few rows are a matter of luck; in float32 the rounding of the scores, which is relative to them, is what is left.
    floor = _UNIT[out.dtype] * (max(4, expected.largest_logit) if out.dtype == torch.float32 else 1)
    allowed = max(1.5 * relative_rms(expected.ideal, expected.out), floor)
    if not relative_rms(out, expected.out) <= allowed:
        return f"relative RMS error {relative_rms(out, expected.out):.3g}, allowed {allowed:.3g}"
    unit = expected.out.abs().amax(-1, keepdim=True) * _UNIT[out.dtype] * 2
    worst = ((out.double() - expected.out).abs() / unit.clamp(min=1e-30)).max().item()
    if not worst <= (4 * max(4, expected.largest_logit) if out.dtype == torch.float32 else 3):
        return f"largest error {worst:.3g} units of its row"
    if lse is None:
        return ""
    error = (lse.double() - expected.lse).abs() / expected.lse.abs().clamp(min=1)
    error = error.masked_fill(lse.double() == expected.lse, 0)
    return "" if error.max().item() <= 2e-5 else f"error of the log-sum-exp {error.max().item():.3g}"


# Of gradients: a few times what a perfect kernel errs, which rounds weights and score gradients to the dtype. The gate
# itself judges in `attune check`.
GRADIENT_ERROR = {torch.float16: 2e-3, torch.bfloat16: 1.5e-2, torch.float32: 2e-5}


def gradient_complaint(got, expected, dtype) -> str:
    """Empty if each gradient is near the one in float64. Written so that NaN fails."""
    for place, (one, right) in enumerate(zip(got, expected)):
        if one.shape != right.shape:
            return f"gradient {place} has the shape {tuple(one.shape)}, expected {tuple(right.shape)}"
        error = relative_rms(one, right.double()) if right.count_nonzero() else one.abs().max().item()
        if not error <= GRADIENT_ERROR[dtype]:
            return f"gradient {place} is off by {error:.3g}, allowed {GRADIENT_ERROR[dtype]:.3g}"
    return ""
