"""Every argument and every result of the public functions has a type, and each of these types can be looked up."""

import inspect
from typing import get_type_hints

import attune
import pytest
from attune import flash_attn, hugging_face

FUNCTIONS = {
    **{name: getattr(attune, name) for name in attune.__all__ if not inspect.isclass(getattr(attune, name))},
    **{name: function for name, function in vars(flash_attn).items() if name.startswith("flash_attn")},
    "hugging_face.forward": hugging_face.forward,
}


def test_there_are_functions():
    assert len(FUNCTIONS) >= 14 and all(map(callable, FUNCTIONS.values()))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_all_of_it_is_annotated(name):
    hints = get_type_hints(FUNCTIONS[name])
    assert set(hints) == {*inspect.signature(FUNCTIONS[name]).parameters, "return"}
