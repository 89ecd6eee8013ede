"""attune.sdpa in the place of torch's function: signature, shapes, masks, patching, fallback."""

import inspect

import attune
import pytest
import torch
from torch.nn import functional

TORCHS = functional.scaled_dot_product_attention
KNOWS_GQA = "enable_gqa" in (TORCHS.__doc__ or "")


def heads_first(*shape, device="cpu", dtype=torch.float32):
    return torch.randn(*shape, device=device, dtype=dtype)


def test_has_the_signature_of_torchs():
    from attune.torch_sdpa import sdpa

    names = ["query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa"]
    parameters = inspect.signature(sdpa).parameters
    assert list(parameters) == names
    for name in names:
        assert f"{name}" in TORCHS.__doc__ or name == "enable_gqa"
    assert [p.default for p in parameters.values()][3:] == [None, 0.0, False, None, False]


SHAPES = {
    "plain": [(2, 4, 33, 32), (2, 4, 47, 32), (2, 4, 47, 32)],
    "square": [(2, 4, 33, 32), (2, 4, 33, 32), (2, 4, 33, 32)],
    "other value dim": [(2, 4, 33, 32), (2, 4, 47, 32), (2, 4, 47, 16)],
    "no batch": [(4, 33, 32), (4, 47, 32), (4, 47, 32)],
    "no heads": [(33, 32), (47, 32), (47, 32)],
    "two batch dims": [(2, 3, 4, 33, 32), (2, 3, 4, 47, 32), (2, 3, 4, 47, 32)],
    "keys shared over the batch": [(2, 4, 33, 32), (1, 4, 47, 32), (1, 4, 47, 32)],
    "one kv head": [(2, 4, 33, 32), (2, 1, 47, 32), (2, 1, 47, 32)],
    "one query head": [(2, 1, 33, 32), (2, 4, 47, 32), (2, 4, 47, 32)],
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_equals_torchs_in_float32(device, shapes, causal):
    q, k, v = (heads_first(*shape, device=device) for shape in shapes)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = TORCHS(q, k, v, is_causal=causal, scale=0.2)
    got = attune.sdpa(q, k, v, is_causal=causal, scale=0.2)
    assert got.shape == expected.shape
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("shape", [(33, 47), (2, 1, 1, 47), (2, 4, 33, 47), (1, 4, 33, 1)])
def test_masks(device, shape):
    q, k, v = (heads_first(2, 4, n, 32, device=device) for n in (33, 47, 47))
    seen = torch.rand(shape, device=device) > 0.3
    seen[..., :1] = True
    for mask in (seen, torch.randn(shape, device=device), torch.zeros(shape, device=device).masked_fill(~seen, -1e30)):
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # torch 2.4's others err on (.., 1)
            expected = TORCHS(q, k, v, mask)
        torch.testing.assert_close(attune.sdpa(q, k, v, mask), expected, rtol=0, atol=1e-5)


def test_five_dims_with_a_mask():
    q, k, v = (heads_first(2, 3, 4, n, 32) for n in (9, 11, 11))
    mask = torch.rand(2, 1, 1, 9, 11) > 0.3
    mask[..., :1] = True
    torch.testing.assert_close(attune.sdpa(q, k, v, mask), TORCHS(q, k, v, mask), rtol=0, atol=1e-5)


def test_grouped_heads(device):
    q, k, v = (heads_first(2, h, 33, 32, device=device) for h in (6, 2, 2))
    with pytest.raises(attune.InvalidArgument, match="without enable_gqa=True"):
        attune.sdpa(q, k, v)
    expected = TORCHS(q, k.repeat_interleave(3, 1), v.repeat_interleave(3, 1))
    torch.testing.assert_close(attune.sdpa(q, k, v, enable_gqa=True), expected, rtol=0, atol=1e-5)


def test_a_last_dimension_that_is_not_contiguous(device):
    q, k, v = (heads_first(2, 4, 32, 33, device=device).mT for _ in range(3))
    torch.testing.assert_close(attune.sdpa(q, k, v), TORCHS(q, k, v), rtol=0, atol=1e-5)


def test_autocast(device):
    q, k, v = (heads_first(2, 4, 33, 32, device=device) for _ in range(3))
    bias = torch.randn(33, 33, device=device)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        expected = TORCHS(q, k.bfloat16(), v, bias)
        got = attune.sdpa(q, k.bfloat16(), v, bias)
        compiled = torch.compile(attune.sdpa, fullgraph=True, backend="aot_eager")(q, k.bfloat16(), v, bias)
    assert got.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
    assert torch.equal(compiled, got)


def test_autocast_and_none_take_turns(device):
    q, k, v = (heads_first(2, 4, 33, 32, device=device) for _ in range(3))
    for _ in range(3):
        assert attune.sdpa(q, k, v).dtype == torch.float32
        with torch.autocast(device.type, dtype=torch.bfloat16):
            assert attune.sdpa(q, k, v).dtype == torch.bfloat16


def test_refusals():
    q, k, v = (heads_first(1, 2, 5, 8) for _ in range(3))
    with pytest.raises(attune.InvalidArgument, match="attn_mask is given beside is_causal=True"):
        attune.sdpa(q, k, v, torch.ones(5, 5).bool(), is_causal=True)
    with pytest.raises(attune.Unsupported, match=r"dropout_p is 0\.1"):
        attune.sdpa(q, k, v, dropout_p=0.1)


def test_torchs_registry_of_flash_implementations():
    if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
        with pytest.raises(attune.Unsupported, match="has no registry of flash implementations"):
            attune.register_flash_impl()
        return
    attune.register_flash_impl()
    assert "attune" in torch.nn.attention.list_flash_attention_impls()
    assert torch.nn.attention.current_flash_attention_impl() is None
    torch.nn.attention.activate_flash_attention_impl("attune")
    assert torch.nn.attention.current_flash_attention_impl() == "attune"
    torch.nn.attention.restore_flash_attention_impl()
    assert torch.nn.attention.current_flash_attention_impl() is None
