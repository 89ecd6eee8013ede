"""python3 -m attune.lab agree: how far a peer's speed over cuDNN's lies from one that was recorded elsewhere."""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from attune.lab import problem as problems
from attune.lab.errors import BadInput
from attune.lab.options import number

EXAMPLE = """example:
  python3 -m attune.lab agree --recorded ratios.jsonl monday.jsonl tuesday.jsonl

The lines are those of python3 -m attune.lab --json, or of attune bench --peers --lines. A card at its power limit gives
each contender a clock of its own, differently from card to card and from minute to minute: the rounds of several runs,
on several cards, say more together than each does. The exit status is 0 if all problems agree over all runs, else 1."""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python3 -m attune.lab agree",
        description=__doc__.split(": ", 1)[1],
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("lines", nargs="+", metavar="LINES", help="what was measured, one file a run")
    p.add_argument("--recorded", required=True, metavar="FILE", help="the record: see docs/measuring.md")
    p.add_argument("--peer", default="flash", help="whose speed is compared (default: %(default)s)")
    p.add_argument(
        "--within", type=number(0), default=0.03, help="how far apart is still agreement (default: %(default)s)"
    )
    p.add_argument(
        "--above", type=number(0), default=100e-6, metavar="SECONDS",
        help="leave out problems that take cuDNN less (default: %(default)s)",
    )  # fmt: skip
    p.add_argument(
        "--cycles", action="store_true",
        help="compare clock cycles instead of times: what is left if all contenders had had one clock",
    )  # fmt: skip
    p.add_argument("--json", action="store_true", help="print one object per problem instead of the table")
    return p


def _objects(path: str) -> list[dict]:
    try:
        return [json.loads(line) for line in Path(path).read_text().splitlines() if line.strip()]
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise BadInput(f"{path}: not lines of JSON: {error}") from error


def _recorded(path: str, peer: str) -> dict[tuple, list[float]]:
    """[estimate, lower, upper] by problem."""
    ratios = {}
    for row in _objects(path):
        if row.get("tag") == "bwd":  # gradients have ratios of their own, which this does not compare
            continue
        try:
            dtype = {"fp16": "f16"}.get(row["dt"], row["dt"])
            key = (False, row["B"], row["H"], row["S"], row["D"], row["causal"], dtype)
            if f"sdpa_{peer}" in row["speed_vs_cudnn"]:
                ratios[key] = row["speed_vs_cudnn"][f"sdpa_{peer}"]
        except (KeyError, TypeError, AttributeError) as error:
            raise BadInput(f"{path}: not a recorded ratio: {json.dumps(row)[:100]}") from error
    if not ratios:
        raise BadInput(f"{path}: has no speed of sdpa_{peer} over cuDNN's")
    return ratios


def _key(text: str) -> tuple:
    p = problems.parse(text)
    return (p.backward, p.batch, p.heads_q, p.seq_q, p.dim_qk, bool(p.causal), p.dtype)


def speeds_of(line: dict, peer: str, above: float, cycles: bool) -> list[float]:
    """The peer's speed over cuDNN's in each round; nothing where one of them is missing or cuDNN takes less."""
    result = line.get("result")
    if not result:
        return []
    contenders = {c["name"]: c for c in result["measurement"]["contenders"]}
    if peer not in contenders or "cudnn" not in contenders:
        return []

    def rounds_of(name: str, field: str) -> list[float]:
        return [statistics.median(samples) for samples in contenders[name][field]]

    cudnn, other = rounds_of("cudnn", "seconds"), rounds_of(peer, "seconds")
    if statistics.median(cudnn) < above:
        return []
    if cycles:
        cudnn = [seconds * clock for seconds, clock in zip(cudnn, rounds_of("cudnn", "clock_hz"), strict=True)]
        other = [seconds * clock for seconds, clock in zip(other, rounds_of(peer, "clock_hz"), strict=True)]
    return [a / b for a, b in zip(cudnn, other, strict=True)]


def interval(values: list[float]) -> tuple[float, float]:
    """The narrowest pair of order statistics that covers the median in 95 of 100 cases; all there are if none does."""
    values = sorted(values)
    n, below, tail = len(values), 0, 0.0
    while below < n // 2 and 2 * (tail + math.comb(n, below) / 2**n) <= 0.05:
        tail += math.comb(n, below) / 2**n
        below += 1
    at = max(below - 1, 0)
    return values[at], values[n - 1 - at]


@dataclass(frozen=True)
class Agreement:
    problem: str
    speed: float
    interval: tuple[float, float]
    recorded: list[float]

    @property
    def apart(self) -> float:
        return self.speed / self.recorded[0] - 1


def agreements(speeds: dict[str, list[float]], recorded: dict[tuple, list[float]]) -> list[Agreement]:
    """The farthest first."""
    found = [
        Agreement(text, statistics.median(rounds), interval(rounds), recorded[_key(text)])
        for text, rounds in speeds.items()
        if _key(text) in recorded
    ]
    return sorted(found, key=lambda a: -abs(a.apart))


def _summary(title: str, found: list[Agreement], within: float) -> str:
    beyond = sum(abs(a.apart) > within for a in found)
    worst = f", the farthest apart by {100 * found[0].apart:+.1f} %" if found else ""
    return f"{title}: {len(found)} compared, {beyond} beyond {100 * within:g} %{worst}"


def run(options) -> int:
    recorded = _recorded(options.recorded, options.peer)
    together: dict[str, list[float]] = defaultdict(list)
    summaries = []
    for path in options.lines:
        alone = {}
        for line in _objects(path):
            try:
                speeds = speeds_of(line, options.peer, options.above, options.cycles) if "problem" in line else []
            except (KeyError, TypeError, ValueError) as error:
                raise BadInput(f"{path}: not a measured problem: {json.dumps(line)[:100]}") from error
            if speeds:
                alone[line["problem"]] = speeds
                together[line["problem"]] += speeds
        summaries.append(_summary(Path(path).name, agreements(alone, recorded), options.within))
    found = agreements(together, recorded)
    if not found:
        raise BadInput(f"no problem has {options.peer} and cudnn in the lines and {options.peer} in the record")
    if options.json:
        for a in found:
            print(json.dumps({**a.__dict__, "apart": a.apart}))
    else:
        width = max(len(a.problem) for a in found[:5])
        print(f"{'problem':<{width}} {options.peer + ' over cudnn':>24} {'recorded':>24}    apart")
        for a in found[:5]:
            here, there = (
                f"{x:.4f} [{low:.4f}, {high:.4f}]" for x, low, high in ((a.speed, *a.interval), a.recorded)
            )  # fmt: skip
            print(f"{a.problem:<{width}} {here:>24} {there:>24} {100 * a.apart:+6.1f} %")
        if len(found) > 5:
            print(f"and {len(found) - 5} that lie nearer")
        print(*summaries, sep="\n")
        if len(summaries) > 1:
            print(_summary("together", found, options.within))
    return 1 if abs(found[0].apart) > options.within else 0
