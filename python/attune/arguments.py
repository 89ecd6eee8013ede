"""What callers hand over, as the calls want it: arrays of other libraries as tensors, numbers and pairs of them as
Python's. Anything else is refused by name. Also the way back: results as arrays of the kind that came in."""

from __future__ import annotations

import operator
import sys
from reprlib import repr as short

import torch

from attune.c_api import InvalidArgument, Unsupported

_Tensor = torch.Tensor
_UNBOUNDED = 1 << 62  # windows from there on; no sequence is that long


def optional_tensor(name: str, value) -> torch.Tensor | None:
    return None if value is None else tensor(name, value)


def tensor(name: str, value) -> torch.Tensor:
    """Over the same memory."""
    if isinstance(value, _Tensor):
        return value
    kind = type(value).__name__
    if not hasattr(value, "__dlpack__"):
        raise InvalidArgument(f"{name} is a {kind}; it must be a torch tensor or have __dlpack__")
    if any(stride < 0 for stride in getattr(value, "strides", None) or ()):  # some versions of torch would abort
        raise InvalidArgument(f"{name} is a {kind} with the strides {value.strides}; none may be negative: copy it")
    try:
        return torch.from_dlpack(value)
    except Exception as error:  # whatever the other library raises
        raise InvalidArgument(f"{name} is a {kind} that DLPack does not hand over: {error}") from error


def like(array, result):
    """The result, or each of several, as an array of the kind of `array`, where that kind can take it."""
    if isinstance(array, _Tensor):
        return result
    if isinstance(result, tuple):
        return tuple(like(array, each) for each in result)
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):  # follows the array API standard from 2.0 on only
        return result.numpy()
    namespace = getattr(array, "__array_namespace__", None)
    return result if namespace is None else namespace().from_dlpack(result)


def number(name: str, value) -> float:
    """A tensor of one element counts with the value that it has at this call."""
    if isinstance(value, _Tensor) and value.requires_grad and torch.is_grad_enabled():
        raise Unsupported(f"{name} requires a gradient, and it has none here; call under torch.no_grad() or detach it")
    if not isinstance(value, (bool, str, bytes)):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            pass
    raise InvalidArgument(f"{name} is {short(value)}; it must be a finite number")


def refuse_unless_true_or_false(**values) -> None:
    for name, value in values.items():
        try:
            hash(value), bool(value)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidArgument(f"{name} is {short(value)}; it must be a bool or a number") from None


def integer(name: str, value) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} is {short(value)}; it must be an integer") from None
    if not -(1 << 63) <= number < 1 << 63:
        raise InvalidArgument(f"{name} is {number}; it must be an integer of 64 bits")
    return number


def window(name: str, value) -> tuple[int, int]:
    try:
        left, right = value
        left, right = operator.index(left), operator.index(right)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{name} is {short(value)}; it must be (left, right), two integers") from None
    if -1 <= left <= _UNBOUNDED and -1 <= right <= _UNBOUNDED:
        return left, right
    if left < -1 or right < -1:
        raise InvalidArgument(f"{name} is {(left, right)}; both must be -1 (unbounded), 0 or greater")
    return min(left, _UNBOUNDED), min(right, _UNBOUNDED)
