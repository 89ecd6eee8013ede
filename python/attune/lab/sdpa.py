"""torch's scaled_dot_product_attention, by backend."""

from __future__ import annotations

from functools import partial

from attune.lab.contender import Bound, Contender
from attune.lab.errors import Absent
from attune.lab.problem import Problem
from attune.lab.sdpa_backward import bind_backward
from attune.lab.sdpa_mask import sdpa_mask
from attune.lab.tensors import Tensors


def _arguments(torch, problem: Problem, tensors: Tensors):
    if problem.backward and problem.causal == "causal-br" and not problem.square:
        raise Absent("the operators of SDPA's gradients have a causal mask that is aligned top-left")
    inputs = [tensor.transpose(1, 2) for tensor in (tensors.q, tensors.k, tensors.v)]
    options = {**sdpa_mask(torch, problem, tensors), "scale": problem.softmax_scale}
    if problem.heads_q != problem.heads_kv:
        options["enable_gqa"] = True
    return inputs, options


class Sdpa(Contender):
    """One backend, and no other: torch raises where it cannot serve the problem."""

    def __init__(self, name: str, backend: str):
        self.name = name
        self._backend = backend

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        from torch.nn.attention import SDPBackend, sdpa_kernel

        if not hasattr(SDPBackend, self._backend):
            raise Absent(f"this torch has no SDPA backend {self._backend}")
        inputs, options = _arguments(torch, problem, tensors)
        if problem.backward:
            return bind_backward(torch, self._backend, problem, tensors, inputs, options)
        call = partial(torch.nn.functional.scaled_dot_product_attention, *inputs, **options)
        around = partial(sdpa_kernel, getattr(SDPBackend, self._backend))
        return Bound(call, heads_first=True, around=around, facts={"backend": self._backend})


class SdpaDefault(Contender):
    """Whatever torch chooses, and which that is."""

    name = "default"

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        from torch.nn.attention import SDPBackend

        inputs, options = _arguments(torch, problem, tensors)
        chosen = torch._fused_sdp_choice(*inputs, **options)
        backend = SDPBackend(chosen).name
        if problem.backward:
            return bind_backward(torch, backend, problem, tensors, inputs, options)
        call = partial(torch.nn.functional.scaled_dot_product_attention, *inputs, **options)
        return Bound(call, heads_first=True, facts={"backend": backend})
