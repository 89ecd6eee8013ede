"""Attune: fused attention. What needs torch is imported when it is first asked for."""

from importlib import import_module

from attune.c_api import AttuneError, InvalidArgument, Unsupported

__version__ = "0.1.0"

_TORCH = {
    "attention": "attune.functional",
    "attention_varlen": "attune.functional",
    "explain": "attune.functional",
    "sdpa": "attune.torch_sdpa",
    "patch_sdpa": "attune.torch_sdpa",
    "register_flash_impl": "attune.torch_sdpa",
    "register_transformers": "attune.hugging_face",
}

__all__ = ["AttuneError", "InvalidArgument", "Unsupported", *_TORCH]


def __getattr__(name):
    if name == "flash_attn":
        return import_module("attune.flash_attn")
    if name not in _TORCH:
        raise AttributeError(f"module 'attune' has no attribute '{name}'")
    value = globals()[name] = getattr(import_module(_TORCH[name]), name)
    return value


def __dir__():
    return sorted([*globals(), *_TORCH, "flash_attn"])
