"""Attune through its C interface, as a contender."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_size_t, c_uint64, c_void_p
from dataclasses import replace

from attune import c_api
from attune.lab.contender import Bound, Contender
from attune.lab.errors import Absent, LabError, NotHere, refusal
from attune.lab.problem import Problem
from attune.lab.tensors import Tensors, torch_dtype

_DTYPE = {"f16": c_api.F16, "bf16": c_api.BF16, "f32": c_api.F32}
_CAUSAL = {"": c_api.CAUSAL_NONE, "causal-tl": c_api.CAUSAL_TOP_LEFT, "causal-br": c_api.CAUSAL_BOTTOM_RIGHT}

_FACTS = ("kernel", "variant", "config", "grid", "registers", "cubin")  # of what attune_explain says


class AttuneLibrary:
    def __init__(self, path: str):
        try:
            self.functions = c_api.load(path, c_api.FUNCTIONS)
        except (OSError, AttributeError) as error:
            raise NotHere(f"libattune cannot be loaded: {error}") from error
        version = self.functions.attune_abi_version()
        if version < c_api.ABI_VERSION:
            raise NotHere(f"{path} has ABI version {version}; this host needs {c_api.ABI_VERSION}")
        self.gradients = c_api.load(path, c_api.GRADIENT_FUNCTIONS)

    def last_error(self) -> str:
        return self.functions.attune_last_error().decode()


def _strides(tensor) -> c_api.Strides:
    return c_api.Strides(tensor.stride(0), tensor.stride(1), tensor.stride(2))


def _score_strides(tensor) -> c_api.ScoreStrides:
    return c_api.ScoreStrides(*(0 if extent == 1 else step for extent, step in zip(tensor.shape, tensor.stride())))


def describe(problem: Problem, tensors: Tensors, output, device_index: int) -> c_api.ForwardDesc:
    p = problem
    desc = c_api.ForwardDesc(
        struct_size=ctypes.sizeof(c_api.ForwardDesc),
        device_kind=c_api.CUDA,
        device_index=device_index,
        dtype=_DTYPE[p.dtype],
        bias_dtype=_DTYPE[p.bias_dtype],
        causal=_CAUSAL[p.causal],
        batch=p.batch,
        heads_q=p.heads_q,
        heads_kv=p.heads_kv,
        seq_q=p.seq_q,
        seq_k=p.seq_k,
        dim_qk=p.dim_qk,
        dim_v=p.dim_v,
        q=_strides(tensors.q),
        k=_strides(tensors.k),
        v=_strides(tensors.v),
        o=_strides(output),
    )
    if p.scale is not None:
        desc.features |= c_api.FEATURE_SCALE
        desc.scale = p.scale
    if p.lse:
        desc.features |= c_api.FEATURE_LSE
        rows = p.stored_q[1]
        desc.lse = c_api.Strides(0 if p.packed else p.heads_q * rows, 1, rows)
    _describe_features(desc, p, tensors)
    return desc


def _describe_features(desc: c_api.ForwardDesc, p: Problem, tensors: Tensors) -> None:
    if p.windowed:
        desc.features |= c_api.FEATURE_WINDOW
        desc.window_left, desc.window_right = p.window
    if p.softcap:
        desc.features |= c_api.FEATURE_SOFTCAP
        desc.softcap = p.softcap
    if p.bias:
        desc.features |= c_api.FEATURE_BIAS
        desc.bias = _score_strides(tensors.bias)
    if p.mask:
        desc.features |= c_api.FEATURE_MASK
        desc.mask = _score_strides(tensors.mask)
    if p.packed:
        desc.features |= c_api.FEATURE_PACKED
        desc.total_q, desc.total_k = p.total_q, p.total_k
    flags = {"sink": c_api.FEATURE_SINK, "used_q": c_api.FEATURE_USED_Q, "used_k": c_api.FEATURE_USED_K}
    for name, flag in flags.items():
        desc.features |= flag if getattr(p, name) else 0


_INPUTS = ("q", "k", "v", "sink", "bias", "mask", "cu_seqlens_q", "cu_seqlens_k", "used_q", "used_k")


def arguments_of(tensors: Tensors, output, lse, workspace, workspace_bytes: int) -> c_api.ForwardArgs:
    named = {name: getattr(tensors, name) for name in _INPUTS} | {"o": output, "lse": lse, "workspace": workspace}
    return c_api.ForwardArgs(
        struct_size=ctypes.sizeof(c_api.ForwardArgs),
        workspace_bytes=workspace_bytes,
        **{name: tensor.data_ptr() for name, tensor in named.items() if tensor is not None},
    )


def outputs_of(torch, p: Problem, tensors: Tensors) -> tuple:
    """o as (batch, row, head, dim), and the log-sum-exp as (batch, head, row) or None."""
    batch, rows = p.stored_q
    output = tensors.empty((batch, rows, p.heads_q, p.dim_v), torch_dtype(torch, p.dtype), p.heads_first)
    lse = torch.empty(batch, p.heads_q, rows, dtype=torch.float32, device=tensors.device) if p.lse else None
    return output, lse


class AttuneContender(Contender):
    """`kernel`: the one kernel it may use, or None for the library's own choice."""

    strict = True

    def __init__(self, library: AttuneLibrary, kernel: str | None = None, device_index: int = 0):
        self.name = kernel or "attune"
        self._library = library
        self._device_index = device_index
        self._context = c_void_p()
        options = c_api.Options(struct_size=ctypes.sizeof(c_api.Options), kernel=kernel.encode() if kernel else None)
        status = library.functions.attune_create(byref(options), byref(self._context))
        if status != c_api.OK:
            raise refusal(status, library.last_error())

    def close(self) -> None:
        self._library.functions.attune_destroy(self._context)
        self._context = c_void_p()

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        if problem.backward:
            return self._bind_backward(torch, problem, tensors)
        p, functions = problem, self._library.functions
        output, lse = outputs_of(torch, p, tensors)
        desc = describe(p, tensors, output, self._device_index)
        self._require(functions.attune_prepare(self._context, byref(desc)))
        size = c_uint64()
        self._require(functions.attune_workspace_bytes(self._context, byref(desc), byref(size)))
        workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device=tensors.device)
        args = arguments_of(tensors, output, lse, workspace, size.value)

        def call(kept=workspace):  # the workspace lives as long as the call
            stream = torch.cuda.current_stream().cuda_stream
            if functions.attune_forward(self._context, byref(desc), byref(args), stream) != c_api.OK:
                raise LabError(f"attune_forward: {self._library.last_error()}")
            return output

        return Bound(call, lse=lse, facts=self._facts(functions.attune_explain, desc))

    def _bind_backward(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        p, functions, device = problem, self._library.gradients, tensors.device
        forward = AttuneContender(self._library, device_index=self._device_index)  # whatever kernel gives o and lse
        try:
            bound = forward.bind(torch, replace(p, backward=False), tensors)
            o, lse = bound.call(), bound.lse
            torch.cuda.synchronize()
        finally:
            forward.close()
        gradients = [
            tensors.empty(each.shape, each.dtype, p.heads_first) for each in (tensors.q, tensors.k, tensors.v)
        ]  # fmt: skip
        shared = describe(p, tensors, o, self._device_index)
        desc = c_api.BackwardDesc.from_buffer_copy(bytes(shared).ljust(ctypes.sizeof(c_api.BackwardDesc), b"\0"))
        desc.struct_size = ctypes.sizeof(desc)
        desc.dout = _strides(tensors.dout)
        desc.dq, desc.dk, desc.dv = map(_strides, gradients)
        self._require(functions.attune_backward_prepare(self._context, byref(desc)))
        size = c_uint64()
        self._require(functions.attune_backward_workspace_bytes(self._context, byref(desc), byref(size)))
        workspace = torch.empty(max(size.value, 1), dtype=torch.uint8, device=device)
        named = {"q": tensors.q, "k": tensors.k, "v": tensors.v, "o": o, "lse": lse, "dout": tensors.dout}
        named |= dict(zip(("dq", "dk", "dv"), gradients), workspace=workspace)
        args = c_api.BackwardArgs(
            struct_size=ctypes.sizeof(c_api.BackwardArgs),
            workspace_bytes=size.value,
            **{name: tensor.data_ptr() for name, tensor in named.items()},
        )

        def call(kept=named):  # the tensors live as long as the call
            stream = torch.cuda.current_stream().cuda_stream
            if functions.attune_backward(self._context, byref(desc), byref(args), stream) != c_api.OK:
                raise LabError(f"attune_backward: {self._library.last_error()}")
            return tuple(gradients)

        return Bound(call, facts=self._facts(functions.attune_backward_explain, desc))

    def _require(self, status: int) -> None:
        if status != c_api.OK:
            raise Absent(self._library.last_error())

    def _facts(self, explain, desc) -> dict:
        length = c_size_t()
        self._require(explain(self._context, byref(desc), c_char_p(), 0, byref(length)))
        text = ctypes.create_string_buffer(length.value + 1)
        self._require(explain(self._context, byref(desc), text, length.value + 1, byref(length)))
        said = [line.split(": ", 1) for line in text.value.decode().splitlines() if ": " in line]
        return {name: value for name, value in said if name in _FACTS}
