"""Sentences of the library in Python's names: no field of its structs is left in them."""

import re

import pytest
from attune import c_api, names
from support import REPO

# The package fills these itself, and never wrongly.
OWN = {"struct_size", "features", "reserved", "device_kind", "device_index", "workspace", "workspace_bytes"}
DOORS = {name: value for name, value in vars(names).items() if isinstance(value, names.Names)}
FIELDS = [
    *(("desc", field[0]) for field in c_api.ForwardDesc._fields_),
    *(("args", field[0]) for field in c_api.ForwardArgs._fields_),
]


@pytest.mark.parametrize("door", DOORS)
def test_every_field_has_a_name_in_python(door):
    fields = {field for _, field in FIELDS} - OWN
    only_in_c = fields - set(names.Names._fields) - {"dtype"}  # which tensors have too
    for struct, field in FIELDS:
        if field in fields:
            words = set(re.findall(r"\w+", DOORS[door].say(f"{struct}.{field} is 1")))
            assert not words & {struct, *only_in_c}


def test_every_field_that_the_checks_speak_of_is_one():
    """The checks of a forward call, which Python's callers can fail."""
    files = ("checks", "validate", "validate_operands", "validate_lengths")
    text = "".join((REPO / f"src/core/{name}.cpp").read_text() for name in files)
    spoken = set(re.findall(r'"[^"\n]*?\b(desc|args)\.(\w+)', text)) - {("desc", "parts")}  # of merges alone
    assert len(spoken) > 20 and spoken <= set(FIELDS)


def test_sentences():
    assert names.SDPA.say("desc.heads_kv is 3; it must divide heads_q (4)") == (
        "the number of heads of key is 3; it must divide the number of heads of query (4)"
    )
    assert names.VARLEN.say("args.cu_seqlens_q[2] is 7; it must lie in 0..5, which is desc.seq_q") == (
        "cu_seqlens_q[2] is 7; it must lie in 0..5, which is max_seqlen_q"
    )
    assert names.FLASH.say("desc.q.row is 9; with an extent of 3 along row") == (
        "the stride of q along row is 9; with an extent of 3 along row"
    )
    assert names.FLASH.say("desc.window_left is -3") == "window_size[0] is -3"
    assert names.SDPA.say("args.bias is NULL; it must point to the bias, since desc.features has ATTUNE_BIAS") == (
        "attn_mask has no memory; it must be a tensor that still has it"
    )
    assert names.ATTENTION.say(
        "fwd b1: inside a graph capture; call attune_prepare with this descriptor before it"
    ) == ("fwd b1: inside a graph capture; make the same call once before it")
