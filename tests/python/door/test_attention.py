"""attune.attention and attention_varlen: every option against float64, layouts, arrays of other kinds, refusals."""

import re

import attune
import numpy as np
import pytest
import torch
from float64 import complaint, truth

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def tensors(device, dtype=torch.float32, batch=2, rows=33, keys=47, heads=4, kv_heads=2, dim=32, dim_v=None):
    q = torch.randn(batch, rows, heads, dim, device=device, dtype=dtype)
    k = torch.randn(batch, keys, kv_heads, dim, device=device, dtype=dtype)
    v = torch.randn(batch, keys, kv_heads, dim_v or dim, device=device, dtype=dtype)
    return q, k, v


OPTIONS = {
    "plain": {},
    "scale": {"scale": 0.3},
    "scale 0": {"scale": 0.0},
    "top-left": {"causal": "top-left"},
    "bottom-right": {"causal": "bottom-right"},
    "window": {"window": (7, 3)},
    "causal window": {"causal": "bottom-right", "window": (9, -1)},
    "softcap": {"softcap": 2.0},
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_is_within_the_gate(device, dtype, options):
    q, k, v = tensors(device, dtype)
    out, lse = attune.attention(q, k, v, return_lse=True, **options)
    assert complaint(out, truth(q, k, v, **options), lse) == ""
    assert torch.equal(out, attune.attention(q, k, v, **options))


@pytest.mark.parametrize("shape", [(2, 4, 33, 47), (1, 4, 1, 47), (47,), (2, 1, 33, 1)])
def test_bias_and_mask_broadcast(device, shape):
    q, k, v = tensors(device, torch.float16)
    for bias in (torch.randn(shape, device=device), torch.randn(shape, device=device, dtype=torch.float16)):
        assert complaint(attune.attention(q, k, v, bias=bias), truth(q, k, v, bias=bias)) == ""
    mask = torch.rand(shape, device=device) > 0.4
    assert complaint(attune.attention(q, k, v, mask=mask), truth(q, k, v, mask=mask)) == ""


def test_sink(device):
    q, k, v = tensors(device)
    sink = torch.randn(4, device=device)
    out, lse = attune.attention(q, k, v, sink=sink, return_lse=True)
    assert complaint(out, truth(q, k, v, sink=sink), lse) == ""


def test_all_at_once(device):
    q, k, v = tensors(device, torch.float16, dim_v=48)
    options = {
        "scale": 0.2,
        "causal": "top-left",
        "window": (20, 0),
        "softcap": 5.0,
        "sink": torch.randn(4, device=device),
        "bias": torch.randn(4, 33, 47, device=device, dtype=torch.float16),
        "mask": torch.rand(2, 1, 1, 47, device=device) > 0.3,
    }
    out, lse = attune.attention(q, k, v, return_lse=True, **options)
    assert complaint(out, truth(q, k, v, **options), lse) == ""


def test_a_row_that_sees_nothing_is_zero(device):
    q, k, v = tensors(device, rows=5, keys=3)
    out, lse = attune.attention(q, k, v, causal="bottom-right", return_lse=True)
    assert (out[:, :2] == 0).all() and lse[:, :, :2].isneginf().all()
    assert out.isfinite().all() and lse[:, :, 2:].isfinite().all()


@pytest.mark.parametrize("empty", ["batch", "rows", "keys"])
def test_empty_problems(device, empty):
    q, k, v = tensors(device, **{empty: 0})
    out, lse = attune.attention(q, k, v, return_lse=True)
    assert out.shape == q.shape and lse.shape == (q.shape[0], 4, q.shape[1])
    assert (out == 0).all() and lse.isneginf().all()


def test_layouts_and_strides(device):
    q, k, v = tensors(device)
    expected = attune.attention(q, k, v, causal="top-left")
    heads_first = [x.transpose(1, 2).contiguous() for x in (q, k, v)]
    out = attune.attention(*heads_first, causal="top-left", layout="bhsd")
    assert out.is_contiguous() and torch.equal(out.transpose(1, 2), expected)
    views = [x.transpose(1, 2) for x in heads_first]  # stored as BHSD, seen as BSHD
    out = attune.attention(*views, causal="top-left")
    assert torch.equal(out, expected) and out.stride() == views[0].stride()
    wide = [torch.cat([x, x], dim=3)[..., :32] for x in (q, k, v)]
    assert torch.equal(attune.attention(*wide, causal="top-left"), expected)
    shared = [x[:1].expand(2, -1, -1, -1) for x in (k, v)]
    assert torch.equal(attune.attention(q, *shared)[0], attune.attention(q[:1], k[:1], v[:1])[0])


def test_writes_where_it_is_told(device):
    q, k, v = tensors(device)
    place = torch.full((2, 33, 8, 32), 7.0, device=device)
    result = attune.attention(q, k, v, out=place[:, :, ::2])
    assert result.data_ptr() == place.data_ptr()
    assert torch.equal(place[:, :, ::2], attune.attention(q, k, v))
    assert (place[:, :, 1::2] == 7).all()


def test_varlen_equals_single_sequences(device):
    lengths_q, lengths_k = [5, 0, 17, 30], [9, 4, 17, 2]
    q = torch.randn(sum(lengths_q), 4, 32, device=device)
    k, v = torch.randn(2, sum(lengths_k), 2, 32, device=device)
    begins = [torch.tensor([0, *x], device=device).cumsum(0).int() for x in (lengths_q, lengths_k)]
    for bounds in ((None, None), (30, 17)):
        out, lse = attune.attention_varlen(q, k, v, *begins, *bounds, causal="bottom-right", return_lse=True)
        assert lse.shape == (4, sum(lengths_q))
        for b in range(4):
            rows, keys = (slice(*x[b : b + 2].tolist()) for x in begins)
            one = [q[rows].unsqueeze(0), k[keys].unsqueeze(0), v[keys].unsqueeze(0)]
            assert complaint(out[rows].unsqueeze(0), truth(*one, causal="bottom-right"), lse[None, :, rows]) == ""


def test_varlen_with_used_lengths(device):
    q = torch.randn(8, 4, 32, device=device)
    k, v = torch.randn(2, 20, 4, 32, device=device)
    begins_q, begins_k = torch.tensor([0, 4, 8], device=device).int(), torch.tensor([0, 10, 20], device=device).int()
    k[3:10], v[3:10] = float("nan"), float("nan")
    used = torch.tensor([3, 10], device=device).int()
    out = attune.attention_varlen(q, k, v, begins_q, begins_k, 4, 10, used_k=used)
    first = attune.attention(q[None, :4], k[None, :3], v[None, :3])
    assert torch.allclose(out[:4], first[0], atol=1e-6)


def test_numpy_arrays_come_back_as_numpy_arrays():
    q, k, v = (x.numpy() for x in tensors("cpu"))
    out, lse = attune.attention(q, k, v, mask=np.ones((33, 47), dtype=bool), return_lse=True)
    expected = attune.attention(*map(torch.from_numpy, (q, k, v)))
    assert isinstance(out, np.ndarray) and isinstance(lse, np.ndarray)
    assert np.array_equal(out, expected.numpy())
    begins = np.array([0, 66], dtype=np.int32), np.array([0, 94], dtype=np.int32)
    packed = attune.attention_varlen(q.reshape(66, 4, 32), k.reshape(94, 2, 32), v.reshape(94, 2, 32), *begins)
    assert isinstance(packed, np.ndarray) and packed.shape == (66, 4, 32)


def test_jax_arrays_come_back_as_jax_arrays(monkeypatch):
    monkeypatch.setenv("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax = pytest.importorskip("jax", reason="jax is not installed")
    q, k, v = jax.random.normal(jax.random.key(1), (3, 2, 33, 4, 32))
    out = attune.attention(q, k, v, causal="top-left")
    assert isinstance(out, jax.Array) and out.devices() == q.devices()
    tensors = [torch.from_dlpack(x) for x in (q, k, v, out)]
    assert complaint(tensors[3], truth(*tensors[:3], causal="top-left")) == ""


def test_a_parameter_is_a_tensor(device):
    q, k, v = tensors(device)
    weight = torch.nn.Parameter(q, requires_grad=False)
    assert torch.equal(attune.attention(weight, k, v), attune.attention(q, k, v))


def test_explains_its_choice(device):
    text = attune.explain(*tensors(device), causal="top-left")
    assert "problem: fwd b2 h4/2 q33 k47 d32 f32 causal-tl" in text and "kernel: " in text


REFUSED = {
    "q has the shape (2, 33, 4); it must be (batch, row, head, dim)": lambda q, k, v: ((q[..., 0], k, v), {}),
    "k.dtype is torch.float16; it must be that of q, torch.float32": lambda q, k, v: ((q, k.half(), v), {}),
    "k has batch 1; it must be that of q, 2": lambda q, k, v: ((q, k[:1], v), {}),
    "k has head dimension 16; it must be that of q, 32": lambda q, k, v: ((q, k[..., :16], v), {}),
    "v has (batch, row, head) = (2, 46, 2)": lambda q, k, v: ((q, k, v[:, 1:]), {}),
    "the last one must be 1, as by k.contiguous()": lambda q, k, v: ((q, k.flip(3).mT.contiguous().mT, v), {}),
    "causal is True; it must be one of None, 'top-left', 'bottom-right'": lambda q, k, v: ((q, k, v), {"causal": True}),
    "layout is 'sbhd'; it must be one of 'bshd', 'bhsd'": lambda q, k, v: ((q, k, v), {"layout": "sbhd"}),
    "mask has the shape (3,); it must broadcast to": lambda q, k, v: ((q, k, v), {"mask": torch.ones(3).bool()}),
    "mask.dtype is torch.float32; it must be one of torch.bool": lambda q, k, v: ((q, k, v), {"mask": torch.ones(47)}),
    "sink has the shape (2,); it must be (4,)": lambda q, k, v: ((q, k, v), {"sink": torch.ones(2)}),
    "out has the shape (2, 33, 4, 16)": lambda q, k, v: ((q, k, v), {"out": torch.empty(2, 33, 4, 16)}),
    # The library's own sentences:
    "the number of heads of k is 3; it must divide the number of heads of q (4)": lambda q, k, v: (
        (q, k[:, :, :1].expand(-1, -1, 3, -1), v[:, :, :1].expand(-1, -1, 3, -1)),
        {},
    ),
    "softcap is -1; it must be finite and greater than 0": lambda q, k, v: ((q, k, v), {"softcap": -1.0}),
    "scale is nan; it must be finite": lambda q, k, v: ((q, k, v), {"scale": float("nan")}),
    "window is (-2, 0); both must be -1 (unbounded), 0 or greater": lambda q, k, v: ((q, k, v), {"window": (-2, 0)}),
    "the output must not be an input": lambda q, k, v: ((q, k, v), {"out": q}),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_refusals_say_what_is_wrong(sentence):
    arguments, options = REFUSED[sentence](*tensors("cpu"))
    with pytest.raises(attune.InvalidArgument) as refusal:
        attune.attention(*arguments, **options)
    assert sentence in str(refusal.value)
    assert isinstance(refusal.value, ValueError) and refusal.value.status == 1


def test_what_is_not_there_yet_is_refused():
    q, k, v = tensors("cpu")
    with pytest.raises(attune.Unsupported, match=r"q\.dtype is torch\.float64"):
        attune.attention(q.double(), k.double(), v.double())
    with pytest.raises(attune.Unsupported, match="q is on meta"):
        attune.attention(*(x.to("meta").as_subclass(torch.Tensor) for x in (q, k, v)))


def test_a_call_like_the_last_one_but_for_one_thing():
    """What is known of the last call with the same options must not serve this one."""
    q, k, v = tensors("cpu")
    attune.attention(q, k, v)
    for inputs in (
        (q[:, :32], k, v),
        (q, k[:, :46], v[:, :46]),
        (q.transpose(1, 2).contiguous().transpose(1, 2), k, v),
        (q, k, v.transpose(1, 2).contiguous().transpose(1, 2)),
        (q[:, :0], k, v),
        (q, k[:, :0], v[:, :0]),
        (q.half(), k.half(), v.half()),
    ):
        assert complaint(attune.attention(*inputs), truth(*inputs)) == ""
        assert complaint(attune.attention(q, k, v), truth(q, k, v)) == ""
    for sentence, inputs in {
        "k.dtype is torch.float16": (q, k.half(), v.half()),
        "v is on meta": (q, k, v.to("meta")),
        "v has (batch, row, head)": (q, k, v[:, 1:]),
        "q has the shape (2, 33, 128)": (q.flatten(2), k, v),
    }.items():
        with pytest.raises(attune.InvalidArgument, match=re.escape(sentence)):
            attune.attention(*inputs)


def seen_calls(monkeypatch):
    """What calls.py keeps, empty: signatures, and by options the checks for calls like the last ones."""
    from attune import calls

    monkeypatch.setattr(calls, "_known", {})
    monkeypatch.setattr(calls, "_recent", {})
    return calls._known, calls._recent


def refuse_to_guard(*tensors, **options):
    raise TypeError("missing something new")


@pytest.mark.parametrize("guards", [None, refuse_to_guard])
def test_the_way_without_torchs_private_checks(monkeypatch, guards):
    from attune import calls

    q, k, v = tensors("cpu")
    expected = attune.attention(q, k, v)
    monkeypatch.setattr(calls, "_TensorGuards", guards)
    known, recent = seen_calls(monkeypatch)
    assert torch.equal(attune.attention(q, k, v), expected)
    assert torch.equal(attune.attention(q, k, v), expected)
    assert len(known) == 1 and not recent
    assert attune.attention(q.requires_grad_(), k, v).requires_grad


def test_the_same_tensor_more_than_once(monkeypatch):
    _, recent = seen_calls(monkeypatch)
    x, y, z = (torch.randn(2, 9, 4, 32) for _ in range(3))
    for _ in range(3):
        for inputs in ((x, x, x), (x, y, y), (x, y, x), (x, x, y), (x, y, z)):
            assert complaint(attune.attention(*inputs), truth(*inputs)) == ""
    (checks,) = recent.values()
    assert len(checks) == 1  # what the first call left serves them all


NEGATED = {
    "q": {"q": torch.randn(2, 33, 4, 32)},
    "k": {"k": torch.randn(2, 47, 2, 32)},
    "v": {"v": torch.randn(2, 47, 2, 32)},
    "bias": {"bias": torch.randn(33, 47)},
    "sink": {"sink": torch.randn(4)},
}


@pytest.mark.parametrize("changes", NEGATED.values(), ids=NEGATED)
def test_views_that_are_negated_when_they_are_read(changes):
    """Such as the imaginary part of a conjugate: the memory has the other sign."""
    ((name, value),) = changes.items()
    inputs = {**dict(zip("qkv", tensors("cpu"))), **changes}
    expected = attune.attention(**inputs)
    view = torch.complex(value, -value).conj().imag
    assert view.is_neg() and torch.equal(view, value) and view.data_ptr() != value.data_ptr()
    for _ in range(3):
        assert torch.equal(attune.attention(**{**inputs, name: view}), expected)
        assert torch.equal(attune.attention(**inputs), expected)


def test_an_output_that_is_negated_when_it_is_read():
    q, k, v = tensors("cpu")
    expected = attune.attention(q, k, v)
    for out in (torch.empty_like(expected), torch._neg_view(torch.empty_like(expected))):
        assert attune.attention(q, k, v, out=out) is out and torch.equal(out, expected)


def test_layers_that_take_turns(monkeypatch):
    from attune import calls

    known, recent = seen_calls(monkeypatch)
    few, many = ([tensors("cpu", keys=keys) for keys in range(1, 1 + n)] for n in (3, 2 * calls._MOST_RECENT))
    for inputs in (few, many):
        for q, k, v in 2 * inputs:
            assert complaint(attune.attention(q, k, v), truth(q, k, v)) == ""
        (checks,) = recent.values()
        assert len(known) == len(inputs) and len(checks) == min(len(inputs), calls._MOST_RECENT)


@pytest.mark.parametrize("function", ["attention", "attention_varlen", "sdpa"])
def test_every_call_has_its_gradients(function):
    """Also one like the last, which was made without."""
    q, k, v = torch.randn(3, 2, 4, 16, 32)
    lengths = ()
    if function == "attention_varlen":
        q, k, v = q[0], k[0], v[0]
        lengths = (torch.tensor([0, 4]).int(),) * 2
    call = getattr(attune, function)
    expected = call(q, k, v, *lengths)
    for inputs in ((q.clone().requires_grad_(), k, v), (q, k, v.clone().requires_grad_())):
        for _ in range(3):
            with torch.no_grad():
                assert torch.equal(call(*inputs, *lengths), expected)
            out = call(*inputs, *lengths)
            assert out.requires_grad and torch.equal(out, expected)
            out = call(q, k, v, *lengths)
            assert not out.requires_grad and torch.equal(out, expected)


@pytest.mark.parametrize("option", ["bias", "sink"])
def test_every_call_has_the_gradients_of_its_options(option):
    q, k, v = tensors("cpu")
    value = torch.randn(4) if option == "sink" else torch.randn(33, 47)
    expected = attune.attention(q, k, v, **{option: value})
    value.requires_grad_()
    for _ in range(2):
        with torch.no_grad():
            assert torch.equal(attune.attention(q, k, v, **{option: value}), expected)
        assert attune.attention(q, k, v, **{option: value}).requires_grad
        assert not attune.attention(q, k, v, **{option: value.detach()}).requires_grad


def test_modes_that_take_turns(monkeypatch):
    known, recent = seen_calls(monkeypatch)
    q, k, v = tensors("cpu")
    with torch.inference_mode():
        inference = tensors("cpu")
    modes = [torch.no_grad, torch.inference_mode, torch.enable_grad]
    for mode in 3 * modes:
        with mode():
            for inputs in ((q, k, v), inference):
                out = attune.attention(*inputs)
                assert out.dtype == torch.float32 and complaint(out, truth(*inputs)) == ""
    assert len(known) == 1 and len(recent) == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_autocast_casts_as_that_of_sdpa(device, compiled):
    q, k, v = tensors(device)
    bias, sink = torch.randn(33, 47, device=device), torch.randn(4, device=device)
    call = lambda **o: attune.attention(q, k.bfloat16(), v, bias=bias, sink=sink, **o)  # noqa: E731
    call = torch.compile(call, fullgraph=True, backend="aot_eager") if compiled else call
    cast = [x.bfloat16() for x in (q, k, v, bias)]
    expected = attune.attention(*cast[:3], bias=cast[3], sink=sink)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        for _ in range(2):
            assert torch.equal(call(), expected)
            with torch.autocast(device.type, enabled=False), pytest.raises(attune.InvalidArgument, match=r"k\.dtype"):
                call()
        text = attune.explain(q, k, v)
        packed = attune.attention_varlen(q[0], k[0], v[0], *(torch.tensor([0, n]).int().to(device) for n in (33, 47)))
    assert " bf16" in text and " f32" in attune.explain(q, k, v)
    assert packed.dtype == torch.bfloat16


def test_a_tensor_whose_memory_was_given_back():
    q, k, v = tensors("cpu")
    attune.attention(q, k, v)
    gone = q.clone()
    gone.untyped_storage().resize_(0)
    for _ in range(2):
        with pytest.raises(attune.InvalidArgument, match="q has no memory"):
            attune.attention(gone, k, v)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused():
    q, k, v = (torch.randn(2, 9, 4, 32) for _ in range(3))
    attune.attention(q, k, v)
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor(list(q), layout=layout)
        for name, inputs in {"q": (nested, k, v), "k": (q, nested, v), "v": (q, k, nested)}.items():
            with pytest.raises(attune.Unsupported, match=f"{name} is a nested tensor"):
                attune.attention(*inputs)


def test_many_signatures_are_forgotten_and_found_again(monkeypatch):
    from attune import calls

    monkeypatch.setattr(calls, "_MOST_SIGNATURES", 3)
    for keys in (1, 2, 3, 4, 5, 1, 2):
        q, k, v = tensors("cpu", keys=keys)
        assert complaint(attune.attention(q, k, v), truth(q, k, v)) == ""
        assert len(calls._known) <= 3 or keys == 1
