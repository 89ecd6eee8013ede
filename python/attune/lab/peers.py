"""Attentions of other packages, each where it can be imported; and the list of all peers."""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

from attune.lab.contender import Bound, Contender
from attune.lab.errors import Absent, BadInput, first_line
from attune.lab.flash_after_attune import FlashAfterAttune
from attune.lab.flex import Flex
from attune.lab.imports import imported
from attune.lab.problem import Problem
from attune.lab.sdpa import Sdpa, SdpaDefault
from attune.lab.tensors import Tensors
from attune.lab.varlen import Varlen


def _require_bottom_right(problem: Problem, name: str) -> None:
    if problem.causal == "causal-tl" and not problem.square:
        raise Absent(f"the causal mask of {name} is aligned bottom-right")


def _require_dense(problem: Problem) -> None:
    """A forward pass without the features that this peer is not asked for here."""
    if problem.backward:
        raise Absent("only its forward pass is measured here")
    p = problem
    if p.windowed or p.softcap or p.sink or p.bias or p.mask or p.packed or p.used_q or p.used_k:
        raise Absent("it is measured on dense calls here: full or causal, without other features")


class FlashAttention(Contender):
    """flash_attn (version 2) and flash_attn_interface (version 3)."""

    def __init__(self, name: str, module: str):
        self.name = name
        self._module = module

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        _require_dense(problem)
        module = imported(self._module)
        _require_bottom_right(problem, self._module)
        attention = partial(
            module.flash_attn_func,
            tensors.q,
            tensors.k,
            tensors.v,
            softmax_scale=problem.softmax_scale,
            causal=bool(problem.causal),
        )

        def call():
            result = attention()
            return result[0] if isinstance(result, tuple) else result  # some versions add the log-sum-exp

        return Bound(call, facts={"version": str(getattr(module, "__version__", "not stated"))})


class FlashInfer(Contender):
    name = "flashinfer"
    _WORKSPACE = 128 << 20

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        _require_dense(problem)
        module = imported("flashinfer")
        p = problem
        _require_bottom_right(p, "flashinfer")
        if p.heads_first:
            raise Absent("flashinfer takes rows before heads")
        workspace = torch.empty(self._WORKSPACE, dtype=torch.uint8, device=tensors.device)
        wrapper = module.BatchPrefillWithRaggedKVCacheWrapper(workspace, "NHD")

        def ends(length: int):
            return torch.arange(0, (p.batch + 1) * length, length, dtype=torch.int32, device=tensors.device)

        wrapper.plan(
            ends(p.seq_q),
            ends(p.seq_k),
            p.heads_q,
            p.heads_kv,
            p.dim_qk,
            head_dim_vo=p.dim_v,
            causal=bool(p.causal),
            sm_scale=p.softmax_scale,
            q_data_type=tensors.q.dtype,
        )
        inputs = [tensor.flatten(0, 1) for tensor in (tensors.q, tensors.k, tensors.v)]

        def call():
            return wrapper.run(*inputs).view(p.batch, p.seq_q, p.heads_q, p.dim_v)

        return Bound(call, facts={"version": str(getattr(module, "__version__", "not stated"))})


class Triton(Contender):
    """The attention of Triton's tutorial: a file of its repository, no part of its package."""

    name = "triton"

    def __init__(self, file: str | None):
        self._file = file
        self._module = None

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        _require_dense(problem)
        imported("triton")
        p = problem
        if self._file is None:
            raise Absent(
                "the triton package has no attention; give its tutorial 06-fused-attention.py by --triton FILE"
            )
        if p.heads_q != p.heads_kv or not p.square or p.dim_qk != p.dim_v:
            raise Absent("the tutorial's kernel takes equal heads, lengths and dimensions only")
        if self._module is None:
            self._module = self._load()
        # It reads (batch, head, row, dim) without strides of its own; the copies are made before anything is timed.
        inputs = [tensor.transpose(1, 2).contiguous() for tensor in (tensors.q, tensors.k, tensors.v)]
        call = partial(self._module.attention, *inputs, bool(p.causal), p.softmax_scale)
        return Bound(call, heads_first=True, facts={"file": Path(self._file).name, "storage": "bhsd copies"})

    def _load(self):
        spec = importlib.util.spec_from_file_location("triton_attention", self._file)
        try:
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        except Exception as error:
            raise Absent(f"{self._file}: {first_line(error)}") from error
        return module


_SDPA = {
    "default": SdpaDefault,
    "cudnn": lambda: Sdpa("cudnn", "CUDNN_ATTENTION"),
    "flash": lambda: Sdpa("flash", "FLASH_ATTENTION"),
    "efficient": lambda: Sdpa("efficient", "EFFICIENT_ATTENTION"),
    "math": lambda: Sdpa("math", "MATH"),
}
_OTHERS = {
    "flash-after-attune": lambda *_: FlashAfterAttune(),
    "flex": lambda _, with_sdpa: Flex(with_sdpa),
    "varlen": lambda *_: Varlen(),
    "triton": lambda options, _: Triton(options.triton),
    "fa2": lambda *_: FlashAttention("fa2", "flash_attn"),
    "fa3": lambda *_: FlashAttention("fa3", "flash_attn_interface"),
    "flashinfer": lambda *_: FlashInfer(),
}
PEERS = (*_SDPA, *_OTHERS)


def make_peers(names: list[str], options) -> list[Contender]:
    """In the order given, each once; 'all' is all of them."""
    wanted = list(PEERS) if "all" in names else list(dict.fromkeys(names))
    for name in wanted:
        if name not in PEERS:
            raise BadInput(f"there is no peer '{name}'; the peers are {', '.join(PEERS)} and all")
    with_sdpa = any(name in _SDPA for name in wanted)
    return [_SDPA[name]() if name in _SDPA else _OTHERS[name](options, with_sdpa) for name in wanted]
