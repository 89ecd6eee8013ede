"""Problems as text."""

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
        ("fwd b1 h8/8 q512 k512 d64 f16 sink", "'sink' cannot be measured beside peers"),
        ("bwd b1 h8/8 q512 k512 d64 f16 nolse", "'nolse' cannot be measured beside peers"),
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
