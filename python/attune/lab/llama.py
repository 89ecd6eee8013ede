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
WORDS = 32000


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
    add_shape(p, layers=32)
    p.add_argument("--price", type=price, help="of an hour of the machine, for the cost of a million tokens")
    return p


def add_shape(p: argparse.ArgumentParser, layers: int) -> None:
    p.add_argument("--layers", type=count, default=layers, help="(default: %(default)s)")
    p.add_argument("--hidden", type=count, default=4096, help="128 per head (default: %(default)s)")
    p.add_argument("--kv-heads", type=count, help="(default: as many as heads)")
    p.add_argument("--intermediate", type=count, default=11008, help="of the MLP (default: %(default)s)")


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


def heads_of(options) -> tuple[int, int]:
    """Of queries, and of keys and values."""
    heads = options.hidden // 128
    if options.hidden % 128 or heads % (options.kv_heads or heads):
        raise BadInput(f"--hidden {options.hidden}, --kv-heads {options.kv_heads}: there are 128 per head, and the "
                       "KV heads must divide the heads")  # fmt: skip
    return heads, options.kv_heads or heads


def config_of(options, implementation: str):
    from transformers import LlamaConfig

    heads, kv_heads = heads_of(options)
    return LlamaConfig(
        vocab_size=WORDS,
        hidden_size=options.hidden,
        intermediate_size=options.intermediate,
        num_hidden_layers=options.layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=1 << 17,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
        attn_implementation=implementation,
    )


def random_model(torch, options, implementation: str):
    from transformers import LlamaForCausalLM

    show("making the weights")
    torch.manual_seed(options.seed)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # so that no weight is made in float32 first
    try:
        with torch.device(options.device):
            return LlamaForCausalLM(config_of(options, implementation)).eval()
    finally:
        torch.set_default_dtype(default)
        show("")


def make_models(torch, options) -> dict:
    """By implementation. The second has the weights of the first, not a copy."""
    from transformers import LlamaForCausalLM

    first = random_model(torch, options, "sdpa")
    with torch.device("meta"):
        second = LlamaForCausalLM(config_of(options, "attune")).eval()
    second.load_state_dict(first.state_dict(), assign=True)
    second.model.rotary_emb = first.model.rotary_emb  # its buffers are in no state dict
    return {"sdpa": first, "attune": second}


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
        return torch.randint(2, WORDS, (1, length), device=options.device)

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
