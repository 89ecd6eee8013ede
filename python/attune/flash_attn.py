"""FlashAttention's functions: `from attune.flash_attn import flash_attn_func` where it was `from flash_attn`.

The arguments are those of flash-attn 2 in its order, and by name those that later versions added. `deterministic`,
`num_splits`, `pack_gqa` and `sm_margin` are hints, and change nothing here: every call gives the same bits again.
With return_attn_probs the result is (out, log-sum-exp, None), the latter in the place of the probabilities, which
flash-attn keeps for dropout only. The log-sum-exp is (batch, head, row), of packed sequences (head, rows of all)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, SupportsIndex

from attune import arguments
from attune.c_api import InvalidArgument, Unsupported
from attune.describe import Packed, lookup
from attune.functional import attend
from attune.names import FLASH, FLASH_KV, FLASH_QKV, FLASH_VARLEN, FLASH_VARLEN_KV, FLASH_VARLEN_QKV, Names
from attune.types import Array, Bound, Number, Operand, SupportsDLPack

WindowSize = Sequence[Optional[SupportsIndex]]  # of two


def flash_attn_func(
    q: Array, k: SupportsDLPack, v: SupportsDLPack,
    dropout_p: float = 0.0, softmax_scale: Number = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: Number = 0.0, alibi_slopes: None = None, deterministic: bool = False, return_attn_probs: bool = False,
    *, num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
) -> Array | Any:  # fmt: skip
    """q, k and v are (batch, row, head, dim)."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    return _attend(FLASH, q, k, v, None, softmax_scale, causal, window_size, softcap, return_attn_probs)


def flash_attn_kvpacked_func(
    q: Array, kv: SupportsDLPack,
    dropout_p: float = 0.0, softmax_scale: Number = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: Number = 0.0, alibi_slopes: None = None, deterministic: bool = False, return_attn_probs: bool = False,
    *, num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
) -> Array | Any:  # fmt: skip
    """q is (batch, row, head, dim), kv (batch, row, 2, head, dim)."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    k, v = _parts("kv", kv, "(batch, row, 2, head, dim)")
    return _attend(FLASH_KV, q, k, v, None, softmax_scale, causal, window_size, softcap, return_attn_probs)


def flash_attn_qkvpacked_func(
    qkv: Array,
    dropout_p: float = 0.0, softmax_scale: Number = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: Number = 0.0, alibi_slopes: None = None, deterministic: bool = False, return_attn_probs: bool = False,
    *, num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
) -> Array | Any:  # fmt: skip
    """qkv is (batch, row, 3, head, dim)."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    q, k, v = _parts("qkv", qkv, "(batch, row, 3, head, dim)")
    result = _attend(FLASH_QKV, q, k, v, None, softmax_scale, causal, window_size, softcap, return_attn_probs)
    return arguments.like(qkv, result)


def flash_attn_varlen_func(
    q: Array, k: SupportsDLPack, v: SupportsDLPack,
    cu_seqlens_q: SupportsDLPack, cu_seqlens_k: SupportsDLPack, max_seqlen_q: Bound, max_seqlen_k: Bound,
    dropout_p: float = 0.0, softmax_scale: Number = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: Number = 0.0, alibi_slopes: None = None, deterministic: bool = False, return_attn_probs: bool = False,
    block_table: None = None, *, seqused_q: Operand = None, seqused_k: Operand = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
) -> Array | Any:  # fmt: skip
    """Packed sequences: q, k and v are (rows of all, head, dim). seqused_q and seqused_k, (batch,) int32, are the rows
    and keys in use from the beginning of each sequence."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes, block_table=block_table)
    packed = Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k)
    return _attend(FLASH_VARLEN, q, k, v, packed, softmax_scale, causal, window_size, softcap, return_attn_probs)


def flash_attn_varlen_kvpacked_func(
    q: Array, kv: SupportsDLPack,
    cu_seqlens_q: SupportsDLPack, cu_seqlens_k: SupportsDLPack, max_seqlen_q: Bound, max_seqlen_k: Bound,
    dropout_p: float = 0.0, softmax_scale: Number = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: Number = 0.0, alibi_slopes: None = None, deterministic: bool = False, return_attn_probs: bool = False,
    *, seqused_q: Operand = None, seqused_k: Operand = None,
    num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
) -> Array | Any:  # fmt: skip
    """q is (rows of all, head, dim), kv (keys of all, 2, head, dim)."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    k, v = _parts("kv", kv, "(row, 2, head, dim)")
    packed = Packed(cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, seqused_q, seqused_k)
    return _attend(FLASH_VARLEN_KV, q, k, v, packed, softmax_scale, causal, window_size, softcap, return_attn_probs)


def flash_attn_varlen_qkvpacked_func(
    qkv: Array, cu_seqlens: SupportsDLPack, max_seqlen: Bound,
    dropout_p: float = 0.0, softmax_scale: Number = None, causal: bool = False, window_size: WindowSize = (-1, -1),
    softcap: Number = 0.0, alibi_slopes: None = None, deterministic: bool = False, return_attn_probs: bool = False,
    *, num_splits: int = 0, pack_gqa: bool | None = None, sm_margin: int = 0,
) -> Array | Any:  # fmt: skip
    """qkv is (rows of all, 3, head, dim)."""
    _refuse(dropout_p=dropout_p, alibi_slopes=alibi_slopes)
    q, k, v = _parts("qkv", qkv, "(row, 3, head, dim)")
    packed = Packed(cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, None, None)
    result = _attend(FLASH_VARLEN_QKV, q, k, v, packed, softmax_scale, causal, window_size, softcap, return_attn_probs)
    return arguments.like(qkv, result)


def _parts(name: str, stacked, dims: str) -> tuple:
    tensor = arguments.tensor(name, stacked)
    count = len(name)  # "qkv" is three
    if tensor.dim() != dims.count(",") + 1 or tensor.shape[-3] != count:
        raise InvalidArgument(f"{name} has the shape {tuple(tensor.shape)}; it must be {dims}")
    return tensor.unbind(-3)


def _refuse(**given) -> None:
    for name, value in given.items():
        if value is not None and not (isinstance(value, (int, float)) and value == 0):
            raise Unsupported(f"{name} is given; it must be left out: it is not supported yet")


def _attend(names: Names, q, k, v, packed, softmax_scale, causal, window_size, softcap, return_attn_probs):
    causal = lookup("causal", {False: None, True: "bottom-right"}, causal)
    lookup("return_attn_probs", {False: None, True: None}, return_attn_probs)
    if softcap is not None and arguments.number("softcap", softcap) == 0:
        softcap = None
    result = attend(
        names, q, k, v, None, None, None, None, packed, "bshd", softmax_scale, causal, _window(window_size), softcap,
        return_attn_probs,
    )  # fmt: skip
    return (*result, None) if return_attn_probs else result


def _window(window_size):
    """None is unbounded, as -1 is."""
    if isinstance(window_size, (tuple, list)):
        window_size = tuple(-1 if bound is None else bound for bound in window_size)
    if window_size is None:
        return None
    window = arguments.window("window_size", window_size)
    return None if window == (-1, -1) else window
