"""Lengths of packed sequences: made tensors and integers, and looked at before a call that asks for it. On a GPU the
library does not look, since it would have to wait for the device."""

from __future__ import annotations

import torch
from torch.compiler import is_compiling

from attune import arguments
from attune.c_api import InvalidArgument, Unsupported
from attune.describe import Packed, check_packed, is_capturing
from attune.names import Names


def with_tensors(names: Names, packed: Packed) -> Packed:
    begins_q, begins_k, longest_q, longest_k, used_q, used_k = packed
    return Packed(
        arguments.tensor(names.cu_seqlens_q, begins_q),
        arguments.tensor(names.cu_seqlens_k, begins_k),
        longest_q,
        longest_k,
        arguments.optional_tensor(names.used_q, used_q),
        arguments.optional_tensor(names.used_k, used_k),
    )


def with_integers(names: Names, packed: Packed) -> Packed:
    """The bounds of the lengths may come as tensors."""
    begins_q, begins_k, longest_q, longest_k, used_q, used_k = packed
    if longest_q is not None:
        longest_q = arguments.integer(names.max_seqlen_q, longest_q)
    if longest_k is not None:
        longest_k = arguments.integer(names.max_seqlen_k, longest_k)
    return Packed(begins_q, begins_k, longest_q, longest_k, used_q, used_k)


def check(names: Names, q, k, packed: Packed) -> None:
    """Refuses what would be clamped: sequences that do not fill q and k from the first row to the last, that are longer
    than their bound, or that use more rows than they have."""
    if is_compiling():
        raise Unsupported("check is True; it must be False in compiled code, which sees no lengths")
    q, k = arguments.tensor(names.q, q), arguments.tensor(names.k, k)
    if q.device.type == "cuda" and is_capturing(q.device):
        raise Unsupported("check is True; it must be False inside a graph capture, where lengths cannot be copied")
    packed = with_integers(names, with_tensors(names, packed))
    check_packed(names, packed, q.device)
    begins_q, begins_k, longest_q, longest_k, used_q, used_k = packed
    offsets_q = _check_offsets(names.cu_seqlens_q, begins_q, names.q, q)
    offsets_k = _check_offsets(names.cu_seqlens_k, begins_k, names.k, k)
    _check_lengths(names.max_seqlen_q, longest_q, names.used_q, used_q, offsets_q)
    _check_lengths(names.max_seqlen_k, longest_k, names.used_k, used_k, offsets_k)


def _check_offsets(name: str, begins: torch.Tensor, rows_name: str, rows: torch.Tensor) -> list[int]:
    offsets, count = begins.tolist(), rows.shape[0]
    if offsets[0] != 0:
        raise InvalidArgument(f"{name}[0] is {offsets[0]}; it must be 0")
    for i, (before, offset) in enumerate(zip(offsets, offsets[1:]), 1):
        if offset < before:
            raise InvalidArgument(f"{name}[{i}] is {offset}; it must be at least {before}, the one before it")
    if offsets[-1] != count:
        raise InvalidArgument(
            f"{name}[{len(offsets) - 1}] is {offsets[-1]}; it must be {count}, the number of rows of {rows_name}"
        )
    return offsets


def _check_lengths(
    longest_name: str, longest: int | None, used_name: str, used: torch.Tensor | None, offsets: list[int]
) -> None:
    lengths = [end - begin for begin, end in zip(offsets, offsets[1:])]
    if longest is not None and longest < max(lengths, default=0):
        raise InvalidArgument(f"{longest_name} is {longest}; it must be at least {max(lengths)}, the longest length")
    for i, (rows, length) in enumerate(zip([] if used is None else used.tolist(), lengths)):
        if not 0 <= rows <= length:
            raise InvalidArgument(f"{used_name}[{i}] is {rows}; it must lie in 0..{length}, the length there")
