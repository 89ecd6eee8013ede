"""A plug-in (attune/attune_contender.h) as a contender beside peers.

`attune bench` has judged it before, in a process of its own; here it is judged once more, on the tensors of the rounds.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from pathlib import Path

from attune import c_api
from attune.lab.attune_library import arguments_of, describe, outputs_of
from attune.lab.contender import Bound, Contender
from attune.lab.errors import Absent, LabError, NotHere
from attune.lab.problem import Problem
from attune.lab.structs import CONTENDER_VERSION, ContenderApi
from attune.lab.tensors import Tensors


class PluginContender(Contender):
    strict = True

    def __init__(self, path: str, device_index: int = 0):
        try:
            entry = ctypes.CDLL(str(Path(path).absolute())).attune_contender
        except (OSError, AttributeError) as error:
            raise NotHere(f"--plugin {path}: {error}") from error
        entry.restype = ctypes.POINTER(ContenderApi)
        found = entry()
        if not found or found.contents.version != CONTENDER_VERSION:
            raise NotHere(f"--plugin {path}: it is not made for version {CONTENDER_VERSION} of attune_contender.h")
        self.path = path
        self._api = found.contents
        self._device_index = device_index
        self.name = self._api.name.decode()

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        p, api = problem, self._api
        if p.backward:
            raise Absent("a plug-in computes the forward pass")
        if self.path in p.without:
            raise Absent("it did not pass in a process of its own")
        output, lse = outputs_of(torch, p, tensors)
        desc = describe(p, tensors, output, self._device_index)
        instance = _Instance(api, desc)
        size = api.workspace_bytes(instance.value) if api.workspace_bytes else 0
        workspace = torch.empty(max(size, 1), dtype=torch.uint8, device=tensors.device)
        args = arguments_of(tensors, output, lse, workspace, size)

        def call(kept=workspace):  # the workspace lives as long as the call
            if api.run(instance.value, byref(args), torch.cuda.current_stream().cuda_stream) != 0:
                raise LabError(_complaint(api))
            return output

        return Bound(call, lse=lse, facts={"plugin": self.path})


class _Instance:
    """What a plug-in made for a problem, for as long as a call is kept."""

    def __init__(self, api: ContenderApi, desc: c_api.ForwardDesc):
        self._api = api
        made = c_void_p()
        if api.create(byref(desc), byref(made)) != 0:
            raise Absent(_complaint(api))
        self.value = made

    def __del__(self):
        if hasattr(self, "value"):
            self._api.destroy(self.value)


def _complaint(api: ContenderApi) -> str:
    address = api.last_error()
    return ctypes.string_at(address).decode() if address else "refused without a reason"
