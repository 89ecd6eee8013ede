"""Calls of which gradients are wanted, in eager torch and inside torch.func. In plain eager torch they go past the
dispatcher, forward and back; elsewhere they are the operators, whose own formula is for compiled code: torch.func takes
no formula of an operator, but functions of autograd."""

from __future__ import annotations

import torch

from attune import ops
from attune.backward_calls import run_backward
from attune.calls import WATCHED, is_transformed, is_watched, run
from attune.describe import Packed
from attune.formula import differentiate, refuse_second_derivatives, save
from attune.gradients import Wanted


def is_differentiated_by_autograd(wanted: Wanted | None, *inputs) -> bool:
    """Whether a call is to be Differentiable; otherwise it is an operator. Inside torch.func an input does not always
    show that it requires a gradient. Subclasses of Tensor want to see the operator."""
    if wanted is None and (not is_transformed() or not torch.is_grad_enabled()):
        return False
    return all(type(each) in (torch.Tensor, torch.nn.Parameter) for each in inputs if isinstance(each, torch.Tensor))


class Differentiable(torch.autograd.Function):
    """apply(names, wanted, inputs of the operator...) -> (out, lse)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(names, wanted: Wanted | None, *inputs):
        q, k, v, *lengths = inputs[:-8]
        scale, causal, window, softcap, sink, bias, mask, _ = inputs[-8:]
        packed = Packed(*lengths) if lengths else None
        result = run(
            q, k, v, "bshd", scale, causal, window, softcap, sink, bias, mask, True, None, packed, True, True, names,
            wanted=wanted,
        )  # fmt: skip
        if result is not WATCHED:
            return result
        operator = ops.attention_varlen if lengths else ops.attention
        if wanted is None:
            return operator(*inputs[:-1], True)
        return operator(*inputs, backward=True, dsink=wanted.dsink, dbias=wanted.dbias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        save(ctx, inputs[2:], output)

    @staticmethod
    def backward(ctx, dout, dlse):
        ctx_of_inputs = _WithoutFirstTwo(ctx)
        return None, None, *differentiate(ctx_of_inputs, dout, dlse, _dense_gradients, _packed_gradients)


class _WithoutFirstTwo:
    """The context as the formula sees it, which knows the inputs of the operator only."""

    def __init__(self, ctx):
        self.saved_tensors, self.others, self.places = ctx.saved_tensors, ctx.others, ctx.places
        self.needs_input_grad = ctx.needs_input_grad[2:]


def _dense_gradients(dout, dlse, q, k, v, out, lse, *score_function, dsink, dbias):
    return _gradients(dout, dlse, q, k, v, out, lse, (), score_function, dsink, dbias)


def _packed_gradients(dout, dlse, q, k, v, out, lse, *others, dsink, dbias):
    return _gradients(dout, dlse, q, k, v, out, lse, others[:6], others[6:], dsink, dbias)


def _gradients(dout, dlse, q, k, v, out, lse, lengths, score_function, dsink, dbias):
    if not torch.is_grad_enabled() and not is_watched(dout, dlse, q, k, v, out, lse, *score_function):
        packed = Packed(*lengths) if lengths else None
        return run_backward(dout, dlse, q, k, v, out, lse, packed, score_function, dsink, dbias)
    return _NotTwice.apply(dsink, dbias, dout, dlse, q, k, v, out, lse, *lengths, *score_function)


class _NotTwice(torch.autograd.Function):
    """apply(dsink, dbias, inputs of the backward operator...): its results."""

    generate_vmap_rule = True

    @staticmethod
    def forward(dsink, dbias, *inputs):
        packed = len(inputs) > 14
        return (ops.attention_varlen_backward if packed else ops.attention_backward)(*inputs, dsink=dsink, dbias=dbias)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(refuse_second_derivatives)
