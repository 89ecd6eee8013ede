"""torch.nn.functional.scaled_dot_product_attention by Attune: called, or registered as torch's flash attention."""

from __future__ import annotations

import torch
from torch.compiler import is_dynamo_compiling

from attune import arguments
from attune.autocast import is_autocast_on_somewhere
from attune.c_api import AttuneError, InvalidArgument, Unsupported
from attune.calls import WATCHED, refuse_nested, run
from attune.fallback import alignment, is_causal_bias, refuse_subclasses
from attune.functional import attend
from attune.names import SDPA
from attune.types import Array, Number, Operand, SupportsDLPack

_Tensor, _bool = torch.Tensor, torch.bool


def sdpa(
    query: Array, key: SupportsDLPack, value: SupportsDLPack, attn_mask: Operand = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: Number = None, enable_gqa: bool = False,
) -> Array:  # fmt: skip
    """torch.nn.functional.scaled_dot_product_attention, with its signature and meaning.

    Not there yet, and refused: gradients in forward mode, dropout and nested tensors."""
    try:
        return attend_as_torch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    except Unsupported as refusal:
        raise Unsupported(f"{refusal}; attune.patch_sdpa(fallback=True) leaves such calls to torch") from None
    except AttuneError:
        raise
    except (TypeError, ValueError, RuntimeError):  # looked for now, and not in every call
        arguments.refuse_unless_true_or_false(dropout_p=dropout_p, is_causal=is_causal, enable_gqa=enable_gqa)
        raise


def attend_as_torch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, or_torch=False):
    """sdpa(), for callers who say themselves what a refusal means to their users.

    or_torch: torch takes what is refused. Then so is what torch does better, and subclasses of Tensor."""
    if dropout_p:
        raise Unsupported(f"dropout_p is {dropout_p}; it must be 0: there is no dropout yet")
    causal = "top-left" if is_causal else None
    if attn_mask is not None:
        if is_causal:
            raise InvalidArgument("attn_mask is given beside is_causal=True; one of them must be left out")
        if type(attn_mask) is not _Tensor:
            attn_mask, causal = _mask_and_alignment(query, key, attn_mask)
    if scale is not None and type(scale) is not float:
        scale = arguments.number("scale", scale)
    if type(enable_gqa) is not bool and isinstance(enable_gqa, _Tensor):
        enable_gqa = bool(enable_gqa)  # a tensor counts as it is at this call
    if not is_dynamo_compiling() and not is_autocast_on_somewhere():
        bias, mask = (None, attn_mask) if attn_mask is None or attn_mask.dtype is _bool else (attn_mask, None)
        try:
            result = run(
                query, key, value, "bhsd", scale, causal, None, None, None, bias, mask, False, None, None, enable_gqa,
                True, SDPA, or_torch,
            )  # fmt: skip
            if result is not WATCHED:
                return result
        except InvalidArgument:  # other shapes are rare, and to look for them in every call costs a third of it
            if _is_plain(query, key, value) and (enable_gqa or query.shape[1] == key.shape[1]):
                raise
    return _of_any_shape(query, key, value, attn_mask, causal, scale, enable_gqa, or_torch)


def _mask_and_alignment(query, key, attn_mask):
    """Of what is no plain tensor: one of torch's causal biases, an array of another library, another subclass."""
    if not is_causal_bias(attn_mask):
        return arguments.tensor("attn_mask", attn_mask), None
    query, key = arguments.tensor(SDPA.q, query), arguments.tensor(SDPA.k, key)
    size, scores = (attn_mask.seq_len_q, attn_mask.seq_len_kv), (*query.shape[-2:-1], *key.shape[-2:-1])
    if size != scores:
        raise InvalidArgument(f"attn_mask is a CausalBias of {size}; it must be one of (row, key) = {scores}")
    return None, alignment(attn_mask)


def _of_any_shape(query, key, value, attn_mask, causal, scale, enable_gqa, or_torch):
    arrays = (query, key, value)
    if not all(isinstance(array, torch.Tensor) for array in arrays):
        tensors = map(arguments.tensor, (SDPA.q, SDPA.k, SDPA.v), arrays)
        return arguments.like(query, _of_any_shape(*tensors, attn_mask, causal, scale, enable_gqa, or_torch))
    if or_torch:
        refuse_subclasses(query, key, value, attn_mask)
    refuse_nested(query, key, value, SDPA)
    shape = None
    if not _is_plain(query, key, value):
        rows, dim = query.shape[-2:-1], value.shape[-1:]
        query, key, value, attn_mask, lead = _four_dims(query, key, value, attn_mask)
        shape = (*lead, *rows, *dim)
    if not enable_gqa and query.shape[1] != key.shape[1] != 1:
        raise InvalidArgument(
            f"key has {key.shape[1]} heads; without enable_gqa=True it must have those of query, {query.shape[1]}"
        )
    bias, mask = (None, attn_mask) if attn_mask is None or attn_mask.dtype == torch.bool else (attn_mask, None)
    out = attend(
        SDPA, query, key, value, None, bias, mask, None, None, "bhsd", scale, causal, None, None, False, or_torch
    )  # fmt: skip
    return out if shape is None else out.reshape(shape)


def _is_plain(query, key, value) -> bool:
    """As attention() takes it."""
    return (
        query.dim() == key.dim() == value.dim() == 4
        and query.shape[0] == key.shape[0] == value.shape[0]
        and key.shape[1] == value.shape[1]
        and query.shape[1] >= key.shape[1]
        and query.stride(3) == key.stride(3) == value.stride(3) == 1
    )


def _four_dims(query, key, value, mask):
    """As (batch, head, row, dim), with everything broadcast that SDPA broadcasts; and the leading dimensions."""
    given = {SDPA.q: query, SDPA.k: key, SDPA.v: value}
    for name, tensor in given.items():
        if tensor.dim() < 2:
            raise InvalidArgument(f"{name} has the shape {tuple(tensor.shape)}; it must be (batch, head, row, dim)")
    most = max(tensor.dim() for tensor in given.values())
    tensors = [tensor[(None,) * (max(4, most) - tensor.dim())] for tensor in given.values()]
    heads_q, heads_k, heads_v = (tensor.shape[-3] for tensor in tensors)
    heads_kv = max(heads_k, heads_v)
    if heads_k != heads_v and min(heads_k, heads_v) != 1:
        raise Unsupported(f"{SDPA.v} has {heads_v} heads; it must have those of {SDPA.k}, {heads_k}")
    if heads_q == 1:
        heads_q = heads_kv
    batch = _broadcast(given, [tensor.shape[:-3] for tensor in tensors])
    tensors = [
        _contiguous_rows(tensor.expand(*batch, heads, *tensor.shape[-2:]).flatten(0, -4))
        for tensor, heads in zip(tensors, (heads_q, heads_kv, heads_kv))
    ]
    if mask is not None and mask.dim() > 3 and len(batch) > 1:
        mask = _expanded(mask, (*batch, *mask.shape[-3:])).flatten(0, -4)
    lead = (*batch, heads_q)
    return (*tensors, mask, lead[max(0, 4 - most) :])


def _broadcast(given: dict, batches: list) -> tuple:
    try:
        return tuple(torch.broadcast_shapes(*batches))
    except RuntimeError:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in given.items())
        raise InvalidArgument(f"the shapes are {shapes}; what stands before the heads must broadcast") from None


def _expanded(mask, shape: tuple):
    try:
        return mask.expand(shape)
    except RuntimeError:
        raise InvalidArgument(f"attn_mask has the shape {tuple(mask.shape)}; it must broadcast to {shape}") from None


def _contiguous_rows(tensor):
    """The last stride is 1; contiguous() would let any stride of an empty tensor pass."""
    return tensor if tensor.stride(-1) == 1 else tensor.clone(memory_format=torch.contiguous_format)


def register_flash_impl() -> None:
    """Makes "attune" known to torch.nn.attention.activate_flash_attention_impl (torch 2.11 and later).

    Once activated, torch's own flash backend on CUDA runs Attune's forward: F.scaled_dot_product_attention where it
    chooses that backend. The backward stays torch's, which takes the same log-sum-exp."""
    try:
        from torch.nn.attention import register_flash_attention_impl
    except ImportError:
        raise Unsupported(f"torch {torch.__version__} has no registry of flash implementations; 2.11 has") from None
    register_flash_attention_impl("attune", register_fn=_FlashImpl)


class _FlashImpl:
    """Keeps the override of torch's operator until it is removed."""

    def __init__(self):
        self._library = torch.library.Library("aten", "IMPL", "CUDA")
        self._library.impl("_scaled_dot_product_flash_attention", _aten_flash_attention, "CUDA")

    def remove(self) -> None:
        self._library._destroy()
        self._library = None


def _aten_flash_attention(
    query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None
):  # fmt: skip
    if dropout_p:
        raise Unsupported(f"dropout_p is {dropout_p}; it must be 0: there is no dropout yet")
    if return_debug_mask:
        raise Unsupported("return_debug_mask is True; there is no such mask")
    causal = "bottom-right" if is_causal else None  # of this operator, unlike of SDPA
    # run() and not attention(): gradients are the business of torch's own formula above this.
    out, lse = run(query, key, value, "bhsd", scale, causal, return_lse=True)
    random_state = query.new_zeros((2,), dtype=torch.uint64)
    unused = query.new_zeros((), dtype=torch.uint64)
    return out, lse, None, None, query.shape[2], key.shape[2], random_state, unused, query.new_empty((0,))
