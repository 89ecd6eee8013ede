"""One problem: every contender is checked, then those that passed share the engine's rounds."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Callable

from attune.lab.contender import Captured, Contender
from attune.lab.driver import Driver
from attune.lab.engine import Engine, Session
from attune.lab.errors import first_line
from attune.lab.problem import Problem
from attune.lab.reference import Reference
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
    problem: Problem
    kernels: list[str] = field(default_factory=list)  # Attune's contenders that were timed
    checks: dict = field(default_factory=dict)
    facts: dict = field(default_factory=dict)
    absent: dict = field(default_factory=dict)  # name -> why
    wrong: dict = field(default_factory=dict)  # name -> what its check found; never timed
    result: dict | None = None
    by_baseline: dict = field(default_factory=dict)  # name -> the analysis with that contender as the baseline

    @property
    def rows(self) -> list[str]:
        """The contenders that get a row of the table: Attune's, or the first peer where there is none."""
        return self.kernels or list(self.by_baseline)[:1]

    def analysis(self, baseline: str) -> dict:
        return self.by_baseline[baseline]

    def seconds(self, name: str) -> tuple[float, float, float] | None:
        """Median and the ends of its interval."""
        for summary in self.result["analysis"]["contenders"] if self.result else []:
            if summary["name"] == name:
                return summary["seconds"], summary["interval"][0], summary["interval"][1]
        return None

    @property
    def unfit(self) -> str:
        floor = self.result["analysis"]["noise_floor"] if self.result else None
        return floor["fitness"] if floor and not floor["fit"] else ""


def _check(host: Host, problem: Problem, contenders: list[Contender], outcome: Outcome) -> list[Contender]:
    torch = host.torch
    pool = TensorPool(torch, problem, host.device)
    tensors = pool.at(host.seed)
    stream = torch.cuda.Stream()
    reference = Reference(torch, problem, tensors)
    passed = []
    for contender in contenders:
        try:
            bound = contender.bind(torch, problem, tensors)
            with bound.around():
                output = bound.output_of(bound.call())
            torch.cuda.synchronize()
            check = reference.check(output, bound.lse)
            if not check.complaint:
                _try_capture(Captured(torch, host.driver, contender, problem, pool, stream), host.seed)
        except Exception as error:  # each package has its own ways of saying that a problem is not for it
            outcome.absent[contender.name] = first_line(error)
            continue
        outcome.checks[contender.name] = asdict(check)
        outcome.facts[contender.name] = bound.facts
        if check.complaint:
            outcome.wrong[contender.name] = check.complaint
        else:
            passed.append(contender)
    return passed


_TRIAL_CALLS = 3  # so few that it costs nothing, and enough to see how calls hang together


def _try_capture(captured: Captured, seed: int) -> None:
    """What cannot be captured is found before the rounds, not in the middle of them."""
    try:
        captured.capture(_TRIAL_CALLS, seed)
    finally:
        captured.release()


def _time(host: Host, problem: Problem, passed: list[Contender], outcome: Outcome, progress) -> None:
    torch = host.torch
    pool = TensorPool(torch, problem, host.device)
    stream = torch.cuda.Stream()
    captured = []
    with Session(host.engine, host.protocol, host.device_index) as session:
        try:
            for contender, twin in [(passed[0], False), (passed[0], True), *((c, False) for c in passed[1:])]:
                captured.append(Captured(torch, host.driver, contender, problem, pool, stream))
                session.add(contender.name, captured[-1].capture, outcome.facts[contender.name], twin)
            outcome.result = session.run(progress)
        finally:
            torch.cuda.synchronize()
            for each in captured:
                each.release()
        outcome.by_baseline = {passed[0].name: outcome.result["analysis"]}
        for contender in passed[1:]:
            outcome.by_baseline[contender.name] = session.analyse(outcome.result["measurement"], contender.name)


def measure(
    host: Host,
    problem: Problem,
    kernels: list[Contender],
    peers: list[Contender],
    progress: Callable[[str, float], None] = lambda contender, done: None,
) -> Outcome:
    outcome = Outcome(problem)
    with host.torch.no_grad():
        passed = _check(host, problem, [*kernels, *peers], outcome)
        host.torch.cuda.empty_cache()
        if passed:
            _time(host, problem, passed, outcome, progress)
        host.torch.cuda.empty_cache()
    outcome.kernels = [c.name for c in kernels if c in passed]
    return outcome
