"""torch.ops.attune: the calls as operators that torch.compile, torch.export and fake tensors see through."""

from __future__ import annotations

import torch

from attune import fallback
from attune.c_api import AttuneError, Unsupported
from attune.calls import run
from attune.describe import Packed, empty_output

_SCORES = "float? scale, str? causal, int[]? window, float? softcap, Tensor? sink, Tensor? bias, Tensor? mask"
_PACKED = (
    "Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt? max_seqlen_q, SymInt? max_seqlen_k, "
    "Tensor? used_q, Tensor? used_k"
)
_RESULT = "(Tensor out, Tensor lse)"  # lse has no elements where it is not asked for

# Inductor hands over tensors with the strides that eager has.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)

_library = torch.library.Library("attune", "DEF")
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_SCORES}, bool return_lse) -> {_RESULT}", tags=_TAGS)
_library.define(
    f"attention_varlen(Tensor q, Tensor k, Tensor v, {_PACKED}, {_SCORES}, bool return_lse) -> {_RESULT}", tags=_TAGS
)

_library.define(
    "attention_or_torch(Tensor q, Tensor k, Tensor v, float? scale, str? causal, Tensor? bias, Tensor? mask) -> Tensor",
    tags=_TAGS,
)


def _attention(q, k, v, scale, causal, window, softcap, sink, bias, mask, return_lse):
    window = None if window is None else tuple(window)
    result = run(q, k, v, "bshd", scale, causal, window, softcap, sink, bias, mask, return_lse)
    return result if return_lse else (result, _no_lse(q))


def _attention_varlen(q, k, v, cu_q, cu_k, max_q, max_k, used_q, used_k, *score_function):
    scale, causal, window, softcap, sink, bias, mask, return_lse = score_function
    window = None if window is None else tuple(window)
    packed = Packed(cu_q, cu_k, max_q, max_k, used_q, used_k)
    result = run(q, k, v, "bshd", scale, causal, window, softcap, sink, bias, mask, return_lse, None, packed)
    return result if return_lse else (result, _no_lse(q))


def _attention_or_torch(q, k, v, scale, causal, bias, mask):
    """For compiled code, where nothing that the library decides is known."""
    try:
        return run(q, k, v, "bshd", scale, causal, bias=bias, mask=mask, or_torch=True)
    except AttuneError as error:
        if not fallback.is_refusal(error):
            raise
        out = fallback.attention(q, k, v, scale, causal, bias, mask)
        return empty_output(q, v.shape[3]).copy_(out)


def _fake_attention(q, k, v, scale, causal, window, softcap, sink, bias, mask, return_lse):
    batch, rows, heads, _ = q.shape
    lse = q.new_empty((batch, heads, rows), dtype=torch.float32) if return_lse else _no_lse(q)
    return empty_output(q, v.shape[3]), lse


def _fake_attention_varlen(q, k, v, *rest):
    rows, heads, _ = q.shape
    lse = q.new_empty((heads, rows), dtype=torch.float32) if rest[-1] else _no_lse(q)
    return empty_output(q.unsqueeze(0), v.shape[2])[0], lse


def _fake_attention_or_torch(q, k, v, *rest):
    return empty_output(q, v.shape[3])


def _no_lse(q):
    return q.new_empty((0,), dtype=torch.float32)


def _no_backward(context, *gradients):
    raise Unsupported("there is no backward yet; call attune's operators under torch.no_grad()")


for _name, _kernel, _fake in (
    ("attention", _attention, _fake_attention),
    ("attention_varlen", _attention_varlen, _fake_attention_varlen),
    ("attention_or_torch", _attention_or_torch, _fake_attention_or_torch),
):
    for _device in ("CPU", "CUDA"):
        _library.impl(_name, _kernel, _device)
    torch.library.register_fake(f"attune::{_name}", _fake, lib=_library)
    torch.library.register_autograd(f"attune::{_name}", _no_backward, lib=_library)

attention = torch.ops.attune.attention.default
attention_varlen = torch.ops.attune.attention_varlen.default
attention_or_torch = torch.ops.attune.attention_or_torch.default
