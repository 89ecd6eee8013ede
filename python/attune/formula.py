"""What is kept of a call for its gradients, and which gradient belongs to which of its inputs: the same for the
operators and for eager calls. The inputs are those of torch.ops.attune.attention or attention_varlen, without what is
given by name: the latter have six lengths after q, k and v."""

from __future__ import annotations

from typing import Any, Callable

import torch

from attune.backward_calls import Gradients
from attune.c_api import Unsupported
from attune.calls import is_transformed

_INPUTS_WITH_LENGTHS = 17


def save(ctx: Any, inputs: tuple, output: tuple[torch.Tensor, torch.Tensor]) -> None:
    """The inputs, the output and its log-sum-exp: nothing that grows with rows times keys."""
    ctx.set_materialize_grads(is_transformed())  # torch.func.vmap of older versions cannot take what is None
    ctx.others = [None if isinstance(each, torch.Tensor) else each for each in inputs]
    ctx.places = [place for place, each in enumerate(inputs) if isinstance(each, torch.Tensor)]
    ctx.save_for_backward(*output, *(inputs[place] for place in ctx.places))


def differentiate(ctx: Any, dout, dlse, dense: Callable[..., tuple], packed: Callable[..., tuple]) -> tuple:
    """A gradient, or None, for each input. `dense` and `packed` are called as the operators of the same meaning."""
    out, lse, *tensors = ctx.saved_tensors
    inputs = list(ctx.others)
    if dout is None and dlse is None:
        return (None,) * len(inputs)
    for place, tensor in zip(ctx.places, tensors):
        inputs[place] = tensor
    q, k, v, *others, _ = inputs
    sink, bias = len(inputs) - 4, len(inputs) - 3
    dsink, dbias = ctx.needs_input_grad[sink], ctx.needs_input_grad[bias]
    function = packed if len(inputs) == _INPUTS_WITH_LENGTHS else dense
    gradients = Gradients(*function(dout, dlse, q, k, v, out, lse, *others, dsink=dsink, dbias=dbias))
    result = [*gradients[:3], *[None] * (len(inputs) - 3)]
    if dsink:
        result[sink] = gradients.dsink
    if dbias:
        result[bias] = gradients.dbias
    return tuple(result)


def refuse_second_derivatives(ctx: Any, *gradients):
    raise Unsupported("attention has no second derivatives here: a gradient of its gradients cannot be formed")
