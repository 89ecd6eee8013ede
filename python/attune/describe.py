"""From tensors and options to the descriptor of a call. Done once per signature; calls.py keeps the result."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Callable, NamedTuple

import torch

from attune import c_api, torch_openmp
from attune.c_api import AttuneError, InvalidArgument, Unsupported, kernel_of
from attune.fallback import PLAIN, is_plain
from attune.names import ATTENTION, Names

_DTYPES = {torch.float16: c_api.F16, torch.bfloat16: c_api.BF16, torch.float32: c_api.F32}
_CAUSAL = {None: c_api.CAUSAL_NONE, "top-left": c_api.CAUSAL_TOP_LEFT, "bottom-right": c_api.CAUSAL_BOTTOM_RIGHT}
_MAX_DIM = 512  # of heads, in every kernel
_DEVICES = {"cpu": c_api.CPU, "cuda": c_api.CUDA}


class Packed(NamedTuple):
    """Sequences that lie end to end."""

    cu_seqlens_q: torch.Tensor
    cu_seqlens_k: torch.Tensor
    max_seqlen_q: int | None
    max_seqlen_k: int | None
    used_q: torch.Tensor | None
    used_k: torch.Tensor | None

    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        return self.cu_seqlens_q, self.cu_seqlens_k, self.used_q, self.used_k


class Described(NamedTuple):
    """All that a call needs beside the addresses."""

    desc: bytes  # attune_forward_desc
    empty_strided: Callable[[tuple, tuple, torch.dtype], torch.Tensor]  # memory where q is
    out_shape: tuple
    out_strides: tuple
    dtype: torch.dtype
    lse_shape: tuple | None
    lse_strides: tuple
    workspace_bytes: int
    cuda_index: int  # -1 on the CPU


@cache
def library() -> c_api.Library:
    """The one that this process uses, with torch's threads, otherwise with as many as torch has."""
    return c_api.Library(c_api.library_path(), torch.get_num_threads(), torch_openmp.find())


def empty_output(q: torch.Tensor, dim_v: int) -> torch.Tensor:
    """(batch, row, head, dim), with rows and heads in memory as q has them: what comes as BHSD leaves as BHSD."""
    batch, rows, heads, _ = q.shape
    if _has_rows_first(q):
        return q.new_empty((batch, rows, heads, dim_v))
    return q.new_empty((batch, heads, rows, dim_v)).transpose(1, 2)


def in_output_order(tensor: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Laid out as an output is, and copied only if it is not."""
    if (tensor if _has_rows_first(q) else tensor.transpose(1, 2)).is_contiguous():
        return tensor
    return empty_output(q, tensor.shape[3]).copy_(tensor)


def _has_rows_first(q: torch.Tensor) -> bool:
    return q.stride(1) >= q.stride(2)


def describe(
    q, k, v, layout="bshd", scale=None, causal=None, window=None, softcap=None, sink=None, bias=None, mask=None,
    return_lse=False, out=None, packed=None, grouped_heads=True, names=ATTENTION, or_torch=False,
) -> Described:  # fmt: skip
    """Everything the library cannot see is checked here, the rest there.

    grouped_heads: whether k and v may have another number of heads than q, and not only 1.
    or_torch: what only a plain kernel can serve is left to torch."""
    lookup("return_lse", {False: None, True: None}, return_lse)
    seen = [_as_bshd(*each, layout, packed) for each in ((names.q, q), (names.k, k), (names.v, v))]
    check_kin(*seen, names)
    q4, k4, v4 = seen
    _, rows_q, heads_q, dim_qk = q4.shape
    if not grouped_heads and k4.shape[2] not in (heads_q, 1):
        raise InvalidArgument(f"{names.k} has {k4.shape[2]} heads; it must have those of {names.q}, {heads_q}")
    batch = q4.shape[0]
    if packed is not None:
        check_packed(names, packed, q.device)
        batch = packed.cu_seqlens_q.numel() - 1
    o4 = empty_output(q4, v4.shape[3]) if out is None else _as_bshd(names.out, out, layout, packed)
    if out is not None:
        check_like(names.out, out, (*q4.shape[:3], v4.shape[3]), o4.shape, q.dtype, q.device)
    desc = c_api.ForwardDesc(
        struct_size=ctypes.sizeof(c_api.ForwardDesc),
        device_kind=_DEVICES[q.device.type],
        device_index=q.device.index or 0,
        dtype=_DTYPES[q.dtype],
        causal=lookup(names.causal, _CAUSAL, causal),
        batch=batch,
        heads_q=heads_q,
        heads_kv=k4.shape[2],
        seq_q=rows_q,
        seq_k=k4.shape[1],
        dim_qk=dim_qk,
        dim_v=v4.shape[3],
        q=_strides(q4),
        k=_strides(k4),
        v=_strides(v4),
        o=_strides(o4),
    )
    _set_score_function(desc, scale, window, softcap)
    if packed is not None:
        _set_packed(desc, packed)
    if sink is not None:
        check_like(names.sink, sink, (heads_q,), sink.shape, torch.float32, q.device)
        desc.features |= c_api.FEATURE_SINK
    scores = (batch, heads_q, desc.seq_q, desc.seq_k)
    if bias is not None:
        desc.features |= c_api.FEATURE_BIAS
        desc.bias_dtype = lookup(f"{names.bias}.dtype", _DTYPES, bias.dtype)
        desc.bias = _score_strides(names.bias, bias, scores, q, names)
    if mask is not None:
        lookup(f"{names.mask}.dtype", {torch.bool: None}, mask.dtype)
        desc.features |= c_api.FEATURE_MASK
        desc.mask = _score_strides(names.mask, mask, scores, q, names)
    if return_lse:
        desc.features |= c_api.FEATURE_LSE
        desc.lse = c_api.Strides(heads_q * rows_q, 1, rows_q)
    if or_torch and q.device.type in PLAIN:
        kernel = kernel_of(library().explain(bytes(desc), names.say))
        if is_plain(kernel):
            return _left_to_torch(kernel)
    return _described(bytes(desc), o4, layout, packed, return_lse, names)


def _left_to_torch(kernel: str) -> Described:
    """The first step of such a call is the refusal: so other calls need not ask whether they are one."""

    def refuse(*_):
        raise Unsupported(f"the plain kernel {kernel} alone can serve this call, and torch is many times as fast")

    return Described(b"", refuse, (), (), torch.float32, None, (), 0, -1)


def _described(
    desc: bytes, o4: torch.Tensor, layout: str, packed: Packed | None, return_lse: bool, names: Names
) -> Described:
    batch, rows, heads, _ = o4.shape
    o, lse_shape = o4, (batch, heads, rows)
    if packed is not None:
        o, lse_shape = o4[0], (heads, rows)
    elif layout == "bhsd":
        o = o4.transpose(1, 2)
    on_cuda = o.device.type == "cuda"
    if on_cuda and is_capturing(o.device):
        error = AttuneError("this call was not made before, and inside a graph capture it is too late to load a kernel")
        error.status = c_api.NOT_PREPARED
        raise error
    return Described(
        desc,
        _empty_strided(o.device),
        tuple(o.shape),
        o.stride(),
        o.dtype,
        lse_shape if return_lse else None,
        (heads * rows, rows, 1)[-len(lse_shape) :],
        library().workspace_bytes(desc, names.say),
        o.device.index if on_cuda else -1,
    )


@cache
def _empty_strided(device: torch.device) -> Callable[[tuple, tuple, torch.dtype], torch.Tensor]:
    """torch.empty_strided on that device. The function that inductor's code calls takes half the time of every public
    one; where there are several GPUs it is no help, since it knows the current one only."""
    if device.type == "cpu" or torch.cuda.device_count() == 1:
        quick = getattr(torch._C._dynamo.guards, f"_empty_strided_{device.type}", None)
        if quick is not None:
            return quick
    return lambda shape, strides, dtype: torch.empty_strided(shape, strides, dtype=dtype, device=device)


def is_capturing(device: torch.device) -> bool:
    with torch.cuda.device(device):
        return torch.cuda.is_current_stream_capturing()


def is_heads_first(layout: str) -> bool:
    return lookup("layout", {"bshd": False, "bhsd": True}, layout)


def _as_bshd(name: str, tensor: torch.Tensor, layout: str, packed: Packed | None) -> torch.Tensor:
    """Seen as (batch, row, head, dim); packed sequences as one batch."""
    heads_first = is_heads_first(layout)
    dims = "(row, head, dim)" if packed else "(batch, head, row, dim)" if heads_first else "(batch, row, head, dim)"
    if tensor.dim() != (3 if packed else 4):
        raise InvalidArgument(f"{name} has the shape {tuple(tensor.shape)}; it must be {dims}")
    if tensor.stride(-1) != 1 and tensor.shape[-1] > 1 and tensor.numel():
        raise InvalidArgument(
            f"{name} has the strides {tensor.stride()}; the last one must be 1, as by {name}.contiguous()"
        )
    if packed:
        return tensor.unsqueeze(0)
    return tensor.transpose(1, 2) if heads_first else tensor


def check_kin(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, names: Names) -> None:
    """What q, k and v are, beside each other, as (batch, row, head, dim)."""
    if q.device.type not in _DEVICES:
        raise Unsupported(f"{names.q} is on {q.device}; it must be on one of {', '.join(_DEVICES)}")
    if q.dtype not in _DTYPES:
        raise Unsupported(f"{names.q}.dtype is {q.dtype}; it must be one of {_listed(_DTYPES)}")
    for name, tensor in ((names.k, k), (names.v, v)):
        if tensor.dtype != q.dtype:
            raise InvalidArgument(f"{name}.dtype is {tensor.dtype}; it must be that of {names.q}, {q.dtype}")
        if tensor.device != q.device:
            raise InvalidArgument(f"{name} is on {tensor.device}; it must be where {names.q} is, on {q.device}")
    for name, tensor in ((names.q, q), (names.v, v)):
        if not 1 <= tensor.shape[3] <= _MAX_DIM:
            raise Unsupported(f"the head dimension of {name} is {tensor.shape[3]}; it must lie in 1..{_MAX_DIM}")
    if k.shape[0] != q.shape[0]:
        raise InvalidArgument(f"{names.k} has batch {k.shape[0]}; it must be that of {names.q}, {q.shape[0]}")
    if k.shape[3] != q.shape[3]:
        raise InvalidArgument(f"{names.k} has head dimension {k.shape[3]}; it must be that of {names.q}, {q.shape[3]}")
    if v.shape[:3] != k.shape[:3]:
        dims, those = tuple(v.shape[:3]), tuple(k.shape[:3])
        raise InvalidArgument(f"{names.v} has (batch, row, head) = {dims}; they must be those of {names.k}, {those}")


def check_like(name: str, tensor, shape: tuple, seen: tuple, dtype, device) -> None:
    """`seen`: its shape in the order of `shape`."""
    if tuple(seen) != tuple(shape):
        raise InvalidArgument(f"{name} has the shape {tuple(seen)}; it must be {tuple(shape)}")
    if tensor.dtype != dtype:
        raise InvalidArgument(f"{name}.dtype is {tensor.dtype}; it must be {dtype}")
    if tensor.device != device:
        raise InvalidArgument(f"{name} is on {tensor.device}; it must be on {device}")
    if tensor.dim() == 1 and not tensor.is_contiguous():
        raise InvalidArgument(f"{name} has the stride {tensor.stride(0)}; it must be 1")


def _set_score_function(desc: c_api.ForwardDesc, scale, window, softcap) -> None:
    if scale is not None:
        desc.features |= c_api.FEATURE_SCALE
        desc.scale = scale
    if window is not None:
        desc.features |= c_api.FEATURE_WINDOW
        desc.window_left, desc.window_right = window
    if softcap is not None:
        desc.features |= c_api.FEATURE_SOFTCAP
        desc.softcap = softcap


def check_packed(names: Names, packed: Packed, device: torch.device) -> None:
    """Shapes, types and places of the lengths."""
    begins_q, begins_k, _, _, used_q, used_k = packed
    for name, begins in ((names.cu_seqlens_q, begins_q), (names.cu_seqlens_k, begins_k)):
        if begins is None:
            raise InvalidArgument(f"{name} is None; it must be a tensor")
    if begins_q.numel() == 0:
        raise InvalidArgument(f"{names.cu_seqlens_q} has the shape {tuple(begins_q.shape)}; it must be (batch + 1,)")
    for name, lengths, count in (
        (names.cu_seqlens_q, begins_q, begins_q.numel()),
        (names.cu_seqlens_k, begins_k, begins_q.numel()),
        (names.used_q, used_q, begins_q.numel() - 1),
        (names.used_k, used_k, begins_q.numel() - 1),
    ):
        if lengths is not None:
            check_like(name, lengths, (count,), lengths.shape, torch.int32, device)


def _set_packed(desc: c_api.ForwardDesc, packed: Packed) -> None:
    desc.features |= c_api.FEATURE_PACKED
    desc.total_q, desc.total_k = desc.seq_q, desc.seq_k
    if packed.max_seqlen_q is not None:
        desc.seq_q = packed.max_seqlen_q
    if packed.max_seqlen_k is not None:
        desc.seq_k = packed.max_seqlen_k
    if packed.used_q is not None:
        desc.features |= c_api.FEATURE_USED_Q
    if packed.used_k is not None:
        desc.features |= c_api.FEATURE_USED_K


def _strides(tensor: torch.Tensor) -> c_api.Strides:
    return c_api.Strides(*tensor.stride()[:3])


def _score_strides(name: str, tensor: torch.Tensor, scores: tuple, q: torch.Tensor, names: Names) -> c_api.ScoreStrides:
    if tensor.device != q.device:
        raise InvalidArgument(f"{name} is on {tensor.device}; it must be where {names.q} is, on {q.device}")
    try:
        return c_api.ScoreStrides(*tensor.expand(scores).stride())
    except RuntimeError:
        raise InvalidArgument(
            f"{name} has the shape {tuple(tensor.shape)}; it must broadcast to (batch, head, row, key) = {scores}"
        ) from None


def lookup(name: str, table: dict, value):
    try:
        return table[value]
    except (KeyError, TypeError):
        raise InvalidArgument(f"{name} is {value!r}; it must be one of {_listed(table)}") from None


def _listed(table: dict) -> str:
    return ", ".join(repr(key) for key in table)
