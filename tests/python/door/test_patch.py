"""attune.patch_sdpa(): as a statement, as blocks that nest and overlap, and what fallback=True leaves to torch."""

import os
import subprocess
import sys
import threading
from typing import ClassVar

import attune
import pytest
import torch
from attune import fallback
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as torchs_sdpa

HINT = r"; attune\.patch_sdpa\(fallback=True\) leaves such calls to torch"


def randn(*shape):
    return torch.randn(shape)


def ones(*shape):
    return torch.ones(shape)


def q_k_v():
    return randn(2, 4, 9, 16), randn(2, 4, 13, 16), randn(2, 4, 13, 16)


def in_place():
    return functional.scaled_dot_product_attention


@pytest.fixture(autouse=True)
def unpatched():
    yield
    assert in_place() is torchs_sdpa


@pytest.fixture
def torchs_calls(monkeypatch):
    """Those that end in torch's function."""
    calls = []

    def counted(*arguments, **options):
        calls.append(arguments)
        return torchs_sdpa(*arguments, **options)

    monkeypatch.setattr(functional, "scaled_dot_product_attention", counted)
    yield calls
    monkeypatch.undo()


# The patch.


def test_a_statement_holds_until_unpatch_sdpa():
    attune.unpatch_sdpa()
    assert in_place() is torchs_sdpa
    attune.patch_sdpa()
    attune.patch_sdpa(fallback=True)
    with attune.patch_sdpa():
        attune.unpatch_sdpa()  # not the block's
        assert in_place() is attune.sdpa
    assert in_place() is torchs_sdpa
    patch = attune.patch_sdpa()
    with patch, patch:
        pass
    assert in_place() is torchs_sdpa


def test_blocks_nest_and_end_in_any_order():
    outer, inner = attune.patch_sdpa(), attune.patch_sdpa(fallback=True)
    with_fallback = in_place()
    assert with_fallback is not attune.sdpa
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert in_place() is with_fallback
    inner.__exit__(None, None, None)
    assert in_place() is torchs_sdpa
    with attune.patch_sdpa():
        with pytest.raises(KeyError), attune.patch_sdpa(fallback=True):
            raise KeyError
        assert in_place() is attune.sdpa


def test_blocks_overlap_in_threads():
    def work(seed):
        for i in range(200):
            with attune.patch_sdpa(fallback=(i + seed) % 2 == 0):
                missing.append(in_place() is torchs_sdpa)

    missing = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(missing) == 800 and not any(missing)


def test_as_a_decorator_it_holds_while_the_function_runs():
    @attune.patch_sdpa()
    def work():
        return in_place()

    assert in_place() is torchs_sdpa
    assert work() is work() is attune.sdpa


def test_nothing_is_printed_at_exit_and_nothing_slow_imported():
    program = "import attune, torch; attune.patch_sdpa(fallback=True); attune.patch_sdpa().__enter__()"
    program += "; print(torch.nn.functional.scaled_dot_product_attention is attune.sdpa)"
    program += "; x = torch.ones(1, 1, 1, 8); attune.sdpa(x, x, x, torch.ones(1, 1))"
    program += "; import sys; print('torch.nn.attention.bias' in sys.modules)"  # that would take seconds
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert (run.stdout, run.stderr) == ("True\nFalse\n", "")


def test_modules_are_served():
    layer = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    x = randn(2, 9, 32)
    expected = layer(x, x, x, need_weights=False)[0]
    seen = []
    with torch.no_grad(), attune.patch_sdpa():
        patched = in_place()
        functional.scaled_dot_product_attention = lambda *a, **o: seen.append(1) or patched(*a, **o)
        layer.train()  # in eval mode torch has a fused path of its own
        torch.testing.assert_close(layer(x, x, x, need_weights=False)[0], expected, rtol=0, atol=1e-5)
    assert seen


# What goes to torch.

SERVED = {
    "head dims above 512": lambda f: f(randn(1, 2, 3, 600), randn(1, 2, 3, 600), randn(1, 2, 3, 700)),
    "a head dim of 0": lambda f: f(randn(1, 2, 3, 0), randn(1, 2, 3, 0), randn(1, 2, 3, 4)),
    "5-D query, 4-D mask": lambda f: f(*randn(3, 2, 3, 4, 9, 8).unbind(), ones(3, 1, 9, 9).bool().tril()),
    "5-D query, 3-D mask": lambda f: f(*randn(3, 2, 3, 4, 9, 8).unbind(), randn(4, 9, 9)),
    "3-D query, 3-D mask": lambda f: f(*randn(3, 4, 9, 8).unbind(), randn(4, 9, 9)),
    "one key head, several value heads": lambda f: f(randn(1, 4, 9, 8), randn(1, 1, 9, 8), randn(1, 4, 9, 8)),
    "empty rows": lambda f: f(randn(1, 4, 0, 8), randn(1, 4, 9, 8), randn(1, 4, 9, 8)),
    "empty keys": lambda f: f(randn(1, 4, 9, 8), randn(1, 4, 0, 8), randn(1, 4, 0, 8)),
    "empty heads": lambda f: f(*randn(3, 1, 0, 9, 8).unbind()),
    "empty, odd strides": lambda f: f(
        randn(8).as_strided((1, 4, 0, 8), (7, 3, 5, 2)),
        randn(8).as_strided((1, 4, 0, 8), (2**40, 3, 5, 0)),
        randn(8).as_strided((1, 4, 0, 8), (7, 3, 5, 9)),
    ),
    "empty keys, odd strides": lambda f: f(randn(1, 4, 9, 8), *randn(2, 8, 0, 4, 1).permute(0, 4, 3, 2, 1).unbind()),
    "1-D query": lambda f: f(randn(8), randn(9, 8), randn(9, 8)),
    "1-D all": lambda f: f(randn(8), randn(8), randn(8)),
    "0-D": lambda f: f(randn(), randn(), randn()),
    "float64": lambda f: f(*randn(3, 1, 2, 9, 8).double().unbind()),
    "complex": lambda f: f(*torch.complex(*randn(2, 3, 1, 2, 9, 8).unbind()).unbind()),
    "conjugate": lambda f: f(*torch.complex(*randn(2, 3, 1, 2, 9, 8).unbind()).conj().unbind()),
    "meta": lambda f: f(*randn(3, 1, 2, 9, 8).to("meta").unbind()),
    "an integer mask": lambda f: f(*q_k_v(), ones(9, 13).long()),
    "a mask of another shape": lambda f: f(*q_k_v(), ones(7, 13)),
    "a mask in front of the batch": lambda f: f(*randn(3, 3, 4, 9, 8).unbind(), randn(2, 3, 4, 9, 9)),
    "other batches": lambda f: f(randn(2, 4, 9, 8), *randn(2, 3, 4, 9, 8).unbind()),
    "other types": lambda f: f(randn(2, 4, 9, 8), *randn(2, 2, 4, 9, 8).half().unbind()),
    "a list": lambda f: f([1.0], *randn(2, 1, 4, 9, 8).unbind()),
    "a list beside a causal bias": lambda f: f([1.0], *randn(2, 1, 4, 9, 8).unbind(), causal_upper_left(9, 9)),
    "1-D beside a causal bias": lambda f: f(randn(8), *randn(2, 1, 4, 9, 8).unbind(), causal_lower_right(8, 9)),
    "a word as the scale": lambda f: f(*q_k_v(), scale="wide"),
    "a mask beside is_causal": lambda f: f(*q_k_v(), ones(9, 13).bool(), is_causal=True),
    "a causal bias beside is_causal": lambda f: f(*q_k_v(), causal_upper_left(9, 13), is_causal=True),
    "dropout": lambda f: f(*q_k_v(), dropout_p=1.0),
}  # fmt: skip
if fallback.KNOWS_GQA:
    SERVED.update(
        {
            "other numbers of heads": lambda f: f(
                randn(1, 4, 9, 8), randn(1, 2, 9, 8), randn(1, 4, 9, 8), enable_gqa=True
            ),
            "heads that do not divide": lambda f: f(randn(1, 4, 9, 8), *randn(2, 1, 3, 9, 8).unbind(), enable_gqa=True),
        }
    )


def result_of(case, function):
    torch.manual_seed(3)
    try:
        return case(function)
    except Exception as error:
        return error


@pytest.mark.parametrize("case", SERVED.values(), ids=SERVED)
def test_every_call_ends_as_torchs(case):
    expected = result_of(case, torchs_sdpa)
    with attune.patch_sdpa(fallback=True):
        got = result_of(case, in_place())
    assert type(got) is type(expected), got
    if isinstance(expected, Exception):
        assert not isinstance(got, attune.AttuneError) and str(got) == str(expected)
    else:
        assert got.shape == expected.shape and got.dtype == expected.dtype and got.device == expected.device
        if expected.device.type != "meta":
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("with_fallback", [False, True])
def test_gradients_are_served(torchs_calls, with_fallback):
    q, k, v = (each.requires_grad_() for each in q_k_v())
    expected = torch.autograd.grad(torchs_sdpa(q, k, v, is_causal=True).square().sum(), (q, k, v))
    with attune.patch_sdpa(fallback=with_fallback):
        got = torch.autograd.grad(in_place()(q, k, v, is_causal=True).square().sum(), (q, k, v))
    for one, right in zip(got, expected):
        torch.testing.assert_close(one, right, rtol=0, atol=1e-5)
    assert not torchs_calls


def test_tangents_raise_or_go_to_torch_as_asked():
    from torch.autograd import forward_ad

    q, k, v = q_k_v()
    attune.sdpa(q, k, v)  # known from then on
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(q, torch.ones_like(q))
        for inputs in ((dual, k, v), (q, k, dual[:, :, :1].expand(v.shape))):
            with pytest.raises(attune.Unsupported, match=f"has a tangent.*{HINT}"):
                attune.sdpa(*inputs)
        bias = forward_ad.make_dual(ones(9, 13), ones(9, 13))
        with pytest.raises(attune.Unsupported, match="has a tangent"):
            attune.sdpa(q, k, v, bias)
        attune.sdpa(q, k, v)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), attune.patch_sdpa(fallback=True):
        _, tangent = torch.func.jvp(lambda q: in_place()(q, k, v), (q,), (torch.ones_like(q),))
        _, expected = torch.func.jvp(lambda q: torchs_sdpa(q, k, v), (q,), (torch.ones_like(q),))
    assert expected.any() and torch.equal(tangent, expected)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: attune.sdpa(*q_k_v(), dropout_p=0.1),
        lambda: attune.sdpa(*(each.double() for each in q_k_v())),
        lambda: attune.sdpa(*randn(3, 1, 2, 3, 600).unbind()),
        lambda: attune.sdpa(randn(1, 4, 9, 8), randn(1, 2, 9, 8), randn(1, 4, 9, 8), enable_gqa=True),
    ],
)
def test_a_refusal_that_torch_would_not_make_says_so(wrong):
    with pytest.raises(attune.Unsupported, match=HINT):
        wrong()


def test_a_mistake_has_no_such_hint():
    for inputs in ((randn(8), randn(9, 8), randn(9, 8)), (randn(2, 4, 9, 8), randn(3, 4, 9, 8), randn(3, 4, 9, 8))):
        with pytest.raises(attune.InvalidArgument) as refusal:
            attune.sdpa(*inputs)
        assert "fallback" not in str(refusal.value)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("autocast", [False, True])
def test_nested_tensors_go_to_torch(autocast):
    inputs = [randn(2, 4, 9, 32) for _ in range(3)]
    nested = [torch.nested.nested_tensor(list(each)) for each in inputs]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        expected = torchs_sdpa(*inputs)
        with attune.patch_sdpa(fallback=True):
            attune.sdpa(*inputs)
            out = in_place()(*nested)
    torch.testing.assert_close(torch.stack(out.unbind()), expected, rtol=0, atol=2e-2 if autocast else 1e-5)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated")
def test_scripted_modules_call_torchs_operator():
    class Block(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    inputs = q_k_v()
    with attune.patch_sdpa(fallback=True):
        scripted = torch.jit.script(Block())
        torch.jit.script(torch.nn.MultiheadAttention(16, 4))
    assert "aten::scaled_dot_product_attention" in str(scripted.graph)
    assert torch.equal(scripted(*inputs), torchs_sdpa(*inputs, is_causal=True))


class Named(torch.Tensor):
    """Says which functions were called with it."""

    seen: ClassVar[list] = []

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        cls.seen.append(function)
        return super().__torch_function__(function, types, arguments, options)


@pytest.mark.parametrize("place", range(4))
def test_subclasses_are_asked_by_torchs_function(place):
    inputs = [*q_k_v(), ones(9, 13).bool().tril(3)]
    expected = torchs_sdpa(*inputs)
    inputs[place] = inputs[place].as_subclass(Named)
    with attune.patch_sdpa(fallback=True):
        Named.seen.clear()
        out = in_place()(*inputs)
    assert torchs_sdpa in Named.seen and type(out) is Named
    assert torch.equal(out.as_subclass(torch.Tensor), expected)


@pytest.mark.filterwarnings("ignore:.*Lower right causal bias")
@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize("rows, keys", [(9, 13), (13, 13), (13, 9)])
def test_causal_biases_of_torch_are_alignments(bias, rows, keys):
    def block(q, k, v, bias):
        return in_place()(q, k, v, bias)

    q, k, v = randn(2, 4, rows, 16), randn(2, 4, keys, 16), randn(2, 4, keys, 16)
    bias = bias(rows, keys)
    seen = bias._materialize()
    expected = attune.sdpa(q, k, v, seen)
    assert not torch.isnan(expected).any()
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(attune.sdpa(q, k, v, bias), expected, rtol=0, atol=1e-6)
    for with_fallback in (False, True):
        with attune.patch_sdpa(with_fallback):
            for function in (block, compiled):
                torch.testing.assert_close(function(q, k, v, bias), expected, rtol=0, atol=1e-6)
    torch.compiler.reset()


@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
def test_causal_biases_with_gradients(bias):
    inputs = [each.requires_grad_() for each in q_k_v()]
    gradients = []
    for mask in (bias(9, 13), bias(9, 13)._materialize()):
        with attune.patch_sdpa(fallback=True):
            gradients.append(torch.autograd.grad(in_place()(*inputs, mask).sum(), inputs))
    for got, expected in zip(*gradients):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_causal_biases_elsewhere_are_refused():
    q, k, v = (each.transpose(1, 2) for each in q_k_v())
    for function in (attune.attention, attune.explain):
        for name, bias, alignment in (("bias", causal_upper_left, "top-left"), ("mask", causal_lower_right, "bottom-")):
            with pytest.raises(attune.InvalidArgument, match=f'{name} is a CausalBias.* causal is "{alignment}'):
                function(q, k, v, **{name: bias(9, 13)})
    sentence = r"a CausalBias of \(7, 13\); it must be one of \(row, key\) = \(9, 13\)"
    with pytest.raises(attune.InvalidArgument, match=sentence):
        attune.sdpa(*q_k_v(), causal_upper_left(7, 13))


@pytest.mark.parametrize("compiles", [False, True])
def test_calls_that_only_a_plain_kernel_takes_go_to_torch(monkeypatch, torchs_calls, compiles):
    inputs = q_k_v()
    mask = ones(9, 13).bool().tril(4)
    expected = attune.sdpa(*inputs), attune.sdpa(*inputs, mask)

    def block(q, k, v, mask):
        return in_place()(q, k, v), in_place()(q, k, v, mask)

    def check():
        for _ in range(3):
            for got, right in zip(function(*inputs, mask), expected):
                torch.testing.assert_close(got, right, rtol=0, atol=1e-5)

    function = torch.compile(block, fullgraph=True, backend="aot_eager") if compiles else block
    with attune.patch_sdpa(fallback=True):
        check()
        assert not torchs_calls
    forget(monkeypatch)
    monkeypatch.setitem(fallback.PLAIN, "cpu", "cpu/")  # as if the CPU's kernels were plain ones
    torch.compiler.reset()
    with attune.patch_sdpa():
        check()
        assert not torchs_calls
    with attune.patch_sdpa(fallback=True):
        called = []
        monkeypatch.setattr(fallback, "torchs_sdpa", lambda *a, **o: called.append(a) or torchs_sdpa(*a, **o))
        check()
        assert len(called if compiles else torchs_calls) == 6
    torch.compiler.reset()


REFUSED_BY_THE_LIBRARY = {  # which is not asked while code is traced
    "a scale beyond float32": lambda f, *inputs: f(*inputs, scale=1e39),
    "no scale at all": lambda f, *inputs: f(*inputs, scale=float("nan")),
    "a bias of another type": lambda f, *inputs: f(*inputs, ones(9, 13).bfloat16()),
    "a bias in front of the batch": lambda f, *inputs: f(*inputs, ones(3, 2, 4, 9, 13)),
}


@pytest.mark.parametrize("case", REFUSED_BY_THE_LIBRARY.values(), ids=REFUSED_BY_THE_LIBRARY)
def test_compiled_calls_end_as_torchs_too(case):
    inputs = q_k_v()
    with attune.patch_sdpa(fallback=True):
        compiled = torch.compile(lambda *inputs: case(in_place(), *inputs), backend="eager")
        got, expected = (result_of(lambda f: f(*inputs), each) for each in (compiled, lambda *i: case(torchs_sdpa, *i)))
    assert type(got) is type(expected), got
    if isinstance(expected, Exception):
        assert str(got) == str(expected)
    else:
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-5, equal_nan=True)
    torch.compiler.reset()


def forget(monkeypatch):
    from attune import calls

    monkeypatch.setattr(calls, "_known", {})
    monkeypatch.setattr(calls, "_recent", {})


def test_explain_says_where_such_a_call_goes(monkeypatch):
    inputs = randn(3, 1, 9, 4, 16).unbind()
    assert "fallback" not in attune.explain(*inputs)
    monkeypatch.setitem(fallback.PLAIN, "cpu", "cpu/")
    assert "\nfallback: left to torch" in attune.explain(*inputs)


def test_an_explanation_longer_than_usual_is_whole(monkeypatch):
    from attune import c_api

    inputs = randn(3, 1, 9, 4, 16).unbind()
    expected = attune.explain(*inputs)
    for size in (0, 10, len(expected) - 1, len(expected), len(expected) + 1):
        monkeypatch.setattr(c_api, "_USUAL_EXPLANATION_BYTES", size)
        assert attune.explain(*inputs) == expected


def test_a_plain_kernel_of_a_gpu_is_left_to_torch(gpu, torchs_calls):
    inputs = [randn(2, 4, 33, 40).to(gpu, torch.float32) for _ in range(3)]  # float32 has no other kernel
    text = attune.explain(*inputs, layout="bhsd")
    assert "kernel: any/" in text and "fallback: left to torch" in text
    with attune.patch_sdpa(fallback=True):
        out = in_place()(*inputs)
    assert len(torchs_calls) == 1
    torch.testing.assert_close(attune.sdpa(*inputs), out, rtol=0, atol=1e-4)


@pytest.mark.parametrize("causal", [None, "top-left", "bottom-right"])
@pytest.mark.parametrize("masks", ["", "bias", "mask", "bias, mask"])
@pytest.mark.parametrize("heads", [2, 4])
def test_torchs_attention_means_the_same(causal, masks, heads):
    q, k, v = randn(2, 9, 4, 16), randn(2, 13, heads, 16), randn(2, 13, heads, 16)
    bias = randn(9, 13) if "bias" in masks else None
    mask = torch.rand(9, 13) > 0.3 if "mask" in masks else None
    if mask is not None:
        mask[:, 0] = True
    got = fallback.attention(q, k, v, 0.3, causal, bias, mask)
    expected = attune.attention(q, k, v, scale=0.3, causal=causal, bias=bias, mask=mask)
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


def test_defects_are_not_left_to_torch(monkeypatch, torchs_calls):
    from attune import torch_patch

    def broken(*arguments):
        raise error

    monkeypatch.setattr(torch_patch, "attend_as_torch", broken)
    error = attune.AttuneError("the driver reported an error")
    for error.status in range(10):
        with attune.patch_sdpa(fallback=True):
            if error.status in (1, 2, 3, 4, 5, 6):
                in_place()(*q_k_v())
            else:
                with pytest.raises(attune.AttuneError, match="the driver"):
                    in_place()(*q_k_v())
    assert len(torchs_calls) == 6
