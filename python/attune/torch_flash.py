"""Torch's own flash backward, given Attune's output and log-sum-exp: the gradients of dense calls on a GPU, as long as
nothing of Attune's has them there but a plain kernel. docs/python.md#gradients says what that costs and where it ends.
"""

from __future__ import annotations

import torch

from attune import c_api

# The lab turns it off, to time Attune's own kernel in its place.
allowed = True

SAID = "torch's flash backward, from this output and its log-sum-exp"  # where explain names it
DEVICE_KIND = c_api.CUDA
_DTYPES = (c_api.F16, c_api.BF16)
_BEYOND = {
    c_api.FEATURE_WINDOW: "a window",
    c_api.FEATURE_SOFTCAP: "a softcap",
    c_api.FEATURE_SINK: "a sink",
    c_api.FEATURE_BIAS: "a bias",
    c_api.FEATURE_MASK: "a mask",
    c_api.FEATURE_PACKED: "packed sequences",
}
_OLDEST = (8, 0)
_LARGEST_DIM, _LARGEST_DIM_OF_ALL_VERSIONS = 256, 192  # between them older versions of torch take none but the largest
_ALIGNMENT_BYTES, _ALIGNMENT_ELEMENTS = 16, 8  # its kernels read that much at once


def refusal(desc: c_api.ForwardDesc, lse_may_have_gradient: bool) -> str:
    """Why it does not take a forward call's gradients: a clause, or nothing."""
    if not allowed:
        return "it is turned off"
    for holds, clause in _conditions(desc, lse_may_have_gradient):
        if not holds:
            return clause
    return ""


def _conditions(desc: c_api.ForwardDesc, lse_may_have_gradient: bool):
    """Those about the device come last: they are asked of torch."""
    yield desc.device_kind == DEVICE_KIND, "it needs a GPU"
    yield desc.dtype in _DTYPES, "the tensors are neither float16 nor bfloat16"
    for feature, name in _BEYOND.items():
        yield not desc.features & feature, f"the call has {name}"
    scale = desc.scale if desc.features & c_api.FEATURE_SCALE else 1.0
    yield scale > 0, f"the scale is {scale:g} and not above 0"
    dim = desc.dim_qk
    yield dim == desc.dim_v, f"the head dims {dim} and {desc.dim_v} differ"
    fits = (dim % 8 == 0 and dim <= _LARGEST_DIM_OF_ALL_VERSIONS) or dim == _LARGEST_DIM
    yield fits, f"head dim {dim} is no multiple of 8 up to {_LARGEST_DIM_OF_ALL_VERSIONS}, nor {_LARGEST_DIM}"
    yield desc.seq_k > 0, "there are no keys"
    # Its causal mask is aligned bottom-right. A row that sees no key would have a log-sum-exp that it does not expect.
    alike = desc.seq_q == desc.seq_k or desc.causal == c_api.CAUSAL_NONE
    alike |= desc.causal == c_api.CAUSAL_BOTTOM_RIGHT and desc.seq_q <= desc.seq_k
    yield alike, f"it has no such causal mask of {desc.seq_q} rows and {desc.seq_k} keys"
    yield not lse_may_have_gradient, "the log-sum-exp is returned, and a gradient may arrive at it"
    yield _is_built(), "this torch was built without it"
    major, minor = _capability(desc.device_index)
    yield (major, minor) >= _OLDEST, f"sm_{major}{minor} is older than sm_{_OLDEST[0]}{_OLDEST[1]}"


def _is_built() -> bool:
    """Older versions of torch cannot say."""
    return getattr(torch.backends.cuda, "is_flash_attention_available", lambda: True)()


def _capability(device_index: int) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device_index)


def gradients(dout, q, k, v, out, lse, scale: float | None, is_causal: bool) -> tuple:
    """dq, dk and dv. All are (batch, row, head, dim), lse is (batch, head, row)."""
    q, k, v, dout, out = (_readable(tensor).transpose(1, 2) for tensor in (q, k, v, dout, out))
    no_dropout = [q.new_empty(shape, dtype=torch.uint64) for shape in ((2,), ())]  # the state of its generator
    found = _operator()(
        dout, q, k, v, out, lse.contiguous(), None, None, q.shape[2], k.shape[2], 0.0, is_causal, *no_dropout,
        scale=scale,
    )  # fmt: skip
    return tuple(gradient.transpose(1, 2) for gradient in found)


def _operator():
    return torch.ops.aten._scaled_dot_product_flash_attention_backward.default


def _readable(tensor: torch.Tensor) -> torch.Tensor:
    """It takes tensors of any alignment and fails on most: what it could not read is copied."""
    aligned = tensor.data_ptr() % _ALIGNMENT_BYTES == 0
    if aligned and all(stride % _ALIGNMENT_ELEMENTS == 0 for stride in tensor.stride()[:3]):
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)
