"""The gradients of torch's SDPA, by backend: the operators that autograd calls, after those that go forward. Autograd
itself runs on threads of its own, which a capture would not see."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable

from attune.lab.contender import Bound
from attune.lab.errors import Absent
from attune.lab.problem import Problem


def bind_backward(torch, backend: str, problem: Problem, tensors, inputs: list, options: dict) -> Bound:
    """`inputs` and `options` are those of SDPA: (batch, head, row, dim), the alignment and the scale."""
    if backend not in _BY_BACKEND:
        raise Absent(f"the gradients of {backend} are no operator of torch")
    if problem.heads_q != problem.heads_kv:
        raise Absent("the operators of SDPA's gradients take as many key-value heads as query heads")
    dout = tensors.dout.transpose(1, 2)
    causal, scale = options["is_causal"], options["scale"]
    call = _BY_BACKEND[backend](torch.ops.aten, dout, *inputs, causal, scale)
    return Bound(call, heads_first=True, facts={"backend": backend})


def _flash(aten, dout, q, k, v, causal: bool, scale: float) -> Callable[[], Any]:
    saved = aten._scaled_dot_product_flash_attention.default(q, k, v, is_causal=causal, scale=scale)
    out, lse, begins_q, begins_k, longest_q, longest_k, seed, offset, *_ = saved
    backward = aten._scaled_dot_product_flash_attention_backward.default
    return partial(
        backward,
        dout,
        q,
        k,
        v,
        out,
        lse,
        begins_q,
        begins_k,
        longest_q,
        longest_k,
        0.0,
        causal,
        seed,
        offset,
        scale=scale,
    )


def _cudnn(aten, dout, q, k, v, causal: bool, scale: float) -> Callable[[], Any]:
    """By name: torch 2.5 put the bias into the middle of both."""
    forward = aten._scaled_dot_product_cudnn_attention.default
    backward = aten._scaled_dot_product_cudnn_attention_backward.default
    bias = {"attn_bias": None, "compute_log_sumexp": True} if _takes_bias(forward) else {}
    saved = forward(query=q, key=k, value=v, is_causal=causal, scale=scale, **bias)
    names = ("out", "logsumexp", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "philox_seed", "philox_offset")
    bias = {"attn_bias": None} if _takes_bias(backward) else {}
    return partial(
        backward, grad_out=dout, query=q, key=k, value=v, **dict(zip(names, saved)), **bias, dropout_p=0.0,
        is_causal=causal, scale=scale,
    )  # fmt: skip


def _takes_bias(operator) -> bool:
    return any(argument.name == "attn_bias" for argument in operator._schema.arguments)


def _efficient(aten, dout, q, k, v, causal: bool, scale: float) -> Callable[[], Any]:
    saved = aten._scaled_dot_product_efficient_attention.default(q, k, v, None, True, is_causal=causal, scale=scale)
    wanted = [True, True, True, False]  # of q, k, v and the bias
    backward = aten._scaled_dot_product_efficient_attention_backward.default
    call = partial(backward, dout, q, k, v, None, *saved, 0.0, wanted, causal, scale=scale)
    return lambda: call()[:3]


_BY_BACKEND = {"FLASH_ATTENTION": _flash, "CUDNN_ATTENTION": _cudnn, "EFFICIENT_ATTENTION": _efficient}
