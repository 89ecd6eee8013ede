"""The way of every backward from tensors to attune_backward. A descriptor is made once per signature, as those of
calls.py are."""

from __future__ import annotations

import struct
from typing import NamedTuple

import torch

from attune import c_api, torch_flash
from attune.calls import address, aligned, lengths_of, signature_of, signature_of_packed, stream_of
from attune.describe import Packed, describe, empty_output, in_output_order, library
from attune.fallback import PLAIN
from attune.gradients import Wanted, begun, is_left_to_flash
from attune.names import ATTENTION

_pack_args = struct.Struct("@2I21Q").pack
_ARGS_BYTES = struct.calcsize("@2I21Q")
_MOST_SIGNATURES = 1 << 14  # as in calls.py


class _Described(NamedTuple):
    desc: bytes  # attune_backward_desc
    workspace_bytes: int


class Gradients(NamedTuple):
    dq: torch.Tensor
    dk: torch.Tensor
    dv: torch.Tensor
    dsink: torch.Tensor
    dbias: torch.Tensor


_known: dict[tuple, _Described] = {}  # by signature
_left_to_flash: dict[tuple, bool] = {}  # likewise


def empty_gradients(q, k, v, sink, bias, dsink: bool, dbias: bool) -> Gradients:
    """Memory for them, each with rows and heads in the order of its tensor. What is not wanted has no elements."""
    return Gradients(
        _empty_like(q),
        _empty_like(k),
        _empty_like(v),
        q.new_empty(sink.shape if dsink else (0,), dtype=torch.float32),
        bias.new_empty(bias.shape) if dbias else q.new_empty((0,)),
    )


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dim() == 3:
        return empty_output(tensor.unsqueeze(0), tensor.shape[2])[0]
    return empty_output(tensor, tensor.shape[3])


def run_backward(dout, dlse, q, k, v, out, lse, packed, score_function, dsink: bool, dbias: bool) -> Gradients:
    """score_function: scale, causal, window, softcap, sink, bias, mask. All but packed sequences are (batch, row, head,
    dim). dout or dlse may be None, which is 0."""
    *numbers, sink, bias, mask = score_function
    if dbias:
        bias = _with_elements_of_its_own(bias)
    dout = torch.zeros_like(out) if dout is None else _with_contiguous_rows(dout)
    if q.device.type in PLAIN and _is_left_to_flash(q, k, v, out, packed, (*numbers, sink, bias, mask), dlse):
        return _by_flash(dout, q, k, v, out, lse, *numbers[:2])
    gradients = empty_gradients(q, k, v, sink, bias, dsink, dbias)
    if _leaves_some_unwritten(q, k, packed):
        for gradient in gradients:
            gradient.zero_()
    if q.numel() == 0:
        return gradients
    inputs = (q, k, v, out, lse, sink, bias, mask, dout, dlse)
    signature = (*numbers, *map(signature_of, inputs), signature_of_packed(packed), dsink, dbias)
    known = _known.get(signature)
    if known is None:
        score_function = (*numbers, sink, bias, mask)
        known = _describe(q, k, v, out, lse, dout, dlse, packed, score_function, gradients, dsink, dbias)
        if len(_known) >= _MOST_SIGNATURES:
            _known.clear()
        _known[signature] = known
    workspace = None
    if known.workspace_bytes:
        workspace = q.new_empty((known.workspace_bytes + c_api.WORKSPACE_ALIGNMENT,), dtype=torch.uint8)
    args = _pack_args(
        _ARGS_BYTES, 0, address(q), address(k), address(v), address(out), address(lse), address(sink), address(bias),
        address(mask), *lengths_of(packed), address(dout), address(dlse), address(gradients.dq), address(gradients.dk),
        address(gradients.dv), address(gradients.dsink), address(gradients.dbias), aligned(workspace),
        known.workspace_bytes,
    )  # fmt: skip
    attune = library()
    status = attune.backward(
        attune.context, known.desc, args, stream_of(q.device.index if q.device.type == "cuda" else -1)
    )
    if status:
        raise attune.error(status, ATTENTION.say)
    return gradients


def _is_left_to_flash(q, k, v, out, packed, score_function, dlse) -> bool:
    if not torch_flash.allowed or dlse is not None or packed is not None or q.numel() == 0 or k.numel() == 0:
        return False
    *numbers, sink, bias, mask = score_function
    signature = (*numbers, *map(signature_of, (q, k, v, out, sink, bias, mask)))
    known = _left_to_flash.get(signature)
    if known is None:
        forward = describe(q, k, v, "bshd", *score_function, True, out).desc
        known = is_left_to_flash(forward, Wanted(False, False))
        if len(_left_to_flash) >= _MOST_SIGNATURES:
            _left_to_flash.clear()
        _left_to_flash[signature] = known
    return known


def _by_flash(dout, q, k, v, out, lse, scale, causal) -> Gradients:
    found = torch_flash.gradients(dout, q, k, v, out, lse, scale, causal is not None)
    dq, dk, dv = (in_output_order(gradient, tensor) for gradient, tensor in zip(found, (q, k, v)))
    return Gradients(dq, dk, dv, dsink=q.new_empty((0,), dtype=torch.float32), dbias=q.new_empty((0,)))


def _leaves_some_unwritten(q, k, packed: Packed | None) -> bool:
    """Nothing to compute; or a GPU, on which rows may belong to no sequence: what is left there would be trained on."""
    return q.numel() == 0 or k.numel() == 0 or (packed is not None and q.device.type != "cpu")


def _with_contiguous_rows(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _with_elements_of_its_own(bias: torch.Tensor) -> torch.Tensor:
    """Expanded dimensions as real ones: each element has a gradient, and torch sums those of what it expanded."""
    overlaps = any(stride == 0 and extent > 1 for extent, stride in zip(bias.shape, bias.stride()))
    return bias.clone(memory_format=torch.contiguous_format) if overlaps else bias


def _describe(q, k, v, out, lse, dout, dlse, packed, score_function, gradients, dsink, dbias) -> _Described:
    scale, causal, window, softcap, sink, bias, mask = score_function
    forward = describe(
        q, k, v, "bshd", scale, causal, window, softcap, sink, bias, mask, True, out, packed
    ).desc  # fmt: skip
    desc = begun(forward)
    desc.lse = _strides_of_rows(lse)
    desc.dout = _strides(dout)
    desc.dq, desc.dk, desc.dv = map(_strides, (gradients.dq, gradients.dk, gradients.dv))
    if dlse is not None:
        desc.features |= c_api.FEATURE_DLSE
        desc.dlse = _strides_of_rows(dlse)
    if dsink:
        desc.features |= c_api.FEATURE_DSINK
    if dbias:
        desc.features |= c_api.FEATURE_DBIAS
        scores = (desc.batch, desc.heads_q, desc.seq_q, desc.seq_k)
        desc.dbias = c_api.ScoreStrides(*gradients.dbias.expand(scores).stride())
    desc = bytes(desc)
    return _Described(desc, library().backward_workspace_bytes(desc, ATTENTION.say))


def _strides(tensor: torch.Tensor) -> c_api.Strides:
    """Of (batch, row, head, dim), or (row, head, dim) of packed sequences."""
    *batch, row, head, _ = tensor.stride()
    return c_api.Strides(*(batch or [0]), row, head)


def _strides_of_rows(lse: torch.Tensor) -> c_api.Strides:
    """Of (batch, head, row), or (head, row)."""
    *batch, head, row = lse.stride()
    return c_api.Strides(*(batch or [0]), row, head)
