"""python3 -m attune.lab cpu: attention or its gradients on the CPU, Attune beside torch's SDPA, by thread count."""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import statistics
import sys
import time
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from random import Random
from typing import NamedTuple

from attune.lab.call_rounds import LEAST_CALLS, make_parser, measure, show, start
from attune.lab.engine import Session
from attune.lab.errors import BadInput, LabError
from attune.lab.options import number

DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
RESAMPLES = 2000
HEAD = "{processor}, torch {torch}, ONEDNN_MAX_CPU_ISA {ONEDNN_MAX_CPU_ISA}, Attune's threads are {attune_threads}"
QUIET = "rows with fewer threads than the {} CPUs ran on the quickest of them, chosen before each round"
LINE = "{:<28} {:<5} {:>7}  {:>10} {:>10}  {:<24} {}"

REMARKS = """\
Outputs are compared first. Each row is named before torch is called. Where torch dies of an illegal instruction, as
oneDNN does on virtual machines that announce AMX and list no tile palette, ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 keeps it
away from AMX; the comparison then says little.

exit status: 0 all rows were timed, 1 outputs differ or time ran out, 2 bad input, 3 not supported here"""


class Direction(NamedTuple):
    """What is timed, and by what it is judged."""

    shapes: list[str]
    bars: dict[str, float]  # geometric means over the shapes
    most_difference: dict[str, float]  # relative RMS between two ways of rounding


FORWARD = Direction(
    ["1,8,512,64", "1,8,512,64,causal", "1,32,2048,128,causal", "1,32,2048,128", "1,16,4096,64"],
    {"bf16": 2.5, "f16": 2.5, "f32": 1.5},
    {"bf16": 0.02, "f16": 0.003, "f32": 1e-5},
)
BACKWARD = Direction(
    ["1,8,512,64", "1,8,512,64,causal", "1,8,1024,128,causal", "1,8,1024,128", "1,4,2048,64"],
    {"bf16": 1.5, "f16": 1.5, "f32": 1.5},
    {"bf16": 0.03, "f16": 0.005, "f32": 2e-5},
)


class Shape(NamedTuple):
    batch: int
    heads: int
    rows: int
    dim: int
    causal: bool

    def __str__(self) -> str:
        return f"B{self.batch} H{self.heads} S{self.rows} D{self.dim} {'causal' if self.causal else 'full'}"


class Row(NamedTuple):
    shape: Shape
    dtype: str
    threads: int

    def __str__(self) -> str:
        return f"{self.shape} {group_name(self.dtype, self.threads)}"


def group_name(dtype: str, threads: int) -> str:
    return f"{dtype} on {threads} thread{'s' if threads > 1 else ''}"


def parser() -> argparse.ArgumentParser:
    p = make_parser(__doc__, REMARKS, budget=5)
    p.set_defaults(device="cpu")
    p.add_argument("--threads", help="of both, with commas (default: all CPUs of this process, then 2)")
    p.add_argument("--any-cpu", action="store_true", help="fewer threads than CPUs run wherever the system puts them, "
                   "and not on the CPUs that are quickest before each round")  # fmt: skip
    p.add_argument("--backward", action="store_true", help="their gradients instead: of q, k and v, once each has run "
                   "forward")  # fmt: skip
    p.add_argument("--dtypes", default=",".join(DTYPES), help="with commas (default: %(default)s)")
    p.add_argument("--shape", action="append", help="batch, heads, rows and keys, dim, and maybe causal; may be given "
                   f"again (default {' '.join(FORWARD.shapes)}; of gradients {' '.join(BACKWARD.shapes)})")  # fmt: skip
    p.add_argument("--limit", type=number(0, above=True), default=290,
                   help="seconds in all; rows that would take longer are left out (default: %(default)s)")  # fmt: skip
    return p


def shape_from(text: str) -> Shape:
    *numbers, last = text.split(",")
    causal = last == "causal"
    try:
        return Shape(*map(int, numbers if causal else [*numbers, last]), causal)
    except (ValueError, TypeError) as error:
        raise BadInput(f"--shape {text}: four numbers are needed, and maybe causal") from error


def threads_from(text: str | None) -> list[int]:
    cpus = len(os.sched_getaffinity(0))
    if text is None:
        return list(dict.fromkeys([cpus, min(2, cpus)]))
    try:
        threads = [int(number) for number in text.split(",")]
    except ValueError as error:
        raise BadInput(f"--threads {text}: numbers with commas are needed") from error
    if not all(1 <= number <= cpus for number in threads):
        raise BadInput(f"--threads {text}: this process may use 1 to {cpus}")
    return threads


def rows_of(options) -> list[Row]:
    dtypes = options.dtypes.split(",")
    for dtype in dtypes:
        if dtype not in DTYPES:
            raise BadInput(f"--dtypes {options.dtypes}: {dtype} is none of {', '.join(DTYPES)}")
    shapes = [shape_from(text) for text in options.shape or direction_of(options).shapes]
    return [Row(s, d, t) for t in threads_from(options.threads) for d in dtypes for s in shapes]


def direction_of(options) -> Direction:
    return BACKWARD if options.backward else FORWARD


def quiet_cpus_of(row: Row, options) -> int:
    """On how many CPUs the row's rounds run; 0: wherever the system puts its threads."""
    return row.threads if row.threads < len(os.sched_getaffinity(0)) and not options.any_cpu else 0


def use_threads(torch, threads: int) -> None:
    """Of torch and of Attune, whose next call makes a context. If that has threads of its own they are as many as torch
    has then, and those of the context before sleep."""
    from attune.describe import library

    torch.set_num_threads(threads)
    library.cache_clear()


def contenders_of(torch, row: Row, backward: bool) -> tuple[dict, str]:
    """Both calls by name, each returning its outputs, and the kernel that Attune runs."""
    import attune

    b, h, s, d, causal = row.shape
    q, k, v, dout = (torch.randn(b, h, s, d).to(getattr(torch, DTYPES[row.dtype])) for _ in range(4))
    inputs = [each.requires_grad_(backward) for each in (q, k, v)]
    functions = {"torch SDPA": torch.nn.functional.scaled_dot_product_attention, "attune.sdpa": attune.sdpa}
    explained = attune.explain(q, k, v, layout="bhsd", causal="top-left" if causal else None)
    kernel = re.findall(r"^kernel: (\S+)", explained, re.MULTILINE)[-1]
    if not backward:
        return {name: lambda f=f: (f(q, k, v, is_causal=causal),) for name, f in functions.items()}, kernel
    gradients = partial(torch.autograd.grad, inputs=inputs, grad_outputs=dout, retain_graph=True)
    return {name: partial(gradients, f(q, k, v, is_causal=causal)) for name, f in functions.items()}, kernel


def check(row: Row, contenders: dict, most_difference: dict[str, float]) -> float:
    """Raises if the outputs differ; returns the seconds that both calls took."""
    begin = time.monotonic()
    outputs = [call() for call in contenders.values()]
    seconds = time.monotonic() - begin
    for expected, got in zip(*([each.double() for each in several] for several in outputs)):
        difference = ((got - expected).square().mean() / expected.square().mean()).sqrt().item()
        if not difference <= most_difference[row.dtype]:
            raise LabError(f"{row}: the outputs differ by {difference:.3g}, allowed {most_difference[row.dtype]}")
    return seconds


def announce(row: Row) -> None:
    """What runs if the process dies."""
    show(str(row))
    if not sys.stderr.isatty():
        print(row, file=sys.stderr, flush=True)


def time_row(torch, engine, options, row: Row, deadline: float) -> dict:
    announce(row)
    line = {"title": str(row), "dtype": row.dtype, "threads": row.threads, "backward": options.backward}
    if time.monotonic() >= deadline:
        return {**line, "absent": "no time is left of --limit"}
    torch.manual_seed(options.seed)
    contenders, line["kernel"] = contenders_of(torch, row, options.backward)
    seconds = check(row, contenders, direction_of(options).most_difference)
    needed, left = LEAST_CALLS * seconds, deadline - time.monotonic()
    if needed > left:
        return {**line, "absent": f"it needs about {needed:.0f} s, and {max(left, 0):.0f} s are left of --limit"}
    # The check has made Attune's context and torch's threads: how many there are was not asked of a mask of few CPUs.
    quiet_cpus = quiet_cpus_of(row, options)
    return {**line, "result": measure(engine, options, str(row), contenders, twin=False, quiet_cpus=quiet_cpus)}


def text_of(row: Row, line: dict) -> str:
    front = (str(row.shape), row.dtype, row.threads)
    if "absent" in line:
        return LINE.format(*front, "-", "-", f"not timed: {line['absent']}", "").rstrip()
    analysis = line["result"]["analysis"]
    torch_us, attune_us = (f"{1e6 * each['seconds']:.1f}" for each in analysis["contenders"])
    (comparison,) = analysis["comparisons"]
    low, high = comparison["interval"]
    ratio = f"{1 / comparison['ratio']:.2f} [{1 / high:.2f}, {1 / low:.2f}]"
    return LINE.format(*front, torch_us, attune_us, ratio, line["kernel"])


def mean_speed(ratios: list[list[float]], seed: int) -> tuple[float, float, float]:
    """How many times as fast: the geometric mean over rows, and its 95 % interval. `ratios`: of each row, by round, the
    time over the baseline's. Rounds are drawn for each row apart, since rows are timed one after the other."""
    random = Random(seed)

    def mean(drawn) -> float:
        return math.exp(-statistics.fmean(math.log(statistics.median(each)) for each in drawn))

    means = sorted(mean(random.choices(each, k=len(each)) for each in ratios) for _ in range(RESAMPLES))
    return mean(ratios), means[RESAMPLES // 40], means[-1 - RESAMPLES // 40]


def mean_of(lines: list[dict], dtype: str, threads: int, options) -> dict:
    group = [line for line in lines if (line["dtype"], line["threads"]) == (dtype, threads)]
    timed = [line["result"]["analysis"]["comparisons"][0]["ratios"] for line in group if "result" in line]
    mean = {"dtype": dtype, "threads": threads, "rows": len(timed), "of": len(group)}
    if timed:
        mean["speed"], mean["lo"], mean["hi"] = mean_speed(timed, options.seed)
    if not options.shape:
        mean["bar"] = direction_of(options).bars[dtype]
    return mean


def text_of_mean(mean: dict) -> str:
    name = group_name(mean["dtype"], mean["threads"])
    if "speed" not in mean:
        return f"{name}: nothing was timed"
    text = f"{name}: {mean['speed']:.2f} [{mean['lo']:.2f}, {mean['hi']:.2f}] times as fast"
    if mean["rows"] < mean["of"]:
        return f"{text}, over {mean['rows']} of {mean['of']} shapes"
    if "bar" not in mean:
        return text
    met = mean["speed"] >= mean["bar"] and mean["lo"] >= 0.99 * mean["bar"]
    return f"{text}, bar {mean['bar']}: {'met' if met else 'not met'}"


def environment_of(torch, engine) -> dict:
    from attune import torch_openmp

    with Session(engine, {}, -1) as session:
        facts = session.environment()
    isa = os.environ.get("ONEDNN_MAX_CPU_ISA", "not set")
    threads = "those of torch" if torch_openmp.find() else "its own"
    return {**facts, "torch": torch.__version__, "ONEDNN_MAX_CPU_ISA": isa, "attune_threads": threads}


def busy() -> str:
    """Why this machine has no time to be measured; "" if it has. `attune doctor` allows the same."""
    load, cpus = os.getloadavg()[0], len(os.sched_getaffinity(0))
    return f"a load of {load:.2f} over the last minute, for {cpus} CPUs" if load > 0.5 + 0.25 * cpus else ""


def run(options) -> int:
    deadline = time.monotonic() + options.limit
    if options.device != "cpu":
        raise BadInput(f"--device {options.device}: this command measures the CPU")
    rows = rows_of(options)
    torch, engine = start(options)
    environment = environment_of(torch, engine)
    lines, threads_before = [], torch.get_num_threads()
    with ExitStack() as stack:
        stack.enter_context(torch.set_grad_enabled(options.backward))
        stack.callback(use_threads, torch, threads_before)
        file = stack.enter_context(Path(options.json).open("w")) if options.json else None

        def keep(line: dict) -> None:
            if file:
                print(json.dumps(line), file=file, flush=True)

        keep({"environment": environment})
        print(HEAD.format_map(environment))
        print("gradients of q, k and v" if options.backward else "forward passes")
        if any(quiet_cpus_of(row, options) for row in rows):
            print(QUIET.format(len(os.sched_getaffinity(0))))
        if complaint := busy():
            print(f"unfit to measure: {complaint}")
        print(LINE.format("shape", "dtype", "threads", "torch us", "attune us", "times as fast", "kernel"), flush=True)
        for threads, group in groupby(rows, key=lambda row: row.threads):
            use_threads(torch, threads)
            for row in group:
                lines.append(time_row(torch, engine, options, row, deadline))
                keep(lines[-1])
                show("")
                print(text_of(row, lines[-1]), flush=True)
        print("\ngeometric means")
        for dtype, threads in dict.fromkeys((row.dtype, row.threads) for row in rows):
            mean = mean_of(lines, dtype, threads, options)
            keep({"mean": mean})
            print(text_of_mean(mean))
    return 0 if all("result" in line for line in lines) else 1
