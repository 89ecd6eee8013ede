"""Inputs under torch.autocast, cast as it casts those of torch's own attention."""

from __future__ import annotations

import torch

# On any device; the look at the right one takes five times as long.
is_autocast_on_somewhere = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)


def autocast(*tensors):
    """The tensors, cast where autocast is on for the device of the first. What is no tensor stays what it is."""
    if not isinstance(tensors[0], torch.Tensor):
        return tensors
    device = tensors[0].device.type
    if device not in ("cpu", "cuda") or not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [tensor.to(dtype) if _is_cast(tensor) else tensor for tensor in tensors]


def _is_cast(tensor) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_floating_point() and tensor.dtype != torch.float64
