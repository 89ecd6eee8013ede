"""Two hundred steps of tiny models in transformers, by Attune and by eager: the losses go the same way."""

import attune
import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
from transformers import (  # noqa: E402
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForMaskedLM,
    BertConfig,
    Gemma2Config,
    GptOssConfig,
    LlamaConfig,
    ViTConfig,
)

attune.register_transformers()
STEPS, BATCH, LENGTH, WORDS, PAD = 200, 2, 12, 23, 0


def small(config, **changes):
    fields = {
        "vocab_size": WORDS,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 32,
        "initializer_range": 0.2,
        "pad_token_id": PAD,
    }
    return config(**{**fields, **changes})


def decoder(config, **changes):
    return small(config, num_key_value_heads=1, head_dim=8, attention_dropout=0.0, **changes)


def without_dropout(config, **changes):
    return small(config, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, **changes)


MODELS = {
    "llama": (AutoModelForCausalLM, lambda: decoder(LlamaConfig)),
    "bert, padding": (AutoModelForMaskedLM, lambda: without_dropout(BertConfig)),
    "gemma2, softcap, windows": (
        AutoModelForCausalLM,
        lambda: decoder(Gemma2Config, sliding_window=4, attn_logit_softcapping=2.0),
    ),
    "gpt-oss, sinks": (
        AutoModelForCausalLM,
        lambda: decoder(GptOssConfig, sliding_window=4, num_local_experts=1, num_experts_per_tok=1),
    ),
    "vit": (
        AutoModelForImageClassification,
        lambda: without_dropout(ViTConfig, image_size=12, patch_size=4, num_channels=1, num_labels=3),
    ),
}


def batches(name):
    """Sequences that count upwards, so that there is something to learn."""
    torch.manual_seed(7)
    for _ in range(STEPS):
        first = torch.randint(1, WORDS, (BATCH, 1))
        words = (first + torch.arange(LENGTH)) % (WORDS - 1) + 1
        if name == "vit":
            labels = first.flatten() % 3
            shade = labels.view(BATCH, 1, 1, 1) - 1.0
            yield {"pixel_values": shade + 0.5 * torch.randn(BATCH, 1, 12, 12), "labels": labels}
        elif "padding" in name:
            seen = torch.ones_like(words)
            for row, padding in enumerate((0, 5)):
                words[row, LENGTH - padding :], seen[row, LENGTH - padding :] = PAD, 0
            hidden = torch.rand(words.shape) < 0.3
            labels = words.masked_fill(seen == 0, -100)
            yield {"input_ids": words.masked_fill(hidden, PAD), "attention_mask": seen, "labels": labels}
        else:
            yield {"input_ids": words, "labels": words}


def model_of(name, implementation):
    of, config = MODELS[name]
    torch.manual_seed(3)
    return of.from_config(config(), dtype=torch.float32, attn_implementation=implementation).train()


def losses_of(name, implementation):
    model = model_of(name, implementation)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.9)
    losses = []
    for batch in batches(name):
        optimizer.zero_grad()
        loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses)


@pytest.mark.parametrize("name", MODELS)
def test_the_losses_are_those_of_eager(name):
    """The noise is that of float32: the same steps with sums in another order."""
    expected, losses = (losses_of(name, each) for each in ("eager", "attune"))
    assert expected[-20:].mean() < 0.8 * expected[:20].mean(), "it learns nothing, and so it shows nothing"
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_are_those_of_eager(name):
    gradients = []
    for implementation in ("eager", "attune"):
        model = model_of(name, implementation)
        model(**next(batches(name))).loss.backward()
        gradients.append({name: each.grad for name, each in model.named_parameters() if each.grad is not None})
    assert gradients[0].keys() == gradients[1].keys()
    for parameter, expected in gradients[0].items():
        error = (gradients[1][parameter] - expected).norm() / expected.norm()
        # What a softmax does not see, such as the bias of keys, has nothing but rounding for a gradient.
        assert error < 1e-4 or expected.norm() < 1e-6, parameter
