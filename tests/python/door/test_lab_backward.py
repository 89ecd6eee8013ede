"""Gradients in the lab: the operators of torch that are timed beside Attune's, called as their schemas ask, and the
reference against autograd."""

import pytest
import torch
from attune.lab.errors import Absent
from attune.lab.problem import parse
from attune.lab.reference_backward import BackwardReference
from attune.lab.sdpa import Sdpa
from attune.lab.tensors import Tensors
from float64 import differentiable
from torch._subclasses.fake_tensor import FakeTensorMode


@pytest.mark.parametrize("backend", ["FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"])
def test_operators_of_a_gpu_take_what_they_are_given(backend):
    """On tensors without memory, so that no GPU is needed."""
    if torch.__version__.startswith("2.4"):
        pytest.skip("torch 2.4 asks for a GPU even then")
    problem = parse("bwd b2 h8/8 q128 k128 d64 bf16 causal-br")
    with FakeTensorMode():
        tensors = Tensors.__new__(Tensors)
        for name in ("q", "k", "v", "dout"):
            setattr(tensors, name, torch.empty(2, 128, 8, 64, dtype=torch.bfloat16, device="cuda"))
        bound = Sdpa("peer", backend).bind(torch, problem, tensors)
        gradients = bound.output_of(bound.call())
    assert [tuple(each.shape) for each in gradients] == [(2, 128, 8, 64)] * 3
    assert bound.facts == {"backend": backend}


def test_what_has_no_such_operator_is_absent():
    tensors = Tensors(torch, parse("bwd b1 h2/1 q4 k4 d8 f32"), torch.device("cpu"), 1)
    with pytest.raises(Absent, match="as many key-value heads as query heads"):
        Sdpa("flash", "FLASH_ATTENTION").bind(torch, parse("bwd b1 h2/1 q4 k4 d8 f32"), tensors)


@pytest.mark.parametrize("text", ["bwd b2 h4/2 q9 k13 d8/5 bf16 causal-br", "bwd b1 h2/2 q9 k5 d8 f32 scale0.4 bhsd"])
def test_the_reference_is_autograds(text):
    problem = parse(text)
    tensors = Tensors(torch, problem, torch.device("cpu"), 1)
    reference = BackwardReference(torch, problem, tensors)
    inputs = [each.double().requires_grad_() for each in (tensors.q, tensors.k, tensors.v)]
    out, _ = differentiable(*inputs, scale=problem.softmax_scale, causal="bottom-right" if problem.causal else None)
    expected = torch.autograd.grad(out, inputs, tensors.dout.double())
    for got, right in zip(reference.gradients, expected):
        torch.testing.assert_close(got, right)
    assert reference.check(tuple(reference.gradients), None, problem.gate).complaint == ""
    off = [gradient.clone() for gradient in reference.gradients]
    off[1] *= 1.1
    assert reference.check(tuple(off), None, problem.gate).complaint.startswith("relative RMS error")
