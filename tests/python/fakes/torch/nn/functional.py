"""Attention on (batch, head, row, dim), in plain Python. SDPA's efficient backend refuses, math cannot be captured."""

import os

from torch import cuda
from torch.nn import attention
from torch.tensor import Tensor, float32, float64


def attend(q, k, v, scale, hidden):
    """hidden(row, key) says which scores are masked."""
    batches, heads, rows, _ = q.shape
    group = heads // k.shape[1]
    output = Tensor.contiguous_of((batches, heads, rows, v.shape[3]), float32)
    for batch in range(batches):
        for head in range(heads):
            scores = q[batch, head].matmul(k[batch, head // group].t()) * scale
            keys = range(scores.shape[1])
            mask = Tensor.contiguous_of(scores.shape, float64).fill(
                hidden(row, key) for row in range(rows) for key in keys
            )
            scores.masked_fill_(mask, float("-inf"))
            weights = (scores - scores.logsumexp(1).unsqueeze(1)).exp()
            output[batch, head] = weights.matmul(v[batch, head // group])
    cuda.library.fake_launch()
    return output


def scaled_dot_product_attention(q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False):
    backend = attention.chosen[-1]
    if backend == attention.SDPBackend.EFFICIENT_ATTENTION:
        raise RuntimeError("No available kernel. Aborting execution.\nmore lines")
    if backend == attention.SDPBackend.MATH and cuda.current_stream().cuda_stream is not None:
        raise RuntimeError("operation not permitted when stream is capturing")
    if os.environ.get("FAKE_WRONG_PEER") == "flash" and backend == attention.SDPBackend.FLASH_ATTENTION:
        is_causal = not is_causal
    assert enable_gqa or q.shape[1] == k.shape[1]
    assert attn_mask is None or not is_causal

    def hidden(row, key):
        if attn_mask is not None:
            return not attn_mask[0, 0, row, key].item()
        return is_causal and key > row

    return attend(q, k, v, scale, hidden)
