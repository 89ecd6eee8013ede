"""The way of every call from tensors to attune_forward. Once a call is like an earlier one, nothing here but a
look-up and a check for that, the outputs, and one call into the library: this is what a call costs the CPU."""

from __future__ import annotations

import struct
from typing import Callable

import torch
from torch.autograd import forward_ad

from attune import c_api
from attune.c_api import Unsupported
from attune.describe import Packed, describe, library
from attune.gradients import Wanted, refuse_tangents, refuse_without_backward
from attune.names import ATTENTION, Names

# attune_forward_args, and its beginning up to the output: the library takes the fields after it to be 0.
_pack_args = struct.Struct("@2I14Q").pack
_ARGS_BYTES = struct.calcsize("@2I14Q")
_pack_plain_args = struct.Struct("@2I4Q").pack
_PLAIN_ARGS_BYTES = struct.calcsize("@2I4Q")
_MOST_SIGNATURES = 1 << 14  # then all are forgotten: growing sequences make a new one with every call
_MOST_RECENT = 4  # with the same options: of layers that take turns

_Check = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], bool]  # whether q, k and v are like those seen before
# The fields of Described: a plain tuple is taken apart in half the time.
_known: dict[tuple, tuple] = {}  # by signature: options and inputs
_recent: dict[tuple, tuple[tuple[_Check, tuple], ...]] = {}  # by options, the last one first

_Tensor, _Parameter = torch.Tensor, torch.nn.Parameter
_TensorGuards = getattr(torch._C._dynamo.guards, "TensorGuards", None)
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_dispatch_modes = torch._C._len_torch_dispatch_stack
_transform = torch._C._functorch.peek_interpreter_stack
_tracing = torch._C._get_tracing_state
_is_grad_enabled = torch.is_grad_enabled
_get_num_threads = torch.get_num_threads
_is_batched = torch._C._functorch.is_legacy_batchedtensor  # as torch.autograd.grad(is_grads_batched=True) has them

WATCHED = object()  # what run() returns instead of a result


def run(
    q, k, v, layout="bshd", scale=None, causal=None, window=None, softcap=None, sink=None, bias=None, mask=None,
    return_lse=False, out=None, packed=None, grouped_heads=True, eager=False, names=ATTENTION, or_torch=False,
    wanted: Wanted | None = None,
):  # fmt: skip
    """The output; with return_lse, (output, log-sum-exp).

    eager: the call comes from the user and not from torch. If somebody else wants to see it, nothing is done and the
    result is WATCHED: the call has to go through the operator, which autograd, subclasses of Tensor, dispatch modes,
    torch.func and torch.jit.trace can intercept, and which sees the values of tensors that are negated when they are
    read.

    or_torch: torch takes what is refused; then so is what only a plain kernel can serve.
    wanted: the gradients that the call is to have. Where no kernel has them, it is refused."""
    if eager:
        if not type(q) is type(k) is type(v) is _Tensor or _dispatch_modes():
            return WATCHED
        if forward_ad._current_level >= 0:
            refuse_tangents(q, k, v)
        if q.is_nested or k.is_nested or v.is_nested:  # the check below can end the process when it asks for strides
            refuse_nested(q, k, v, names)
    others = None
    if not (sink is None and bias is None and mask is None and out is None and packed is None):
        if eager and not _are_plain(sink, bias, mask, out, *(() if packed is None else packed.tensors())):
            return WATCHED
        others = (*map(signature_of, (sink, bias, mask, out)), signature_of_packed(packed))
        if eager:
            if forward_ad._current_level >= 0:
                refuse_tangents(sink, bias)
            if _is_grad_enabled() and _requires_grad(sink, bias):
                return WATCHED
    options = (layout, scale, causal, window, softcap, return_lse, grouped_heads, eager, or_torch, others, wanted)
    try:
        recent = _recent.get(options, ())
    except TypeError:  # not hashable, and so nothing that is allowed
        describe(
            q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out, packed,
            grouped_heads, names,
        )  # fmt: skip
        raise
    for is_like, fields in recent:
        if is_like(q, k, v):
            known = fields
            break
    else:
        if eager:
            if _transform() is not None or _tracing() is not None or q.is_neg() or k.is_neg() or v.is_neg():
                return WATCHED
            if _is_grad_enabled() and _requires_grad(q, k, v):
                return WATCHED
        signature = (options, signature_of(q), signature_of(k), signature_of(v))
        known = _known.get(signature)
        if known is None:
            known = tuple(describe(
                q, k, v, layout, scale, causal, window, softcap, sink, bias, mask, return_lse, out, packed,
                grouped_heads, names, or_torch,
            ))  # fmt: skip
            if wanted is not None:
                refuse_without_backward(known[0], wanted, names)
            _remember(signature, known)
        _remember_recent(options, known, _check_for(q, k, v, eager))

    desc, empty_strided, out_shape, out_strides, dtype, lse_shape, lse_strides, workspace_bytes, cuda_index = known
    if out is None:
        out = empty_strided(out_shape, out_strides, dtype)
    lse = workspace = None
    if others is None and lse_shape is None and not workspace_bytes:
        args = _pack_plain_args(_PLAIN_ARGS_BYTES, 0, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr())
    else:
        if lse_shape is not None:
            lse = empty_strided(lse_shape, lse_strides, torch.float32)
        if workspace_bytes:
            workspace = empty_strided((workspace_bytes + c_api.WORKSPACE_ALIGNMENT,), (1,), torch.uint8)
        args = _all_args(q, k, v, out, lse, sink, bias, mask, packed, workspace, workspace_bytes)
    attune = library()
    status = attune.forward(attune.context, desc, args, stream_of(cuda_index))
    if status:
        raise attune.error(status, names.say)
    return out if lse is None else (out, lse)


def _requires_grad(*tensors: torch.Tensor | None) -> bool:
    return any(tensor is not None and tensor.requires_grad for tensor in tensors)


def refuse_nested(q, k, v, names: Names = ATTENTION) -> None:
    for name, tensor in ((names.q, q), (names.k, k), (names.v, v)):
        if tensor.is_nested:
            raise Unsupported(f"{name} is a nested tensor; attention_varlen() takes sequences of different lengths")


def is_transformed() -> bool:
    """Inside torch.func."""
    return _transform() is not None


def is_watched(*inputs) -> bool:
    """Whether something else than eager torch is to see what is done with them; not all of them need be tensors."""
    tensors = [each for each in inputs if isinstance(each, _Tensor)]
    if _dispatch_modes() or _transform() is not None or _tracing() is not None or not _are_plain(*tensors):
        return True
    return any(map(_is_batched, tensors))


def _are_plain(*tensors) -> bool:
    """Whether the memory of each says all, and nobody wants to see it used."""
    for tensor in tensors:
        if tensor is None:
            continue
        if (type(tensor) is not _Tensor and type(tensor) is not _Parameter) or tensor.is_neg():
            return False
    return True


def signature_of(tensor: torch.Tensor | None) -> tuple | None:
    return None if tensor is None else (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)


def signature_of_packed(packed: Packed | None) -> tuple | None:
    if packed is None:
        return None
    return tuple(signature_of(part) if isinstance(part, _Tensor) else part for part in packed)


def _check_for(q, k, v, eager: bool) -> _Check | None:
    """Whether a later call can do what this one did: its inputs have the same signatures, and nobody has begun to watch
    or to want gradients. None where torch has no means for it: then signatures have to do, in several times the time.

    The means is the guard of compiled code. It compares types, dtypes, devices, shapes, strides, requires_grad, and the
    dispatch keys that an operator would go by, in which torch.func, torch.jit.trace, autocast and inference mode show.
    It does not see grad mode, nor tangents, nor every dispatch mode."""
    try:
        if q is k or q is v or k is v:  # the guard of several tensors holds only if they are different ones
            like_q, like_k, like_v = _guard(q), _guard(k), _guard(v)

            def is_like(q, k, v):
                return like_q(q) and like_k(k) and like_v(v)

        else:
            is_like = _guard(q, k, v)
    except (TypeError, RuntimeError):
        return None
    if eager and (q.requires_grad or k.requires_grad or v.requires_grad):
        return lambda q, k, v: not _is_grad_enabled() and is_like(q, k, v)
    return is_like


def _guard(*tensors: torch.Tensor) -> Callable[..., bool]:
    # It would crash without these two arguments.
    return _TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None).check


def _remember(signature: tuple, known: tuple) -> None:
    if len(_known) >= _MOST_SIGNATURES:
        _known.clear()
        _recent.clear()
    _known[signature] = known


def _remember_recent(options: tuple, known: tuple, is_like: _Check | None) -> None:
    if is_like is not None:
        _recent[options] = ((is_like, known), *_recent.get(options, ())[: _MOST_RECENT - 1])


def _all_args(q, k, v, out, lse, sink, bias, mask, packed, workspace, workspace_bytes) -> bytes:
    return _pack_args(
        _ARGS_BYTES, 0, q.data_ptr(), k.data_ptr(), v.data_ptr(), out.data_ptr(), address(lse), address(sink),
        address(bias), address(mask), *lengths_of(packed), aligned(workspace), workspace_bytes,
    )  # fmt: skip


# What every call has in common, that of a backward too.


def address(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def aligned(workspace: torch.Tensor | None) -> int:
    """The first address in it that the library takes."""
    return -(-address(workspace) // c_api.WORKSPACE_ALIGNMENT) * c_api.WORKSPACE_ALIGNMENT


_NO_LENGTHS = (0, 0, 0, 0)


def lengths_of(packed: Packed | None) -> tuple:
    return _NO_LENGTHS if packed is None else tuple(map(address, packed.tensors()))


def stream_of(cuda_index: int) -> int | None:
    """The current one of that device; -1 is the CPU."""
    if cuda_index < 0:
        _get_num_threads()  # OpenMP's is one of each calling thread, and torch sets it when it is first asked there
        return None
    return _current_stream(cuda_index)
