"""FlashAttention's functions: `from attune.flash_attn import flash_attn_func` where it was `from flash_attn`."""

from __future__ import annotations

from attune.c_api import Unsupported
from attune.functional import attention, attention_varlen


def flash_attn_func(
    q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
    deterministic=False, return_attn_probs=False,
):  # fmt: skip
    """q, k and v are (batch, row, head, dim). With return_attn_probs the result is (out, log-sum-exp, None)."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    options = _options(softmax_scale, causal, window_size, softcap, return_attn_probs)
    return _result(attention(q, k, v, **options), return_attn_probs)


def flash_attn_varlen_func(
    q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0, softmax_scale=None, causal=False,
    window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False, return_attn_probs=False,
    block_table=None,
):  # fmt: skip
    """Packed sequences: q, k and v are (rows of all, head, dim)."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes, block_table=block_table)
    options = _options(softmax_scale, causal, window_size, softcap, return_attn_probs)
    lengths = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return _result(attention_varlen(q, k, v, *lengths, **options), return_attn_probs)


def _refuse(**arguments) -> None:
    for name, value in arguments.items():
        if value is not None and not (isinstance(value, (int, float)) and value == 0):
            raise Unsupported(f"{name} is given; it must be left out: it is not supported yet")


def _options(softmax_scale, causal, window_size, softcap, return_attn_probs) -> dict:
    return {
        "scale": softmax_scale,
        "causal": "bottom-right" if causal else None,
        "window": None if tuple(window_size) == (-1, -1) else window_size,
        "softcap": softcap or None,
        "return_lse": return_attn_probs,
    }


def _result(result, return_attn_probs):
    return (*result, None) if return_attn_probs else result
