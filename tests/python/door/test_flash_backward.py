"""Gradients by torch's flash backward, from Attune's output and log-sum-exp. Its sister for the CPU, which takes the
same, stands for it: as if the CPU were a GPU on which Attune has no backward, or a plain one."""

import attune
import pytest
import torch
from attune import backward_calls, c_api, calls, fallback, torch_flash
from attune.c_api import Library
from attune.lab.errors import Absent
from attune.lab.flash_after_attune import FlashAfterAttune
from attune.lab.problem import parse
from attune.lab.reference_backward import BackwardReference
from attune.lab.tensors import Tensors
from float64 import differentiable, gradient_complaint
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional


def q_k_v(dtype=torch.bfloat16, rows=33, keys=33, heads=4, kv_heads=4, dim=32, dim_v=None, batch=2):
    shapes = ((rows, heads, dim), (keys, kv_heads, dim), (keys, kv_heads, dim_v or dim))
    return [torch.randn(batch, *shape).to(dtype).requires_grad_() for shape in shapes]


@pytest.fixture(params=["none", "any/bwd"])
def kernel(request):
    """Which of Attune's kernels would be chosen for the backward."""
    return request.param


@pytest.fixture
def flash(monkeypatch, kernel):
    """What arrives at torch's operator, one entry a call."""
    seen = []

    def operator(dout, q, k, v, out, lse, begins_q, begins_k, rows, keys, dropout, causal, *_, scale):
        assert (begins_q, begins_k, rows, keys, dropout) == (None, None, q.shape[2], k.shape[2], 0.0)
        seen.append((dout, q, k, v, out, lse))
        groups = q.shape[1] // k.shape[1]
        k, v = (each.repeat_interleave(groups, 1) for each in (k, v))
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        dq, *others = backward(dout, q, k, v, out, lse, dropout, causal, scale=scale)
        return dq, *(each.unflatten(1, (-1, groups)).sum(2) for each in others)

    refuse_without = Library.backward_workspace_bytes

    def workspace_bytes(library, desc, say):
        if kernel == "none":
            raise attune.Unsupported("no kernel can take it")
        return refuse_without(library, desc, say)

    monkeypatch.setattr(torch_flash, "DEVICE_KIND", c_api.CPU)
    monkeypatch.setattr(torch_flash, "_is_built", lambda: True)
    monkeypatch.setattr(torch_flash, "_capability", lambda _: (9, 0))
    monkeypatch.setattr(torch_flash, "_operator", lambda: operator)
    monkeypatch.setattr(Library, "backward_workspace_bytes", workspace_bytes)
    monkeypatch.setattr(Library, "explain_backward", lambda *_: f"problem: bwd\nkernel: {kernel}\n")
    monkeypatch.setitem(fallback.PLAIN, "cpu", "any/")
    for module, known in ((calls, "_known"), (calls, "_recent"), (backward_calls, "_left_to_flash")):
        monkeypatch.setattr(module, known, {})
    return seen


def gradients_of(out, inputs):
    torch.manual_seed(2)
    return torch.autograd.grad(out, inputs, torch.randn(out.shape).to(out))


def check(got, right, inputs):
    expected = gradients_of(right.to(inputs[0].dtype), inputs)
    assert gradient_complaint(gradients_of(got, inputs), expected, inputs[0].dtype) == ""


CALLS = {
    "plain": ({}, {}),
    "scale": ({}, {"scale": 0.3}),
    "top-left": ({}, {"causal": "top-left"}),
    "bottom-right": ({"dtype": torch.float16}, {"causal": "bottom-right"}),
    "more keys": ({"keys": 50}, {}),
    "groups": ({"kv_heads": 2}, {"causal": "top-left"}),
    "one head of keys": ({"kv_heads": 1, "dtype": torch.float16}, {}),
    "largest head dim": ({"dim": 256, "rows": 9, "keys": 9}, {}),
}


@pytest.mark.parametrize("name", CALLS)
def test_dense_calls_are_its(flash, name):
    shape, options = CALLS[name]
    inputs = q_k_v(**shape)
    check(attune.attention(*inputs, **options), differentiable(*inputs, **options)[0], inputs)
    assert len(flash) == 1


def test_it_is_given_the_output_and_its_log_sum_exp(flash):
    inputs = q_k_v()
    with torch.no_grad():
        expected = attune.attention(*inputs, causal="top-left", return_lse=True)
    attune.attention(*inputs, causal="top-left").sum().backward()
    ((*_, out, lse),) = flash
    assert torch.equal(out.transpose(1, 2), expected[0]) and torch.equal(lse, expected[1])


def test_what_it_could_not_read_is_copied(flash):
    flat = torch.randn(3 * 2 * 33 * 4 * 32 + 3, dtype=torch.bfloat16)
    odd = [each.view(2, 33, 4, 32) for each in flat[3:].chunk(3)]
    wide = torch.randn(2, 33, 4, 36, dtype=torch.bfloat16)[..., :32]
    for q, k, v in (odd, (wide, odd[0], odd[1])):
        inputs = [each.detach().requires_grad_() for each in (q, k, v)]
        check(attune.attention(*inputs), differentiable(*inputs)[0], inputs)
    for given in (tensor for call in flash for tensor in call):
        assert given.data_ptr() % 16 == 0
        if given.dim() == 4:
            assert all(stride % 8 == 0 for stride in given.stride()[:3]) and given.stride(3) == 1


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_gradients_lie_as_those_of_kernels(flash, layout):
    packed = torch.randn(2, 33, 3, 4, 32, dtype=torch.bfloat16, requires_grad=True)
    q, k, v = packed.unbind(2) if layout == "bshd" else packed.permute(2, 0, 3, 1, 4).unbind(0)
    out = attune.attention(q, k, v, layout=layout)
    for each, tensor in zip(torch.autograd.grad(out.sum(), (q, k, v)), (q, k, v)):
        seen, of = (each, tensor) if layout == "bshd" else (each.transpose(1, 2), tensor.transpose(1, 2))
        assert seen.stride() == backward_calls._empty_like(of).stride()
    assert len(flash) == 1


@pytest.mark.parametrize("watched", ["compiled", "checkpointed", "patched"])
def test_through_the_operators(flash, watched):
    inputs = [each.detach().transpose(1, 2).requires_grad_() for each in q_k_v()]
    call = attune.sdpa
    if watched == "compiled":
        torch.compiler.reset()
        call = torch.compile(attune.sdpa, fullgraph=True, backend="aot_eager")
    elif watched == "checkpointed":
        from torch.utils.checkpoint import checkpoint

        def call(*inputs, is_causal):
            return checkpoint(lambda *x: attune.sdpa(*x, is_causal=is_causal), *inputs, use_reentrant=False)

    if watched == "patched":
        with attune.patch_sdpa():
            got = functional.scaled_dot_product_attention(*inputs, is_causal=True)
    else:
        got = call(*inputs, is_causal=True)
    right = differentiable(*(each.transpose(1, 2) for each in inputs), causal="top-left")[0].transpose(1, 2)
    check(got, right, inputs)
    assert len(flash) == 1


REFUSED = {
    "a window": ({}, {"window": (3, 0)}),
    "a softcap": ({}, {"softcap": 5.0}),
    "a sink": ({}, {"sink": torch.zeros(4)}),
    "a bias": ({}, {"bias": torch.zeros(33, 33)}),
    "a mask": ({}, {"mask": torch.ones(33, 33, dtype=torch.bool)}),
    "the tensors are neither float16 nor bfloat16": ({"dtype": torch.float32}, {}),
    "the scale is -0.1 and not above 0": ({}, {"scale": -0.1}),
    "the scale is 0 and not above 0": ({}, {"scale": 0.0}),
    "the head dims 32 and 16 differ": ({"dim_v": 16}, {}),
    "head dim 20 is no multiple of 8 up to 192, nor 256": ({"dim": 20}, {}),
    "head dim 224 is no multiple of 8": ({"dim": 224, "rows": 3, "keys": 3}, {}),
    "there are no keys": ({"keys": 0}, {}),
    "no such causal mask of 33 rows and 40 keys": ({"keys": 40}, {"causal": "top-left"}),
    "no such causal mask of 33 rows and 9 keys": ({"keys": 9}, {"causal": "bottom-right"}),
    "the log-sum-exp is returned, and a gradient may arrive at it": ({}, {"return_lse": True}),
}


@pytest.mark.parametrize("clause", REFUSED)
def test_other_calls_are_not(flash, kernel, clause):
    shape, options = REFUSED[clause]
    inputs = q_k_v(**shape)
    if kernel == "none":
        with pytest.raises(attune.Unsupported, match=f"torch's flash backward does not take it either: .*{clause}"):
            attune.attention(*inputs, **options)
    else:
        out = attune.attention(*inputs, **options)
        out, lse = out if isinstance(out, tuple) else (out, torch.zeros(()))
        torch.autograd.grad(out.sum() + lse.sum(), inputs)
        assert clause in attune.explain(*inputs, **options)
    assert not flash


def test_older_gpus_and_builds_without_it_are_not(flash, monkeypatch):
    inputs = q_k_v()
    monkeypatch.setattr(torch_flash, "_capability", lambda _: (7, 5))
    assert "sm_75 is older than sm_80" in attune.explain(*inputs)
    monkeypatch.setattr(torch_flash, "_is_built", lambda: False)
    assert "this torch was built without it" in attune.explain(*inputs)


def test_packed_sequences_are_not(flash, kernel):
    q, k, v = (each.detach()[0].requires_grad_() for each in q_k_v())
    begins = torch.tensor([0, 10, 33], dtype=torch.int32)
    if kernel == "none":
        with pytest.raises(attune.Unsupported, match="does not take it either: the call has packed sequences"):
            attune.attention_varlen(q, k, v, begins, begins, 23, 23)
    else:
        attune.attention_varlen(q, k, v, begins, begins, 23, 23).sum().backward()
    assert not flash


def test_torch_func_sends_zeros_to_the_log_sum_exp(flash, kernel):
    """And so it cannot tell them from a gradient."""
    inputs = [each.detach() for each in q_k_v()]
    loss = torch.func.grad(lambda q, k, v: attune.attention(q, k, v).sum())
    if kernel == "any/bwd":
        loss(*inputs)
    else:
        with pytest.raises(attune.Unsupported, match="no kernel can take it"):
            loss(*inputs)
    assert not flash


def test_calls_without_rows_have_gradients(flash):
    inputs = q_k_v(rows=0)
    attune.attention(*inputs).sum().backward()
    assert all((each.grad == 0).all() for each in inputs) and not flash


def test_explain_says_so(flash, kernel):
    inputs = q_k_v()
    text = attune.explain(*inputs)
    alone = "no kernel has them here" if kernel == "none" else "only the plain kernel any/bwd has them here"
    assert f"\ngradients: torch's flash backward, from this output and its log-sum-exp: {alone}\n" in text
    assert text.endswith("fallback: gradients are left to torch where fallback=True\n")


def test_a_kernel_that_is_not_plain_keeps_its_calls(flash, monkeypatch):
    monkeypatch.setattr(Library, "explain_backward", lambda *_: "problem: bwd\nkernel: sm90/bwd\n")
    monkeypatch.setattr(Library, "backward_workspace_bytes", lambda *_: 0)
    inputs = q_k_v()
    attune.attention(*inputs).sum().backward()
    assert not flash and "gradients:" not in attune.explain(*inputs)


def test_it_can_be_turned_off(flash, monkeypatch, kernel):
    monkeypatch.setattr(torch_flash, "allowed", False)
    inputs = q_k_v()
    if kernel == "none":
        with pytest.raises(attune.Unsupported, match="does not take it either: it is turned off"):
            attune.attention(*inputs)
    else:
        attune.attention(*inputs).sum().backward()
    assert not flash


def test_a_fallback_leaves_the_whole_call_to_torch(flash):
    """Which knows quicker ways back."""
    inputs = [each.detach().transpose(1, 2).requires_grad_() for each in q_k_v()]
    with attune.patch_sdpa(fallback=True):
        functional.scaled_dot_product_attention(*inputs).sum().backward()
    assert not flash


def test_a_second_derivative_is_refused(flash):
    inputs = q_k_v()
    (dq, _, _) = torch.autograd.grad(attune.attention(*inputs).square().sum(), inputs, create_graph=True)
    assert len(flash) == 1
    with pytest.raises(attune.Unsupported, match="no second derivatives"):
        torch.autograd.grad(dq.sum(), inputs)


def test_the_lab_judges_it_as_a_kernel(flash):
    problem = parse("bwd b2 h4/2 q64 k64 d32 bf16 causal-br")
    tensors = Tensors(torch, problem, torch.device("cpu"), 1)
    with torch.no_grad():
        bound = FlashAfterAttune().bind(torch, problem, tensors)
        gradients = bound.output_of(bound.call())
    assert FlashAfterAttune.strict and len(flash) == 1
    assert BackwardReference(torch, problem, tensors).check(gradients, None, problem.gate).complaint == ""
    with pytest.raises(Absent, match="it is a backward"):
        FlashAfterAttune().bind(torch, parse("fwd b1 h2/2 q4 k4 d32 bf16"), tensors)
    other = parse("bwd b2 h4/2 q64 k64 d32 f32")
    with pytest.raises(Absent, match="neither float16 nor bfloat16"), torch.no_grad():
        FlashAfterAttune().bind(torch, other, Tensors(torch, other, torch.device("cpu"), 1))


def test_the_operator_of_gpus_takes_what_it_is_given(monkeypatch):
    """On tensors without memory, so that no GPU is needed."""
    if torch.__version__.startswith("2.4"):
        pytest.skip("torch 2.4 asks for a GPU even then")
    monkeypatch.setattr(torch_flash, "_readable", lambda tensor: tensor)  # they have no address
    with FakeTensorMode():
        q, k, v, out, dout = (torch.empty(2, 128, 8, 64, dtype=torch.bfloat16, device="cuda") for _ in range(5))
        lse = torch.empty(2, 8, 128, device="cuda")
        gradients = torch_flash.gradients(dout, q, k, v, out, lse, None, True)
    assert [tuple(each.shape) for each in gradients] == [(2, 128, 8, 64)] * 3


@pytest.mark.parametrize("options", [{}, {"causal": "top-left"}, {"scale": 0.3}])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_on_a_gpu(gpu, options, kv_heads):
    inputs = q_k_v(rows=200, keys=200, dim=64, kv_heads=kv_heads)
    inputs = [each.detach().to(gpu).requires_grad_() for each in inputs]
    assert "gradients: torch's flash backward" in attune.explain(*inputs, **options)
    check(attune.attention(*inputs, **options), differentiable(*inputs, **options)[0], inputs)
