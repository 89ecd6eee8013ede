"""Functions that attune judges in the tests: one that is right, and the mistakes that code from outside makes."""

import ctypes
import os
import time

import torch


def right(q, k, v, problem):
    groups = problem.heads_q // problem.heads_kv
    q, k, v = (tensor.transpose(1, 2).double() for tensor in (q, k, v))
    k, v = (tensor.repeat_interleave(groups, dim=1) for tensor in (k, v))
    scores = q @ k.transpose(-2, -1) * problem.softmax_scale
    if problem.causal:
        shift = problem.seq_k - problem.seq_q if problem.causal == "causal-br" else 0
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1 + shift)
        scores = scores.masked_fill(hidden, float("-inf"))
    o = (torch.softmax(scores, -1) @ v).transpose(1, 2)
    return o.to(
        getattr(torch, {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[problem.dtype])
    ), scores.logsumexp(-1)


def into_out(q, k, v, problem, out):
    result, lse = right(q, k, v, problem)
    out.copy_(result)
    return out, lse


def zeros(q, k, v, problem):
    o, lse = right(q, k, v, problem)
    return torch.zeros_like(o), lse


def mask(q, k, v, problem):
    from dataclasses import replace

    return right(q, k, v, replace(problem, causal=""))


def nan(q, k, v, problem):
    o, lse = right(q, k, v, problem)
    o[0, -1, 0, 0] = float("nan")
    return o, lse


def outside(q, k, v, problem, out):
    result, lse = right(q, k, v, problem)
    out.copy_(result)
    ctypes.memset(out.data_ptr() + out.nelement() * out.element_size(), 1, 4)
    return out, lse


def crash(q, k, v, problem):
    os.abort()


def hang(q, k, v, problem):
    time.sleep(1000)


def raises(q, k, v, problem):
    raise NotImplementedError("only on Sundays")


_calls = 0


def crashes_later(q, k, v, problem):
    global _calls
    _calls += 1
    if _calls > 5:
        os.abort()
    return right(q, k, v, problem)


def no_lse(q, k, v, problem):
    return right(q, k, v, problem)[0]


def wrong_shape(q, k, v, problem):
    o, lse = right(q, k, v, problem)
    return o.transpose(1, 2), lse
