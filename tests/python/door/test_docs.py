"""The examples of docs/python.md and of the README, run as they stand."""

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[3]
EXAMPLES = {
    f"{page.name}, line {page.read_text()[: match.start()].count(chr(10)) + 1}": match[1]
    for page in (REPO / "docs/python.md", REPO / "README.md")
    for match in re.finditer(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
}


def test_there_are_examples():
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("place", EXAMPLES)
def test_the_example_runs(place):
    if "transformers" in EXAMPLES[place]:
        pytest.importorskip("transformers", reason="transformers is not installed")
    exec(compile(EXAMPLES[place], place, "exec"), {"__name__": "__main__"})
