"""attention() and attention_varlen(), on torch tensors and on anything with DLPack."""

from __future__ import annotations

import sys

import torch
from torch.compiler import is_compiling

from attune import ops
from attune.c_api import InvalidArgument
from attune.calls import WATCHED, refuse_gradients, refuse_nested, run
from attune.describe import Packed, describe, library

_Tensor = torch.Tensor


def attention(
    q, k, v, *, scale=None, causal=None, window=None, softcap=None, sink=None, bias=None, mask=None,
    return_lse=False, out=None, layout="bshd",
):  # fmt: skip
    """softmax(mask(softcap(scale * q k^T) + bias)) v.

    q is (batch, row, head, dim), k and v are (batch, key, kv head, dim); with layout="bhsd" heads come before rows. Any
    strides, the last one 1. The kv heads divide the heads. float16, bfloat16 or float32, on the CPU or a GPU.

    scale       replaces 1/sqrt(dim)
    causal      "top-left": row i sees keys 0..i; "bottom-right": 0..i + keys - rows
    window      (left, right): that many keys on both sides of the diagonal, which is that of causal, or else that of
                "bottom-right"; -1 is unbounded
    softcap     scores become softcap * tanh(score / softcap)
    sink        (head,) float32: a logit per head that joins the denominator
    bias        added to the scores; broadcasts to (batch, head, row, key)
    mask        boolean, True where a key is seen; broadcasts to (batch, head, row, key)
    return_lse  return (out, lse), lse being the log-sum-exp of the scores: (batch, head, row) float32
    out         where to write; otherwise new, in the memory order of q

    A row that sees no key is 0, and its log-sum-exp -inf.
    """
    if window is not None:
        window = tuple(window)
    if not is_compiling():
        result = run(
            q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out, None, True, True
        )  # fmt: skip
        if result is not WATCHED:
            return result
    return _attention_through_ops(
        q, k, v, scale, causal, window, softcap, sink, bias, mask, return_lse, out, layout
    )  # fmt: skip


def attention_varlen(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q=None, max_seqlen_k=None, *, scale=None, causal=None, window=None,
    softcap=None, sink=None, bias=None, mask=None, used_q=None, used_k=None, return_lse=False, out=None,
):  # fmt: skip
    """attention() of sequences that lie end to end: q is (rows of all, head, dim), k and v (keys of all, kv head, dim).

    cu_seqlens_q, cu_seqlens_k   (batch + 1,) int32 where q is: sequence b begins at [b] and ends before [b + 1]
    max_seqlen_q, max_seqlen_k   upper bounds of the single lengths; close ones run faster
    used_q, used_k               (batch,) int32: rows and keys in use from the beginning of each sequence
    return_lse                   lse is (head, rows of all)
    """
    if not _are_tensors(q, k, v):
        return _on_tensors(
            attention_varlen, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, scale=scale,
            causal=causal, window=window, softcap=softcap, sink=sink, bias=bias, mask=mask, used_q=used_q,
            used_k=used_k, return_lse=return_lse, out=out,
        )  # fmt: skip
    if window is not None:
        window = tuple(window)
    if not is_compiling():
        packed = Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, used_q, used_k)
        result = run(
            q, k, v, "bshd", scale, causal, window, softcap, sink, bias, mask, return_lse, out, packed, True, True
        )  # fmt: skip
        if result is not WATCHED:
            return result
    refuse_nested(q, k, v)
    refuse_gradients(q, k, v, sink, bias)
    o, lse = ops.attention_varlen(
        q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, used_q, used_k, scale, causal, window,
        softcap, sink, bias, mask, return_lse,
    )  # fmt: skip
    o = o if out is None else out.copy_(o)
    return (o, lse) if return_lse else o


def explain(
    q, k, v, *, scale=None, causal=None, window=None, softcap=None, sink=None, bias=None, mask=None, return_lse=False,
    out=None, layout="bshd",
) -> str:  # fmt: skip
    """Which kernel attention() would run with these arguments, and why."""
    q, k, v, sink, bias, mask, out = map(_as_tensor, (q, k, v, sink, bias, mask, out))
    described = describe(q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out)
    return library().explain(described.desc)


def _attention_through_ops(q, k, v, scale, causal, window, softcap, sink, bias, mask, return_lse, out, layout):
    """Where something else than eager torch looks on, and for what is no tensor yet."""
    if not _are_tensors(q, k, v):
        return _on_tensors(
            attention, q, k, v, scale=scale, causal=causal, window=window, softcap=softcap, sink=sink, bias=bias,
            mask=mask, return_lse=return_lse, out=out, layout=layout,
        )  # fmt: skip
    refuse_nested(q, k, v)
    refuse_gradients(q, k, v, sink, bias)
    heads_first = layout == "bhsd"
    if heads_first:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    elif layout != "bshd":
        raise InvalidArgument(f"layout is {layout!r}; it must be 'bshd' or 'bhsd'")
    o, lse = ops.attention(q, k, v, scale, causal, window, softcap, sink, bias, mask, return_lse)
    if heads_first:
        o = o.transpose(1, 2)
    if out is not None:
        o = out.copy_(o)
    return (o, lse) if return_lse else o


def _are_tensors(q, k, v) -> bool:
    return isinstance(q, _Tensor) and isinstance(k, _Tensor) and isinstance(v, _Tensor)


def _on_tensors(function, q, k, v, *arguments, **options):
    """`function` of arrays of other kinds; its results become arrays of the kind of q."""
    for name, array in (("q", q), ("k", k), ("v", v)):
        if not hasattr(array, "__dlpack__"):
            raise InvalidArgument(f"{name} is a {type(array).__name__}; it must be a torch tensor or have __dlpack__")
    arguments = [_as_tensor(each) for each in (q, k, v, *arguments)]
    return _as_given(function(*arguments, **{name: _as_tensor(each) for name, each in options.items()}), q)


def _as_tensor(value):
    """Whatever is no array stays what it is."""
    return torch.from_dlpack(value) if hasattr(value, "__dlpack__") and not isinstance(value, _Tensor) else value


def _as_given(result, like):
    """Results as arrays of the kind that came in, where that kind can take them (the array API standard)."""
    if isinstance(result, tuple):
        return tuple(_as_given(each, like) for each in result)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(like, numpy.ndarray):  # follows that standard from 2.0 on only
        return result.numpy()
    namespace = getattr(like, "__array_namespace__", None)
    return result if namespace is None else namespace().from_dlpack(result)
