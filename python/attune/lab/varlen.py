"""torch.nn.attention.varlen.varlen_attn: packed sequences, and windows of dense ones, which lie end to end as well."""

from __future__ import annotations

import inspect
from functools import partial

from attune.lab.contender import Bound, Contender
from attune.lab.errors import Absent
from attune.lab.imports import imported
from attune.lab.problem import UNBOUNDED, Problem
from attune.lab.tensors import Tensors


class Varlen(Contender):
    name = "varlen"

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        p = problem
        if p.backward:
            raise Absent("only its forward pass is measured here")
        if not p.packed and not p.windowed:
            raise Absent("varlen_attn is measured on packed sequences and windows")
        for has, what in ((p.softcap, "softcap"), (p.sink, "sinks"), (p.bias, "bias"), (p.mask, "mask"),
                          (p.used_q or p.used_k, "used lengths")):  # fmt: skip
            if has:
                raise Absent(f"varlen_attn has no {what}")
        if p.causal == "causal-tl" and (p.packed or not p.square):
            raise Absent("the causal mask of varlen_attn is aligned bottom-right")
        if not p.packed and p.heads_first:
            raise Absent("varlen_attn takes rows before heads")
        attention = imported("torch.nn.attention.varlen").varlen_attn
        inputs = [tensor.flatten(0, 1) for tensor in (tensors.q, tensors.k, tensors.v)]
        ends, longest = _ends(torch, p, tensors)
        call = partial(attention, *inputs, *ends, *longest, **_options(attention, p))
        return Bound(lambda: call().view(*p.stored_q, p.heads_q, p.dim_v))


def _ends(torch, p: Problem, tensors: Tensors) -> tuple:
    """The offsets of q and k, and their longest sequences."""
    if p.packed:
        sequences = [p.sequence(batch) for batch in range(p.batch)]
        longest = (max(each.rows for each in sequences), max(each.keys for each in sequences))
        return (tensors.cu_seqlens_q, tensors.cu_seqlens_k), longest
    longest = (p.seq_q, p.seq_k)
    ends = [torch.arange(p.batch + 1, dtype=torch.int32, device=tensors.device) * length for length in longest]
    return tuple(ends), longest


def _options(attention, p: Problem) -> dict:
    """The interface has grown: torch 2.10 knows causal masks alone, 2.11 windows and a scale, later ones grouped
    heads."""
    known = inspect.signature(attention).parameters
    options = {}
    if "window_size" in known:
        right = p.most_offset
        options["window_size"] = (p.window[0], UNBOUNDED if right is None else right)
    elif p.windowed:
        raise Absent("this torch's varlen_attn has no window")
    elif p.causal:
        options["is_causal"] = True
    if "scale" in known:
        options["scale"] = p.softmax_scale
    elif p.scale is not None:
        raise Absent("this torch's varlen_attn has no scale")
    if "enable_gqa" in known and p.heads_q != p.heads_kv:
        options["enable_gqa"] = True
    return options
