"""What a user of torch's SDPA writes for a call: is_causal where that says it exactly, and else an attn_mask, made once
and outside the timing. It says who sees whom without a look at how the check does."""

from __future__ import annotations

from attune.lab.errors import Absent
from attune.lab.problem import Problem
from attune.lab.tensors import Tensors, torch_dtype


def sdpa_mask(torch, problem: Problem, tensors: Tensors) -> dict:
    """The arguments is_causal and attn_mask. Raises Absent for what no mask can say."""
    p = problem
    for is_asked, what in ((p.packed, "packed sequences"), (p.softcap, "softcap"), (p.sink, "sinks")):
        if is_asked:
            raise Absent(f"torch's SDPA has no {what}")
    if _says_it_all(p):
        return {"is_causal": bool(p.causal)}
    return {"is_causal": False, "attn_mask": tensors.made_once("attn_mask", lambda: _mask(torch, p, tensors))}


def _says_it_all(p: Problem) -> bool:
    """is_causal is aligned top-left."""
    aligned = p.causal != "causal-br" or p.square
    return aligned and not (p.windowed or p.bias or p.mask or p.used_k or (p.used_q and p.causal))


def _mask(torch, p: Problem, tensors: Tensors):
    """(batch, head, row, key), 1 where it is broadcast: boolean, or a bias of q's type that hides keys by -inf."""
    visible = _visible(torch, p, tensors)
    if not p.bias:
        return visible
    bias = tensors.bias.to(torch_dtype(torch, p.dtype))
    return bias if visible is None else torch.where(visible, bias, float("-inf"))


def _visible(torch, p: Problem, tensors: Tensors):
    device = tensors.device
    rows = torch.arange(0, p.seq_q, device=device).view(1, 1, -1, 1)
    keys = torch.arange(0, p.seq_k, device=device).view(1, 1, 1, -1)
    lengths_q = tensors.used_q.view(-1, 1, 1, 1) if p.used_q else p.seq_q
    lengths_k = tensors.used_k.view(-1, 1, 1, 1) if p.used_k else p.seq_k
    conditions = []
    if p.used_k:
        conditions.append(keys < lengths_k)
    diagonal = rows if p.causal == "causal-tl" else rows + (lengths_k - lengths_q)
    if p.causal:
        conditions.append(keys <= diagonal)
    left, right = p.window
    if left >= 0:
        conditions.append(keys >= diagonal - left)
    if right >= 0:
        conditions.append(keys <= diagonal + right)
    if p.mask:
        conditions.append(tensors.mask != 0)
    visible = None
    for condition in conditions:
        visible = condition if visible is None else visible & condition
    return visible
