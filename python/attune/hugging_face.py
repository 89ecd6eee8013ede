"""Attune in Hugging Face transformers: attn_implementation="attune"."""

from __future__ import annotations

from typing import Any

import torch

from attune.c_api import AttuneError, Unsupported
from attune.fallback import is_refusal
from attune.functional import attend
from attune.names import TRANSFORMERS


def register_transformers(fallback: bool = False) -> None:
    """Makes attn_implementation="attune" known to transformers, attention and masks both.

    fallback: calls that Attune cannot serve (dropout, gradients where there is no backward) go to transformers' "sdpa",
    and so do calls that only a plain kernel of a GPU could take; otherwise the former raise."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    # Without a mask function of that name transformers would hand over no mask at all, and padding would be seen.
    AttentionMaskInterface.register("attune", sdpa_mask)
    AttentionInterface.register("attune", _forward_or_sdpa if fallback else forward)


def forward(
    module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attention_mask: torch.Tensor | None = None, **options: Any,
) -> tuple[torch.Tensor, None]:  # fmt: skip
    """query is (batch, head, row, dim), key and value have kv heads; the output is (batch, row, head, dim)."""
    try:
        return _forward(module, query, key, value, attention_mask, **options)
    except Unsupported as refusal:
        if not _is_known_to_sdpa(options) or options.get("output_attentions"):
            raise
        hint = "attune.register_transformers(fallback=True) leaves such calls to transformers' sdpa"
        raise Unsupported(f"{refusal}; {hint}") from None


def _forward_or_sdpa(module, query, key, value, attention_mask=None, **options):
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if not _is_known_to_sdpa(options):
        return _forward(module, query, key, value, attention_mask, **options)
    try:
        return _forward(module, query, key, value, attention_mask, or_torch=True, **options)
    except AttuneError as error:
        if not is_refusal(error):
            raise
    return sdpa_attention_forward(module, query, key, value, attention_mask, **options)


def _is_known_to_sdpa(options: dict[str, Any]) -> bool:
    """What is not, sdpa would leave out without a word."""
    return options.get("softcap") is None and options.get("s_aux") is None


def _forward(
    module, query, key, value, attention_mask=None, dropout=0.0, scaling=None, is_causal=None, softcap=None, s_aux=None,
    position_bias=None, or_torch=False, **others,
):  # fmt: skip
    """The mask comes from transformers' sdpa_mask: None where is_causal says all, otherwise a boolean one with windows
    and padding in it, so that sliding_window has nothing to add."""
    if dropout:
        raise Unsupported(f"dropout is {dropout}; it must be 0: there is no dropout yet")
    if others.get("output_attentions"):
        raise Unsupported(
            'output_attentions is True; fused attention has no such matrix: use attn_implementation="eager"'
        )
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # A single row is the last one and sees every key; longer ones without a mask begin at the first key.
    causal = "top-left" if is_causal and attention_mask is None and query.shape[2] > 1 else None
    bias, mask = position_bias, attention_mask
    if mask is not None and mask.dtype != torch.bool:
        bias, mask = mask if bias is None else bias + mask, None
    sink = None if s_aux is None else s_aux.float()
    out = attend(
        TRANSFORMERS, query, key, value, sink, bias, mask, None, None, "bhsd", scaling, causal, None, softcap, False,
        or_torch,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous(), None
