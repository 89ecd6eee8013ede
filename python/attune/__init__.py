"""Attune: fused attention. What needs torch is imported when it is first asked for."""

from importlib import import_module
from typing import TYPE_CHECKING

from attune.c_api import AttuneError, InvalidArgument, Unsupported

if TYPE_CHECKING:
    from attune import flash_attn as flash_attn
    from attune.functional import attention as attention
    from attune.functional import attention_varlen as attention_varlen
    from attune.functional import explain as explain
    from attune.hugging_face import register_transformers as register_transformers
    from attune.torch_patch import patch_sdpa as patch_sdpa
    from attune.torch_patch import unpatch_sdpa as unpatch_sdpa
    from attune.torch_sdpa import register_flash_impl as register_flash_impl
    from attune.torch_sdpa import sdpa as sdpa

__version__ = "0.1.0"

_TORCH = {
    "attention": "attune.functional",
    "attention_varlen": "attune.functional",
    "explain": "attune.functional",
    "sdpa": "attune.torch_sdpa",
    "patch_sdpa": "attune.torch_patch",
    "unpatch_sdpa": "attune.torch_patch",
    "register_flash_impl": "attune.torch_sdpa",
    "register_transformers": "attune.hugging_face",
}

__all__ = ["AttuneError", "InvalidArgument", "Unsupported", *_TORCH]


def _get(name):
    if name == "flash_attn":
        return import_module("attune.flash_attn")
    if name not in _TORCH:
        raise AttributeError(f"module 'attune' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_TORCH[name]), name)
    return value


if not TYPE_CHECKING:  # to type checkers it would mean that every name is there
    __getattr__ = _get


def __dir__() -> list[str]:
    return sorted([*globals(), *_TORCH, "flash_attn"])
