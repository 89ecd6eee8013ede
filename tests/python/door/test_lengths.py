"""attention_varlen(check=True): lengths that do not fit are refused by name; good ones change nothing."""

import re

import attune
import numpy as np
import pytest
import torch

BEGINS_Q, BEGINS_K = [0, 5, 5, 18], [0, 9, 20, 26]
GOOD = {
    "bounds": {"max_seqlen_q": 13, "max_seqlen_k": 11},
    "loose bounds": {"max_seqlen_q": 1000, "max_seqlen_k": torch.tensor(11)},
    "no bounds": {},
    "used": {"used_q": [5, 0, 13], "used_k": [0, 11, 3]},
    "nothing": {"cu_seqlens_q": [0], "cu_seqlens_k": [0], "rows": 0, "keys": 0},
}
WRONG = {
    "cu_seqlens_q[0] is 1; it must be 0": {"cu_seqlens_q": [1, 5, 5, 18]},
    "cu_seqlens_k[0] is -1; it must be 0": {"cu_seqlens_k": [-1, 9, 20, 26]},
    "cu_seqlens_q[2] is 4; it must be at least 5, the one before it": {"cu_seqlens_q": [0, 5, 4, 18]},
    "cu_seqlens_k[1] is -9; it must be at least 0, the one before it": {"cu_seqlens_k": [0, -9, 20, 26]},
    "cu_seqlens_q[3] is 17; it must be 18, the number of rows of q": {"cu_seqlens_q": [0, 5, 5, 17]},
    "cu_seqlens_k[3] is 27; it must be 26, the number of rows of k": {"cu_seqlens_k": [0, 9, 20, 27]},
    "cu_seqlens_k[3] is 20; it must be 26, the number of rows of k": {"cu_seqlens_k": [0, 9, 20, 20]},
    "cu_seqlens_q[0] is 0; it must be 18, the number of rows of q": {"cu_seqlens_q": [0], "cu_seqlens_k": [0]},
    "max_seqlen_q is 12; it must be at least 13, the longest length": {"max_seqlen_q": 12},
    "max_seqlen_k is 0; it must be at least 11, the longest length": {"max_seqlen_k": 0},
    "used_q[1] is 1; it must lie in 0..0, the length there": {"used_q": [5, 1, 13]},
    "used_k[2] is -1; it must lie in 0..6, the length there": {"used_k": [9, 11, -1]},
    # Told by their shapes and types, without a look at them.
    "cu_seqlens_k has the shape (3,); it must be (4,)": {"cu_seqlens_k": [0, 9, 26]},
    "used_k has the shape (2,); it must be (3,)": {"used_k": [9, 11]},
    "check is 'yes'; it must be one of False, True": {"check": "yes"},
}


def call(device, rows=18, keys=26, make=None, **options):
    generator = torch.Generator().manual_seed(1)
    q = torch.randn(rows, 4, 32, generator=generator).to(device)
    k, v = torch.randn(2, keys, 2, 32, generator=generator).to(device)
    make = make or (lambda lengths: torch.tensor(lengths, device=device, dtype=torch.int32))
    options = {"cu_seqlens_q": BEGINS_Q, "cu_seqlens_k": BEGINS_K, "check": True, **options}
    return attune.attention_varlen(q, k, v, **{n: make(x) if isinstance(x, list) else x for n, x in options.items()})


@pytest.mark.parametrize("name", GOOD)
def test_good_lengths_change_nothing(device, name):
    assert torch.equal(call(device, **GOOD[name]), call(device, **GOOD[name], check=False))


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_lengths_are_refused_by_name(device, sentence):
    with pytest.raises(attune.InvalidArgument, match=re.escape(sentence)):
        call(device, **WRONG[sentence])


def test_lengths_of_numpy_are_looked_at_too():
    def make(lengths):
        return np.array(lengths, dtype=np.int32)

    assert torch.equal(call("cpu", make=make), call("cpu"))
    with pytest.raises(attune.InvalidArgument, match=re.escape("cu_seqlens_q[3] is 17; it must be 18")):
        call("cpu", make=make, cu_seqlens_q=[0, 5, 5, 17])


def test_sequences_that_cannot_fill_the_tensors_are_refused_unasked():
    for sentence, options in {
        "max_seqlen_q is 0; it must be at least 6, since the number of rows of q is 18": {"max_seqlen_q": 0},
        "the number of sequences is 0; it must be greater": {"cu_seqlens_q": [0], "cu_seqlens_k": [0]},
    }.items():
        with pytest.raises(attune.InvalidArgument, match=re.escape(sentence)):
            call("cpu", check=False, **options)


def test_compiled_code_cannot_look():
    q, k, v = torch.randn(3, 18, 4, 32)
    begins = torch.tensor([0, 18]).int()
    compiled = torch.compile(
        lambda q: attune.attention_varlen(q, k, v, begins, begins, check=True), fullgraph=True, backend="aot_eager"
    )
    with pytest.raises(Exception, match=r"check is True; it must be False|Unsupported"):
        compiled(q)


def test_a_capture_cannot_look(gpu):
    call(gpu)
    graph = torch.cuda.CUDAGraph()
    q, k, v = torch.randn(3, 18, 4, 32, device=gpu)
    begins = torch.tensor([0, 18], device=gpu).int()
    attune.attention_varlen(q, k, v, begins, begins)
    with torch.cuda.graph(graph), pytest.raises(attune.Unsupported, match="check is True; it must be False inside"):
        attune.attention_varlen(q, k, v, begins, begins, check=True)
