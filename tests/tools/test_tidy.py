"""When a kept verdict of clang-tidy still holds."""

import tidy


def test_closure_follows_includes_through_roots_and_ends_on_cycles(tmp_path):
    (tmp_path / "src/core").mkdir(parents=True)
    source = tmp_path / "src/core/a.cpp"
    source.write_text('#include <vector>\n#include "core/b.hpp"\n#  include "beside.hpp"\n')
    (tmp_path / "src/core/b.hpp").write_text('#include "core/b.hpp"\n')
    (tmp_path / "src/core/beside.hpp").write_text("")
    names = [path.name for path in tidy.closure(source, [tmp_path / "src"])]
    assert names == ["a.cpp", "b.hpp", "beside.hpp"]


def test_key_changes_with_header_command_and_checks(tmp_path):
    source, header = tmp_path / "a.cpp", tmp_path / "b.hpp"
    source.write_text('#include "b.hpp"\n')
    header.write_text("int x;\n")
    keys = [tidy.key(source, "g++ -c", b"checks"), tidy.key(source, "g++ -c", b"other checks")]
    keys.append(tidy.key(source, "g++ -O2 -c", b"checks"))
    header.write_text("long x;\n")
    keys.append(tidy.key(source, "g++ -c", b"checks"))
    assert len(set(keys)) == 4
    header.write_text("int x;\n")
    assert tidy.key(source, "g++ -c", b"checks") == keys[0]
