"""Whether a call is to have gradients, and whether there is a kernel for them: known before anything is computed."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch.autograd import forward_ad

from attune import c_api, torch_flash
from attune.c_api import Unsupported, kernel_of
from attune.describe import library
from attune.fallback import is_plain
from attune.names import Names


class Wanted(NamedTuple):
    """Which gradients a call is to have, beside those of q, k and v."""

    dsink: bool
    dbias: bool
    dlse: bool = False  # the log-sum-exp is returned, and so a gradient may come in there


def wanted(q, k, v, sink, bias, return_lse: bool = False) -> Wanted | None:
    """None where no input requires any. torch.compile sees through it."""
    if not torch.is_grad_enabled():
        return None
    dsink = sink is not None and sink.requires_grad
    dbias = bias is not None and bias.requires_grad
    if not (q.requires_grad or k.requires_grad or v.requires_grad or dsink or dbias):
        return None
    return Wanted(dsink, dbias, return_lse)


def refuse_tangents(*tensors: torch.Tensor | None) -> None:
    """Loudly: an output that quietly has none would be taken for a constant."""
    if forward_ad._current_level < 0:
        return
    for tensor in tensors:
        if tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None:
            raise Unsupported("an input has a tangent, and there is no forward-mode differentiation yet")


def refuse_without_backward(forward: bytes, wanted: Wanted, names: Names) -> None:
    """Where nothing has these gradients: before anything is computed that could not be trained with."""
    if is_left_to_flash(forward, wanted):
        return
    try:
        _refuse_without_kernel(forward, wanted, names)
    except Unsupported as refusal:
        desc = begun(forward)
        if desc.device_kind != torch_flash.DEVICE_KIND:
            raise
        clause = torch_flash.refusal(desc, wanted.dlse)
        raise Unsupported(f"{refusal}; torch's flash backward does not take it either: {clause}") from None


def is_left_to_flash(forward: bytes, wanted: Wanted) -> bool:
    """Whether torch's flash backward forms these gradients: it takes them, and of Attune's kernels a plain one does at
    most."""
    if torch_flash.refusal(begun(forward), wanted.dlse):
        return False
    kernel = kernel_of(library().explain_backward(_expected(forward, wanted), str))
    return kernel == "none" or is_plain(kernel)


def _refuse_without_kernel(forward: bytes, wanted: Wanted, names: Names) -> None:
    library().backward_workspace_bytes(_expected(forward, wanted), names.say)


def refuse_plain_backward(forward: bytes, wanted: Wanted, names: Names) -> None:
    """What only a plain kernel of a GPU can differentiate, or none at all, is left to torch: all of it, for torch knows
    quicker ways back than its flash backward."""
    _refuse_without_kernel(forward, wanted, names)
    kernel = kernel_of(library().explain_backward(_expected(forward, wanted), names.say))
    if is_plain(kernel):
        raise Unsupported(f"the plain kernel {kernel} alone has these gradients, and torch is many times as fast")


def explanation(forward: bytes, wanted: Wanted, names: Names) -> str:
    """What the backward will run, or why there is none."""
    text = library().explain_backward(_expected(forward, wanted), names.say)
    kernel = kernel_of(text)
    try:
        refuse_without_backward(forward, wanted, names)
    except Unsupported as refusal:
        text += f"gradients: refused: {refusal}\n"
    else:
        if is_left_to_flash(forward, wanted):
            alone = "no kernel has them here" if kernel == "none" else f"only the plain kernel {kernel} has them here"
            text += f"gradients: {torch_flash.SAID}: {alone}\n"
        elif is_plain(kernel):
            clause = torch_flash.refusal(begun(forward), wanted.dlse)
            text += f"gradients: {kernel}, and not torch's flash backward: {clause}\n"
        else:
            return text
    return f"{text}fallback: gradients are left to torch where fallback=True\n"


def begun(forward: bytes) -> c_api.BackwardDesc:
    """With the fields that it shares with the descriptor of the forward call."""
    desc = c_api.BackwardDesc.from_buffer_copy(forward.ljust(ctypes.sizeof(c_api.BackwardDesc), b"\0"))
    desc.struct_size = ctypes.sizeof(desc)
    return desc


def _expected(forward: bytes, wanted: Wanted) -> bytes:
    """The backward of a forward call, with its gradients as they will lie where nothing says otherwise."""
    desc = begun(forward)
    is_packed = desc.features & c_api.FEATURE_PACKED
    rows, keys = (desc.total_q, desc.total_k) if is_packed else (desc.seq_q, desc.seq_k)
    desc.features |= c_api.FEATURE_LSE
    desc.lse = c_api.Strides(desc.heads_q * rows, 1, rows)
    desc.dout = _in_order(rows, desc.heads_q, desc.dim_v)
    desc.dq = _in_order(rows, desc.heads_q, desc.dim_qk)
    desc.dk = _in_order(keys, desc.heads_kv, desc.dim_qk)
    desc.dv = _in_order(keys, desc.heads_kv, desc.dim_v)
    if wanted.dsink:
        desc.features |= c_api.FEATURE_DSINK
    if wanted.dbias:
        desc.features |= c_api.FEATURE_DBIAS
        extents = (desc.batch, desc.heads_q, desc.seq_q, desc.seq_k)
        step = 1
        for name, extent in reversed(list(zip(("batch", "head", "query", "key"), extents))):
            if getattr(desc.bias, name):
                setattr(desc.dbias, name, step)
                step *= max(extent, 1)
    return bytes(desc)


def _in_order(rows: int, heads: int, dim: int) -> c_api.Strides:
    return c_api.Strides(rows * heads * dim, heads * dim, dim)
