"""Gradients of attune.attention and of every function that leads to it, against float64 autograd; and what is kept,
refused and left to torch."""

import attune
import pytest
import torch
from attune import calls, flash_attn
from attune.c_api import Library
from float64 import differentiable, gradient_complaint
from torch.nn import functional

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def leaves(*tensors):
    return [tensor.detach().requires_grad_() for tensor in tensors]


def q_k_v(device="cpu", dtype=torch.float32, rows=33, keys=47, heads=4, kv_heads=2, dim=32, dim_v=None, batch=2):
    q = torch.randn(batch, rows, heads, dim, device=device)
    k = torch.randn(batch, keys, kv_heads, dim, device=device)
    v = torch.randn(batch, keys, kv_heads, dim_v or dim, device=device)
    return leaves(*(each.to(dtype) for each in (q, k, v)))


def gradients_of(results, inputs):
    """Of a fixed, uneven sum of what came out."""
    torch.manual_seed(2)
    results = results if isinstance(results, tuple) else (results,)
    sums = [
        (each.double() * torch.randn(each.shape, device=each.device, dtype=torch.float64)).sum() for each in results
    ]
    return torch.autograd.grad(sum(sums), inputs)


def check(inputs, got, right):
    """Outputs that come from the same inputs: here, and in float64."""
    dtype = inputs[0].dtype
    assert gradient_complaint(gradients_of(got, inputs), gradients_of(right, inputs), dtype) == ""


OPTIONS = {
    "plain": {},
    "scale": {"scale": 0.3},
    "negative scale": {"scale": -0.2},
    "scale 0": {"scale": 0.0},
    "top-left": {"causal": "top-left"},
    "bottom-right": {"causal": "bottom-right"},
    "window": {"window": (7, 3)},
    "causal window": {"causal": "bottom-right", "window": (9, -1)},
    "softcap": {"softcap": 2.0},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_options(training_device, dtype, options):
    inputs = q_k_v(training_device, dtype)
    check(inputs, attune.attention(*inputs, **options), differentiable(*inputs, **options)[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_all_at_once_and_through_the_log_sum_exp(training_device, dtype):
    device = training_device
    q, k, v = q_k_v(device, dtype, dim_v=48)
    sink, bias = leaves(torch.randn(4, device=device), torch.randn(4, 33, 47, device=device).to(dtype))
    mask = torch.rand(2, 1, 1, 47, device=device) > 0.3
    options = {
        "scale": 0.2,
        "causal": "top-left",
        "window": (20, 0),
        "softcap": 5.0,
        "sink": sink,
        "bias": bias,
        "mask": mask,
    }
    inputs = (q, k, v, sink, bias)
    check(inputs, attune.attention(q, k, v, return_lse=True, **options), differentiable(q, k, v, **options))


def test_only_the_log_sum_exp(training_device):
    inputs = q_k_v(training_device)
    got = attune.attention(*inputs, return_lse=True, causal="top-left")[1]
    right = differentiable(*inputs, causal="top-left")[1] + 0 * inputs[2].sum()
    check(inputs, got, right)


@pytest.mark.parametrize("shape", [(2, 4, 33, 47), (1, 4, 1, 47), (47,), (2, 1, 33, 1), (1,), (33, 1)])
def test_a_bias_is_summed_over_what_it_broadcasts(training_device, shape):
    inputs = q_k_v(training_device)
    (bias,) = leaves(torch.randn(shape, device=training_device))
    inputs.append(bias)
    options = {"bias": bias, "sink": torch.randn(4, device=training_device)}  # without it no bias of rows would matter
    check(inputs, attune.attention(*inputs[:3], **options), differentiable(*inputs[:3], **options)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_dtypes_of_a_bias(training_device, dtype):
    inputs = q_k_v(training_device, torch.float16)
    (bias,) = leaves(torch.randn((4, 33, 47), device=training_device, dtype=dtype))
    inputs.append(bias)
    check(inputs, attune.attention(*inputs[:3], bias=bias), differentiable(*inputs[:3], bias=bias)[0])


def test_a_bias_that_was_expanded_before(training_device):
    """Each of its elements has a gradient of its own."""
    inputs = q_k_v(training_device)
    (row,) = leaves(torch.randn(4, 1, 47, device=training_device))
    bias = row.expand(2, 4, 33, 47)
    bias.retain_grad()
    inputs.append(row)
    got = gradients_of(attune.attention(*inputs[:3], bias=bias), (*inputs, bias))
    right = gradients_of(differentiable(*inputs[:3], bias=bias)[0], (*inputs, bias))
    assert gradient_complaint(got, right, torch.float32) == "" and got[-1][0, 0, 0, 0] != got[-1][0, 0, 1, 0]


def test_only_what_asks_has_a_gradient(training_device):
    q, k, v = q_k_v(training_device)
    sink, bias = leaves(torch.randn(4, device=training_device), torch.randn(33, 47, device=training_device))
    inputs = {"q": q, "k": k, "v": v, "sink": sink, "bias": bias}
    for name, one in inputs.items():
        others = {each: tensor.detach() for each, tensor in inputs.items()}
        others[name] = one
        check([one], attune.attention(**others), differentiable(**others)[0])


def test_rows_that_see_nothing_have_no_gradient(training_device):
    q, k, v = q_k_v(training_device, rows=9, keys=5)
    mask = torch.ones(5, dtype=torch.bool, device=training_device)
    mask[1] = False
    options = {"causal": "bottom-right", "mask": mask}
    out, lse = attune.attention(q, k, v, return_lse=True, **options)
    dq, dk, dv = torch.autograd.grad((out, lse), (q, k, v), (torch.ones_like(out), torch.ones_like(lse)))
    right = differentiable(q, k, v, **options)
    seen = lse.isfinite()
    expected = torch.autograd.grad(right[0].sum() + right[1][seen].sum(), (q, k, v))
    assert gradient_complaint((dq, dk, dv), expected, torch.float32) == ""
    assert (dq[:, :4] == 0).all() and (dk[:, 1] == 0).all() and (dv[:, 1] == 0).all()


@pytest.mark.parametrize("empty", ["batch", "rows", "keys"])
def test_empty_problems(training_device, empty):
    q, k, v = q_k_v(training_device, **{empty: 0})
    sink, bias = leaves(torch.randn(4, device=training_device), torch.randn(1, 1, device=training_device))
    out = attune.attention(q, k, v, sink=sink, bias=bias)
    for tensor, gradient in zip((q, k, v, sink, bias), torch.autograd.grad(out.sum(), (q, k, v, sink, bias))):
        assert gradient.shape == tensor.shape and (gradient == 0).all()


def test_layouts_and_strides(training_device):
    q, k, v = q_k_v(training_device)
    expected = gradients_of(attune.attention(q, k, v, causal="top-left"), (q, k, v))
    heads_first = leaves(*(x.transpose(1, 2).contiguous() for x in (q, k, v)))
    out = attune.attention(*heads_first, causal="top-left", layout="bhsd").transpose(1, 2)
    for got, right in zip(gradients_of(out, heads_first), expected):
        assert got.is_contiguous() and torch.equal(got.transpose(1, 2), right)
    wide = leaves(*(torch.cat([x, x], 3) for x in (q, k, v)))
    out = attune.attention(*(x[..., :32] for x in wide), causal="top-left")
    for got, right in zip(gradients_of(out, wide), expected):
        assert torch.equal(got[..., :32], right) and (got[..., 32:] == 0).all()
    (one,) = leaves(k[:1, :, :1])
    out = attune.attention(q, one.expand(2, -1, 2, -1), v)
    check([one], out, differentiable(q, one.expand(2, -1, 2, -1), v)[0])


def test_gradients_that_arrive_in_any_strides(training_device):
    q, k, v = q_k_v(training_device)
    out = attune.attention(q, k, v)
    right = differentiable(q, k, v)[0]
    dout = torch.randn_like(out)
    for arrives in (
        torch.ones((), device=training_device).expand_as(out),
        dout.transpose(1, 3).contiguous().transpose(1, 3),
        dout[:, :1].expand_as(out),
        torch._neg_view(dout),
    ):
        got = torch.autograd.grad(out, (q, k, v), arrives, retain_graph=True)
        expected = torch.autograd.grad(right, (q, k, v), arrives.double(), retain_graph=True)
        assert gradient_complaint(got, expected, torch.float32) == ""


def test_the_same_bits_each_time(training_device):
    q, k, v = q_k_v(training_device, torch.bfloat16, rows=150, keys=200)
    first, again = (gradients_of(attune.attention(q, k, v, causal="top-left"), (q, k, v)) for _ in range(2))
    assert all(map(torch.equal, first, again))


def test_varlen(training_device):
    device = training_device
    lengths_q, lengths_k = [5, 0, 17, 30], [9, 4, 17, 2]
    q = torch.randn(sum(lengths_q), 4, 32, device=device)
    k, v = torch.randn(2, sum(lengths_k), 2, 32, device=device)
    q, k, v = inputs = leaves(q, k, v)
    (sink,) = leaves(torch.randn(4, device=device))
    begins = [torch.tensor([0, *x], device=device).cumsum(0).int() for x in (lengths_q, lengths_k)]
    options = {"causal": "top-left", "softcap": 3.0, "sink": sink}
    got = attune.attention_varlen(q, k, v, *begins, 30, 17, return_lse=True, **options)
    outs, lses = [], []
    for b in range(4):
        rows, keys = (slice(*x[b : b + 2].tolist()) for x in begins)
        out, lse = differentiable(q[None, rows], k[None, keys], v[None, keys], **options)
        outs.append(out[0]), lses.append(lse[0])
    check([*inputs, sink], got, (torch.cat(outs), torch.cat(lses, dim=1)))


def test_used_lengths(training_device):
    device = training_device
    q, k, v = leaves(*(torch.randn(n, 4, 32, device=device) for n in (8, 20, 20)))
    begins_q, begins_k = (torch.tensor(x, device=device).int() for x in ([0, 4, 8], [0, 10, 20]))
    used = {"used_q": torch.tensor([4, 2], device=device).int(), "used_k": torch.tensor([3, 10], device=device).int()}
    out = attune.attention_varlen(q, k, v, begins_q, begins_k, 4, 10, **used)
    got = torch.autograd.grad(out[:6].sum(), (q, k, v))
    parts = [differentiable(q[None, a], k[None, b], v[None, b])[0] for a, b in (
        (slice(0, 4), slice(0, 3)), (slice(4, 6), slice(10, 20)))]  # fmt: skip
    expected = torch.autograd.grad(sum(part.sum() for part in parts), (q, k, v))
    assert gradient_complaint(got, expected, torch.float32) == ""
    assert (got[0][6:] == 0).all() and (got[1][3:10] == 0).all() and (got[2][3:10] == 0).all()


# Every door.


def heads_first(function, *inputs, **options):
    """A function of (batch, head, row, dim), from and to the other layout."""
    return function(*(each.transpose(1, 2) for each in inputs), **options).transpose(1, 2)


def packed(function, q, k, v, *arguments, **options):
    begins = [torch.arange(3, device=x.device).mul(x.shape[1]).int() for x in (q, k)]
    return function(*(x.flatten(0, 1) for x in (q, k, v)), *begins, q.shape[1], k.shape[1], **options).view_as(q)


def through_patch(q, k, v, **options):
    with attune.patch_sdpa():
        return heads_first(functional.scaled_dot_product_attention, q, k, v, **options)


def through_transformers(q, k, v):
    from attune.hugging_face import forward

    module = torch.nn.Module()
    module.is_causal = False
    return forward(module, *(each.transpose(1, 2) for each in (q, k, v)), None, scaling=0.2, softcap=4.0)[0]


def through_kvpacked(q, k, v):
    return flash_attn.flash_attn_kvpacked_func(q, torch.stack([k, v], 2), causal=True)


def through_varlen_kvpacked(q, k, v):
    kv = torch.stack([k, v], 2).flatten(0, 1)
    begins = [torch.arange(3, device=x.device).mul(x.shape[1]).int() for x in (q, k)]
    lengths = (*begins, q.shape[1], k.shape[1])
    return flash_attn.flash_attn_varlen_kvpacked_func(q.flatten(0, 1), kv, *lengths, causal=True).view_as(q)


def through_qkvpacked(q, k, v):
    return flash_attn.flash_attn_qkvpacked_func(torch.stack([q, k, v], 2), window_size=(5, 0))


def through_varlen_qkvpacked(q, k, v):
    begins = torch.arange(3, device=q.device).mul(q.shape[1]).int()
    qkv = torch.stack([q, k, v], 2).flatten(0, 1)
    return flash_attn.flash_attn_varlen_qkvpacked_func(qkv, begins, q.shape[1], window_size=(5, 0)).view_as(q)


BOTTOM_RIGHT, WINDOW = {"causal": "bottom-right"}, {"window": (5, 0)}
DOORS = {  # the call, what it means, and whether q, k and v have one shape
    "attention": (lambda *x: attune.attention(*x, causal="bottom-right"), BOTTOM_RIGHT, False),
    "attention_varlen": (lambda *x: packed(attune.attention_varlen, *x, causal="bottom-right"), BOTTOM_RIGHT, False),
    "sdpa": (lambda *x: heads_first(attune.sdpa, *x, is_causal=True, enable_gqa=True), {"causal": "top-left"}, False),
    "patch_sdpa": (lambda *x: through_patch(*x, scale=0.2), {"scale": 0.2}, True),
    "transformers": (through_transformers, {"scale": 0.2, "softcap": 4.0}, False),
    "flash_attn": (lambda *x: flash_attn.flash_attn_func(*x, causal=True), BOTTOM_RIGHT, False),
    "flash_attn_varlen": (lambda *x: packed(flash_attn.flash_attn_varlen_func, *x, causal=True), BOTTOM_RIGHT, False),
    "flash_attn_kvpacked": (through_kvpacked, BOTTOM_RIGHT, False),
    "flash_attn_qkvpacked": (through_qkvpacked, WINDOW, True),
    "flash_attn_varlen_kvpacked": (through_varlen_kvpacked, BOTTOM_RIGHT, False),
    "flash_attn_varlen_qkvpacked": (through_varlen_qkvpacked, WINDOW, True),
}


@pytest.mark.parametrize("door", DOORS)
def test_every_door(training_device, door):
    call, meaning, one_shape = DOORS[door]
    inputs = q_k_v(training_device, rows=33, keys=33, kv_heads=4) if one_shape else q_k_v(training_device)
    check(inputs, call(*inputs), differentiable(*inputs, **meaning)[0])


def test_the_log_sum_exp_of_flash_attention_is_differentiable(training_device):
    inputs = q_k_v(training_device)
    out, lse, _ = flash_attn.flash_attn_func(*inputs, return_attn_probs=True)
    check(inputs, (out, lse), differentiable(*inputs))


@pytest.mark.parametrize("shape", [(33, 47), (2, 1, 1, 47), (4, 1, 47), (1, 4, 33, 47)])
def test_a_mask_of_sdpa_that_requires_a_gradient(training_device, shape):
    q, k, v = q_k_v(training_device, kv_heads=4)
    (mask,) = leaves(torch.randn(shape, device=training_device))
    check([q, k, v, mask], heads_first(attune.sdpa, q, k, v, attn_mask=mask), differentiable(q, k, v, bias=mask)[0])


def test_shapes_that_only_sdpa_takes(training_device):
    q, k, v = leaves(
        torch.randn(2, 3, 4, 9, 8, device=training_device),
        torch.randn(3, 1, 11, 8, device=training_device),
        torch.randn(2, 1, 4, 11, 8, device=training_device),
    )
    (mask,) = leaves(torch.randn(2, 1, 1, 9, 11, device=training_device))
    got = gradients_of(attune.sdpa(q, k, v, mask), (q, k, v, mask))
    weights = torch.softmax(q.double() @ k.double().mT / 8**0.5 + mask.double(), -1)
    expected = gradients_of(weights @ v.double(), (q, k, v, mask))
    assert gradient_complaint(got, expected, torch.float32) == ""


def test_autocast(training_device):
    inputs = q_k_v(training_device, kv_heads=4)
    (bias,) = leaves(torch.randn(33, 47, device=training_device))
    inputs.append(bias)
    with torch.autocast(training_device.type, dtype=torch.bfloat16):
        out = attune.attention(*inputs[:3], bias=bias)
    assert out.dtype == torch.bfloat16
    got = gradients_of(out, inputs)
    assert all(gradient.dtype == torch.float32 for gradient in got)
    expected = gradients_of(differentiable(*inputs[:3], bias=bias)[0], inputs)
    assert gradient_complaint(got, expected, torch.bfloat16) == ""


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(training_device, reentrant):
    from torch.utils.checkpoint import checkpoint

    def block(q, k, v):
        return attune.attention(q * 2, k, v, causal="top-left").sin()

    inputs = q_k_v(training_device)
    got = [], []
    for results, function in zip(got, (block, lambda *x: checkpoint(block, *x, use_reentrant=reentrant))):
        function(*inputs).sum().backward()
        for each in inputs:
            results.append(each.grad)
            each.grad = None
    assert all(map(torch.equal, *got))


# What is kept, what is refused.


def test_inputs_and_outputs_are_kept_and_nothing_else():
    q, k, v = q_k_v()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        out = attune.attention(q, k, v, causal="top-left")
    assert sorted(each.data_ptr() for each in kept if each.dtype == torch.float32 and each.dim() == 4) == sorted(
        each.data_ptr() for each in (q, k, v, out)
    )
    (lse,) = (each for each in kept if each.dim() == 3)
    assert lse.shape == (2, 4, 33) and len(kept) == 5


def test_an_input_that_changed_meanwhile_is_torchs_error():
    q, k, v = q_k_v()
    moved = q * 1
    out = attune.attention(moved, k, v)
    moved.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_without_gradients_nothing_is_kept(monkeypatch):
    inputs = q_k_v()
    constants = [each.detach() for each in inputs]
    with torch.no_grad():
        expected = attune.attention(*inputs)
    from attune import functional as door

    monkeypatch.setattr(door, "_attend_through_ops", None)  # the way of gradients
    for _ in range(3):
        with torch.no_grad():
            assert torch.equal(attune.attention(*inputs), expected)
        with torch.inference_mode():
            assert torch.equal(attune.attention(*inputs), expected)
        out = attune.attention(*constants)
        assert torch.equal(out, expected) and not out.requires_grad


def test_gradients_and_none_take_turns():
    inputs = q_k_v()
    constants = [each.detach() for each in inputs]
    right = gradients_of(attune.attention(*inputs), inputs)
    for _ in range(3):
        assert not attune.attention(*constants).requires_grad
        assert all(map(torch.equal, gradients_of(attune.attention(*inputs), inputs), right))
        with torch.no_grad():
            assert not attune.attention(*inputs).requires_grad


def test_where_to_write(training_device):
    inputs = q_k_v(training_device)
    place = torch.empty(2, 33, 4, 32, device=training_device)
    result = attune.attention(*inputs, out=place)
    assert result.data_ptr() == place.data_ptr()
    check(inputs, result, differentiable(*inputs)[0])


def test_a_second_derivative_is_refused():
    inputs = q_k_v()
    (dq, _, _) = torch.autograd.grad(attune.attention(*inputs).square().sum(), inputs, create_graph=True)
    with pytest.raises(attune.Unsupported, match="no second derivatives"):
        torch.autograd.grad(dq.sum(), inputs)


def test_torch_func():
    inputs = [each.detach() for each in q_k_v(batch=1)]

    def loss(q, k, v):
        return attune.attention(q, k, v, causal="top-left").square().sum()

    expected = torch.autograd.grad(loss(*(with_gradient := leaves(*inputs))), with_gradient)
    got = torch.func.grad(loss, argnums=(0, 1, 2))(*inputs)
    assert all(map(torch.equal, got, expected))
    many = [torch.stack([each, each + 1]) for each in inputs]
    for each, one in zip(torch.func.vmap(torch.func.grad(loss, argnums=(0, 1, 2)))(*many), expected):
        torch.testing.assert_close(each[0], one, rtol=0, atol=1e-6)


def test_several_gradients_arrive_at_once():
    inputs = q_k_v(batch=1)
    out = attune.attention(*inputs)
    arrive = torch.randn(3, *out.shape)
    several = torch.autograd.grad(out, inputs, arrive, is_grads_batched=True, retain_graph=True)
    for i, dout in enumerate(arrive):
        one = torch.autograd.grad(out, inputs, dout, retain_graph=True)
        for each, right in zip(several, one):
            torch.testing.assert_close(each[i], right, rtol=0, atol=1e-6)


@pytest.fixture
def without_backward(monkeypatch):
    """As on a device whose kernels go forward only."""

    def refuse(*arguments):
        raise attune.Unsupported("no kernel can take it")

    monkeypatch.setattr(Library, "backward_workspace_bytes", refuse)
    monkeypatch.setattr(Library, "explain_backward", lambda *_: "problem: bwd\nkernel: none\nwhy: as if\n")
    monkeypatch.setattr(calls, "_known", {})
    monkeypatch.setattr(calls, "_recent", {})


DOORS_OF_ONE_SHAPE = ["attention", "attention_varlen", "sdpa", "flash_attn_qkvpacked"]


@pytest.mark.parametrize("door", DOORS_OF_ONE_SHAPE)
@pytest.mark.parametrize("compiles", [False, True])
def test_without_a_backward_nothing_is_computed(without_backward, monkeypatch, door, compiles):
    inputs = q_k_v(rows=33, keys=33, kv_heads=4)
    call = DOORS[door][0]
    call(*(each.detach() for each in inputs))
    from attune.describe import library

    monkeypatch.setattr(library(), "forward", None)
    if compiles:
        torch.compiler.reset()
        call = torch.compile(call, fullgraph=True, backend="aot_eager")
    with pytest.raises(Exception, match="no kernel can take it"):
        call(*inputs)


@pytest.mark.parametrize("device", ["cpu", "plain"])
def test_without_a_backward_a_fallback_trains(without_backward, monkeypatch, device):
    from attune import fallback

    if device == "plain":  # as if the CPU were a device with plain kernels
        monkeypatch.setitem(fallback.PLAIN, "cpu", "any/")
    inputs = [x.transpose(1, 2) for x in q_k_v(kv_heads=4)]
    expected = gradients_of(functional.scaled_dot_product_attention(*inputs), inputs)
    with attune.patch_sdpa(), pytest.raises(attune.Unsupported, match=r"no kernel can take it; attune\.patch_sdpa"):
        functional.scaled_dot_product_attention(*inputs)
    with attune.patch_sdpa(fallback=True):
        got = gradients_of(functional.scaled_dot_product_attention(*inputs), inputs)
    for one, right in zip(got, expected):
        torch.testing.assert_close(one, right, rtol=0, atol=1e-5)


def test_without_a_backward_explain_says_so(without_backward):
    inputs = q_k_v()
    text = attune.explain(*inputs)
    assert "\ngradients: refused: no kernel can take it\nfallback: gradients are left to torch" in text
    with torch.no_grad():
        assert "gradients" not in attune.explain(*inputs)


def test_explain_names_the_kernel_of_the_backward():
    q, k, v = q_k_v()
    text = attune.explain(q, k, v.detach(), causal="top-left", sink=torch.zeros(4, requires_grad=True))
    assert "problem: bwd b2 h4/2 q33 k47 d32 f32 causal-tl sink" in text and "\nkernel: cpu/bwd" in text


@pytest.mark.parametrize("compiles", [False, True])
@pytest.mark.parametrize("plain", ["cpu/", "cpu/bwd"])
def test_plain_kernels_of_gradients_leave_them_to_torch(monkeypatch, plain, compiles):
    """As if the kernels of the CPU whose names begin so were plain ones of a GPU."""
    from attune import fallback

    if compiles and torch.__version__.startswith("2.4"):
        pytest.skip("compiled by torch 2.4, a call that goes to torch breaks the graph")
    inputs = [x.transpose(1, 2) for x in q_k_v(kv_heads=4)]
    expected = gradients_of(functional.scaled_dot_product_attention(*inputs), inputs)
    monkeypatch.setattr(calls, "_known", {})
    monkeypatch.setattr(calls, "_recent", {})
    monkeypatch.setitem(fallback.PLAIN, "cpu", plain)
    served = []
    real = functional.scaled_dot_product_attention
    monkeypatch.setattr(functional, "scaled_dot_product_attention", lambda *a, **o: served.append(1) or real(*a, **o))
    assert "left to torch" in attune.explain(*inputs, layout="bhsd")
    with attune.patch_sdpa(fallback=True):
        call = functional.scaled_dot_product_attention
        if compiles:
            torch.compiler.reset()
            call = torch.compile(
                lambda *x: functional.scaled_dot_product_attention(*x), fullgraph=True, backend="aot_eager"
            )
        for got, right in zip(gradients_of(call(*inputs), inputs), expected):
            torch.testing.assert_close(got, right, rtol=0, atol=1e-5)
    assert served
