"""attune.flash_attn: FlashAttention's signature and conventions."""

import inspect

import attune
import numpy as np
import pytest
import torch
from attune import flash_attn
from attune.flash_attn import flash_attn_func, flash_attn_varlen_func
from float64 import complaint, truth

OPTIONS = "dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs"
LENGTHS = "cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k"
HINTS = "num_splits pack_gqa sm_margin"
SIGNATURES = {  # of flash-attn 2, and what may be given by name only
    "flash_attn_func": (f"q k v {OPTIONS}", HINTS),
    "flash_attn_kvpacked_func": (f"q kv {OPTIONS}", HINTS),
    "flash_attn_qkvpacked_func": (f"qkv {OPTIONS}", HINTS),
    "flash_attn_varlen_func": (f"q k v {LENGTHS} {OPTIONS} block_table", f"seqused_q seqused_k {HINTS}"),
    "flash_attn_varlen_kvpacked_func": (f"q kv {LENGTHS} {OPTIONS}", f"seqused_q seqused_k {HINTS}"),
    "flash_attn_varlen_qkvpacked_func": (f"qkv cu_seqlens max_seqlen {OPTIONS}", HINTS),
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures_are_flash_attentions(name):
    parameters = inspect.signature(getattr(flash_attn, name)).parameters.values()
    by_kind = [
        " ".join(each.name for each in parameters if each.kind is kind)
        for kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    ]
    assert tuple(by_kind) == SIGNATURES[name]


def test_there_is_no_other_function():
    assert {name for name in vars(flash_attn) if name.startswith("flash_attn")} == set(SIGNATURES)


def test_conventions(device):
    q = torch.randn(2, 9, 4, 32, device=device)
    k, v = torch.randn(2, 2, 13, 2, 32, device=device)
    options = {"scale": 0.3, "causal": "bottom-right", "window": (6, 0), "softcap": 4.0}
    out, lse, probabilities = flash_attn_func(
        q, k, v, softmax_scale=0.3, causal=True, window_size=(6, 0), softcap=4.0, return_attn_probs=True
    )  # fmt: skip
    assert probabilities is None
    assert complaint(out, truth(q, k, v, **options), lse) == ""
    begins_q, begins_k = torch.tensor([0, 9, 18], device=device).int(), torch.tensor([0, 13, 26], device=device).int()
    packed = flash_attn_varlen_func(
        q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), begins_q, begins_k, 9, 13, 0.0, 0.3, True, (6, 0), 4.0
    )  # fmt: skip
    assert complaint(packed.view_as(q), truth(q, k, v, **options)) == ""


def test_refusals():
    q = torch.randn(1, 4, 2, 16)
    for name, value in (("dropout_p", 0.1), ("alibi_slopes", torch.ones(2))):
        with pytest.raises(attune.Unsupported, match=f"{name} is given"):
            flash_attn_func(q, q, q, **{name: value})
    begins = torch.tensor([0, 4]).int()
    with pytest.raises(attune.Unsupported, match="block_table is given"):
        flash_attn_varlen_func(*[q[0]] * 3, begins, begins, 4, 4, block_table=torch.zeros(1, 1).int())


def test_hints_change_nothing():
    q = torch.randn(1, 9, 4, 32)
    hints = {"num_splits": 3, "pack_gqa": True, "sm_margin": 8, "deterministic": True}
    assert torch.equal(flash_attn_func(q, q, q, **hints), flash_attn_func(q, q, q))
    begins = torch.tensor([0, 9]).int()
    lengths = (begins, begins, 9, 9)
    assert torch.equal(flash_attn_varlen_func(*[q[0]] * 3, *lengths, **hints), flash_attn_func(q, q, q)[0])


@pytest.mark.parametrize("window", [(None, None), (None, 0), (5, None), [5, 2], np.array([5, 2])])
def test_a_window_side_of_none_is_unbounded(device, window):
    q = torch.randn(1, 9, 4, 32, device=device)
    numbers = tuple(-1 if bound is None else bound for bound in window)
    assert torch.equal(flash_attn_func(q, q, q, window_size=window), flash_attn_func(q, q, q, window_size=numbers))
    assert complaint(flash_attn_func(q, q, q, window_size=window), truth(q, q, q, window=numbers)) == ""


def test_used_lengths(device):
    q = torch.randn(8, 4, 32, device=device)
    k, v = torch.randn(2, 20, 4, 32, device=device)
    begins = [torch.tensor(x, device=device).int() for x in ([0, 4, 8], [0, 10, 20])]
    used = torch.tensor([3, 10], device=device).int()
    expected = attune.attention_varlen(q, k, v, *begins, 4, 10, used_k=used)
    k[3:10], v[3:10] = float("nan"), float("nan")
    assert torch.equal(flash_attn_varlen_func(q, k, v, *begins, 4, 10, seqused_k=used), expected)
    kv = torch.stack([k, v], dim=1)
    out = flash_attn.flash_attn_varlen_kvpacked_func(q, kv, *begins, 4, 10, seqused_k=used)
    assert torch.equal(out, expected)
    rows = torch.tensor([4, 2], device=device).int()
    some = flash_attn_varlen_func(q, k, v, *begins, 4, 10, seqused_q=rows, seqused_k=used)
    assert torch.equal(some[:6], expected[:6])
    with pytest.raises(attune.InvalidArgument, match=r"seqused_k has the shape \(2, 1\); it must be \(2,\)"):
        flash_attn_varlen_func(q, k, v, *begins, 4, 10, seqused_k=used[:, None])


PACKED = {"softmax_scale": 0.3, "causal": True, "window_size": (6, 0), "softcap": 4.0, "return_attn_probs": True}


def test_keys_and_values_in_one_tensor(device):
    q, kv = torch.randn(2, 9, 4, 32, device=device), torch.randn(2, 13, 2, 2, 32, device=device)
    expected = flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], **PACKED)
    out, lse, probabilities = flash_attn.flash_attn_kvpacked_func(q, kv, **PACKED)
    assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1]) and probabilities is None
    begins = [torch.tensor([0, n, 2 * n], device=device).int() for n in (9, 13)]
    lengths = (*begins, 9, 13)
    packed = flash_attn.flash_attn_varlen_kvpacked_func(q.flatten(0, 1), kv.flatten(0, 1), *lengths, **PACKED)
    k, v = kv.flatten(0, 1).unbind(1)
    expected = flash_attn_varlen_func(q.flatten(0, 1), k, v, *lengths, **PACKED)
    assert torch.equal(packed[0], expected[0]) and torch.equal(packed[1], expected[1]) and packed[2] is None


def test_all_three_in_one_tensor(device):
    qkv = torch.randn(2, 9, 3, 4, 32, device=device)
    expected = flash_attn_func(*qkv.unbind(2), **PACKED)
    out, lse, probabilities = flash_attn.flash_attn_qkvpacked_func(qkv, **PACKED)
    assert torch.equal(out, expected[0]) and torch.equal(lse, expected[1]) and probabilities is None
    begins = torch.tensor([0, 9, 18], device=device).int()
    rows = qkv.flatten(0, 1)
    packed = flash_attn.flash_attn_varlen_qkvpacked_func(rows, begins, 9, **PACKED)
    expected = flash_attn_varlen_func(*rows.unbind(1), begins, begins, 9, 9, **PACKED)
    assert torch.equal(packed[0], expected[0]) and torch.equal(packed[1], expected[1]) and packed[2] is None


def test_several_in_one_array_of_numpy():
    qkv = np.random.default_rng(1).standard_normal((2, 9, 3, 4, 32), dtype=np.float32)
    out = flash_attn.flash_attn_qkvpacked_func(qkv)
    assert isinstance(out, np.ndarray)
    assert isinstance(flash_attn.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:]), np.ndarray)


def test_they_compile(best_device):
    qkv = torch.randn(2, 9, 3, 4, 32, device=best_device)
    call = torch.compile(flash_attn.flash_attn_qkvpacked_func, fullgraph=True, backend="aot_eager")
    out, lse, _ = call(qkv, softcap=2.0, causal=True, window_size=(3, None), return_attn_probs=True)
    expected = flash_attn.flash_attn_qkvpacked_func(qkv, softcap=2.0, causal=True, window_size=(3, 0))
    assert torch.equal(out, expected) and lse.shape == (2, 4, 9)


def test_sentences_about_several_in_one():
    qkv = torch.randn(2, 9, 3, 4, 32)
    with pytest.raises(attune.InvalidArgument, match=r"qkv has the shape \(2, 9, 2, 4, 32\); it must be \(batch, row"):
        flash_attn.flash_attn_qkvpacked_func(qkv[:, :, 1:])
    with pytest.raises(attune.InvalidArgument, match=r"kv has the shape \(2, 9, 3, 4, 32\); it must be \(row, 2"):
        flash_attn.flash_attn_varlen_kvpacked_func(qkv[:, :, 0], qkv, None, None, 9, 9)
    with pytest.raises(attune.InvalidArgument, match="cu_seqlens is None; it must be a tensor"):
        flash_attn.flash_attn_varlen_qkvpacked_func(qkv[0], None, 9)
    with pytest.raises(attune.InvalidArgument, match="max_seqlen is -1; it must lie in 0"):
        flash_attn.flash_attn_varlen_qkvpacked_func(qkv[0], torch.tensor([0, 9]).int(), -1)
    with pytest.raises(attune.InvalidArgument, match=r"kv\.dtype is torch\.float16; it must be that of q"):
        flash_attn.flash_attn_kvpacked_func(qkv[:, :, 0], qkv[:, :, 1:].half())
    with pytest.raises(attune.InvalidArgument, match="qkv is a list"):
        flash_attn.flash_attn_qkvpacked_func([1.0])
    with pytest.raises(attune.InvalidArgument, match="causal is 'top-left'; it must be one of False, True"):
        flash_attn.flash_attn_qkvpacked_func(qkv, causal="top-left")
