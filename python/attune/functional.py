"""attention() and attention_varlen(), on torch tensors and on anything with DLPack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, overload

import torch
from torch.compiler import is_dynamo_compiling

from attune import arguments, lengths, ops
from attune.autocast import autocast, is_autocast_on_somewhere
from attune.c_api import Unsupported, kernel_of
from attune.calls import WATCHED, is_transformed, refuse_nested, run
from attune.describe import Packed, check_kin, check_like, describe, is_heads_first, library, lookup
from attune.differentiable import Differentiable, is_differentiated_by_autograd
from attune.fallback import PLAIN, is_plain, refuse_causal_biases
from attune.gradients import explanation, refuse_plain_backward, refuse_tangents, wanted
from attune.names import ATTENTION, VARLEN
from attune.types import (
    Array,
    Bound,
    Causal,
    DenseOptions,
    Layout,
    Number,
    Operand,
    PackedOptions,
    SupportsDLPack,
    Window,
)  # fmt: skip

if TYPE_CHECKING:
    from typing_extensions import Unpack


@overload
def attention(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, *, return_lse: Literal[False] = ..., **options: Unpack[DenseOptions]
) -> Array: ...
@overload
def attention(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, *, return_lse: Literal[True], **options: Unpack[DenseOptions]
) -> tuple[Array, Array]: ...
@overload
def attention(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, *, return_lse: bool, **options: Unpack[DenseOptions]
) -> Array | tuple[Array, Array]: ...
def attention(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, *, scale: Number = None, causal: Causal = None,
    window: Window = None, softcap: Number = None, sink: Operand = None, bias: Operand = None, mask: Operand = None,
    return_lse: bool = False, out: Operand = None, layout: Layout = "bshd",
) -> Array | tuple[Array, Array]:  # fmt: skip
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
    return attend(
        ATTENTION, q, k, v, sink, bias, mask, out, None, layout, scale, causal, window, softcap, return_lse
    )  # fmt: skip


@overload
def attention_varlen(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, cu_seqlens_q: SupportsDLPack, cu_seqlens_k: SupportsDLPack,
    max_seqlen_q: Bound = None, max_seqlen_k: Bound = None, *, return_lse: Literal[False] = ...,
    **options: Unpack[PackedOptions],
) -> Array: ...  # fmt: skip
@overload
def attention_varlen(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, cu_seqlens_q: SupportsDLPack, cu_seqlens_k: SupportsDLPack,
    max_seqlen_q: Bound = None, max_seqlen_k: Bound = None, *, return_lse: Literal[True],
    **options: Unpack[PackedOptions],
) -> tuple[Array, Array]: ...  # fmt: skip
@overload
def attention_varlen(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, cu_seqlens_q: SupportsDLPack, cu_seqlens_k: SupportsDLPack,
    max_seqlen_q: Bound = None, max_seqlen_k: Bound = None, *, return_lse: bool,
    **options: Unpack[PackedOptions],
) -> Array | tuple[Array, Array]: ...  # fmt: skip
def attention_varlen(
    q: Array, k: SupportsDLPack, v: SupportsDLPack, cu_seqlens_q: SupportsDLPack, cu_seqlens_k: SupportsDLPack,
    max_seqlen_q: Bound = None, max_seqlen_k: Bound = None, *, scale: Number = None, causal: Causal = None,
    window: Window = None, softcap: Number = None, sink: Operand = None, bias: Operand = None, mask: Operand = None,
    used_q: Operand = None, used_k: Operand = None, return_lse: bool = False, out: Operand = None, check: bool = False,
) -> Array | tuple[Array, Array]:  # fmt: skip
    """attention() of sequences that lie end to end: q is (rows of all, head, dim), k and v (keys of all, kv head, dim).

    cu_seqlens_q, cu_seqlens_k   (batch + 1,) int32 where q is: sequence b begins at [b] and ends before [b + 1]
    max_seqlen_q, max_seqlen_k   upper bounds of the single lengths; close ones run faster
    used_q, used_k               (batch,) int32: rows and keys in use from the beginning of each sequence
    return_lse                   lse is (head, rows of all)
    check                        look at the lengths first and refuse those that do not fit. On a GPU this waits for the
                                 device; without it the lengths there are clamped, and rows outside stay unwritten
    """
    packed = Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, used_q, used_k)
    if lookup("check", {False: False, True: True}, check):
        lengths.check(VARLEN, q, k, packed)
    return attend(
        VARLEN, q, k, v, sink, bias, mask, out, packed, "bshd", scale, causal, window, softcap, return_lse
    )  # fmt: skip


def explain(
    q: SupportsDLPack, k: SupportsDLPack, v: SupportsDLPack, *, scale: Number = None, causal: Causal = None,
    window: Window = None, softcap: Number = None, sink: Operand = None, bias: Operand = None, mask: Operand = None,
    return_lse: bool = False, out: Operand = None, layout: Layout = "bshd",
) -> str:  # fmt: skip
    """Which kernel attention() would run with these arguments, and why; where one requires a gradient, which kernel its
    backward would run."""
    q, k, v, sink, bias, mask, out, _ = _as_tensors(ATTENTION, q, k, v, sink, bias, mask, out, None)
    q, k, v, bias = autocast(q, k, v, bias)
    scale, window, softcap = _score_function(ATTENTION, scale, window, softcap)
    refuse_causal_biases(ATTENTION, bias, mask)
    described = describe(q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out)
    text = library().explain(described.desc, ATTENTION.say)
    if is_plain(kernel_of(text)):
        text += "fallback: left to torch, which is many times as fast as a plain kernel, where fallback=True\n"
    if gradients := wanted(q, k, v, sink, bias, return_lse):
        text += f"\n{explanation(described.desc, gradients, ATTENTION)}"
    return text


def attend(
    names, q, k, v, sink, bias, mask, out, packed, layout, scale, causal, window, softcap, return_lse,
    or_torch=False,
):  # fmt: skip
    """Both functions, for callers who know the arguments by those names. or_torch is that of run()."""
    if not (scale is None and window is None and softcap is None):
        scale, window, softcap = _score_function(names, scale, window, softcap)
    if packed is not None:
        packed = lengths.with_integers(names, packed)
    if is_autocast_on_somewhere():
        q, k, v, bias = autocast(q, k, v, bias)
    if not is_dynamo_compiling():
        result = run(
            q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out, packed, True, True,
            names, or_torch,
        )  # fmt: skip
        if result is not WATCHED:
            return result
    arrays = (q, k, v, sink, bias, mask, out, packed)
    options = (layout, scale, causal, window, softcap, return_lse, or_torch)
    if not _are_tensors(*arrays):
        return arguments.like(q, attend(names, *_as_tensors(names, *arrays), *options))
    return _attend_through_ops(names, *arrays, *options)


def _attend_through_ops(
    names, q, k, v, sink, bias, mask, out, packed, layout, scale, causal, window, softcap, return_lse, or_torch
):  # fmt: skip
    """Where something else than eager torch looks on."""
    refuse_causal_biases(names, bias, mask)
    refuse_nested(q, k, v, names)
    refuse_tangents(q, k, v, sink, bias)
    heads_first = is_heads_first(layout)
    if heads_first:
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
    score_function = (scale, causal, window, softcap, sink, bias, mask, return_lse)
    lse, gradients = None, wanted(q, k, v, sink, bias, return_lse)
    if or_torch:
        check_kin(q, k, v, names)  # now, while torch can still be called instead
    if or_torch and gradients is None:
        o = ops.attention_or_torch(q, k, v, scale, causal, bias, mask)
    else:
        if or_torch and q.device.type in PLAIN:
            _refuse_what_torch_differentiates_better(names, q, k, v, packed, score_function, gradients)
        inputs = (q, k, v, *(() if packed is None else packed), *score_function)
        if not is_dynamo_compiling() and is_differentiated_by_autograd(gradients, *inputs):
            if gradients is not None and is_transformed():  # torch.func sends zeros where nothing arrives
                gradients = gradients._replace(dlse=True)
            o, lse = Differentiable.apply(names, gradients, *inputs)
        else:
            options = {}
            if gradients is not None:
                options = {"backward": True, "dsink": gradients.dsink, "dbias": gradients.dbias}
            o, lse = (ops.attention if packed is None else ops.attention_varlen)(*inputs, **options)
    if heads_first:
        o = o.transpose(1, 2)
    if out is not None:
        check_like(names.out, out, o.shape, out.shape, o.dtype, o.device)
        o = out.copy_(o)
    return (o, lse) if return_lse else o


def _refuse_what_torch_differentiates_better(names, q, k, v, packed, score_function, gradients):
    """While torch can still be called instead: in compiled code before anything can be asked of the library."""
    if is_dynamo_compiling():
        raise Unsupported(f"an input requires a gradient; compiled for {q.device.type}, such calls are left to torch")
    described = describe(q, k, v, "bshd", *score_function, packed=packed, names=names, or_torch=True)
    if not described.desc:
        described.empty_strided()  # says why torch is to take it
    refuse_plain_backward(described.desc, gradients, names)


def _score_function(names, scale, window, softcap) -> tuple:
    if scale is not None and type(scale) is not float:
        scale = arguments.number(names.scale, scale)
    if window is not None:
        window = arguments.window(names.window, window)
    if softcap is not None and type(softcap) is not float:
        softcap = arguments.number(names.softcap, softcap)
    return scale, window, softcap


def _are_tensors(q, k, v, sink, bias, mask, out, packed) -> bool:
    needed, optional = (q, k, v), (sink, bias, mask, out)
    if packed is not None:
        needed, optional = (*needed, *packed.tensors()[:2]), (*optional, *packed.tensors()[2:])
    return all(isinstance(each, torch.Tensor) for each in (*needed, *(each for each in optional if each is not None)))


def _as_tensors(names, q, k, v, sink, bias, mask, out, packed) -> tuple:
    if packed is not None:
        packed = lengths.with_tensors(names, packed)
    return (
        arguments.tensor(names.q, q),
        arguments.tensor(names.k, k),
        arguments.tensor(names.v, v),
        arguments.optional_tensor(names.sink, sink),
        arguments.optional_tensor(names.bias, bias),
        arguments.optional_tensor(names.mask, mask),
        arguments.optional_tensor(names.out, out),
        packed,
    )
