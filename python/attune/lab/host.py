"""python3 -m attune.lab host: what an eager call of attention costs the CPU, Attune's beside torch's SDPA."""

from __future__ import annotations

import argparse

from attune.lab.call_rounds import Row, make_parser, measure, report, start

CALLS = 100  # per sample, so that the step from C to Python weighs nothing


def parser() -> argparse.ArgumentParser:
    return make_parser(
        __doc__,
        "The problem is so small that the GPU is always done before the CPU: the time is that of the call.",
        budget=20,
    )


def run(options) -> int:
    torch, engine = start(options)
    import attune

    sdpa = torch.nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(1, 4, 64, 64, device=options.device, dtype=torch.bfloat16) for _ in range(3))
    mask = torch.ones(64, 64, dtype=torch.bool, device=options.device).tril()
    eager = {
        "torch SDPA": lambda: sdpa(q, k, v, is_causal=True),
        "attune.sdpa": lambda: attune.sdpa(q, k, v, is_causal=True),
        "attune.attention": lambda: attune.attention(q, k, v, causal="top-left", layout="bhsd"),
    }
    masked = {
        "torch SDPA": lambda: sdpa(q, k, v, mask),
        "attune.sdpa": lambda: attune.sdpa(q, k, v, mask),
    }

    def many(call):
        def calls():
            for _ in range(CALLS):
                call()

        return calls

    rows = []
    with torch.no_grad():
        for title, contenders in (("eager call", eager), ("eager call with a boolean mask", masked)):
            result = measure(
                engine, options, title, {name: many(call) for name, call in contenders.items()}, "host"
            )  # fmt: skip
            rows.append(Row(title, result, lambda seconds: f"{1e6 * seconds / CALLS:.2f} us"))
            if options.device.startswith("cuda"):
                torch.cuda.synchronize(options.device)
    report(engine, options, rows)
    return 0
