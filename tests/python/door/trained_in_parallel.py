"""One of two processes: python3 trained_in_parallel.py MEETING RANK. Each sees half of every batch; after a few steps
the weights must be those of one process that sees all of it."""

import copy
import os
import sys

import attune
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

STEPS, HEADS, DIM = 3, 4, 8


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.into = torch.nn.Linear(HEADS * DIM, 3 * HEADS * DIM)
        self.out = torch.nn.Linear(HEADS * DIM, HEADS * DIM)

    def forward(self, x):
        q, k, v = self.into(x).unflatten(-1, (3, HEADS, DIM)).unbind(-3)
        return x + self.out(attune.attention(q, k, v, causal="top-left").flatten(-2))


def model():
    torch.manual_seed(1)
    return torch.nn.Sequential(Block(), Block())


def train(module, rank=None):
    """On all of each batch, or on the half of one rank."""
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    generator = torch.Generator().manual_seed(2)
    for _ in range(STEPS):
        batch = torch.randn(4, 9, HEADS * DIM, generator=generator)
        optimizer.zero_grad()
        module(batch if rank is None else batch.chunk(2)[rank]).square().mean().backward()
        optimizer.step()


def ddp(rank):
    wrapped = DistributedDataParallel(model())
    train(wrapped, rank)
    return dict(wrapped.module.state_dict())


def fsdp(rank):
    from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    wrapped = FullyShardedDataParallel(
        model(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu")
    )
    train(wrapped, rank)
    with FullyShardedDataParallel.state_dict_type(wrapped, StateDictType.FULL_STATE_DICT):
        return dict(wrapped.state_dict())


def fully_shard(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sharded, mesh = model(), init_device_mesh("cpu", (2,))
    for block in sharded:
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    train(sharded, rank)
    return {name: value.full_tensor() for name, value in sharded.state_dict().items()}


def main(meeting, rank):
    distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    alone = copy.deepcopy(model())
    train(alone)
    for name, way in {"DDP": ddp, "FSDP": fsdp, "fully_shard": fully_shard}.items():
        try:
            weights = way(rank)
        except ImportError:
            print(f"{name}: is not there")
            continue
        for parameter, expected in alone.state_dict().items():
            torch.testing.assert_close(weights[parameter], expected, rtol=0, atol=1e-5)
        print(f"{name}: as one process")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
    # A thread of gloo may give back its last Python object while the interpreter ends, which aborts the process.
    sys.stdout.flush()
    os._exit(0)
