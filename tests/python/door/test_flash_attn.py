"""attune.flash_attn: FlashAttention's signature and conventions."""

import inspect

import attune.flash_attn
import pytest
import torch
from attune.flash_attn import flash_attn_func, flash_attn_varlen_func
from float64 import complaint, truth


def test_signatures_are_flash_attentions():
    dense = "q k v dropout_p softmax_scale causal window_size softcap alibi_slopes deterministic return_attn_probs"
    packed = dense.replace("q k v", "q k v cu_seqlens_q cu_seqlens_k max_seqlen_q max_seqlen_k") + " block_table"
    assert " ".join(inspect.signature(flash_attn_func).parameters) == dense
    assert " ".join(inspect.signature(flash_attn_varlen_func).parameters) == packed


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
