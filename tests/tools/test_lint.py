"""What the word check of the linter finds, and what it leaves alone."""

import lint


def complaints(tmp_path, monkeypatch, text):
    monkeypatch.setattr(lint, "REPO", tmp_path)
    path = tmp_path / "file.cpp"
    path.write_text(text)
    return lint.words([path], fix=False).splitlines()


def test_unfinished_work_is_found_and_similar_words_are_not(tmp_path, monkeypatch):
    mark = "TO" + "DO"
    text = f'int a;  // {mark}: more\nconst char* name = "/tmp/fileXXXXXX";\n'
    assert complaints(tmp_path, monkeypatch, text) == [
        f"file.cpp:1: unfinished work belongs in an issue: int a;  // {mark}: more"
    ]


def test_paths_of_the_machine_are_found(tmp_path, monkeypatch):
    found = complaints(tmp_path, monkeypatch, f'open("{tmp_path}/data");\nopen("data");\n')
    assert len(found) == 1
    assert found[0].startswith("file.cpp:1: a path of this machine")


def test_long_files_are_found(tmp_path, monkeypatch):
    assert complaints(tmp_path, monkeypatch, "\n" * 900) == []
    assert complaints(tmp_path, monkeypatch, "\n" * 901) == ["file.cpp: 901 lines, more than 900"]
