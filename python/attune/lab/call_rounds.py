"""Calls of Python in the engine's rounds, by the wall clock: what a user waits for."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import dataclass
from typing import Callable

from attune.lab import output
from attune.lab.engine import Engine, Session
from attune.lab.errors import NotHere
from attune.lab.options import any_seed, duration, round_count

LEAST_ROUNDS = 6  # fewer give no interval at 95 %
# Of each contender. A round of the engine is at least a sample and two calls ahead of samples.
CALLS_OF_ROUND, CALLS_BEFORE = 3, 5
LEAST_CALLS = CALLS_BEFORE + CALLS_OF_ROUND * LEAST_ROUNDS


@dataclass
class Row:
    """What was timed: `unit_of` makes the column of figures from the seconds of one call."""

    title: str
    result: dict
    unit_of: Callable[[float], str]


def make_parser(doc: str, remarks: str, budget: float, example_options: str = "") -> argparse.ArgumentParser:
    """`doc`: "COMMAND LINE: what it does", the first line of a module."""
    program, description = doc.split(": ", 1)
    example = f"{program} --engine build/libattune_lab_engine.so --library build/libattune.so{example_options}"
    parser = argparse.ArgumentParser(
        prog=program,
        description=description,
        epilog=f"{remarks}\n\nexample:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--engine", required=True, help="libattune_lab_engine.so")
    parser.add_argument("--library", help="libattune.so (default: the one that attune finds)")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 or cpu (default: %(default)s)")
    parser.add_argument("--rounds", type=round_count, default=15, help="of measurement (default: %(default)s)")
    parser.add_argument(
        "--samples", type=round_count, default=4, help="of each contender and round (default: %(default)s)"
    )
    parser.add_argument(
        "--budget", type=duration, default=budget, help="seconds per row; lowers the samples, then the rounds, before "
        f"the first one, to {LEAST_ROUNDS} of 1 sample at least (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--seed", type=any_seed, default=1, help="of data and order (default: %(default)s)")
    parser.add_argument("--json", metavar="FILE", help="for every sample: one object per line")
    return parser


def start(options):
    """torch and the engine, once the options have said which library attune is to load."""
    output.try_file("--json", options.json)
    if options.library:
        os.environ["ATTUNE_LIBRARY"] = options.library
    try:
        import torch
    except ImportError as error:
        raise NotHere(f"this needs torch, which cannot be imported: {error}") from error
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        raise NotHere("torch finds no GPU; --device cpu measures without one")
    return torch, Engine(options.engine)


def gpu_index(device: str) -> int:
    """-1 for the CPU."""
    kind, _, index = device.partition(":")
    return -1 if kind == "cpu" else int(index or 0)


def measure(
    engine: Engine,
    options,
    title: str,
    contenders: dict[str, Callable[[], None]],
    mode: str = "cpu",
    twin: bool = True,
    quiet_cpus: int = 0,
) -> dict:
    """The first contender is the baseline. As a twin it runs twice, which gives the noise floor. `quiet_cpus`: how many
    CPUs, the quickest before each round, all threads of this process stay on; 0: wherever the system puts them."""
    protocol = {
        "mode": mode,
        "rounds": affordable_rounds(options, contenders, twin),
        "samples": options.samples,
        "budget_seconds": options.budget,
        "seed": options.seed,
        "quiet_cpus": quiet_cpus,
    }
    with Session(engine, protocol, -1) as session:
        for index, (name, call) in enumerate(contenders.items()):
            session.add_call(name, call)
            if index == 0 and twin:
                session.add_call(name, call, twin=True)
        result = session.run(lambda contender, done: show(f"{title}: {contender}, {100 * done:.0f} %"))
    show("")
    return result


def affordable_rounds(options, contenders: dict[str, Callable[[], None]], twin: bool) -> int:
    """From what one call costs alone."""
    seconds = [seconds_of(call) for call in contenders.values()]
    all_once = sum(seconds) + (seconds[0] if twin else 0)
    affordable = int((options.budget - CALLS_BEFORE * all_once) / (CALLS_OF_ROUND * all_once))
    return max(min(LEAST_ROUNDS, options.rounds), min(options.rounds, affordable))


def seconds_of(call: Callable[[], None]) -> float:
    """Of the second call: the first one may load and compile."""
    call()
    begin = time.perf_counter()
    call()
    return max(time.perf_counter() - begin, 1e-9)


def show(text: str) -> None:
    """What is under way, for people: one line that the next one writes over."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def table(rows: list[Row]) -> str:
    """Each contender beside the baseline of its row."""
    lines = []
    for row in rows:
        analysis = row.result["analysis"]
        summaries = {each["name"]: each for each in analysis["contenders"]}
        baseline = analysis["contenders"][0]["name"]
        lines.append(f"{row.title}: {baseline} {row.unit_of(summaries[baseline]['seconds'])}")
        for comparison in analysis["comparisons"]:
            low, high = comparison["interval"]
            speedup = f"{1 / comparison['ratio']:.3f} [{1 / high:.3f}, {1 / low:.3f}]"
            time = row.unit_of(summaries[comparison["name"]]["seconds"])
            lines.append(f"  {comparison['name']} {time}, {speedup} times as fast: {comparison['verdict']}")
        floor = analysis["noise_floor"]
        if floor and not floor["fit"]:
            lines.append(f"  unfit to measure: {floor['fitness']}")
    return "\n".join(lines)


def report(engine: Engine, options, rows: list[Row]) -> None:
    print(table(rows))
    if options.json:
        with Session(engine, {}, gpu_index(options.device)) as session:
            head = {"environment": session.environment()}
        lines = [head, *({"title": row.title, "result": row.result} for row in rows)]
        output.write_whole(options.json, "".join(json.dumps(line) + "\n" for line in lines))
