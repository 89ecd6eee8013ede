"""python3 -m attune.lab trial: judges and times functions of Python, for the attune command.

The command starts this process, writes jobs to standard input, a line each, and reads the answers from a descriptor.
The engine does the work; here a function becomes a contender: attune/attune_contender.h through ctypes.
docs/your-kernel.md says what a function is given and gives.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import importlib
import importlib.util
import inspect
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Callable

from attune import c_api
from attune.lab.engine import Engine
from attune.lab.errors import Absent, BadInput, LabError, NotHere, described
from attune.lab.problem import Problem
from attune.lab.structs import CONTENDER_VERSION, SERVE, ContenderApi, LabCallable

_DTYPES = {c_api.F16: "float16", c_api.BF16: "bfloat16", c_api.F32: "float32"}
_TYPESTR = {c_api.F16: "<f2", c_api.BF16: "<i2", c_api.F32: "<f4"}  # no array interface knows bfloat16
_BYTES = {c_api.F16: 2, c_api.BF16: 2, c_api.F32: 4}


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python3 -m attune.lab trial",
        description="Judges and times functions of Python. Started by `attune bench` and `attune check` --callable.",
    )
    p.add_argument("--engine", required=True, help="libattune_lab_engine.so")
    p.add_argument("descriptor", type=int, help="where the answer is written")
    return p


@functools.cache  # a module is imported once, and what Triton has compiled of it is kept
def function_named(callable_name: str) -> Callable:
    """That of 'package.module:function' or 'path/file.py:function'."""
    place, _, name = callable_name.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            if spec is None or not Path(place).is_file():
                raise BadInput(f"{callable_name}: there is no file {place}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module  # what Triton compiles looks its source up there
            spec.loader.exec_module(module)
        else:
            sys.path.insert(0, str(Path.cwd()))
            module = importlib.import_module(place)
    except LabError:
        raise
    except Exception as error:
        raise BadInput(f"{callable_name}: {place} cannot be imported: {described(error)}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise BadInput(f"{callable_name}: {place} has no function {name}")
    return function


def problem_of(desc: c_api.ForwardDesc) -> Problem:
    """What a function is told. Raises Absent for features that torch's attentions do not have."""
    known = c_api.FEATURE_SCALE | c_api.FEATURE_LSE
    if desc.features & ~known:
        raise Absent("functions of Python are given problems with causal masks, a scale and lse, and no other features")
    return Problem(
        text="",
        **{name: getattr(desc, name) for name in ["batch", "heads_q", "heads_kv", "seq_q", "seq_k", "dim_qk", "dim_v"]},
        dtype={c_api.F16: "f16", c_api.BF16: "bf16", c_api.F32: "f32"}[desc.dtype],
        causal={c_api.CAUSAL_NONE: "", c_api.CAUSAL_TOP_LEFT: "causal-tl"}.get(desc.causal, "causal-br"),
        scale=desc.scale if desc.features & c_api.FEATURE_SCALE else None,
        lse=bool(desc.features & c_api.FEATURE_LSE),
    )


class _DeviceMemory:
    """What torch takes as a tensor on the GPU, without a copy."""

    def __init__(self, address: int, elements: int, typestr: str):
        self.__cuda_array_interface__ = {
            "data": (address, False), "shape": (elements,), "typestr": typestr, "version": 3,
        }  # fmt: skip


def tensor_at(torch, desc, address: int, dtype: int, sizes: Sequence[int], strides: Sequence[int]):
    """A tensor over memory that the engine owns."""
    if any(stride < 0 for stride in strides):
        raise Absent("torch has no negative strides")
    elements = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides))
    if min(sizes) == 0:
        return torch.empty(sizes, dtype=getattr(torch, _DTYPES[dtype]))
    if desc.device_kind == c_api.CUDA:
        flat = torch.as_tensor(_DeviceMemory(address, elements, _TYPESTR[dtype]), device=f"cuda:{desc.device_index}")
    else:
        memory = (ctypes.c_uint8 * (elements * _BYTES[dtype])).from_address(address)
        flat = torch.frombuffer(memory, dtype=torch.uint8)
    return flat.view(getattr(torch, _DTYPES[dtype])).as_strided(sizes, strides)


class Bound:
    """A function with the tensors of one address."""

    def __init__(self, torch, function: Callable, problem: Problem, desc, args):
        p = problem

        def tensor(address, rows, heads, dim, strides):
            return tensor_at(torch, desc, address, desc.dtype, (p.batch, rows, heads, dim),
                             (strides.batch, strides.row, strides.head, 1))  # fmt: skip

        self.q = tensor(args.q, p.seq_q, p.heads_q, p.dim_qk, desc.q)
        self.k = tensor(args.k, p.seq_k, p.heads_kv, p.dim_qk, desc.k)
        self.v = tensor(args.v, p.seq_k, p.heads_kv, p.dim_v, desc.v)
        self.o = tensor(args.o, p.seq_q, p.heads_q, p.dim_v, desc.o)
        self.lse = None
        if args.lse:
            strides = (desc.lse.batch, desc.lse.row, desc.lse.head)
            self.lse = tensor_at(torch, desc, args.lse, c_api.F32, (p.batch, p.seq_q, p.heads_q), strides)
        self._function = function
        self._problem = problem
        self._takes_out = "out" in inspect.signature(function).parameters

    def __call__(self, keep: bool) -> None:
        given = {"out": self.o} if self._takes_out else {}
        result = self._function(self.q, self.k, self.v, self._problem, **given)
        if not keep:
            return
        result, lse = result if isinstance(result, tuple) else (result, None)
        if result is not None and result.data_ptr() != self.o.data_ptr():
            if result.shape != self.o.shape:
                raise LabError(f"the result is {tuple(result.shape)}; (batch, row, head, dim) is {tuple(self.o.shape)}")
            self.o.copy_(result)
        if self.lse is not None:
            if lse is None:
                raise LabError("no lse was given, and the problem asks for it; without, add the word nolse")
            self.lse.copy_(lse.transpose(1, 2))  # (batch, head, row), as torch and FlashAttention have it


class Callee:
    """The functions of attune_contender.h around one function of Python. `keep`: results are compared; in the rounds
    they are thrown away."""

    def __init__(self, torch, name: str, function: Callable, keep: bool):
        self._torch = torch
        self._function = function
        self._keep = keep
        self._complaint = b""
        self._descs: dict[int, c_api.ForwardDesc] = {}  # by instance
        self._bound: dict[tuple, Bound] = {}  # by instance and addresses
        types = dict(ContenderApi._fields_)
        self.api = ContenderApi(
            struct_size=ctypes.sizeof(ContenderApi),
            version=CONTENDER_VERSION,
            name=name.encode(),
            create=types["create"](self._create),
            run=types["run"](lambda *given: self._status(self._run, *given)),
            destroy=types["destroy"](self._destroy),
            last_error=types["last_error"](lambda: ctypes.cast(self._complaint, ctypes.c_void_p).value),
        )

    def _create(self, desc, instance) -> int:
        number = 1 + max(self._descs, default=0)
        self._descs[number] = c_api.ForwardDesc.from_buffer_copy(desc.contents)
        instance[0] = number
        return self._status(problem_of, desc.contents)

    def _destroy(self, instance: int) -> None:
        del self._descs[instance]
        self._bound = {key: bound for key, bound in self._bound.items() if key[0] != instance}

    def _run(self, instance: int, args, stream) -> None:
        torch, desc, args = self._torch, self._descs[instance], args.contents
        key = (instance, args.q, args.k, args.v, args.o, args.lse)
        if key not in self._bound:
            self._bound[key] = Bound(torch, self._function, problem_of(desc), desc, args)
        on_gpu = desc.device_kind == c_api.CUDA
        stream = torch.cuda.ExternalStream(stream, device=desc.device_index) if on_gpu else None
        with torch.no_grad(), torch.cuda.stream(stream):
            self._bound[key](self._keep)

    def _status(self, action: Callable, *arguments) -> int:
        try:
            action(*arguments)
            return 0
        except (Exception, SystemExit) as error:  # nothing may fly through C
            self._complaint = described(error).encode()
            return 1


class Answer:
    """Lines for the command, before the engine writes its own."""

    def __init__(self, descriptor: int):
        self._descriptor = descriptor

    def say(self, line: dict) -> None:
        os.write(self._descriptor, json.dumps(line).encode() + b"\n")

    def at(self, entrant: int) -> None:
        self.say({"at": entrant, "contender": "", "round": 0})


def callees_of(job: dict, answer: Answer) -> dict[str, Callee]:
    try:
        import torch
    except ImportError as error:
        raise NotHere(f"functions of Python need torch, which {sys.executable} cannot import: {error}") from error
    entrants = [job["entrant"]] if "entrant" in job else job["entrants"]
    callees = {}
    for number, entrant in enumerate(entrants):
        if name := entrant["callable"]:
            answer.at(number)
            callees[name] = Callee(torch, name, function_named(name), job["task"] == "check")
    answer.at(-1)
    return callees


def run(asked) -> int:
    engine = Engine(asked.engine)
    serve = engine.library.attune_lab_serve
    serve.restype, serve.argtypes = SERVE
    answer = Answer(asked.descriptor)
    for line in sys.stdin:
        job = json.loads(line)
        try:
            callees = callees_of(job, answer)
        except LabError as error:
            answer.say({"error": str(error), "status": c_api.NO_DEVICE if isinstance(error, NotHere) else 1})
            return error.status
        callables = (LabCallable * len(callees))(
            *(LabCallable(name.encode(), ctypes.pointer(callee.api)) for name, callee in callees.items())
        )
        engine.require(serve(line.encode(), asked.descriptor, callables, len(callables)))
    return 0
