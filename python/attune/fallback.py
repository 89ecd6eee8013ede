"""Calls that are left to torch, under fallback=True: which they are, and torch's attention for them."""

from __future__ import annotations

import sys

import torch

from attune import c_api
from attune.c_api import AttuneError, InvalidArgument, Unsupported
from attune.names import Names

# What torch may be able to do. Anything else is a defect, or a device that is broken for torch, too.
_REFUSALS = {
    c_api.INVALID_ARGUMENT,
    c_api.UNSUPPORTED,
    c_api.NO_DEVICE,
    c_api.NOT_BUILT,
    c_api.NOT_PREPARED,
    c_api.COMPILE_ERROR,
}
# How the names of kernels begin that any device of a kind can run, on which torch is 15 to 120 times as fast.
PLAIN = {"cuda": "any/"}
_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter

torchs_sdpa = torch._C._nn.scaled_dot_product_attention
KNOWS_GQA = "enable_gqa" in (torchs_sdpa.__doc__ or "")


def is_refusal(error: AttuneError) -> bool:
    return error.status in _REFUSALS


def is_plain(kernel: str) -> bool:
    return kernel.startswith(tuple(PLAIN.values()))


def refuse_subclasses(*tensors) -> None:
    """Torch asks them by their __torch_function__."""
    for tensor in tensors:
        if isinstance(tensor, _Tensor) and type(tensor) is not _Tensor and type(tensor) is not _Parameter:
            raise Unsupported(f"an input is a {type(tensor).__name__}, a subclass of torch.Tensor")


def is_causal_bias(tensor) -> bool:
    """Whether it is a torch.nn.attention.bias.CausalBias, whose memory means nothing. The import of that module takes
    seconds; whoever has such a bias has made it."""
    module = sys.modules.get("torch.nn.attention.bias")
    return module is not None and isinstance(tensor, module.CausalBias)


def alignment(bias) -> str:
    """Of a causal bias."""
    return "top-left" if bias.variant.name == "UPPER_LEFT" else "bottom-right"


def refuse_causal_biases(names: Names, bias, mask) -> None:
    for name, tensor in ((names.bias, bias), (names.mask, mask)):
        if is_causal_bias(tensor):
            raise InvalidArgument(
                f"{name} is a CausalBias, which has no values to read; it must be left out: {names.causal} is"
                f' "{alignment(tensor)}" instead'
            )


def attention(q, k, v, scale, causal, bias, mask) -> torch.Tensor:
    """Torch's, of (batch, row, head, dim)."""
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    options = {}
    if q.shape[1] != k.shape[1]:
        if KNOWS_GQA:
            options["enable_gqa"] = True
        else:
            k, v = (tensor.repeat_interleave(q.shape[1] // k.shape[1], 1) for tensor in (k, v))
    is_causal = causal == "top-left" and bias is None and mask is None
    if causal is not None and not is_causal:
        rows, keys = q.shape[2], k.shape[2]
        seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
        seen = seen.tril(keys - rows if causal == "bottom-right" else 0)
        mask = seen if mask is None else mask & seen
    if bias is not None and mask is not None:
        bias = bias.masked_fill(~mask, float("-inf"))
    with torch.no_grad():
        out = torchs_sdpa(q, k, v, mask if bias is None else bias, 0.0, is_causal, scale=scale, **options)
    return out.transpose(1, 2)
