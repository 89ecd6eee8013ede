"""Lengths of packed, used and padded sequences. `attune` draws them (lab/check/lengths.hpp) and gives them with the
problem, so that they are the same here and in its own measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Lengths:
    """Each is empty where the problem has none."""

    cu_seqlens_q: tuple[int, ...] = ()
    cu_seqlens_k: tuple[int, ...] = ()
    used_q: tuple[int, ...] = ()
    used_k: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()  # keys that a padding mask shows, for each batch entry of the mask

    @classmethod
    def given(cls, lists: Mapping[str, Sequence[int]]) -> Lengths:
        """Raises TypeError for a name that is no field."""
        return cls(**{name: tuple(map(int, values)) for name, values in lists.items()})

    def wrong_for(self, counts: Mapping[str, int]) -> str:
        """What is missing or too much, by the number of entries that each kind has to have; "" if nothing."""
        for field in fields(self):
            have, want = len(getattr(self, field.name)), counts.get(field.name, 0)
            if have != want:
                return f"{field.name} has {have} entries, and needs {want}"
        return ""


NO_LENGTHS = Lengths()


@dataclass(frozen=True)
class SequenceRows:
    """The rows and keys of one batch entry that are in use, and where they begin in memory."""

    batch: int  # of the storage: 0 where sequences are packed
    first_row: int
    first_key: int
    rows: int
    keys: int
