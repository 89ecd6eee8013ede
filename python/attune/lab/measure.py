"""One problem: every contender is checked, then those that passed share the engine's rounds."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Callable

from attune.lab.contender import Captured, Contender
from attune.lab.driver import Driver
from attune.lab.engine import Engine, Session
from attune.lab.errors import described
from attune.lab.problem import Problem
from attune.lab.reference import Reference
from attune.lab.reference_backward import BackwardReference
from attune.lab.tensors import TensorPool


@dataclass
class Host:
    """What all problems share."""

    torch: Any
    engine: Engine
    driver: Driver
    protocol: dict
    device: Any
    device_index: int = 0
    seed: int = 1


@dataclass
class Outcome:
    """What became of a problem: a line of the host's output."""

    problem: Problem
    passed: list[Contender] = field(default_factory=list)
    kernels: list[str] = field(default_factory=list)  # those of `passed` that are Attune's
    checks: dict = field(default_factory=dict)
    facts: dict = field(default_factory=dict)
    absent: dict = field(default_factory=dict)  # name -> why
    wrong: dict = field(default_factory=dict)  # name -> what its check found; never timed
    failed: str = ""  # why the rounds came to no end
    result: dict | None = None

    def line(self) -> dict:
        fields = {name: getattr(self, name) for name in ("kernels", "facts", "absent", "wrong", "failed", "result")}
        checks = {name: _finite(figures) for name, figures in self.checks.items()}
        return {"problem": self.problem.text, "flops": self.problem.flops, "checks": checks, **fields}

    def seconds(self) -> dict[str, float]:
        summaries = self.result["analysis"]["contenders"] if self.result else []
        return {summary["name"]: summary["seconds"] for summary in summaries}


def _finite(figures: dict) -> dict:
    """JSON has no NaN."""
    return {name: value if value is not None and math.isfinite(value) else None for name, value in figures.items()}


_TRIAL_CALLS = 3  # so few that it costs nothing, and enough to see how calls hang together


def _try_capture(captured: Captured, seed: int) -> None:
    """What cannot be captured is found before the rounds, not in the middle of them."""
    try:
        captured.capture(_TRIAL_CALLS, seed)
    finally:
        captured.release()


def check(host: Host, problem: Problem, kernels: list[Contender], peers: list[Contender]) -> Outcome:
    outcome = Outcome(problem)
    try:
        _check(host, problem, kernels, peers, outcome)
    except Exception as error:  # of the reference; those of the contenders are theirs
        outcome.failed = described(error)
    outcome.kernels = [c.name for c in kernels if c in outcome.passed]
    host.torch.cuda.empty_cache()
    return outcome


def _check(host: Host, problem: Problem, kernels: list[Contender], peers: list[Contender], outcome: Outcome) -> None:
    torch = host.torch
    with torch.no_grad():
        pool = TensorPool(torch, problem, host.device)
        tensors = pool.at(host.seed)
        stream = torch.cuda.Stream()
        reference = (BackwardReference if problem.backward else Reference)(torch, problem, tensors)
        for contender in [*kernels, *peers]:
            gate = problem.gate if contender.strict else problem.gate.for_peers()
            try:
                bound = contender.bind(torch, problem, tensors)
                with bound.around():
                    output = bound.output_of(bound.call())
                torch.cuda.synchronize()
                found = reference.check(output, bound.lse, gate)
                if not found.complaint:
                    _try_capture(Captured(torch, host.driver, contender, problem, pool, stream), host.seed)
            except Exception as error:  # each package has its own ways of saying that a problem is not for it
                outcome.absent[contender.name] = described(error)
                continue
            outcome.checks[contender.name] = asdict(found)
            outcome.facts[contender.name] = bound.facts
            if found.complaint:
                outcome.wrong[contender.name] = found.complaint
            else:
                outcome.passed.append(contender)


def _run_rounds(host: Host, outcome: Outcome, progress: Callable[[str, float], None]) -> dict:
    torch, problem, passed = host.torch, outcome.problem, outcome.passed
    pool = TensorPool(torch, problem, host.device)
    stream = torch.cuda.Stream()
    captured = []
    with Session(host.engine, host.protocol, host.device_index) as session:
        try:
            for contender, twin in [(passed[0], False), (passed[0], True), *((c, False) for c in passed[1:])]:
                captured.append(Captured(torch, host.driver, contender, problem, pool, stream))
                session.add(contender.name, captured[-1].capture, outcome.facts[contender.name], twin)
            return session.run(progress)
        finally:
            torch.cuda.synchronize()
            for each in captured:
                each.release()


def time_in_rounds(
    host: Host, outcome: Outcome, progress: Callable[[str, float], None] = lambda contender, done: None
) -> None:
    """Fills in the result, or why there is none; the other problems go on."""
    if not outcome.passed:
        return
    try:
        with host.torch.no_grad():
            outcome.result = _run_rounds(host, outcome, progress)
    except Exception as error:
        outcome.failed = described(error)
    host.torch.cuda.empty_cache()
