"""The operators of SDPA's gradients, on (batch, head, row, dim), in plain Python. The efficient ones refuse."""

import os
from types import SimpleNamespace

from torch import cuda
from torch.nn.functional import attend
from torch.tensor import Tensor, float32, float64


class _Operator:
    """`names`: of the arguments that callers look for."""

    def __init__(self, function, *names):
        self._function = function
        self._schema = SimpleNamespace(arguments=[SimpleNamespace(name=name) for name in names])
        self.default = self

    def __call__(self, *arguments, **options):
        return self._function(*arguments, **options)


def _forward(query, key, value, is_causal, scale, attn_bias=None, compute_log_sumexp=True):
    out = attend(query, key, value, scale, lambda row, column: is_causal and column > row)
    return (out, "lse", "begins", "begins", 3, 3, "seed", "offset", "mask")


def _gradients(dout, q, k, v, causal, scale):
    gradients = [Tensor.contiguous_of(each.shape, float32) for each in (q, k, v)]
    for batch in range(q.shape[0]):
        for head in range(q.shape[1]):
            rows, keys, values, arrives = (each[batch, head] for each in (q, k, v, dout))
            scores = rows.matmul(keys.t()) * scale
            hidden = Tensor.contiguous_of(scores.shape, float64)
            hidden.fill(causal and column > row for row in range(scores.shape[0]) for column in range(scores.shape[1]))
            scores.masked_fill_(hidden, float("-inf"))
            weights = (scores - scores.logsumexp(1).unsqueeze(1)).exp()
            delta = (arrives * weights.matmul(values)).sum(-1, keepdim=True)
            of_scores = weights * (arrives.matmul(values.t()) - delta) * scale
            for gradient, found in zip(
                gradients,
                (of_scores.matmul(keys), of_scores.t().matmul(rows), weights.t().matmul(arrives)),
                strict=True,
            ):
                gradient[batch, head] = found
    cuda.library.fake_launch()
    return tuple(gradients)


def _flash_backward(dout, q, k, v, out, lse, begins_q, begins_k, most_q, most_k, dropout, causal, seed, offset, scale):
    assert (lse, seed, offset, dropout) == ("lse", "seed", "offset", 0.0)
    if os.environ.get("FAKE_WRONG_PEER") == "flash":
        scale = 1.01 * scale
    return _gradients(dout, q, k, v, causal, scale)


def _cudnn_backward(
    *, grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, philox_seed, philox_offset,
    attn_bias, dropout_p, is_causal, scale,
):  # fmt: skip
    assert (logsumexp, philox_seed, philox_offset, attn_bias) == ("lse", "seed", "offset", None)
    return _gradients(grad_out, query, key, value, is_causal, scale)


def _refuse(*arguments, **options):
    raise RuntimeError("No available kernel. Aborting execution.")


aten = SimpleNamespace(
    _scaled_dot_product_flash_attention=_Operator(_forward),
    _scaled_dot_product_flash_attention_backward=_Operator(_flash_backward),
    _scaled_dot_product_cudnn_attention=_Operator(_forward, "attn_bias"),
    _scaled_dot_product_cudnn_attention_backward=_Operator(_cudnn_backward, "attn_bias"),
    _scaled_dot_product_efficient_attention=_Operator(_refuse),
    _scaled_dot_product_efficient_attention_backward=_Operator(_refuse),
)
