"""Random inputs of a problem, the same ones for all contenders, at new places for every seed. Those of a backward have
what arrives at the output, dout. Lengths belong to the problem: every seed has the same ones."""

from __future__ import annotations

import random
import weakref
from typing import Any, Callable

from attune.lab.problem import Problem

_ALIGNMENT = 256
_MOST_SHIFT = 1 << 20  # bytes; the allocator hands out old places again, so the place inside a block is drawn
_HIDDEN = 0.25  # of the keys by a mask that is no padding, as in lab/check/inputs.cpp
_BLIND_ROWS = 7  # and one in so many rows sees nothing


def torch_dtype(torch, name: str):
    return {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[name]


class Tensors:
    """q, k, v and dout as (batch, row, head, dim), over the storage that the problem names; packed ones have a batch of
    1. What the problem does not have is None: bias and mask (bytes) as (batch, head, row, key), 1 where they are
    broadcast; sink; cu_seqlens_q, cu_seqlens_k, used_q and used_k."""

    bias = mask = sink = cu_seqlens_q = cu_seqlens_k = used_q = used_k = None

    def __init__(self, torch, problem: Problem, device, seed: int):
        self._draw = random.Random(seed)
        self._made: dict[str, Any] = {}
        generator = torch.Generator(device=device)
        generator.manual_seed(seed & (2**63 - 1))
        p = problem
        shapes = {
            "q": (*p.stored_q, p.heads_q, p.dim_qk),
            "k": (*p.stored_k, p.heads_kv, p.dim_qk),
            "v": (*p.stored_k, p.heads_kv, p.dim_v),
        }
        if p.backward:
            shapes["dout"] = (p.batch, p.seq_q, p.heads_q, p.dim_v)
        self.torch = torch
        self.device = device
        for name, shape in shapes.items():
            tensor = self.empty(shape, torch_dtype(torch, p.dtype), p.heads_first)
            tensor.normal_(generator=generator)
            setattr(self, name, tensor)
        if p.bias:
            self.bias = self.empty(_score_shape(p, p.bias), torch_dtype(torch, p.bias_dtype))
            self.bias.normal_(generator=generator)
        if p.mask:
            self.mask = self._padding(p) if p.mask_pads else self._random_mask(p, generator)
        if p.sink:
            self.sink = self.empty((1, 1, 1, p.heads_q), torch.float32).view(p.heads_q)
            self.sink.normal_(generator=generator).mul_(2)
        for name in ("cu_seqlens_q", "cu_seqlens_k", "used_q", "used_k"):
            if values := getattr(p.lengths, name):
                setattr(self, name, torch.tensor(values, dtype=torch.int32, device=device))

    def empty(self, shape: tuple, dtype, heads_first: bool = False):
        """Seen as (batch, row, head, dim)."""
        batch, rows, heads, dim = shape
        stored = (batch, heads, rows, dim) if heads_first else shape
        count = batch * rows * heads * dim
        size = self.torch.empty((), dtype=dtype).element_size()
        shift = self._draw.randrange(0, _MOST_SHIFT, _ALIGNMENT) // size
        flat = self.torch.empty(shift + count, dtype=dtype, device=self.device)
        tensor = flat[shift : shift + count].view(stored)
        return tensor.transpose(1, 2) if heads_first else tensor

    def made_once(self, name: str, make: Callable[[], Any]):
        """What several contenders make of these tensors before they are timed, such as a mask."""
        if name not in self._made:
            self._made[name] = make()
        return self._made[name]

    def _padding(self, p: Problem):
        torch = self.torch
        lengths = torch.tensor(p.lengths.padding, device=self.device).view(-1, 1, 1, 1)
        keys = torch.arange(0, p.seq_k, device=self.device)
        shown = keys >= p.seq_k - lengths if p.causal else keys < lengths
        return self.empty(_score_shape(p, p.mask), torch.uint8).copy_(shown)

    def _random_mask(self, p: Problem, generator):
        torch, shape = self.torch, _score_shape(p, p.mask)
        shown = torch.rand(shape, device=self.device, generator=generator) >= _HIDDEN
        if p.mask[2] == "q":
            shown[:, :, _BLIND_ROWS // 2 :: _BLIND_ROWS] = False
        return self.empty(shape, torch.uint8).copy_(shown)


def _score_shape(p: Problem, dimensions: str) -> tuple:
    extents = (p.batch, p.heads_q, p.seq_q, p.seq_k)
    return tuple(1 if letter == "1" else extent for letter, extent in zip(dimensions, extents))


class TensorPool:
    """One Tensors per seed, for as long as a contender holds it."""

    def __init__(self, torch, problem: Problem, device):
        self._arguments = (torch, problem, device)
        self._by_seed = weakref.WeakValueDictionary()

    def at(self, seed: int) -> Tensors:
        tensors = self._by_seed.get(seed)
        if tensors is None:
            tensors = Tensors(*self._arguments, seed)
            self._by_seed[seed] = tensors
        return tensors
