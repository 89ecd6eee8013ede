"""FlashAttention 2: rows before heads, causal masks aligned bottom-right."""

from torch.nn.functional import attend

__version__ = "2.fake"


def flash_attn_func(q, k, v, softmax_scale, causal):
    inputs = [tensor.transpose(1, 2) for tensor in (q, k, v)]
    diagonal = k.shape[1] - q.shape[1]
    return attend(*inputs, softmax_scale, lambda row, key: causal and key > row + diagonal).transpose(1, 2)
