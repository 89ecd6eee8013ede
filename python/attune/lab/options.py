"""Options that are numbers: what is none, or out of range, is an error that names the option and what is allowed."""

from __future__ import annotations

import argparse
import math
from typing import Callable

MOST_ROUNDS = 10000  # of the engine's protocol
SEEDS = 2**64


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """For add_argument(type=...)."""
    allowed = f"a whole number of at least {least}" if most is None else f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        # int() would take "1_000" and " 1".
        digits = text[1:] if text.startswith("-") else text
        if not (digits.isascii() and digits.isdigit()) or not least <= int(text) <= (
            math.inf if most is None else most
        ):
            raise argparse.ArgumentTypeError(f"'{text}'; {allowed} is allowed")
        return int(text)

    return parse


def number(least: float, above: bool = False) -> Callable[[str], float]:
    """Finite, and at least `least`, or above it."""
    allowed = f"a number {'above' if above else 'of at least'} {least:g}"

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least or (above and value == least):
            raise argparse.ArgumentTypeError(f"'{text}'; {allowed} is allowed")
        return value

    return parse


def several(parse: Callable[[str], int]) -> Callable[[str], list[int]]:
    """Such values with commas."""
    return lambda text: [parse(each) for each in text.split(",")]


round_count = whole(1, MOST_ROUNDS)
any_seed = whole(0, SEEDS - 1)
device_index = whole(0, 1023)
duration = number(0)
