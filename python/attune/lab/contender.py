"""What takes part in the rounds: bound to tensors, called, captured in CUDA graphs."""

from __future__ import annotations

import gc
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Callable

from attune.lab.driver import Driver
from attune.lab.errors import NotHere
from attune.lab.problem import Problem
from attune.lab.tensors import TensorPool, Tensors


@dataclass
class Bound:
    """A contender with its tensors."""

    # Queues one attention on torch's current stream and returns its output, or its three gradients.
    call: Callable[[], Any]
    heads_first: bool = False  # the output is (batch, head, row, dim) instead of (batch, row, head, dim)
    around: Callable[[], Any] = nullcontext  # entered around calls
    lse: Any = None  # (batch, head, row), where the contender writes one
    facts: dict = field(default_factory=dict)

    def output_of(self, result):
        if isinstance(result, tuple):
            return tuple(map(self.output_of, result))
        return result.transpose(1, 2) if self.heads_first else result


class Contender:
    """Subclasses bind; `bind` raises Absent with the reason why this problem is not theirs."""

    name = ""
    strict = False  # judged by the gate of Attune's own kernels

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        raise NotImplementedError


class Captured:
    """Captures one contender for the engine, and keeps its latest graph alive."""

    def __init__(self, torch, driver: Driver, contender: Contender, problem: Problem, pool: TensorPool, stream):
        self._torch = torch
        self._driver = driver
        self._contender = contender
        self._problem = problem
        self._pool = pool
        self._stream = stream
        self._seed: int | None = None
        self._tensors = self._bound = self._graph = self._executable = None

    def capture(self, calls: int, seed: int) -> int:
        self.release()
        if seed != self._seed:
            self._bound = None
            # The old tensors go after the new ones are there: otherwise these would take their places.
            self._tensors = self._pool.at(seed)
            self._bound = self._contender.bind(self._torch, self._problem, self._tensors)
            self._seed = seed
            self._warm_up()
        self._graph = self._record(calls)
        self._executable = self._driver.instantiate(self._graph.raw_cuda_graph())
        return self._executable

    def release(self) -> None:
        if self._executable is not None:
            self._driver.destroy(self._executable)
        self._executable = self._graph = None
        free, total = self._torch.cuda.mem_get_info()
        if free < total // 2:  # torch keeps the memory of dropped graphs, and cannot give it back inside a capture
            self._torch.cuda.empty_cache()

    def _warm_up(self) -> None:
        """Plans, handles and compilation are not to be met first inside a capture."""
        self._torch.cuda.synchronize()
        with self._torch.cuda.stream(self._stream), self._bound.around():
            self._bound.call()
        self._torch.cuda.synchronize()

    def _record(self, calls: int):
        torch = self._torch
        if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
            raise NotHere(f"torch {torch.__version__} does not hand out its graphs; CUDAGraph.raw_cuda_graph is needed")
        # By hand and not with torch.cuda.graph, which empties torch's cache and collects garbage before each capture.
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        collecting = gc.isenabled()
        gc.disable()  # a graph finalised during a capture would spoil it
        try:
            with torch.cuda.stream(self._stream), self._bound.around():
                graph.capture_begin(capture_error_mode="thread_local")
                try:
                    for _ in range(calls):
                        self._bound.call()
                except BaseException:
                    with suppress(Exception):
                        graph.capture_end()
                    raise
                graph.capture_end()
        finally:
            if collecting:
                gc.enable()
        return graph
