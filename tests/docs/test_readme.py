"""The README's program compiles as it stands there, with the command it gives, and prints what it must."""

import re
import subprocess
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]


def test_program_of_the_readme(tmp_path):
    text = (REPO / "README.md").read_text()
    (program,) = re.findall(r"```c\n(.*?)```", text, re.DOTALL)
    (command,) = re.findall(r"^ +(cc .*)$", text, re.MULTILINE)
    source, binary = tmp_path / "example.c", tmp_path / "example"
    source.write_text(program)
    words = [str(source) if word == "example.c" else word for word in command.split()]
    subprocess.run([*words, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", binary], cwd=REPO, check=True)
    printed = subprocess.run([binary], cwd=REPO, check=True, capture_output=True, text=True).stdout
    assert printed == "1\n"  # the values are 1, so every weighted mean of them is


def test_links_lead_somewhere():
    for page in [*REPO.glob("*.md"), *REPO.glob("docs/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name} links to {target}"
