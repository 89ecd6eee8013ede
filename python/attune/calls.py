"""The way of every call from tensors to attune_forward. Once a signature is known, nothing here but a look-up, the
outputs, and one call into the library: this is what a call costs the CPU."""

from __future__ import annotations

import struct

import torch

from attune import c_api
from attune.c_api import Unsupported
from attune.describe import Described, Packed, describe, library

_pack_args = struct.Struct("@2I14Q").pack  # attune_forward_args
_ARGS_BYTES = struct.calcsize("@2I14Q")
_MOST_SIGNATURES = 1 << 14  # then all are forgotten: growing sequences make a new one with every call

_known: dict[tuple, Described] = {}
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def run(
    q, k, v, layout="bshd", scale=None, causal=None, window=None, softcap=None, sink=None, bias=None, mask=None,
    return_lse=False, out=None, packed=None,
):  # fmt: skip
    """The output, and the log-sum-exp or None."""
    signature = (
        q.shape, q.stride(), q.dtype, q.device, k.shape, k.stride(), k.dtype, k.device,
        v.shape, v.stride(), v.dtype, v.device, layout, scale, causal, window, softcap, return_lse,
        None if sink is None else _signature(sink), None if bias is None else _signature(bias),
        None if mask is None else _signature(mask), None if out is None else _signature(out),
        None if packed is None else _packed_signature(packed),
    )  # fmt: skip
    known = _known.get(signature)
    if known is None:
        known = describe(q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out, packed)
        if len(_known) >= _MOST_SIGNATURES:
            _known.clear()
        _known[signature] = known

    desc, out_shape, out_strides, lse_shape, lse_strides, workspace_bytes, cuda_index = known
    if out is None:
        out = q.new_empty_strided(out_shape, out_strides)  # the quickest of torch's ways to memory
    lse = None if lse_shape is None else q.new_empty_strided(lse_shape, lse_strides, dtype=torch.float32)
    workspace = 0
    if workspace_bytes:
        kept = q.new_empty_strided((workspace_bytes + c_api.WORKSPACE_ALIGNMENT,), (1,), dtype=torch.uint8)
        workspace = -(-kept.data_ptr() // c_api.WORKSPACE_ALIGNMENT) * c_api.WORKSPACE_ALIGNMENT
    args = _pack_args(
        _ARGS_BYTES, 0, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(),
        0 if lse is None else lse.data_ptr(),
        0 if sink is None else sink.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        *(_NO_LENGTHS if packed is None else _lengths(packed)),
        workspace, workspace_bytes,
    )  # fmt: skip
    attune = library()
    status = attune.forward(attune.context, desc, args, _current_stream(cuda_index) if cuda_index >= 0 else None)
    if status:
        raise attune.error(status)
    return out, lse


_NO_LENGTHS = (0, 0, 0, 0)


def _lengths(packed: Packed) -> tuple:
    return tuple(
        0 if tensor is None else tensor.data_ptr()
        for tensor in (packed.cu_seqlens_q, packed.cu_seqlens_k, packed.used_q, packed.used_k)
    )


def _signature(tensor: torch.Tensor) -> tuple:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _packed_signature(packed: Packed) -> tuple:
    return tuple(_signature(part) if isinstance(part, torch.Tensor) else part for part in packed)


def refuse_gradients(*tensors: torch.Tensor | None) -> None:
    """Loudly: an output that quietly has no gradient would train something else."""
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
        raise Unsupported(
            "an input requires a gradient, and there is no backward yet; call under torch.no_grad() or detach it"
        )
