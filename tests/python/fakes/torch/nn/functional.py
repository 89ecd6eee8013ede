"""scaled_dot_product_attention on (batch, head, row, dim), in plain Python. The efficient backend refuses, and math
cannot be captured."""

import os

from torch import cuda
from torch.nn import attention
from torch.tensor import Tensor, float32, float64


def scaled_dot_product_attention(q, k, v, is_causal, scale, enable_gqa=False):
    backend = attention.chosen[-1]
    if backend == attention.SDPBackend.EFFICIENT_ATTENTION:
        raise RuntimeError("No available kernel. Aborting execution.\nmore lines")
    if backend == attention.SDPBackend.MATH and cuda.current_stream().cuda_stream is not None:
        raise RuntimeError("operation not permitted when stream is capturing")
    if os.environ.get("FAKE_WRONG_PEER") == "flash" and backend == attention.SDPBackend.FLASH_ATTENTION:
        is_causal = not is_causal
    batches, heads, rows, _ = q.shape
    group = heads // k.shape[1]
    assert enable_gqa or group == 1
    output = Tensor.contiguous_of((batches, heads, rows, v.shape[3]), float32)
    for batch in range(batches):
        for head in range(heads):
            scores = q[batch, head].matmul(k[batch, head // group].t()) * scale
            if is_causal:
                columns = range(scores.shape[1])
                hidden = [column > row for row in range(rows) for column in columns]
                mask = Tensor.contiguous_of(scores.shape, float64).fill(hidden)
                scores.masked_fill_(mask, float("-inf"))
            weights = (scores - scores.logsumexp(1).unsqueeze(1)).exp()
            output[batch, head] = weights.matmul(v[batch, head // group])
    cuda.library.fake_launch()
    return output
