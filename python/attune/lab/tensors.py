"""Random inputs of a problem, the same ones for all contenders, at new places for every seed. Those of a backward have
what arrives at the output, dout."""

from __future__ import annotations

import random
import weakref

from attune.lab.problem import Problem

_ALIGNMENT = 256
_MOST_SHIFT = 1 << 20  # bytes; the allocator hands out old places again, so the place inside a block is drawn


def torch_dtype(torch, name: str):
    return {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[name]


class Tensors:
    """q, k, v and dout as (batch, row, head, dim), over the storage that the problem names."""

    def __init__(self, torch, problem: Problem, device, seed: int):
        self._draw = random.Random(seed)
        generator = torch.Generator(device=device)
        generator.manual_seed(seed & (2**63 - 1))
        p = problem
        shapes = {
            "q": (p.batch, p.seq_q, p.heads_q, p.dim_qk),
            "k": (p.batch, p.seq_k, p.heads_kv, p.dim_qk),
            "v": (p.batch, p.seq_k, p.heads_kv, p.dim_v),
        }
        if p.backward:
            shapes["dout"] = (p.batch, p.seq_q, p.heads_q, p.dim_v)
        self.torch = torch
        self.device = device
        for name, shape in shapes.items():
            tensor = self.empty(shape, torch_dtype(torch, p.dtype), p.heads_first)
            tensor.normal_(generator=generator)
            setattr(self, name, tensor)

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
