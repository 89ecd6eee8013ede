"""python3 -m attune.lab train: a training step of a Llama in transformers, "attune" beside "sdpa"."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Callable, NamedTuple

from attune.lab.call_rounds import Row, make_parser, measure, report, start
from attune.lab.errors import LabError, NotHere
from attune.lab.llama import WORDS, add_shape, count, heads_of, random_model, wait_for

# Rounding changes the gradients of bf16 models of a few layers by a few hundredths; another mask or scale by much more.
MOST_DIFFERENCE_OF_LOSS, MOST_DIFFERENCE_OF_GRADIENTS = 0.01, 0.1


def parser() -> argparse.ArgumentParser:
    p = make_parser(
        __doc__,
        "Times forward pass, loss, backward and AdamW by the wall clock, in bfloat16 with random weights. Losses and\n"
        "gradients are compared first. The learning rate is 0, so that all steps do the same.",
        20,
        " --kv-heads 8",
    )
    p.add_argument("--length", type=count, default=4096, help="tokens of the one sequence (default: %(default)s)")
    add_shape(p, layers=4)
    return p


class Way(NamedTuple):
    """How attention is computed and differentiated."""

    name: str
    implementation: str  # as transformers calls it
    by_flash: bool  # whether torch's flash backward may take Attune's output


def ways(torch, options) -> tuple[list[Way], list[str]]:
    """SDPA's, then those of Attune that are there; and why others are not."""
    import attune
    from attune import torch_flash
    from attune.c_api import kernel_of

    heads, kv_heads = heads_of(options)
    shapes = (heads, kv_heads, kv_heads)
    inputs = [torch.empty(1, options.length, each, 128, dtype=torch.bfloat16, device=options.device) for each in shapes]
    inputs = [each.requires_grad_() for each in inputs]
    found, absent = [Way("sdpa", "sdpa", True)], []
    for by_flash in (True, False):
        torch_flash.allowed = by_flash
        explained = attune.explain(*inputs, causal="top-left").partition("problem: bwd")[2]
        torch_flash.allowed = True
        kernel = kernel_of(explained)
        if by_flash and torch_flash.SAID in explained:
            found.append(Way("attune, torch's flash backward", "attune", True))
        elif not by_flash and kernel != "none":
            found.append(Way(f"attune, {kernel}", "attune", False))
        elif not by_flash:
            absent.append(
                next(line for line in explained.splitlines() if line.startswith("why: ")).removeprefix("why: ")
            )
    return found, absent


class Training:
    """One model, which computes attention in each of the ways."""

    def __init__(self, torch, options):
        self.torch, self.device = torch, options.device
        self.model = random_model(torch, options, "sdpa").train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.0)
        self.words = torch.randint(2, WORDS, (1, options.length), device=options.device)

    def loss(self, way: Way):
        """With the gradients in the parameters."""
        from attune import torch_flash

        self.model.config._attn_implementation = way.implementation
        torch_flash.allowed = way.by_flash
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(self.words, labels=self.words, use_cache=False).loss
        loss.backward()
        return loss.detach()

    def step(self, way: Way) -> None:
        self.loss(way)
        self.optimizer.step()
        wait_for(self.torch, self.device)

    def gradients(self) -> list:
        return [parameter.grad.clone() for parameter in self.model.parameters()]


def differences(training: Training, expected: Way, way: Way) -> tuple[float, float]:
    """Of loss and gradients, relative to those expected."""
    right_loss = training.loss(expected).item()
    right = training.gradients()
    loss = training.loss(way).item()
    wrong = sum((each - one).double().square().sum().item() for each, one in zip(training.gradients(), right))
    return abs(loss - right_loss) / right_loss, (
        wrong / sum(one.double().square().sum().item() for one in right)
    ) ** 0.5


def run(options) -> int:
    torch, engine = start(options)
    try:
        import transformers
    except ImportError as error:
        raise NotHere(f"this needs transformers, which cannot be imported: {error}") from error
    import attune

    attune.register_transformers()
    found, absent = ways(torch, options)
    for why in absent:
        print(f"no backward of Attune's own: {why}")
    if len(found) < 2:
        raise NotHere("nothing of Attune has gradients here")
    training = Training(torch, options)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, on {options.device}")
    calls: dict[str, Callable[[], None]] = {found[0].name: partial(training.step, found[0])}
    for way in found[1:]:
        of_loss, of_gradients = differences(training, found[0], way)
        print(f"{way.name}: the loss differs by {of_loss:.2g} of it, gradients by {of_gradients:.2g} (relative RMS)")
        if not (of_loss <= MOST_DIFFERENCE_OF_LOSS and of_gradients <= MOST_DIFFERENCE_OF_GRADIENTS):
            raise LabError(f"{way.name}: {MOST_DIFFERENCE_OF_LOSS} and {MOST_DIFFERENCE_OF_GRADIENTS} are allowed: "
                           "nothing is timed")  # fmt: skip
        calls[way.name] = partial(training.step, way)
    title = f"training step of {options.length} tokens, {options.layers} layers"
    result = measure(engine, options, title, calls)
    report(engine, options, [Row(title, result, lambda seconds: f"{1e3 * seconds:.3f} ms")])
    return 0
