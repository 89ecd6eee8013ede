"""Backends of torch's scaled_dot_product_attention as functions that attune judges and times: --callable
attune.lab.sdpa_functions:cudnn."""

from __future__ import annotations


def _attention(backend: str, q, k, v, problem):
    from torch.nn import attention, functional

    if problem.lse:
        raise NotImplementedError("torch's SDPA gives no lse; the word nolse asks for none")
    if problem.causal and not problem.square and problem.causal != "causal-tl":
        raise NotImplementedError("torch's SDPA has no causal mask that is aligned at the bottom right")
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    groups = {"enable_gqa": True} if problem.heads_q != problem.heads_kv else {}
    with attention.sdpa_kernel(getattr(attention.SDPBackend, backend)):
        result = functional.scaled_dot_product_attention(
            q, k, v, is_causal=bool(problem.causal), scale=problem.softmax_scale, **groups
        )
    return result.transpose(1, 2)


def cudnn(q, k, v, problem):
    return _attention("CUDNN_ATTENTION", q, k, v, problem)


def flash(q, k, v, problem):
    return _attention("FLASH_ATTENTION", q, k, v, problem)


def efficient(q, k, v, problem):
    return _attention("EFFICIENT_ATTENTION", q, k, v, problem)


def math(q, k, v, problem):
    return _attention("MATH", q, k, v, problem)
