"""python3 -m attune.lab masked: SDPA calls with a boolean mask or a float bias, Attune's beside torch's own choice."""

from __future__ import annotations

import argparse

from attune.lab.call_rounds import Row, make_parser, measure, report, seconds_of, start
from attune.lab.errors import LabError

SAMPLE_SECONDS = 0.01  # of calls, with one wait for the GPU after them
MOST_CALLS = 10
MOST_DIFFERENCE = 0.02  # relative RMS in bf16


def parser() -> argparse.ArgumentParser:
    p = make_parser(__doc__, "Outputs are compared first. Prints which kernel of Attune ran.", 7)
    p.add_argument("--shape", default="4,16,2048,128", help="batch, heads, rows and keys, dim (default: %(default)s)")
    return p


def masks(torch, device: str, rows: int) -> dict:
    """As models have them: causal with padding on the left, and a bias of positions per head."""
    padded = torch.ones(rows, rows, dtype=torch.bool, device=device).tril()
    padded[:, : rows // 8] = False
    padded.fill_diagonal_(True)
    distance = torch.arange(rows, device=device)
    bias = -0.01 * (distance.unsqueeze(1) - distance).abs()
    return {"boolean mask (row, key)": padded, "float bias (row, key)": bias.to(torch.bfloat16)}


def run(options) -> int:
    torch, engine = start(options)
    import attune

    batch, heads, rows, dim = map(int, options.shape.split(","))
    q, k, v = (torch.randn(batch, heads, rows, dim, device=options.device, dtype=torch.bfloat16) for _ in range(3))
    timed = []
    with torch.no_grad():
        for title, mask in masks(torch, options.device, rows).items():
            timed.append(time_one(torch, engine, options, title, (q, k, v, mask)))
            kind = "mask" if mask.dtype == torch.bool else "bias"
            explained = attune.explain(q, k, v, layout="bhsd", **{kind: mask}).splitlines()
            print(f"{title}: {next(line for line in explained if line.startswith('kernel: '))}")
    report(engine, options, timed)
    return 0


def time_one(torch, engine, options, title: str, arguments: tuple) -> Row:
    import attune

    functions = {"torch SDPA": torch.nn.functional.scaled_dot_product_attention, "attune.sdpa": attune.sdpa}
    expected, got = (function(*arguments).double() for function in functions.values())
    difference = ((got - expected).square().mean() / expected.square().mean()).sqrt().item()
    if not difference <= MOST_DIFFERENCE:
        raise LabError(f"{title}: the outputs differ by {difference:.3g}: nothing is timed")

    def many(function, calls):
        def sample():
            for _ in range(calls):
                function(*arguments)
            if options.device.startswith("cuda"):
                torch.cuda.synchronize(options.device)

        return sample

    slowest = max(seconds_of(many(function, 1)) for function in functions.values())
    calls = max(1, min(MOST_CALLS, int(SAMPLE_SECONDS / slowest)))
    result = measure(engine, options, title, {name: many(function, calls) for name, function in functions.items()})
    return Row(title, result, lambda seconds: f"{1e6 * seconds / calls:.1f} us")
