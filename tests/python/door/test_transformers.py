"""attn_implementation="attune" in transformers: models with random weights against eager and sdpa."""

import attune
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from transformers import AutoModelForCausalLM, Gemma2Config, GptOssConfig, LlamaConfig, MistralConfig, T5Config  # noqa: E402

attune.register_transformers()
PAD = 0


@pytest.fixture
def device(best_device):
    return best_device


def small(config, **changes):
    fields = {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "pad_token_id": PAD,
        "bos_token_id": 1,
        "eos_token_id": None,
    }
    return config(**{**fields, **changes})


CONFIGS = {
    "llama": lambda: small(LlamaConfig),
    "mistral, sliding window": lambda: small(MistralConfig, sliding_window=7),
    "gemma2, softcap": lambda: small(Gemma2Config, sliding_window=8, attn_logit_softcapping=2.0),
    "gpt-oss, sinks": lambda: small(
        GptOssConfig, sliding_window=8, num_local_experts=2, num_experts_per_tok=1
    ),
}  # fmt: skip


def model_of(config, device):
    torch.manual_seed(3)
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(device).eval()


def padded_prompts(device, length=24):
    ids = torch.randint(2, 97, (3, length), device=device)
    seen = torch.ones_like(ids)
    for row, padding in enumerate((0, 5, 11)):  # on the left
        ids[row, :padding], seen[row, :padding] = PAD, 0
    return {"input_ids": ids, "attention_mask": seen}


@pytest.mark.parametrize("name", CONFIGS)
@torch.no_grad()
def test_prefill_agrees_with_eager(device, name):
    model = model_of(CONFIGS[name](), device)
    prompts = padded_prompts(device)
    logits = {}
    for implementation in ("eager", "attune"):
        model.set_attn_implementation(implementation)
        logits[implementation] = model(**prompts).logits[prompts["attention_mask"].bool()]
        logits[implementation + " without padding"] = model(prompts["input_ids"][:1]).logits
    torch.testing.assert_close(logits["attune"], logits["eager"], rtol=0, atol=2e-4)
    torch.testing.assert_close(
        logits["attune without padding"], logits["eager without padding"], rtol=0, atol=2e-4
    )  # fmt: skip


@pytest.mark.parametrize("cache", ["dynamic", "static"])
@pytest.mark.parametrize("name", ["llama", "mistral, sliding window"])
@torch.no_grad()
def test_generates_the_tokens_of_sdpa(device, name, cache):
    model = model_of(CONFIGS[name](), device)
    options = {"max_new_tokens": 32, "do_sample": False, "cache_implementation": cache, "disable_compile": True}
    tokens = {}
    for implementation in ("sdpa", "attune"):
        model.set_attn_implementation(implementation)
        tokens[implementation] = model.generate(**padded_prompts_again(device), **options)
    assert tokens["attune"].shape == (3, 24 + 32)
    assert torch.equal(tokens["attune"], tokens["sdpa"])


def padded_prompts_again(device):
    torch.manual_seed(4)
    return padded_prompts(device)


@torch.no_grad()
def test_a_compiled_model(device):
    model = model_of(CONFIGS["llama"](), device)
    model.set_attn_implementation("attune")
    prompts = padded_prompts(device)
    torch.compiler.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    seen = prompts["attention_mask"].bool()
    torch.testing.assert_close(compiled(**prompts).logits[seen], model(**prompts).logits[seen], rtol=0, atol=2e-4)


@torch.no_grad()
def test_generate_compiles_its_decoding(gpu):
    model = model_of(small(LlamaConfig, num_hidden_layers=1), gpu)  # each layer takes seconds to compile
    options = {"max_new_tokens": 8, "do_sample": False, "cache_implementation": "static"}
    tokens = {}
    for implementation, compile_off in (("sdpa", True), ("attune", False)):
        model.set_attn_implementation(implementation)
        tokens[implementation] = model.generate(**padded_prompts_again(gpu), **options, disable_compile=compile_off)
    assert torch.equal(tokens["attune"], tokens["sdpa"])


@torch.no_grad()
def test_an_encoder_with_position_bias(device):
    torch.manual_seed(5)
    config = T5Config(vocab_size=97, d_model=64, d_kv=16, d_ff=96, num_layers=2, num_heads=4, pad_token_id=PAD)
    try:
        model = transformers.T5EncoderModel(config).to(device).eval()
        prompts = padded_prompts(device)
        outputs = []
        for implementation in ("eager", "attune"):
            model.set_attn_implementation(implementation)
            outputs.append(model(**prompts).last_hidden_state[prompts["attention_mask"].bool()])
    except ValueError as error:
        pytest.skip(f"this transformers has no attention interface in T5: {error}")
    torch.testing.assert_close(*outputs, rtol=0, atol=2e-4)


def test_dropout_is_refused_or_falls_back():
    model = model_of(CONFIGS["llama"](), "cpu").train()
    for layer in model.model.layers:
        layer.self_attn.attention_dropout = 0.1
    prompts = padded_prompts("cpu")
    model.set_attn_implementation("attune")
    hint = r"; attune\.register_transformers\(fallback=True\) leaves such calls to transformers' sdpa"
    with pytest.raises(attune.Unsupported, match="there is no dropout yet" + hint):
        model(**prompts)
    attune.register_transformers(fallback=True)
    try:
        model(**prompts, labels=prompts["input_ids"]).loss.backward()
    finally:
        attune.register_transformers()
    assert model.model.layers[0].self_attn.q_proj.weight.grad.abs().sum() > 0


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama", "gemma2, softcap"])
def test_what_only_a_plain_kernel_takes_goes_to_sdpa_where_that_can_do_it(monkeypatch, name):
    from attune import calls, fallback
    from transformers.integrations import sdpa_attention

    def counted(*arguments, **options):
        served.append(1)
        return real(*arguments, **options)

    served, real = [], sdpa_attention.sdpa_attention_forward
    model = model_of(CONFIGS[name](), "cpu")
    prompts = padded_prompts("cpu")
    model.set_attn_implementation("attune")
    expected = model(**prompts).logits
    monkeypatch.setattr(sdpa_attention, "sdpa_attention_forward", counted)
    monkeypatch.setattr(calls, "_known", {})
    monkeypatch.setattr(calls, "_recent", {})
    monkeypatch.setitem(fallback.PLAIN, "cpu", "cpu/")  # as if the CPU's kernels were plain ones
    attune.register_transformers(fallback=True)
    try:
        logits = model(**prompts).logits
    finally:
        attune.register_transformers()
    torch.testing.assert_close(logits, expected, rtol=0, atol=2e-4)
    assert len(served) == (2 if name == "llama" else 0)
