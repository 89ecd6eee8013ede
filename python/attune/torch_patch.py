"""attune.sdpa in the place of torch.nn.functional.scaled_dot_product_attention."""

from __future__ import annotations

import threading
from contextlib import ContextDecorator, suppress
from typing import Any, Callable

from torch.nn import functional

from attune.c_api import AttuneError
from attune.fallback import is_causal_bias, is_refusal
from attune.torch_sdpa import attend_as_torch, sdpa

_lock = threading.Lock()
_patches: list[Patch] = []  # the last one holds
_torchs: Callable[..., Any] = functional.scaled_dot_product_attention  # what was there before the first one


def patch_sdpa(fallback: bool = False) -> Patch:
    """From now on, torch.nn.functional.scaled_dot_product_attention is attune.sdpa, in all threads: until
    attune.unpatch_sdpa(), or, as `with attune.patch_sdpa():`, until the block ends.

    fallback: calls that Attune cannot serve (dropout, nested tensors, other devices and dtypes, gradients where there
    is no backward) go to torch's, and so do calls that only a plain kernel of a GPU could take; otherwise the former
    raise.
    Code that imported the function by name before keeps torch's."""
    patch = Patch(sdpa_or_torchs if fallback else sdpa)
    with _lock:
        _put(patch)
    return patch


def unpatch_sdpa() -> None:
    """Ends every patch_sdpa() that is no `with` block. Without one it does nothing."""
    with _lock:
        for patch in [patch for patch in _patches if not patch._blocks]:
            _remove(patch)


class Patch(ContextDecorator):
    """What patch_sdpa() did. Blocks may nest and overlap, in threads too, and end in any order."""

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self._blocks = 0  # that hold it

    def __enter__(self) -> None:
        with _lock:
            self._blocks += 1
            _put(self)

    def __exit__(self, *error: object) -> None:
        with _lock:
            self._blocks -= 1
            if not self._blocks:
                _remove(self)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """As a decorator it holds while the function runs."""
        with _lock:
            _remove(self)
        return super().__call__(function)


def _put(patch: Patch) -> None:
    global _torchs
    if not _patches:
        _torchs = functional.scaled_dot_product_attention
    if patch not in _patches:
        _patches.append(patch)
    functional.scaled_dot_product_attention = _patches[-1]._function


def _remove(patch: Patch) -> None:
    if patch in _patches:
        _patches.remove(patch)
        functional.scaled_dot_product_attention = _patches[-1]._function if _patches else _torchs


def sdpa_or_torchs(
    query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """attune.sdpa; torch's where that refuses."""
    try:
        return attend_as_torch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, True)
    except AttuneError as error:
        if not is_refusal(error):
            raise
    options = {"enable_gqa": True} if enable_gqa else {}  # not every torch knows it
    if is_causal_bias(attn_mask):  # it wants to hear of the function that is in place
        function, inputs = functional.scaled_dot_product_attention, (query, key, value, attn_mask, dropout_p, is_causal)
        return attn_mask.__torch_function__(function, (type(attn_mask),), inputs, {"scale": scale, **options})
    return _torchs(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **options)


with suppress(ImportError):  # as long as torch has its script compiler
    from torch.jit._builtins import _register_builtin

    # Compiled, it is torch's operator: there is no Python to call from there.
    _register_builtin(sdpa_or_torchs, "aten::scaled_dot_product_attention")
