"""What arguments are called in sentences. Callers of different functions write them differently, and none of them has
seen the structs of attune.h."""

from __future__ import annotations

import re
from typing import NamedTuple

_FIELD = re.compile(r"\b(?:desc|args)\.(\w+)(?:\.(batch|row|head|query|key)\b)?|\b(heads_q)\b")
_MISSING = re.compile(r"(args\.\w+) is NULL; .*")


class Names(NamedTuple):
    """The arguments of one function, as its callers write them."""

    q: str = "q"
    k: str = "k"
    v: str = "v"
    out: str = "out"
    scale: str = "scale"
    causal: str = "causal"
    window: str = "window"
    softcap: str = "softcap"
    sink: str = "sink"
    bias: str = "bias"
    mask: str = "mask"
    cu_seqlens_q: str = "cu_seqlens_q"
    cu_seqlens_k: str = "cu_seqlens_k"
    max_seqlen_q: str = "max_seqlen_q"
    max_seqlen_k: str = "max_seqlen_k"
    used_q: str = "used_q"
    used_k: str = "used_k"

    def say(self, sentence: str) -> str:
        """A sentence of the library, in these names."""
        sentence = _MISSING.sub(r"\1 has no memory; it must be a tensor that still has it", sentence)
        sentence = sentence.replace("call attune_prepare with this descriptor", "make the same call once")
        fields = self._of_fields()

        def name(found: re.Match) -> str:
            field, step = found[1] or found[3], found[2]
            named = fields.get(field, field)
            return f"the stride of {named} along {step}" if step else named

        return _FIELD.sub(name, sentence)

    def _differentiable(self) -> dict[str, str]:
        return {
            "q": self.q,
            "k": self.k,
            "v": self.v,
            "out": self.out,
            "lse": "the log-sum-exp",
            "sink": self.sink,
            "bias": self.bias,
        }

    def _of_fields(self) -> dict[str, str]:
        """By field of the descriptors and arguments in attune.h."""
        q, k, v = self.q, self.k, self.v
        return {
            **self._asdict(),
            "o": self.out,
            "lse": "the log-sum-exp",
            **{f"d{name}": f"the gradient of {of}" for name, of in self._differentiable().items()},
            "dtype": f"{q}.dtype",
            "bias_dtype": f"{self.bias}.dtype",
            "batch": "the number of sequences",
            "heads_q": f"the number of heads of {q}",
            "heads_kv": f"the number of heads of {k}",
            "seq_q": f"the number of rows of {q}",
            "seq_k": f"the number of rows of {k}",
            "dim_qk": f"the head dimension of {q}",
            "dim_v": f"the head dimension of {v}",
            "total_q": f"the number of rows of {q}",
            "total_k": f"the number of rows of {k}",
            "window_left": f"{self.window}[0]",
            "window_right": f"{self.window}[1]",
        }


class PackedNames(Names):
    """Of sequences that lie end to end."""

    def _of_fields(self) -> dict[str, str]:
        return {**super()._of_fields(), "seq_q": self.max_seqlen_q, "seq_k": self.max_seqlen_k}


ATTENTION = Names()
VARLEN = PackedNames()
SDPA = Names(q="query", k="key", v="value", bias="attn_mask", mask="attn_mask")
TRANSFORMERS = SDPA._replace(scale="scaling", bias="attention_mask", mask="attention_mask", sink="s_aux")
FLASH = Names(scale="softmax_scale", window="window_size")
FLASH_KV = FLASH._replace(k="kv", v="kv")
FLASH_QKV = FLASH._replace(q="qkv", k="qkv", v="qkv")
FLASH_VARLEN = PackedNames(scale="softmax_scale", window="window_size", used_q="seqused_q", used_k="seqused_k")
FLASH_VARLEN_KV = FLASH_VARLEN._replace(k="kv", v="kv")
FLASH_VARLEN_QKV = FLASH_VARLEN._replace(
    q="qkv", k="qkv", v="qkv", cu_seqlens_q="cu_seqlens", cu_seqlens_k="cu_seqlens", max_seqlen_q="max_seqlen",
    max_seqlen_k="max_seqlen",
)  # fmt: skip
