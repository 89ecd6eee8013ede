"""python3 -m attune.lab llama: LLaMA-7B with random weights in transformers, "attune" beside "sdpa"."""

from __future__ import annotations

import argparse
from functools import partial

from attune.lab.call_rounds import Row, make_parser, measure, report, show, start
from attune.lab.errors import BadInput, LabError, NotHere
from attune.lab.options import number, several, whole

# bf16 models of a few layers agree this well whatever computes their attention; another mask or scale does not.
MOST_DIFFERENCE = 0.03  # relative RMS of the logits


SECONDS_PER_HOUR, MILLION = 3600, 1_000_000


def parser() -> argparse.ArgumentParser:
    p = make_parser(
        __doc__,
        "Times a whole prefill, decoding from its cache, and generate(), by the wall clock. The logits are compared "
        "first.\nBoth models share their weights; the defaults are the shapes of LLaMA-7B, 14 GB in bfloat16.",
        10,
        " --price 3.50",
    )
    p.add_argument("--lengths", type=counts, default="2048,8192", help="tokens of the prefills (default: %(default)s)")
    p.add_argument("--new-tokens", type=count, default=32, help="that are decoded (default: %(default)s)")
    p.add_argument("--prompt", type=count, default=512, help="tokens before them (default: %(default)s)")
    p.add_argument("--layers", type=count, default=32, help="(default: %(default)s)")
    p.add_argument("--hidden", type=count, default=4096, help="128 per head (default: %(default)s)")
    p.add_argument("--kv-heads", type=count, help="(default: as many as heads)")
    p.add_argument("--intermediate", type=count, default=11008, help="of the MLP (default: %(default)s)")
    p.add_argument("--price", type=price, help="of an hour of the machine, for the cost of a million tokens")
    return p


count = whole(1)
counts = several(count)
price = number(0, above=True)


def cost_of_million(tokens_per_second: float, price_per_hour: float) -> float:
    """What a million tokens cost on a machine that does nothing else."""
    return MILLION / tokens_per_second / SECONDS_PER_HOUR * price_per_hour


def rate_text(seconds: float, tokens: int, price_per_hour: float | None) -> str:
    """The column of a row: tokens per second of a call that takes `seconds`, and what a million of them cost."""
    rate = tokens / seconds
    text = f"{1e3 * seconds:.3f} ms, {rate:.4g} tokens/s"
    if price_per_hour is None:
        return text
    return f"{text}, {cost_of_million(rate, price_per_hour):.4g} per million tokens"


def make_models(torch, options) -> dict:
    """By implementation. The second has the weights of the first, not a copy."""
    from transformers import LlamaConfig, LlamaForCausalLM

    heads = options.hidden // 128
    if options.hidden % 128 or heads % (options.kv_heads or heads):
        raise BadInput(f"--hidden {options.hidden}, --kv-heads {options.kv_heads}: there are 128 per head, and the "
                       "KV heads must divide the heads")  # fmt: skip
    models = {}
    for implementation in ("sdpa", "attune"):
        config = LlamaConfig(
            vocab_size=32000,
            hidden_size=options.hidden,
            intermediate_size=options.intermediate,
            num_hidden_layers=options.layers,
            num_attention_heads=heads,
            num_key_value_heads=options.kv_heads or heads,
            max_position_embeddings=1 << 17,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=None,
            attn_implementation=implementation,
        )
        if not models:
            show("making the weights")
            torch.manual_seed(options.seed)
            default = torch.get_default_dtype()
            torch.set_default_dtype(torch.bfloat16)  # so that no weight is made in float32 first
            try:
                with torch.device(options.device):
                    models[implementation] = LlamaForCausalLM(config).eval()
            finally:
                torch.set_default_dtype(default)
        else:
            first = next(iter(models.values()))
            with torch.device("meta"):
                model = LlamaForCausalLM(config).eval()
            model.load_state_dict(first.state_dict(), assign=True)
            model.model.rotary_emb = first.model.rotary_emb  # its buffers are in no state dict
            models[implementation] = model
    show("")
    return models


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


class Decoding:
    """Steps of one token from the cache of a prompt; every call starts from the same cache."""

    def __init__(self, torch, device: str, model, ids, new_tokens: int):
        self.torch, self.device, self.model, self.new_tokens = torch, device, model, new_tokens
        prompt = model(ids, use_cache=True, logits_to_keep=1)
        self.cache, self.prompt_tokens = prompt.past_key_values, ids.shape[1]
        self.first = prompt.logits.argmax(-1)

    def __call__(self) -> None:
        self.cache.crop(self.prompt_tokens)
        token = self.first
        for _ in range(self.new_tokens):
            token = self.model(token, past_key_values=self.cache, use_cache=True).logits.argmax(-1)
        wait_for(self.torch, self.device)


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
    models = make_models(torch, options)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, on {options.device}")

    def tokens(length: int):
        return torch.randint(2, 32000, (1, length), device=options.device)

    rows = []

    def add_row(title: str, calls: dict, tokens_of_call: int) -> None:
        result = measure(engine, options, title, calls)
        rows.append(Row(title, result, lambda seconds: rate_text(seconds, tokens_of_call, options.price)))

    with torch.no_grad():
        difference = check(models, tokens(min(1024, options.prompt)))
        print(f"logits differ by {difference:.2g} (relative RMS)")
        if not difference <= MOST_DIFFERENCE:
            raise LabError(f"the logits differ by {difference:.3g}, allowed {MOST_DIFFERENCE}: nothing is timed")
        for length in options.lengths:
            ids = tokens(length)
            calls = {name: partial(prefill, torch, options.device, model, ids) for name, model in models.items()}
            add_row(f"prefill of {length} tokens", calls, length)
        ids, new = tokens(options.prompt), options.new_tokens
        calls = {name: Decoding(torch, options.device, model, ids, new) for name, model in models.items()}
        add_row(f"decoding of {new} tokens after {options.prompt}", calls, new)
        calls = {name: partial(generate, torch, options.device, model, ids, new) for name, model in models.items()}
        add_row(f"generate() of {new} tokens after {options.prompt}", calls, new)
    report(engine, options, rows)
    return 0
