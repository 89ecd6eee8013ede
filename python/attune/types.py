"""What the annotations of the public functions say. Options are None where nothing is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Optional, Protocol, SupportsFloat, SupportsIndex, TypedDict, TypeVar


class SupportsDLPack(Protocol):
    """An array of any library, such as a torch tensor."""

    def __dlpack__(self, *arguments: Any, **options: Any) -> Any: ...


Array = TypeVar("Array", bound=SupportsDLPack)  # what goes in as q comes out
Operand = Optional[SupportsDLPack]
Number = Optional[SupportsFloat]
Bound = Optional[SupportsIndex]
Window = Optional[Sequence[SupportsIndex]]  # of two
Causal = Optional[Literal["top-left", "bottom-right"]]
Layout = Literal["bshd", "bhsd"]


class ScoreOptions(TypedDict, total=False):
    """What attention() and attention_varlen() take by name."""

    scale: Number
    causal: Causal
    window: Window
    softcap: Number
    sink: Operand
    bias: Operand
    mask: Operand
    out: Operand


class DenseOptions(ScoreOptions, total=False):
    layout: Layout


class PackedOptions(ScoreOptions, total=False):
    used_q: Operand
    used_k: Operand
    check: bool
