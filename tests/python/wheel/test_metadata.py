"""What the wheel says of itself, and what it holds beside code. Run on the wheel unpacked."""

from importlib.metadata import files, metadata


def test_licence_author_address_and_python():
    said = metadata("attune")
    assert said["License-Expression"] == "Apache-2.0" and said["License-File"] == "LICENSE"
    assert said["Author-Email"].startswith("Attune maintainers <maintainers@")
    assert said.get_all("Project-URL") == ["Homepage, https://a-seed-02dccbd7.example"]
    assert said["Requires-Python"] == ">=3.9"
    assert said.get_all("Requires-Dist") is None


def test_type_checkers_find_the_annotations():
    assert "attune/py.typed" in map(str, files("attune"))
    assert "Typing :: Typed" in metadata("attune").get_all("Classifier")


def test_the_licence_is_the_text_that_the_expression_names():
    (licence,) = [path for path in files("attune") if path.name == "LICENSE"]
    assert "Apache License\n                           Version 2.0" in licence.read_text()
