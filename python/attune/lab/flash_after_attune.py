"""What Python's gradients are on a GPU without a quick backward: torch's flash backward, from Attune's output and its
log-sum-exp. It is judged on these; its time is that of the peer flash."""

from __future__ import annotations

from functools import partial

from attune.lab.contender import Bound, Contender
from attune.lab.errors import Absent
from attune.lab.problem import Problem
from attune.lab.tensors import Tensors

_ALIGNMENTS = {"": None, "causal-tl": "top-left", "causal-br": "bottom-right"}


class FlashAfterAttune(Contender):
    name = "flash-after-attune"
    strict = True  # users get it under Attune's name

    def bind(self, torch, problem: Problem, tensors: Tensors) -> Bound:
        if not problem.backward:
            raise Absent("it is a backward")
        import attune
        from attune import torch_flash

        q, k, v = tensors.q, tensors.k, tensors.v
        causal, scale = _ALIGNMENTS[problem.causal], problem.scale
        with torch.enable_grad():
            leaves = [each.detach().requires_grad_() for each in (q, k, v)]
            explained = attune.explain(*leaves, causal=causal, scale=scale)
        if torch_flash.SAID not in explained:
            said = [line for line in explained.splitlines() if line.startswith("gradients: ")]
            raise Absent(f"it is not used here: {said[0] if said else 'a kernel has these gradients'}")
        out, lse = attune.attention(q, k, v, causal=causal, scale=scale, return_lse=True)
        return Bound(partial(torch_flash.gradients, tensors.dout, q, k, v, out, lse, scale, causal is not None))
