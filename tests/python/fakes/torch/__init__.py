"""A double of torch: tensors in host memory and the few functions the lab calls. f32 problems of a few elements."""

from contextlib import contextmanager

from . import cuda, nn, ops, tensor

__version__ = "0.fake"
__all__ = ["cuda", "nn", "ops"]
float16, bfloat16 = tensor.float16, tensor.bfloat16
float32, float64, int32, uint8 = tensor.float32, tensor.float64, tensor.int32, tensor.uint8


class Generator:
    def __init__(self, device):
        self.device = device

    def manual_seed(self, seed):
        self.seed = seed


def device(kind, index):
    return f"{kind}:{index}"


@contextmanager
def no_grad():
    yield


def empty(*shape, dtype, device=None):
    if len(shape) == 1 and isinstance(shape[0], tuple):
        shape = shape[0]
    return tensor.Tensor.contiguous_of(shape, dtype)


def zeros(*shape, dtype, device=None):
    return empty(*shape, dtype=dtype)


def arange(begin, end, step=1, dtype=float64, device=None):
    values = range(begin, end, step)
    return tensor.Tensor.contiguous_of((len(values),), dtype).fill(values)


class compiler:
    @staticmethod
    def reset():
        pass


def compile(function, dynamic):
    return function


def _fused_sdp_choice(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    return 3
