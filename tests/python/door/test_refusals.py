"""What a wrong argument is told: a sentence with the name that the caller wrote, the value, and what is allowed."""

import re

import attune
import numpy as np
import pytest
import torch
from attune.flash_attn import flash_attn_func, flash_attn_varlen_func
from float64 import complaint, truth


def q_k_v(dtype=torch.float32):
    return torch.randn(2, 9, 4, 32).to(dtype), *torch.randn(2, 2, 13, 2, 32).to(dtype)


def attention(**changes):
    q, k, v = q_k_v()
    return attune.attention(**{"q": q, "k": k, "v": v, **changes})


def explain(**changes):
    q, k, v = q_k_v()
    return attune.explain(**{"q": q, "k": k, "v": v, **changes})


def varlen(**changes):
    q, k, v = (x.flatten(0, 1) for x in q_k_v())
    begins = {"cu_seqlens_q": torch.tensor([0, 9, 18]).int(), "cu_seqlens_k": torch.tensor([0, 13, 26]).int()}
    return attune.attention_varlen(**{"q": q, "k": k, "v": v, **begins, **changes})


def sdpa(**changes):
    q, k, v = (x.transpose(1, 2) for x in q_k_v())
    return attune.sdpa(**{"query": q, "key": k, "value": v, "enable_gqa": True, **changes})


def flash(**changes):
    q, k, v = q_k_v()
    return flash_attn_func(**{"q": q, "k": k, "v": v, **changes})


def flash_varlen(**changes):
    q, k, v = (x.flatten(0, 1) for x in q_k_v())
    begins = {"cu_seqlens_q": torch.tensor([0, 9, 18]).int(), "cu_seqlens_k": torch.tensor([0, 13, 26]).int()}
    return flash_attn_varlen_func(
        **{"q": q, "k": k, "v": v, **begins, "max_seqlen_q": 9, "max_seqlen_k": 13, **changes}
    )


def transformers(**changes):
    from attune.hugging_face import forward

    q, k, v = (x.transpose(1, 2) for x in q_k_v())
    return forward(None, **{"query": q, "key": k, "value": v, "is_causal": False, **changes})


def expanded(heads, dim=32, heads_first=False):
    shape = (2, heads, 13, dim) if heads_first else (2, 13, heads, dim)
    return torch.zeros(1, 1, 1, dim).expand(shape)


class Opaque:
    def __repr__(self):
        return "an object"


NO_ARRAY = "it must be a torch tensor or have __dlpack__"
NO_NUMBER = "it must be a finite number"
NO_PAIR = "it must be (left, right), two integers"
NO_CAUSAL = "it must be one of None, 'top-left', 'bottom-right'"
REFUSED = {
    # What is no array, no number, no pair, no word.
    "q is a list; " + NO_ARRAY: (attention, {"q": [[1.0]]}),
    "k is a NoneType; " + NO_ARRAY: (attention, {"k": None}),
    "v is a str; " + NO_ARRAY: (attention, {"v": "v"}),
    "sink is a list; " + NO_ARRAY: (attention, {"sink": [0.0] * 4}),
    "bias is a float; " + NO_ARRAY: (attention, {"bias": 1.0}),
    "mask is a list; " + NO_ARRAY: (attention, {"mask": [[True]]}),
    "out is a list; " + NO_ARRAY: (attention, {"out": [0.0]}),
    "scale is 'wide'; " + NO_NUMBER: (attention, {"scale": "wide"}),
    "scale is [1.0]; " + NO_NUMBER: (attention, {"scale": [1.0]}),
    "scale is True; " + NO_NUMBER: (attention, {"scale": True}),
    "scale is tensor([1., 1.]); " + NO_NUMBER: (attention, {"scale": torch.ones(2)}),
    "softcap is an object; " + NO_NUMBER: (attention, {"softcap": Opaque()}),
    "softcap is inf; it must be finite and greater than 0": (attention, {"softcap": 1e300}),
    "window is 5; " + NO_PAIR: (attention, {"window": 5}),
    "window is (1, 2, 3); " + NO_PAIR: (attention, {"window": (1, 2, 3)}),
    "window is (1.5, 0); " + NO_PAIR: (attention, {"window": (1.5, 0)}),
    "window is (None, 0); " + NO_PAIR: (attention, {"window": (None, 0)}),
    "window is (0, -2); both must be -1 (unbounded), 0 or greater": (attention, {"window": (0, -2)}),
    "causal is [1]; " + NO_CAUSAL: (attention, {"causal": [1]}),
    "causal is 'left'; " + NO_CAUSAL: (explain, {"causal": "left"}),
    "layout is ['bshd']; it must be one of 'bshd', 'bhsd'": (attention, {"layout": ["bshd"]}),
    "return_lse is 'yes'; it must be one of False, True": (attention, {"return_lse": "yes"}),
    "sink is a list; it must": (explain, {"sink": [0.0] * 4}),
    "window is 5; it must": (explain, {"window": 5}),
    # Arrays that another library cannot hand over.
    "mask is a ndarray that DLPack does not hand over": (attention, {"mask": np.ones((9, 13), dtype=">i4")}),
    "strides (-8,); none may be negative: copy it": (attention, {"bias": np.ones(13)[::-1]}),
    # Packed sequences.
    "cu_seqlens_q is a list; " + NO_ARRAY: (varlen, {"cu_seqlens_q": [0, 9, 18]}),
    "cu_seqlens_k is None; it must be a tensor": (varlen, {"cu_seqlens_k": None}),
    "cu_seqlens_q has the shape (0,); it must be (batch + 1,)": (varlen, {"cu_seqlens_q": torch.zeros(0).int()}),
    "cu_seqlens_k has the shape (2,); it must be (3,)": (varlen, {"cu_seqlens_k": torch.zeros(2).int()}),
    "cu_seqlens_q.dtype is torch.int64; it must be torch.int32": (varlen, {"cu_seqlens_q": torch.tensor([0, 9, 18])}),
    "max_seqlen_q is 9.0; it must be an integer": (varlen, {"max_seqlen_q": 9.0}),
    "max_seqlen_q is -1; it must lie in 0..": (varlen, {"max_seqlen_q": -1}),
    "max_seqlen_k is 1180591620717411303424; it must be an integer of 64 bits": (varlen, {"max_seqlen_k": 2**70}),
    "used_k is a tuple; " + NO_ARRAY: (varlen, {"used_k": (1, 2)}),
    "used_q has the shape (1,); it must be (2,)": (varlen, {"used_q": torch.ones(1).int()}),
    "q has the shape (9, 4); it must be (row, head, dim)": (varlen, {"q": torch.ones(9, 4)}),
    # The library's own sentences, in the names of each function.
    "the number of heads of k is 3; it must divide the number of heads of q (4)": (
        attention,
        {"k": expanded(3), "v": expanded(3)},
    ),
    "the number of heads of key is 3; it must divide the number of heads of query (4)": (
        sdpa,
        {"key": expanded(3, heads_first=True), "value": expanded(3, heads_first=True)},
    ),
    "bias.dtype is f16; it must be f32 (q.dtype) or f32": (attention, {"bias": torch.zeros(13).half()}),
    "attn_mask.dtype is f16; it must be f32 (query.dtype) or f32": (sdpa, {"attn_mask": torch.zeros(13).half()}),
    "the stride of out along row is 0; it must be at least": (
        attention,
        {"out": torch.zeros(2, 1, 4, 32).expand(2, 9, 4, 32)},
    ),
    "softmax_scale is nan; it must be finite": (flash, {"softmax_scale": float("nan")}),
    "softmax_scale is 'x'; " + NO_NUMBER: (flash, {"softmax_scale": "x"}),
    "window_size is (0, -7); both must be": (flash, {"window_size": (0, -7)}),
    "window_size is array([1, 2, 3]); it must be (left, right)": (flash, {"window_size": np.array([1, 2, 3])}),
    "window_size is 5; it must be (left, right)": (flash, {"window_size": 5}),
    "max_seqlen_q is 'x'; it must be an integer": (flash_varlen, {"max_seqlen_q": "x"}),
    # SDPA's names.
    "query is a list; " + NO_ARRAY: (sdpa, {"query": [1.0]}),
    "attn_mask is a list; " + NO_ARRAY: (sdpa, {"attn_mask": [True]}),
    "attn_mask has the shape (3,); it must broadcast to": (sdpa, {"attn_mask": torch.ones(3).bool()}),
    "scale is 'wide'; " + NO_NUMBER: (sdpa, {"scale": "wide"}),
    "dropout_p is array([1, 2]); it must be a bool or a number": (sdpa, {"dropout_p": np.array([1, 2])}),
    "is_causal is tensor([1., 1.]); it must be a bool or a number": (sdpa, {"is_causal": torch.ones(2)}),
    "enable_gqa is [1]; it must be a bool or a number": (sdpa, {"enable_gqa": [1]}),
    "key.dtype is torch.float16; it must be that of query, torch.float32": (
        sdpa,
        {"key": torch.zeros(2, 2, 13, 32).half()},
    ),
    # Those of transformers.
    "scaling is nan; it must be finite": (transformers, {"scaling": float("nan")}),
    "s_aux has the shape (3,); it must be (4,)": (transformers, {"s_aux": torch.ones(3)}),
    "attention_mask has the shape (3,); it must broadcast to": (transformers, {"attention_mask": torch.ones(3).bool()}),
}  # fmt: skip


@pytest.mark.parametrize("sentence", REFUSED)
def test_a_sentence_in_the_names_of_the_caller(sentence):
    function, changes = REFUSED[sentence]
    function()
    for _ in range(2):
        with pytest.raises(attune.InvalidArgument, match=re.escape(sentence)) as refusal:
            function(**changes)
    assert not re.search(r"\b(desc|args)\b", str(refusal.value))


@pytest.mark.parametrize("dim", [0, 600])
def test_head_dimensions_that_no_kernel_has(dim):
    for name, changes in {
        "q": {"q": torch.zeros(2, 9, 4, dim), "k": expanded(2, dim)},
        "v": {"v": expanded(2, dim)},
    }.items():
        with pytest.raises(attune.Unsupported, match=f"the head dimension of {name} is {dim}; it must lie in 1..512"):
            attention(**changes)


@pytest.mark.parametrize("option", ["scale", "softcap"])
def test_a_number_may_be_anybodys(option):
    for value in (2, np.float32(2.0), torch.tensor(2.0), torch.tensor([2.0]), np.int64(2)):
        assert torch.equal(attention_of_ones(**{option: value}), attention_of_ones(**{option: 2.0}))


def attention_of_ones(**options):
    x = torch.linspace(-1, 1, 9 * 4 * 32).view(1, 9, 4, 32)
    return attune.attention(x, x, x, **options)


def test_a_tensor_as_a_number_counts_as_it_is_at_the_call():
    value = torch.tensor(2.0)
    assert torch.equal(attention_of_ones(scale=value), attention_of_ones(scale=2.0))
    value.fill_(3.0)
    assert torch.equal(attention_of_ones(scale=value), attention_of_ones(scale=3.0))
    with pytest.raises(attune.Unsupported, match="softcap requires a gradient"):
        attention_of_ones(softcap=value.requires_grad_())


def test_a_tensor_as_a_switch_counts_as_it_is_at_the_call():
    q, k = torch.randn(1, 4, 9, 32), torch.randn(1, 2, 9, 32)
    switch = torch.tensor(True)
    attune.sdpa(q, k, k, enable_gqa=switch)
    switch.fill_(False)
    with pytest.raises(attune.InvalidArgument, match="without enable_gqa=True"):
        attune.sdpa(q, k, k, enable_gqa=switch)


def test_a_window_may_be_anybodys_and_as_wide_as_it_likes():
    expected = attention_of_ones(window=(3, -1))
    for window in ([3, -1], np.array([3, -1]), torch.tensor([3, -1]), (3, 2**31), (3, 2**63), (3, 2**70)):
        assert torch.equal(attention_of_ones(window=window), expected)
    assert torch.equal(attention_of_ones(window=(2**70, 0)), attention_of_ones(window=(-1, 0)))


def test_bounds_of_lengths_may_be_tensors_and_count_as_they_are_at_the_call():
    longest = torch.tensor(9)
    assert torch.equal(varlen_of_ones(max_seqlen_q=longest), varlen_of_ones(max_seqlen_q=9))
    longest.fill_(-1)
    with pytest.raises(attune.InvalidArgument, match="max_seqlen_q is -1"):
        varlen_of_ones(max_seqlen_q=longest)


def varlen_of_ones(cu_seqlens_q=None, **options):
    x = torch.linspace(-1, 1, 18 * 4 * 32).view(18, 4, 32)
    begins = torch.tensor([0, 9, 18]).int()
    return attune.attention_varlen(x, x, x, begins if cu_seqlens_q is None else cu_seqlens_q, begins, **options)


def test_arrays_of_numpy_beside_tensors():
    begins = np.array([0, 9, 18], dtype=np.int32)
    assert torch.equal(varlen_of_ones(begins, used_k=np.array([4, 9], dtype=np.int32)),
                       varlen_of_ones(used_k=torch.tensor([4, 9]).int()))  # fmt: skip
    q, k, v = q_k_v()
    mask, bias, sink = np.random.rand(9, 13) > 0.3, np.random.rand(13).astype(np.float32), np.ones(4, dtype=np.float32)
    out = attune.attention(q, k, v, mask=mask, bias=bias, sink=sink)
    tensors = {"mask": torch.from_numpy(mask), "bias": torch.from_numpy(bias), "sink": torch.from_numpy(sink)}
    assert isinstance(out, torch.Tensor) and complaint(out, truth(q, k, v, **tensors)) == ""
    heads_first = [x.transpose(1, 2) for x in (q, k, v)]
    out = attune.sdpa(*heads_first, attn_mask=mask, enable_gqa=True)
    assert torch.equal(out.transpose(1, 2), attune.attention(q, k, v, mask=mask))
    arrays = attune.sdpa(*[x.numpy() for x in heads_first], enable_gqa=True)
    assert np.array_equal(arrays, attune.sdpa(*heads_first, enable_gqa=True).numpy())


def test_a_parameter_as_a_sink_is_read_where_it_lies():
    q, k, v = q_k_v()
    sink = torch.nn.Parameter(torch.ones(4))
    with torch.no_grad():
        assert torch.equal(attune.attention(q, k, v, sink=sink), attune.attention(q, k, v, sink=sink.data))


def test_an_output_that_does_not_fit_is_refused_under_a_mode_too():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Passing(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), options=None):
            return function(*arguments, **(options or {}))

    with Passing(), pytest.raises(attune.InvalidArgument, match=re.escape("out has the shape (3, 2, 9, 4, 32)")):
        attention(out=torch.empty(3, 2, 9, 4, 32))
