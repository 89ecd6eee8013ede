"""The operators under torch.compile, with changing shapes, on fake tensors, and by torch's own opcheck."""

import attune
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


@pytest.fixture
def device(best_device):
    return best_device


def tensors(device, rows=16, keys=24, dtype=torch.float32):
    q = torch.randn(2, rows, 4, 32, device=device, dtype=dtype)
    k, v = torch.randn(2, 2, keys, 2, 32, device=device, dtype=dtype)
    return q, k, v


def compiled(function, **options):
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, **options)


@pytest.mark.parametrize("layout", ["bshd", "bhsd"])
def test_compiles_into_one_graph(device, layout):
    def block(q, k, v):
        out, lse = attune.attention(q * 2, k + 1, v, causal="top-left", window=(5, -1), return_lse=True, layout=layout)
        return out.sin() + 1, lse * 2

    q, k, v = tensors(device) if layout == "bshd" else (x.transpose(1, 2) for x in tensors(device))
    for got, expected in zip(compiled(block, backend="aot_eager")(q, k, v), block(q, k, v)):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)
        assert got.stride() == expected.stride()


def test_inductor(device):
    def block(q, k, v, bias):
        return attune.attention((q * 0.5).transpose(1, 2).contiguous().transpose(1, 2), k, v, bias=bias).relu()

    q, k, v = tensors(device)
    bias = torch.randn(16, 24, device=device)
    torch.testing.assert_close(compiled(block)(q, k, v, bias), block(q, k, v, bias), rtol=0, atol=1e-5)


def test_changing_shapes_need_no_new_graph(device):
    def block(q, k, v):
        return attune.attention(q, k, v, causal="bottom-right") + 1

    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled_block = compiled(block, backend=counter, dynamic=True)
    for rows, keys in ((16, 24), (7, 11), (40, 64)):
        q, k, v = tensors(device, rows, keys)
        torch.testing.assert_close(compiled_block(q, k, v), block(q, k, v), rtol=0, atol=1e-6)
    assert counter.frame_count == 1


def test_sdpa_and_varlen_compile(device):
    q, k, v = tensors(device)
    begins_q, begins_k = torch.tensor([0, 16], device=device).int(), torch.tensor([0, 24], device=device).int()

    def block(q, k, v):
        one = attune.sdpa(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True, enable_gqa=True)
        return one, attune.attention_varlen(q[0], k[0], v[0], begins_q, begins_k, 16, 24, return_lse=True)

    (one, (two, lse)), (one_e, (two_e, lse_e)) = compiled(block, backend="aot_eager")(q, k, v), block(q, k, v)
    for got, expected in ((one, one_e), (two, two_e), (lse, lse_e)):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-6)


TRAINED = {
    "attention": lambda q, k, v, sink, bias: attune.attention(
        q * 2, k, v, sink=sink, bias=bias, causal="top-left", return_lse=True
    ),
    "sdpa": lambda q, k, v, sink, bias: attune.sdpa(
        q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), bias, enable_gqa=True
    ),
    "patch_sdpa": lambda q, k, v, sink, bias: torch.nn.functional.scaled_dot_product_attention(
        q.transpose(1, 2), k.transpose(1, 2)[:, :1], v.transpose(1, 2)[:, :1], is_causal=True
    ),
    "attention_varlen": lambda q, k, v, sink, bias: attune.attention_varlen(
        q[0], k[0], v[0], *(torch.tensor([0, n], dtype=torch.int32) for n in (16, 24)), 16, 24, softcap=3.0, sink=sink
    ),
}


@pytest.mark.parametrize("call", TRAINED)
def test_training_compiles_into_one_graph(call):
    def loss(*inputs):
        results = TRAINED[call](*inputs)
        results = results if isinstance(results, tuple) else (results,)
        return sum(each.sin().sum() for each in results)

    inputs = [*tensors("cpu"), torch.randn(4), torch.randn(16, 24)]
    inputs = [each.requires_grad_() for each in inputs]
    with attune.patch_sdpa(fallback=True):
        expected = torch.autograd.grad(loss(*inputs), inputs, allow_unused=True)
        got = torch.autograd.grad(compiled(loss, backend="aot_eager")(*inputs), inputs, allow_unused=True)
    for one, right in zip(got, expected):
        assert (one is None) == (right is None)
        if right is not None:
            torch.testing.assert_close(one, right, rtol=0, atol=1e-5)


def test_changing_shapes_train_without_a_new_graph():
    def loss(q, k, v):
        return attune.attention(q, k, v, causal="bottom-right").square().sum()

    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled_loss = compiled(loss, backend=counter, dynamic=True)
    for rows, keys in ((16, 24), (7, 11), (40, 64)):
        inputs = [each.requires_grad_() for each in tensors("cpu", rows, keys)]
        got, expected = (torch.autograd.grad(each(*inputs), inputs) for each in (compiled_loss, loss))
        for one, right in zip(got, expected):
            torch.testing.assert_close(one, right, rtol=0, atol=1e-6)
    assert counter.frame_count == 1


def test_opcheck_of_gradients(device):
    from attune import ops

    q, k, v = tensors(device)
    inputs = [
        each.requires_grad_() for each in (q, k, v, torch.randn(4, device=device), torch.randn(16, 24, device=device))
    ]
    q, k, v, sink, bias = inputs
    mask = torch.rand(2, 1, 16, 24, device=device) > 0.3
    score_function = (0.5, "top-left", [9, 0], 5.0, sink, bias, mask)
    wanted = {"dsink": True, "dbias": True}
    begins_q, begins_k = torch.tensor([0, 9, 16], device=device).int(), torch.tensor([0, 4, 24], device=device).int()
    lengths = (begins_q, begins_k, 9, 20, None, None)
    for operator, backward, arguments in (
        (ops.attention, ops.attention_backward, (q, k, v, *score_function)),
        (
            ops.attention_varlen,
            ops.attention_varlen_backward,
            (q[0], k[0], v[0], *lengths, *score_function[:5], None, None),
        ),
    ):
        torch.library.opcheck(operator, (*arguments, False), {"backward": True, **wanted})
        torch.library.opcheck(operator, (*arguments, True))
        q_k_v, others = arguments[:3], arguments[3:]
        out, lse = (each.detach() for each in operator(*arguments, True))
        constants = [each.detach() if isinstance(each, torch.Tensor) else each for each in (*q_k_v, out, lse, *others)]
        wanted["dbias"] = constants[-2] is not None
        for dlse in (None, torch.randn_like(lse)):
            torch.library.opcheck(backward, (torch.randn_like(out), dlse, *constants), wanted)
        wanted["dbias"] = False


def test_a_model_trains_with_inductor_as_without():
    torch.manual_seed(1)
    layer = torch.nn.Linear(32, 96)
    begin = {name: value.clone() for name, value in layer.state_dict().items()}

    def step(x):
        q, k, v = layer(x).view(2, 16, 3, 4, 8).unbind(2)
        return attune.attention(q, k, v, causal="top-left").square().mean()

    x, losses = torch.randn(2, 16, 32), []
    for function in (step, compiled(step)):
        layer.load_state_dict(begin)
        optimizer = torch.optim.SGD(layer.parameters(), 0.3)
        curve = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = function(x)
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        losses.append(curve)
    assert losses[0][-1] < losses[0][0]
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]), rtol=1e-4, atol=0)


def test_opcheck(device):
    from attune import ops

    q, k, v = tensors(device)
    heads_first = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    mask = torch.rand(2, 1, 16, 24, device=device) > 0.3
    sink, bias = torch.randn(4, device=device), torch.randn(16, 24, device=device)
    for arguments in (
        (q, k, v, None, None, None, None, None, None, None, False),
        (*heads_first, 0.5, "top-left", [3, 0], 5.0, sink, bias, mask, True),
    ):
        torch.library.opcheck(ops.attention, arguments)
    for causal in (None, "bottom-right"):
        torch.library.opcheck(ops.attention_or_torch, (*heads_first, 0.5, causal, bias, mask))
    begins_q, begins_k = torch.tensor([0, 9, 16], device=device).int(), torch.tensor([0, 4, 24], device=device).int()
    lengths = (begins_q, begins_k, 9, 20, None, None)
    score_function = (None, "bottom-right", None, None, None, None, None)
    torch.library.opcheck(ops.attention_varlen, (q[0], k[0], v[0], *lengths, *score_function, True))


def test_export():
    class Block(torch.nn.Module):
        def forward(self, q, k, v):
            return attune.attention(q, k, v, causal="top-left")

    inputs = tensors("cpu")
    exported = torch.export.export(Block(), tuple(inputs))
    assert "torch.ops.attune.attention.default" in exported.graph_module.code
    assert torch.equal(exported.module()(*inputs), Block()(*inputs))


def test_fake_tensors():
    with FakeTensorMode():
        q, k, v = tensors("cpu")
        out, lse = attune.attention(q, k, v, return_lse=True)
    assert out.shape == q.shape and lse.shape == (2, 4, 16)


class Seen(TorchDispatchMode):
    """The names of the operators that run inside."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.names.append(str(function))
        return function(*arguments, **(options or {}))


class SeenBesidesCompiledCode(Seen):
    """Not seen itself by the guards of compiled code, in torch that knows the method."""

    @classmethod
    def ignore_compile_internals(cls):
        return True


@pytest.mark.parametrize("mode", [Seen, SeenBesidesCompiledCode])
def test_those_who_look_on_see_the_operator(mode):
    inputs = tensors("cpu")
    heads_first = [x.transpose(1, 2) for x in inputs]
    packed = [x[0] for x in inputs]
    begins = torch.tensor([0, 16]).int(), torch.tensor([0, 24]).int()

    def calls():
        return (
            attune.attention(*inputs),
            attune.sdpa(*heads_first, enable_gqa=True),
            attune.attention_varlen(*packed, *begins),
        )

    expected = calls()
    for _ in range(2):
        with mode() as seen:
            assert all(map(torch.equal, calls(), expected))
        assert seen.names.count("attune.attention.default") == 2
        assert seen.names.count("attune.attention_varlen.default") == 1
        assert all(map(torch.equal, calls(), expected))


def test_a_mode_that_makes_fake_of_real_tensors():
    inputs = tensors("cpu")
    attune.attention(*inputs)
    with FakeTensorMode(allow_non_fake_inputs=True):
        assert isinstance(attune.attention(*inputs), FakeTensor)


def test_tracers_see_the_operator():
    inputs = tensors("cpu")
    others = [x + 1 for x in inputs]
    expected = attune.attention(*others)
    assert "torch.ops.attune.attention.default" in make_fx(lambda *x: attune.attention(*x))(*inputs).code
    traced = torch.jit.trace(lambda *x: attune.attention(*x), inputs)
    assert "attune::attention" in str(traced.graph)
    assert torch.equal(traced(*others), expected)


class Counted(torch.Tensor):
    """Counts the operators that it goes into."""

    seen = 0

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        Counted.seen += function in (torch.ops.attune.attention.default, torch.ops.attune.attention_varlen.default)
        return super().__torch_function__(function, types, arguments, options)


def test_subclasses_of_every_argument_see_the_operator():
    q, k, v = tensors("cpu")
    options = {"sink": torch.randn(4), "bias": torch.randn(16, 24), "mask": torch.rand(16, 24) > 0.3}
    packed = {
        "cu_seqlens_q": torch.tensor([0, 16]).int(),
        "cu_seqlens_k": torch.tensor([0, 24]).int(),
        "used_q": torch.tensor([16]).int(),
        "used_k": torch.tensor([11]).int(),
    }
    for function, arguments in (
        (attune.attention, {"q": q, "k": k, "v": v, **options}),
        (attune.attention_varlen, {"q": q[0], "k": k[0], "v": v[0], **options, **packed}),
    ):
        expected = function(**arguments)
        for name, value in arguments.items():
            Counted.seen = 0
            out = function(**{**arguments, name: value.as_subclass(Counted)})
            assert Counted.seen == 1 and type(out) is Counted, name
            assert torch.equal(out.as_subclass(torch.Tensor), expected), name


def test_function_modes_change_nothing():
    class Passing(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), options=None):
            return function(*arguments, **(options or {}))

    inputs = tensors("cpu")
    expected = attune.attention(*inputs)
    for mode in (Passing(), torch.device("meta")):
        with mode:
            out, fresh = attune.attention(*inputs), attune.attention(*inputs, scale=0.123)
        assert torch.equal(out, expected)
        assert torch.equal(fresh, attune.attention(*inputs, scale=0.123))


def test_vmap_over_the_operator():
    many = [torch.stack([x, x + 1]) for x in tensors("cpu")]
    for got, *one in zip(torch.func.vmap(lambda *x: attune.attention(*x))(*many), *many):
        assert torch.equal(got, attune.attention(*one))
    one = [x[0] for x in many]  # not mapped over
    for got, x in zip(torch.func.vmap(lambda x: attune.attention(*one) + x)(torch.arange(2.0)), range(2)):
        assert torch.equal(got, attune.attention(*one) + x)


def test_the_operator_is_told_of_a_backward_beforehand():
    inputs = [each.requires_grad_() for each in tensors("cpu")]
    options = (None, None, None, None, None, None, None)
    with pytest.raises(attune.Unsupported, match="backward is False, and an input requires a gradient"):
        torch.ops.attune.attention(*inputs, *options, False)
    expected = torch.autograd.grad(attune.attention(*inputs).sum(), inputs)
    for out, _ in (
        torch.ops.attune.attention(*inputs, *options, True),
        torch.ops.attune.attention(*inputs, *options, False, backward=True),
    ):
        assert all(map(torch.equal, torch.autograd.grad(out.sum(), inputs), expected))


def test_those_who_look_on_see_the_backward():
    inputs = [each.requires_grad_() for each in tensors("cpu")]
    expected = torch.autograd.grad(attune.attention(*inputs).sum(), inputs)
    with Seen() as seen:
        assert all(map(torch.equal, torch.autograd.grad(attune.attention(*inputs).sum(), inputs), expected))
    assert seen.names.count("attune.attention.default") == seen.names.count("attune.attention_backward.default") == 1


def test_subclasses_train_through_the_operator():
    q, k, v = (each.requires_grad_() for each in tensors("cpu"))
    (expected,) = torch.autograd.grad(attune.attention(q, k, v).sum(), [q])
    Counted.seen = 0
    out = attune.attention(q.as_subclass(Counted), k, v)
    (got,) = torch.autograd.grad(out.sum(), [q])
    assert Counted.seen == 1 and torch.equal(got.as_subclass(torch.Tensor), expected)
