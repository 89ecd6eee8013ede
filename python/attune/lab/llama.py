"""python3 -m attune.lab llama: a Llama with random weights in transformers, "attune" beside "sdpa"."""

from __future__ import annotations

import argparse
from functools import partial

from attune.lab.call_rounds import Row, make_parser, measure, report, show, start
from attune.lab.errors import LabError, NotHere

# bf16 models of a few layers agree this well whatever computes their attention; another mask or scale does not.
MOST_DIFFERENCE = 0.03  # relative RMS of the logits


def parser() -> argparse.ArgumentParser:
    p = make_parser(
        __doc__, "Times a whole prefill, and generate(), by the wall clock. The logits are compared first.", 10
    )
    p.add_argument("--lengths", default="2048,8192", help="tokens of the prefills (default: %(default)s)")
    p.add_argument("--new-tokens", type=int, default=32, help="that generate() makes (default: %(default)s)")
    p.add_argument("--prompt", type=int, default=512, help="tokens before them (default: %(default)s)")
    p.add_argument("--layers", type=int, default=4, help="(default: %(default)s)")
    p.add_argument("--hidden", type=int, default=4096, help="128 per head (default: %(default)s)")
    return p


def make_model(torch, options, implementation: str):
    """The same weights for every implementation."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = options.hidden // 128
    config = LlamaConfig(
        vocab_size=32000,
        hidden_size=options.hidden,
        intermediate_size=options.hidden * 7 // 2,
        num_hidden_layers=options.layers,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        max_position_embeddings=1 << 17,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
        attn_implementation=implementation,
    )
    show(f"making the weights of {implementation}")
    torch.manual_seed(options.seed)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # so that no weight is made in float32 first
    try:
        with torch.device(options.device):
            return LlamaForCausalLM(config).eval()
    finally:
        torch.set_default_dtype(default)


def wait_for(torch, device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def prefill(torch, device: str, model, ids):
    logits = model(ids, logits_to_keep=1).logits
    wait_for(torch, device)
    return logits


def generate(torch, device: str, model, ids, new_tokens: int) -> None:
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=new_tokens, do_sample=False)
    wait_for(torch, device)


def check(models: dict, ids) -> float:
    logits = {name: model(ids).logits.double() for name, model in models.items()}
    expected = logits.pop("sdpa")
    return max(((each - expected).square().mean() / expected.square().mean()).sqrt().item() for each in logits.values())


def run(options) -> int:
    torch, engine = start(options)
    try:
        import transformers
    except ImportError as error:
        raise NotHere(f"this needs transformers, which cannot be imported: {error}") from error
    import attune

    attune.register_transformers()
    models = {name: make_model(torch, options, name) for name in ("sdpa", "attune")}
    show("")
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, on {options.device}")

    def tokens(length: int):
        return torch.randint(2, 32000, (1, length), device=options.device)

    rows = []
    with torch.no_grad():
        difference = check(models, tokens(min(1024, options.prompt)))
        print(f"logits differ by {difference:.2g} (relative RMS)")
        if not difference <= MOST_DIFFERENCE:
            raise LabError(f"the logits differ by {difference:.3g}, allowed {MOST_DIFFERENCE}: nothing is timed")
        for length in map(int, options.lengths.split(",")):
            ids = tokens(length)
            calls = {name: partial(prefill, torch, options.device, model, ids) for name, model in models.items()}
            title = f"prefill of {length} tokens"
            result = measure(engine, options, title, calls)
            rows.append(Row(title, result, lambda seconds: f"{1e3 * seconds:.3f} ms"))
        ids, count = tokens(options.prompt), options.new_tokens
        calls = {name: partial(generate, torch, options.device, model, ids, count) for name, model in models.items()}
        title = f"generate() of {count} tokens after {options.prompt}"
        result = measure(engine, options, title, calls)
        rows.append(Row(title, result, lambda seconds: f"{count / seconds:.1f} tokens/s"))
    report(engine, options, rows)
    return 0
