"""The table at the end, and the lines of JSON with every sample."""

from __future__ import annotations

from dataclasses import asdict

from attune.lab.measure import Outcome
from attune.lab.recorded import Recorded

# The engine judges the peer against the row's contender; a row speaks of its contender.
_OF_THE_ROW = {"faster": "slower", "slower": "faster"}


def _ratio(estimate: float, lower: float, upper: float) -> str:
    return f"{estimate:.3f} [{lower:.3f}, {upper:.3f}]"


def _time(seconds: tuple[float, float, float]) -> str:
    median, lower, upper = (1e6 * value for value in seconds)
    digits = 2 if median < 100 else 1
    return f"{median:.{digits}f} [{lower:.{digits}f}, {upper:.{digits}f}]"


def _kernel(outcome: Outcome, row: str) -> str:
    if row not in outcome.kernels:
        return f"{row} (no kernel of Attune)"
    return outcome.facts[row].get("kernel", row)


def _peer_name(name: str, outcomes: list[Outcome]) -> str:
    """With the backend behind it where torch chose: default (CUDNN_ATTENTION)."""
    if name != "default":
        return name
    used = sorted({o.facts[name]["backend"] for o in outcomes if name in o.facts})
    return f"default ({', '.join(used)})" if used else name


def _derived(outcome: Outcome, row: str, recorded: Recorded) -> str:
    derived, seconds = recorded.derive(outcome), outcome.seconds(row)
    if derived is None or seconds is None:
        return "-"
    return f"{1e6 * derived.seconds:.2f} us, {_ratio(*(t / seconds[0] for t in vars(derived).values()))}"


def _cells(outcome: Outcome, row: str, peers: list[str], recorded: Recorded | None) -> list[str]:
    seconds, flops = outcome.seconds(row), outcome.problem.flops
    comparisons = {c["name"]: c for c in outcome.analysis(row)["comparisons"]}
    cells = [outcome.problem.text, _kernel(outcome, row), _time(seconds)]
    cells.append(f"{flops / seconds[0] / 1e12:.1f}" if flops else "-")
    for peer in peers:
        found = comparisons.get(peer)
        if found is None:
            cells.append("-")
        else:
            verdict = _OF_THE_ROW.get(found["verdict"], found["verdict"])
            cells.append(f"{_ratio(found['ratio'], *found['interval'])} {verdict}")
    if recorded is not None:
        cells.append(_derived(outcome, row, recorded))
    return cells


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def table(outcomes: list[Outcome], peers: list[str], recorded: Recorded | None = None) -> str:
    peers = [peer for peer in peers if any(outcome.seconds(peer) for outcome in outcomes)]
    header = ["problem", "kernel", "us", "TFLOP/s", *(f"over {_peer_name(peer, outcomes)}" for peer in peers)]
    if recorded is not None:
        header.append(f"over {recorded.peer.upper()} by its recorded ratio (derived, not measured)")
    rows = [_cells(o, row, peers, recorded) for o in outcomes if o.result for row in o.rows]
    lines = _aligned([header, *rows]) if rows else ["nothing was timed"]
    if rows:
        lines.append("over: time(peer) / time(kernel) inside rounds, with its interval; above 1 the kernel is faster")
    return "\n".join([*lines, *_remarks(outcomes)]) + "\n"


def _remarks(outcomes: list[Outcome]) -> list[str]:
    lines = []
    for outcome in outcomes:
        lines += [f"not timed, because it is wrong: {n}: {outcome.problem.text}: {w}" for n, w in outcome.wrong.items()]
        if outcome.unfit:
            lines.append(f"unfit to measure: {outcome.problem.text}: {outcome.unfit}")
    reasons: dict = {}
    for outcome in outcomes:
        for name, why in outcome.absent.items():
            reasons.setdefault((name, why), []).append(outcome.problem.text)
    for (name, why), problems in reasons.items():
        where = "" if len(problems) == len(outcomes) else f" (in {len(problems)} of {len(outcomes)} problems)"
        lines.append(f"absent: {name}{where}: {why}")
    return lines


def json_line(outcome: Outcome, recorded: Recorded | None = None) -> dict:
    derived = recorded.derive(outcome) if recorded is not None else None
    line = {
        "problem": outcome.problem.text,
        "flops": outcome.problem.flops,
        "kernels": outcome.kernels,
        "checks": outcome.checks,
        "facts": outcome.facts,
        "absent": outcome.absent,
        "wrong": outcome.wrong,
        "result": outcome.result,
        "by_baseline": outcome.by_baseline,
    }
    if derived is not None:
        line["derived"] = {"peer": recorded.peer, "from": "cudnn's time by the recorded ratio", **asdict(derived)}
    return line
