"""python3 -m attune.lab: the command line, and the run from the first problem to the last line of JSON.

All problems are checked before the first is timed. Tables, verdicts against bars and evidence are made by `attune`,
which starts this and reads the lines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from attune.lab import options, output
from attune.lab import problem as problems
from attune.lab.attune_library import AttuneContender, AttuneLibrary
from attune.lab.driver import Driver
from attune.lab.engine import Engine, Session
from attune.lab.errors import BadInput, LabError, NotHere
from attune.lab.measure import Host, Outcome, check, time_in_rounds
from attune.lab.peers import PEERS, make_peers
from attune.lab.plugin import PluginContender

_EXAMPLE = """\
Every contender is checked against float64 first, and not timed if it is wrong. docs/measuring.md says how it is timed.
Usually started by `attune bench --peers`, which counts FLOPs, knows the sets and makes tables of the lines.

exit status: 0 all passed, 1 a check failed, 2 bad input, 3 not supported here, 5 the output could not be written

example:
  python3 -m attune.lab --engine build/libattune_lab_engine.so --library build/libattune.so \\
      --peers cudnn,flash,default --json samples.jsonl 'fwd b4 h16/16 q4096 k4096 d128 bf16 causal-br'
"""


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="python3 -m attune.lab",
        description="Times Attune's kernels and the attentions torch can call, in the same rounds, on a GPU.",
        epilog=_EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("problem", nargs="*", help="problems as text; none: lines of standard input, text or JSON")
    p.add_argument("--engine", required=True, help="libattune_lab_engine.so")
    p.add_argument("--library", required=True, help="libattune.so")
    p.add_argument("--driver", default="libcuda.so.1", help="the CUDA driver's library")
    p.add_argument(
        "--peers", default="cudnn,flash", help=f"with commas: {', '.join(PEERS)}, or all (default: %(default)s)"
    )
    p.add_argument("--kernel", action="append", default=[], help="a kernel of Attune by name; may be given again")
    p.add_argument("--plugin", action="append", default=[], help="a shared library with attune_contender()")
    p.add_argument(
        "--peers-alone",
        action="store_true",
        help="without Attune, as records made elsewhere were: its heat slows others",
    )
    p.add_argument("--device", type=options.device_index, default=0, help="ordinal of the GPU")
    p.add_argument("--rounds", type=options.round_count, help="of measurement")
    p.add_argument("--samples", type=options.round_count, help="of each contender in each round")
    p.add_argument("--budget", type=options.duration, help="seconds per problem; lowers the samples")
    p.add_argument(
        "--seed", type=options.any_seed, default=1, help="of data, order and placement (default: %(default)s)"
    )
    p.add_argument("--json", metavar="FILE", help="for the lines: one object per problem, with every sample")
    p.add_argument("--triton", metavar="FILE", help="Triton's tutorial 06-fused-attention.py, for the peer triton")
    return p


def _torch():
    try:
        import torch
    except ImportError as error:
        raise NotHere(f"the peers need torch, which {sys.executable} cannot import: {error}") from error
    if not torch.cuda.is_available():
        raise NotHere("the peers need a GPU, and torch finds none")
    return torch


def _protocol(asked) -> dict:
    given = {"rounds": asked.rounds, "samples": asked.samples, "budget_seconds": asked.budget}
    return {"mode": "steady", "seed": asked.seed, **{k: v for k, v in given.items() if v is not None}}


def _problems(texts: list[str]) -> list[problems.Problem]:
    found = problems.read_lines(texts or sys.stdin)
    if not found:
        raise BadInput("no problem was given")
    return found


class _Progress:
    """For people, on standard error: one line that is written over on a terminal, one per step in a log."""

    def __init__(self, total: int):
        self._total = total
        self._shown = sys.stderr.isatty()
        self._begin = time.monotonic()

    def now(self, doing: str, share: float) -> None:
        if self._shown:
            print(f"\r\033[K{doing}, {100 * share:.0f} %", end="", file=sys.stderr, flush=True)

    def done(self, number: int, text: str) -> None:
        clear = "\r\033[K" if self._shown else ""
        seconds = time.monotonic() - self._begin
        print(f"{clear}{seconds:6.1f} s  {number}/{self._total}  {text}", file=sys.stderr, flush=True)


def _head(host: Host) -> dict:
    with Session(host.engine, host.protocol, host.device_index) as session:
        environment = session.environment()
    return {"environment": {**environment, "torch": host.torch.__version__}, "protocol": host.protocol}


def _status(outcomes: list[Outcome], kernels: list[str]) -> int:
    if any(name in outcome.wrong for outcome in outcomes for name in kernels):
        return 1
    if any(outcome.failed for outcome in outcomes):
        return 1
    return 3 if any(name in outcome.absent for outcome in outcomes for name in kernels) else 0


def _said_of_check(outcome: Outcome, kernels: list[str]) -> str:
    said = [f"{name} wrong: {outcome.wrong[name]}" for name in kernels if name in outcome.wrong]
    said += [f"{name} absent: {outcome.absent[name]}" for name in kernels if name in outcome.absent]
    said += [f"{name} right" for name in outcome.kernels]
    if not kernels:
        said += [f"{contender.name} right" for contender in outcome.passed]
    return f"{outcome.problem.text}: {'; '.join(said)}"


def _said_of_times(outcome: Outcome) -> str:
    times = [f"{name} {1e6 * seconds:.2f} us" for name, seconds in outcome.seconds().items() if "(A/A)" not in name]
    return f"{outcome.problem.text}: {outcome.failed or ', '.join(times) or 'nothing to time'}"


def run(asked) -> int:
    found = _problems(asked.problem)
    peers = make_peers([name for name in asked.peers.split(",") if name], asked)
    output.try_file("--json", asked.json)
    torch = _torch()
    torch.cuda.set_device(asked.device)
    engine, driver, library = Engine(asked.engine), Driver(asked.driver), AttuneLibrary(asked.library)
    device = torch.device("cuda", asked.device)
    host = Host(torch, engine, driver, _protocol(asked), device, asked.device, asked.seed)
    outcomes = []
    with ExitStack() as stack:
        asked_kernels = [] if asked.peers_alone else asked.kernel or [None]
        kernels = [AttuneContender(library, name, asked.device) for name in dict.fromkeys(asked_kernels)]
        for kernel in kernels:
            stack.callback(kernel.close)
        plugins = [PluginContender(path, asked.device) for path in dict.fromkeys(asked.plugin)]
        names = [contender.name for contender in (*kernels, *plugins)]
        lines = stack.enter_context(Path(asked.json).open("w")) if asked.json else sys.stdout
        print(json.dumps(_head(host)), file=lines, flush=True)

        progress = _Progress(len(found))
        for number, problem in enumerate(found, 1):
            progress.now(problem.text, (number - 1) / len(found))
            outcomes.append(check(host, problem, kernels, [*plugins, *peers]))
            if (kernels and not outcomes[-1].kernels) or number == len(found):
                progress.done(number, f"checked {_said_of_check(outcomes[-1], names)}")
        for number, outcome in enumerate(outcomes, 1):
            time_in_rounds(host, outcome, progress.now)
            progress.done(number, f"timed {_said_of_times(outcome)}")
            print(json.dumps(outcome.line()), file=lines, flush=True)
    return _status(outcomes, names)


def guarded(run, parser: argparse.ArgumentParser, arguments: list[str] | None) -> int:
    """The exit status of run(what was asked), whose output has arrived; what went wrong is one line."""
    try:
        output.flush()
        status = run(_parsed(parser, arguments))
        output.flush()
        return status
    except LabError as error:
        print(f"attune.lab: {error}", file=sys.stderr)
        return error.status
    except OSError as error:
        refused = BadInput(f"{error.filename}: {error.strerror}") if error.filename else output.lost(error)
        print(f"attune.lab: {refused}", file=sys.stderr)
        return refused.status


def _parsed(parser: argparse.ArgumentParser, arguments: list[str] | None) -> argparse.Namespace:
    # argparse's own says nothing where the help cannot be written.
    parser.print_help = lambda: print(parser.format_help(), end="", flush=True)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    return guarded(run, parser(), arguments)
