"""The way of every call from tensors to attune_forward. Once a signature is known, nothing here but a look-up, the
outputs, and one call into the library: this is what a call costs the CPU."""

from __future__ import annotations

import struct

import torch

from attune import c_api
from attune.c_api import Unsupported
from attune.describe import Described, Packed, describe, library

# attune_forward_args, and its beginning up to the output: the library takes the fields after it to be 0.
_pack_args = struct.Struct("@2I14Q").pack
_ARGS_BYTES = struct.calcsize("@2I14Q")
_pack_plain_args = struct.Struct("@2I4Q").pack
_PLAIN_ARGS_BYTES = struct.calcsize("@2I4Q")
_MOST_SIGNATURES = 1 << 14  # then all are forgotten: growing sequences make a new one with every call

_known: dict[tuple, Described] = {}  # by options and inputs
_latest: dict[tuple, tuple[tuple, Described]] = {}  # the inputs seen last and what is known of them, by options

_Tensor = torch.Tensor
_assert_size_stride = getattr(torch._C._dynamo.guards, "assert_size_stride", None)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state


def is_plain_eager(q, k, v) -> bool:
    """Whether nobody but the caller wants to see the call: otherwise it goes through the operator, which subclasses of
    Tensor, dispatch modes, torch.func and torch.jit.trace can intercept."""
    return (
        type(q) is type(k) is type(v) is _Tensor
        and not _dispatch_modes()
        and _transform() is None
        and _tracing() is None
    )


def run(
    q, k, v, layout="bshd", scale=None, causal=None, window=None, softcap=None, sink=None, bias=None, mask=None,
    return_lse=False, out=None, packed=None, grouped_heads=True,
):  # fmt: skip
    """The output; with return_lse, (output, log-sum-exp)."""
    others = None
    if not (sink is None and bias is None and mask is None and out is None and packed is None):
        others = (_signature(sink), _signature(bias), _signature(mask), _signature(out), _packed_signature(packed))
    options = (layout, scale, causal, window, softcap, return_lse, grouped_heads, others)
    addresses = q.data_ptr(), k.data_ptr(), v.data_ptr()
    inputs, known = _latest.get(options, _NONE)
    if known is None or 0 in addresses or not _are_like(q, k, v, inputs):
        inputs = (_signature(q), _signature(k), _signature(v))
        known = _known.get((options, inputs))
        if known is None:
            known = describe(
                q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out, packed,
                grouped_heads,
            )  # fmt: skip
        _remember(options, inputs, known)

    desc, empty_strided, out_shape, out_strides, dtype, lse_shape, lse_strides, workspace_bytes, cuda_index = known
    if out is None:
        out = empty_strided(out_shape, out_strides, dtype)
    lse = workspace = None
    if others is None and lse_shape is None and not workspace_bytes:
        args = _pack_plain_args(_PLAIN_ARGS_BYTES, 0, *addresses, out.data_ptr())
    else:
        if lse_shape is not None:
            lse = empty_strided(lse_shape, lse_strides, torch.float32)
        if workspace_bytes:
            workspace = empty_strided((workspace_bytes + c_api.WORKSPACE_ALIGNMENT,), (1,), torch.uint8)
        args = _all_args(addresses, out, lse, sink, bias, mask, packed, workspace, workspace_bytes)
    attune = library()
    status = attune.forward(attune.context, desc, args, None if cuda_index < 0 else _current_stream(cuda_index))
    if status:
        raise attune.error(status)
    return out if lse is None else (out, lse)


_NONE = None, None


def _signature(tensor: torch.Tensor | None) -> tuple | None:
    return None if tensor is None else (tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device)


def _packed_signature(packed: Packed | None) -> tuple | None:
    if packed is None:
        return None
    return tuple(_signature(part) if isinstance(part, _Tensor) else part for part in packed)


def _are_like(q, k, v, inputs: tuple) -> bool:
    """Whether they have these signatures, strides of dimensions with one element aside. Not for tensors without
    elements, which fit everything.

    By inductor's check: to make the tuples of a signature takes twice as long."""
    (q_shape, q_strides, dtype, device), (k_shape, k_strides, _, _), (v_shape, v_strides, _, _) = inputs
    try:
        _assert_size_stride(q, q_shape, q_strides)
        _assert_size_stride(k, k_shape, k_strides)
        _assert_size_stride(v, v_shape, v_strides)
    except AssertionError:
        return False
    # describe() has made sure that the three are of one kind.
    return q.dtype is k.dtype is v.dtype is dtype and q.device == k.device == v.device == device


def _remember(options: tuple, inputs: tuple, known: Described) -> None:
    if len(_known) >= _MOST_SIGNATURES:
        _known.clear()
        _latest.clear()
    _known[options, inputs] = known
    if _assert_size_stride is not None:
        _latest[options] = inputs, known


def _all_args(addresses: tuple, out, lse, sink, bias, mask, packed, workspace, workspace_bytes) -> bytes:
    aligned = 0
    if workspace is not None:
        aligned = -(-workspace.data_ptr() // c_api.WORKSPACE_ALIGNMENT) * c_api.WORKSPACE_ALIGNMENT
    return _pack_args(
        _ARGS_BYTES, 0, *addresses, out.data_ptr(),
        0 if lse is None else lse.data_ptr(),
        0 if sink is None else sink.data_ptr(),
        0 if bias is None else bias.data_ptr(),
        0 if mask is None else mask.data_ptr(),
        *(_NO_LENGTHS if packed is None else _lengths(packed)),
        aligned, workspace_bytes,
    )  # fmt: skip


_NO_LENGTHS = (0, 0, 0, 0)


def _lengths(packed: Packed) -> tuple:
    return tuple(
        0 if tensor is None else tensor.data_ptr()
        for tensor in (packed.cu_seqlens_q, packed.cu_seqlens_k, packed.used_q, packed.used_k)
    )


def refuse_gradients(*tensors: torch.Tensor | None) -> None:
    """Loudly: an output that quietly has no gradient would train something else."""
    if not torch.is_grad_enabled():
        return
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad:
            raise Unsupported(
                "an input requires a gradient, and there is no backward yet; call under torch.no_grad() or detach it"
            )
