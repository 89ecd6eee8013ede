"""torch.ops.attune: the calls and their gradients as operators that autograd, torch.compile, torch.export and fake
tensors see through.

backward=True says that a call will be differentiated: then it is refused where no kernel has the gradients, and the
log-sum-exp, which they need, is there. dsink and dbias say which it has beside those of q, k and v. What is not asked
for has no elements."""

from __future__ import annotations

import torch

from attune import fallback
from attune.backward_calls import empty_gradients, run_backward
from attune.c_api import AttuneError, Unsupported
from attune.calls import run
from attune.describe import Packed, empty_output
from attune.formula import differentiate, refuse_second_derivatives, save
from attune.gradients import Wanted

_INPUTS = "Tensor q, Tensor k, Tensor v"
_SCORES = "float? scale, str? causal, int[]? window, float? softcap, Tensor? sink, Tensor? bias, Tensor? mask"
_PACKED = (
    "Tensor cu_seqlens_q, Tensor cu_seqlens_k, SymInt? max_seqlen_q, SymInt? max_seqlen_k, "
    "Tensor? used_q, Tensor? used_k"
)
_WANTED = "bool dsink=False, bool dbias=False"
_RESULT = "(Tensor out, Tensor lse)"
_ARRIVES = "Tensor? dout, Tensor? dlse"
_GRADIENTS = "(Tensor dq, Tensor dk, Tensor dv, Tensor dsink, Tensor dbias)"

# Inductor hands over tensors with the strides that eager has.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)

_library = torch.library.Library("attune", "DEF")


def _define(name: str, schema: str, kernel, fake, setup_context, backward) -> torch._ops.OpOverload:
    _library.define(f"{name}{schema}", tags=_TAGS)
    for device in ("CPU", "CUDA"):
        _library.impl(name, kernel, device)
    torch.library.register_fake(f"attune::{name}", fake, lib=_library)
    torch.library.register_autograd(f"attune::{name}", backward, setup_context=setup_context, lib=_library)
    return getattr(torch.ops.attune, name).default


# The calls.


def _attention(q, k, v, scale, causal, window, *others, backward=False, dsink=False, dbias=False):
    return _run(q, k, v, None, scale, causal, window, *others, backward and Wanted(dsink, dbias, others[-1]))


def _attention_varlen(
    q, k, v, cu_q, cu_k, max_q, max_k, used_q, used_k, *rest, backward=False, dsink=False, dbias=False
):
    packed = Packed(cu_q, cu_k, max_q, max_k, used_q, used_k)
    return _run(q, k, v, packed, *rest, backward and Wanted(dsink, dbias, rest[-1]))


def _run(q, k, v, packed, scale, causal, window, softcap, sink, bias, mask, return_lse, wanted):
    wanted = wanted or None
    return_lse = return_lse or wanted is not None
    window = None if window is None else tuple(window)
    result = run(
        q, k, v, "bshd", scale, causal, window, softcap, sink, bias, mask, return_lse, None, packed, wanted=wanted
    )  # fmt: skip
    return result if return_lse else (result, _no_lse(q))


def _fake_attention(q, k, v, *others, backward=False, **wanted):
    batch, rows, heads, _ = q.shape
    return_lse = others[-1] or backward
    lse = q.new_empty((batch, heads, rows), dtype=torch.float32) if return_lse else _no_lse(q)
    return empty_output(q, v.shape[3]), lse


def _fake_attention_varlen(q, k, v, *others, backward=False, **wanted):
    rows, heads, _ = q.shape
    return_lse = others[-1] or backward
    lse = q.new_empty((heads, rows), dtype=torch.float32) if return_lse else _no_lse(q)
    return empty_output(q.unsqueeze(0), v.shape[2])[0], lse


def _no_lse(q):
    return q.new_empty((0,), dtype=torch.float32)


# Their gradients.


def _attention_backward(dout, dlse, q, k, v, out, lse, *score_function, dsink=False, dbias=False):
    return run_backward(dout, dlse, q, k, v, out, lse, None, _hashable(score_function), dsink, dbias)


def _attention_varlen_backward(dout, dlse, q, k, v, out, lse, *others, dsink=False, dbias=False):
    packed, score_function = Packed(*others[:6]), _hashable(others[6:])
    return run_backward(dout, dlse, q, k, v, out, lse, packed, score_function, dsink, dbias)


def _hashable(score_function):
    scale, causal, window, *others = score_function
    return scale, causal, None if window is None else tuple(window), *others


def _fake_backward(dout, dlse, q, k, v, out, lse, *others, dsink=False, dbias=False):
    *_, sink, bias, _ = others
    return tuple(empty_gradients(q, k, v, sink, bias, dsink, dbias))


def _save(ctx, inputs, keyword_only_inputs, output):
    if not any(ctx.needs_input_grad):  # torch 2.4 asks whenever grad mode is on
        return
    if not (inputs[-1] or keyword_only_inputs["backward"]):
        raise Unsupported("backward is False, and an input requires a gradient; it must be True, or return_lse")
    save(ctx, inputs, output)


def _differentiate(ctx, dout, dlse):
    return differentiate(ctx, dout, dlse, attention_backward, attention_varlen_backward)


def _save_nothing(ctx, inputs, keyword_only_inputs, output):
    pass


attention_backward = _define(
    "attention_backward",
    f"({_ARRIVES}, {_INPUTS}, Tensor out, Tensor lse, {_SCORES}, *, {_WANTED}) -> {_GRADIENTS}",
    _attention_backward, _fake_backward, _save_nothing, refuse_second_derivatives,
)  # fmt: skip
attention_varlen_backward = _define(
    "attention_varlen_backward",
    f"({_ARRIVES}, {_INPUTS}, Tensor out, Tensor lse, {_PACKED}, {_SCORES}, *, {_WANTED}) -> {_GRADIENTS}",
    _attention_varlen_backward, _fake_backward, _save_nothing, refuse_second_derivatives,
)  # fmt: skip
attention = _define(
    "attention",
    f"({_INPUTS}, {_SCORES}, bool return_lse, *, bool backward=False, {_WANTED}) -> {_RESULT}",
    _attention, _fake_attention, _save, _differentiate,
)  # fmt: skip
attention_varlen = _define(
    "attention_varlen",
    f"({_INPUTS}, {_PACKED}, {_SCORES}, bool return_lse, *, bool backward=False, {_WANTED}) -> {_RESULT}",
    _attention_varlen, _fake_attention_varlen, _save, _differentiate,
)  # fmt: skip


# For compiled code with torch behind it, where nothing that the library decides is known.


def _attention_or_torch(q, k, v, scale, causal, bias, mask):
    try:
        return run(q, k, v, "bshd", scale, causal, bias=bias, mask=mask, or_torch=True)
    except AttuneError as error:
        if not fallback.is_refusal(error):
            raise
        out = fallback.attention(q, k, v, scale, causal, bias, mask)
        return empty_output(q, v.shape[3]).copy_(out)


def _fake_attention_or_torch(q, k, v, *others):
    return empty_output(q, v.shape[3])


def _no_backward(ctx, *gradients):
    raise Unsupported("attention_or_torch has no backward; call torch.ops.attune.attention where gradients are wanted")


attention_or_torch = _define(
    "attention_or_torch",
    f"({_INPUTS}, float? scale, str? causal, Tensor? bias, Tensor? mask) -> Tensor",
    _attention_or_torch, _fake_attention_or_torch, None, _no_backward,
)  # fmt: skip
