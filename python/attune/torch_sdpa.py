"""Attune in the place of torch.nn.functional.scaled_dot_product_attention: called, patched in, or registered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.compiler import is_compiling
from torch.nn import functional

from attune import arguments
from attune.autocast import is_autocast_on_somewhere
from attune.c_api import InvalidArgument, Unsupported
from attune.calls import WATCHED, refuse_nested, run
from attune.functional import attend
from attune.names import SDPA
from attune.types import Array, Number, Operand, SupportsDLPack


def sdpa(
    query: Array, key: SupportsDLPack, value: SupportsDLPack, attn_mask: Operand = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: Number = None, enable_gqa: bool = False,
) -> Array:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention, with its signature and meaning.

    Not there yet, and refused: gradients, dropout and nested tensors."""
    if dropout_p:
        raise Unsupported(f"dropout_p is {dropout_p}; it must be 0: there is no dropout yet")
    if is_causal and attn_mask is not None:
        raise InvalidArgument("attn_mask is given beside is_causal=True; one of them must be left out")
    if scale is not None and type(scale) is not float:
        scale = arguments.number("scale", scale)
    if attn_mask is not None and not isinstance(attn_mask, torch.Tensor):
        attn_mask = arguments.tensor("attn_mask", attn_mask)
    if not is_compiling() and not is_autocast_on_somewhere():
        bias, mask = (None, attn_mask) if attn_mask is None or attn_mask.dtype == torch.bool else (attn_mask, None)
        causal = "top-left" if is_causal else None
        try:
            result = run(
                query, key, value, "bhsd", scale, causal, None, None, None, bias, mask, False, None, None, enable_gqa,
                True, SDPA,
            )  # fmt: skip
            if result is not WATCHED:
                return result
        except InvalidArgument:  # other shapes are rare, and to look for them in every call costs a third of it
            if _is_plain(query, key, value) and (enable_gqa or query.shape[1] == key.shape[1]):
                raise
    return _sdpa_of_any_shape(query, key, value, attn_mask, is_causal, scale, enable_gqa)


def _sdpa(query, key, value, mask, is_causal, scale):
    bias, mask = (None, mask) if mask is None or mask.dtype == torch.bool else (mask, None)
    causal = "top-left" if is_causal else None
    return attend(
        SDPA, query, key, value, None, bias, mask, None, None, "bhsd", scale, causal, None, None, False
    )  # fmt: skip


def _sdpa_of_any_shape(query, key, value, mask, is_causal, scale, enable_gqa):
    arrays = (query, key, value)
    if not all(isinstance(array, torch.Tensor) for array in arrays):
        tensors = map(arguments.tensor, (SDPA.q, SDPA.k, SDPA.v), arrays)
        return arguments.like(query, sdpa(*tensors, mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa))
    refuse_nested(query, key, value, SDPA)
    shape = None
    if not _is_plain(query, key, value):
        rows_and_dim = (query.shape[-2], value.shape[-1])
        query, key, value, mask, lead = _four_dims(query, key, value, mask)
        shape = lead + rows_and_dim
    if not enable_gqa and query.shape[1] != key.shape[1] != 1:
        raise InvalidArgument(
            f"key has {key.shape[1]} heads; without enable_gqa=True it must have those of query, {query.shape[1]}"
        )
    out = _sdpa(query, key, value, mask, is_causal, scale)
    return out if shape is None else out.reshape(shape)


def _is_plain(query, key, value) -> bool:
    """As attention() takes it."""
    return (
        query.dim() == key.dim() == value.dim() == 4
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1] == value.shape[1]
        and query.shape[1] >= key.shape[1]
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
    )


def _four_dims(query, key, value, mask):
    """As (batch, head, row, dim), with everything broadcast that SDPA broadcasts; and the leading dimensions."""
    given = (query, key, value)
    most = max(tensor.dim() for tensor in given)
    tensors = [tensor[(None,) * (max(4, most) - tensor.dim())] for tensor in given]
    batch = torch.broadcast_shapes(*(tensor.shape[:-3] for tensor in tensors))
    heads_kv = max(tensors[1].shape[-3], tensors[2].shape[-3])
    heads_q = max(tensors[0].shape[-3], heads_kv if tensors[0].shape[-3] == 1 else 0)
    tensors = [
        tensor.expand(*batch, heads, *tensor.shape[-2:]).flatten(0, -4)
        for tensor, heads in zip(tensors, (heads_q, heads_kv, heads_kv))
    ]
    tensors = [tensor if tensor.stride(-1) == 1 else tensor.contiguous() for tensor in tensors]
    if mask is not None and mask.dim() > 4:
        mask = mask.expand(*batch, *mask.shape[-3:]).flatten(0, -4)
    lead = (*batch, heads_q)
    return (*tensors, mask, lead[max(0, 4 - most) :])


@contextmanager
def patch_sdpa(fallback: bool = False) -> Iterator[None]:
    """Inside, torch.nn.functional.scaled_dot_product_attention is attune.sdpa, in all threads.

    fallback: calls that Attune cannot serve (gradients, dropout, nested tensors, other devices and dtypes) go to
    torch's; otherwise they raise. Code that imported the function by name before keeps torch's."""
    torchs = functional.scaled_dot_product_attention

    def with_fallback(
        query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False
    ):
        try:
            return sdpa(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        except Unsupported:
            options = {"enable_gqa": True} if enable_gqa else {}  # not every torch knows it
            return torchs(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)

    functional.scaled_dot_product_attention = with_fallback if fallback else sdpa
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = torchs


def register_flash_impl() -> None:
    """Makes "attune" known to torch.nn.attention.activate_flash_attention_impl (torch 2.11 and later).

    Once activated, torch's own flash backend on CUDA runs Attune's forward: F.scaled_dot_product_attention where it
    chooses that backend. The backward stays torch's, which takes the same log-sum-exp."""
    try:
        from torch.nn.attention import register_flash_attention_impl
    except ImportError:
        raise Unsupported(f"torch {torch.__version__} has no registry of flash implementations; 2.11 has") from None
    register_flash_attention_impl("attune", register_fn=_FlashImpl)


class _FlashImpl:
    """Keeps the override of torch's operator until it is removed."""

    def __init__(self):
        self._library = torch.library.Library("aten", "IMPL", "CUDA")
        self._library.impl("_scaled_dot_product_flash_attention", _aten_flash_attention, "CUDA")

    def remove(self) -> None:
        self._library._destroy()
        self._library = None


def _aten_flash_attention(
    query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):  # fmt: skip
    if dropout_p:
        raise Unsupported(f"dropout_p is {dropout_p}; it must be 0: there is no dropout yet")
    if return_debug_mask:
        raise Unsupported("return_debug_mask is True; there is no such mask")
    causal = "bottom-right" if is_causal else None  # of this operator, unlike of SDPA
    # run() and not attention(): gradients are the business of torch's own formula above this.
    out, lse = run(query, key, value, "bhsd", scale, causal, return_lse=True)
    random_state = query.new_zeros((2,), dtype=torch.uint64)
    unused = query.new_zeros((), dtype=torch.uint64)
    return out, lse, None, None, query.shape[2], key.shape[2], random_state, unused, query.new_empty((0,))
