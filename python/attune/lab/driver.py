"""CUDA graphs through the driver's library: what torch captured is made plain, checked to be linear, instantiated."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_int, c_size_t, c_ubyte, c_ulonglong, c_void_p

from attune.lab.errors import LabError, NotHere

_PROGRAMMATIC = 1  # CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC


class EdgeData(ctypes.Structure):  # CUgraphEdgeData
    _fields_ = [("from_port", c_ubyte), ("to_port", c_ubyte), ("type", c_ubyte), ("reserved", c_ubyte * 5)]


_EDGES = [c_void_p, POINTER(c_void_p), POINTER(c_void_p), POINTER(EdgeData)]
_FUNCTIONS = {
    "cuGraphGetNodes": [c_void_p, POINTER(c_void_p), POINTER(c_size_t)],
    "cuGraphGetEdges_v2": [*_EDGES, POINTER(c_size_t)],
    "cuGraphAddDependencies_v2": [*_EDGES, c_size_t],
    "cuGraphRemoveDependencies_v2": [*_EDGES, c_size_t],
    "cuGraphInstantiateWithFlags": [POINTER(c_void_p), c_void_p, c_ulonglong],
    "cuGraphExecDestroy": [c_void_p],
}


class Driver:
    def __init__(self, path: str = "libcuda.so.1"):
        try:
            self._library = ctypes.CDLL(path)
            for name, arguments in _FUNCTIONS.items():
                function = getattr(self._library, name)
                function.restype = c_int
                function.argtypes = arguments
        except (OSError, AttributeError) as error:
            raise NotHere(f"the CUDA driver (12.3 or newer) cannot be loaded: {error}") from error

    def _call(self, name: str, *arguments) -> None:
        result = getattr(self._library, name)(*arguments)
        if result != 0:
            raise LabError(f"{name} failed with CUDA error {result}")

    def instantiate(self, graph: int) -> int:
        """A CUgraphExec of a linear chain of plain edges: each launch waits for the whole of the one before."""
        self._require_linear(graph)
        executable = c_void_p()
        self._call("cuGraphInstantiateWithFlags", byref(executable), graph, 0)
        return executable.value

    def destroy(self, executable: int) -> None:
        self._call("cuGraphExecDestroy", executable)

    def _require_linear(self, graph: int) -> None:
        nodes, edges = c_size_t(), c_size_t()
        self._call("cuGraphGetNodes", graph, None, byref(nodes))
        self._call("cuGraphGetEdges_v2", graph, None, None, None, byref(edges))
        count = edges.value
        sources, targets, data = (c_void_p * count)(), (c_void_p * count)(), (EdgeData * count)()
        if count:
            self._call("cuGraphGetEdges_v2", graph, sources, targets, data, byref(edges))
        if nodes.value == 0:
            raise LabError("the captured graph is empty: the call ran on another stream")
        if count != nodes.value - 1 or len(set(sources)) != count or len(set(targets)) != count:
            raise LabError(f"the captured graph is not linear: {nodes.value} nodes, {count} edges")
        self._make_full(graph, [i for i in range(count) if data[i].type == _PROGRAMMATIC], sources, targets, data)

    def _make_full(self, graph: int, which: list, sources, targets, data) -> None:
        """Programmatic edges let a launch begin before the one before it has ended; that is another column."""
        count = len(which)
        if count == 0:
            return
        begin = (c_void_p * count)(*[sources[i] for i in which])
        end = (c_void_p * count)(*[targets[i] for i in which])
        old = (EdgeData * count)(*[data[i] for i in which])
        self._call("cuGraphRemoveDependencies_v2", graph, begin, end, old, count)
        self._call("cuGraphAddDependencies_v2", graph, begin, end, (EdgeData * count)(), count)
