"""Problems as text."""

import json

import pytest
from attune.lab.errors import BadInput
from attune.lab.problem import parse, read_lines


def test_reads_every_word_it_knows():
    p = parse("fwd b2 h8/4 q512 k1024 d192/128 bf16 causal-tl scale-0.5 nolse bhsd")
    extents = (p.batch, p.heads_q, p.heads_kv, p.seq_q, p.seq_k, p.dim_qk, p.dim_v)
    assert extents == (2, 8, 4, 512, 1024, 192, 128)
    assert (p.dtype, p.causal, p.scale, p.lse, p.heads_first) == ("bf16", "causal-tl", -0.5, False, True)


def test_defaults_and_short_forms():
    p = parse("fwd f16 causal d64 k512 q512 h8 b1")
    assert (p.heads_q, p.heads_kv, p.dim_qk, p.dim_v) == (8, 8, 64, 64)
    assert (p.causal, p.softmax_scale, p.lse, p.heads_first) == ("causal-br", 0.125, True, False)


def test_features():
    p = parse("fwd b2 h8/4 q512 k512 d64 f16 causal w127,0 cap50 sink bias=1h1k:f32 mask=b1qk")
    assert (p.window, p.softcap, p.sink, p.bias, p.bias_dtype, p.mask) == ((127, 0), 50, True, "1h1k", "f32", "b1qk")
    assert (p.least_offset, p.most_offset) == (-127, 0)
    assert parse("fwd b1 h1 q4 k4 d8 bf16 bias=1hqk").bias_dtype == "bf16"
    right = parse("fwd b1 h1 q4 k9 d8 bf16 w-1,2")
    assert (right.least_offset, right.most_offset, right.diagonal(4, 9)) == (None, 2, 5)
    assert parse("fwd b1 h1 q4 k9 d8 bf16 causal-tl w1,2").diagonal(4, 9) == 0


def test_sequences_lie_where_their_lengths_say():
    offsets = {"cu_seqlens_q": [0, 3, 5], "cu_seqlens_k": [0, 4, 4], "used_k": [2, 0]}
    given = {"problem": "fwd b2 h1 q4 k4 d8 f16 var=6,4 used-k", "lengths": offsets}
    (p,) = read_lines([json.dumps(given)])
    first, second = p.sequence(0), p.sequence(1)
    assert (p.stored_q, p.stored_k) == ((1, 6), (1, 4))
    assert (first.batch, first.first_row, first.first_key, first.rows, first.keys) == (0, 0, 0, 3, 2)
    assert (second.batch, second.first_row, second.first_key, second.rows, second.keys) == (0, 3, 4, 2, 0)
    with pytest.raises(BadInput, match="used_q has 2 entries, and needs 0"):
        read_lines([json.dumps({**given, "lengths": {**offsets, "used_q": [1, 1]}})])
    with pytest.raises(BadInput, match="is no problem: TypeError"):
        read_lines([json.dumps({**given, "lengths": {"used": [1, 1]}})])


def test_gradients():
    p = parse("bwd b1 h8/8 q512 k512 d64 f16 causal-br")
    assert p.backward and p.lse and p.causal == "causal-br"
    assert not parse("fwd b1 h8/8 q512 k512 d64 f16").backward


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "is no problem"),
        ("b1 h8/8 q512 k512 d64 f16", "is no problem"),
        ("fwd b1 b1 h8/8 q512 k512 d64 f16", "is no problem"),
        ("fwd b1 b2 h8/8 q512 k512 d64 f16", "needs one word b#, has 2"),
        ("fwd b1 h8/8 k512 d64 f16", "needs one word q#, has 0"),
        ("fwd b1 h8/8 q0 k512 d64 f16", "leaves nothing to time"),
        ("fwd b1 h8/3 q512 k512 d64 f16", "3 key-value heads do not divide 8"),
        ("fwd b1 h8/8 q512 k512 d64", "an element type is missing"),
        ("fwd b1 h8/8 q512 k512 d64 f16 overlap", "'overlap' cannot be measured beside peers"),
        ("fwd b1 h8/8 q512 k512 d64 f16 mask=b11", "'mask=b11' cannot be measured beside peers"),
        ("bwd b1 h8/8 q512 k512 d64 f16 nolse", "'nolse' cannot be measured beside peers"),
        ("bwd b1 h8/8 q512 k512 d64 f16 sink", "'sink' cannot be measured beside peers"),
        ("fwd b2 h8/8 q1 k512 d64 f16 used-k", "used_k has 0 entries, and needs 2; attune bench --peers gives"),
        ("fwd b2 h8/8 q512 k512 d64 f16 var", "cu_seqlens_q has 0 entries, and needs 3"),
        ("fwd b2 h8/8 q512 k512 d64 f16 mask=b11k", "padding has 0 entries, and needs 2"),
    ],
)
def test_refuses_with_a_sentence(text, complaint):
    with pytest.raises(BadInput, match=complaint):
        parse(text)


def test_lines_are_text_or_objects():
    text = "fwd b1 h8/8 q512 k512 d64 f16"
    first, second = read_lines([text + "\n", "\n", f'{{"problem": "{text}", "flops": 5e9}}'])
    assert (first.text, first.flops) == (text, None)
    assert (second.text, second.flops) == (text, 5e9)
    for line in ('{"problem": ', '{"flops": 1}'):
        with pytest.raises(BadInput, match="is no problem"):
            read_lines([line])
