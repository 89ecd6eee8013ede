"""What the wheel asks of a system, read from every binary in it."""

import importlib.metadata
import platform

import pytest
import wheel
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

# Of what the tag of the wheel promises to be there (PEP 600), as much as is asked for. No C++ runtime: it is inside.
LIBRARIES = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2", "libgcc_s.so.1"}
NEWEST = {"GLIBC": wheel.GLIBC, "GCC": (8,)}


@pytest.fixture(scope="module")
def binaries():
    """Every binary of the wheel by name."""
    # Scripts lie elsewhere than where the wheel was unpacked to.
    paths = [file.locate() for file in importlib.metadata.files("attune") if ".." not in file.parts]
    open_files = {path.name: path.open("rb") for path in paths if path.read_bytes().startswith(b"\x7fELF")}
    yield {name: ELFFile(file) for name, file in open_files.items()}
    for file in open_files.values():
        file.close()


def test_the_tag_is_that_of_glibc_2_28():
    tags = importlib.metadata.distribution("attune").read_text("WHEEL").splitlines()
    assert f"Tag: py3-none-manylinux_2_28_{platform.machine()}" in tags


def test_the_library_and_the_command_are_there(binaries):
    assert {"libattune.so", "libattune_lab_engine.so"} <= binaries.keys()


def test_no_symbol_is_newer_than_the_tag(binaries):
    newer = []
    for name, binary in binaries.items():
        versions = [
            (library.name, version.name)
            for section in binary.iter_sections()
            if isinstance(section, GNUVerNeedSection)
            for library, needed in section.iter_versions()
            for version in needed
        ]
        assert versions, f"{name} names no version of anything: the section was not found"
        for library, version in versions:
            kind, _, number = version.partition("_")
            if kind not in NEWEST or tuple(map(int, number.split("."))) > NEWEST[kind]:
                newer.append(f"{name} needs {version} of {library}")
    assert newer == []


def test_no_library_is_needed_that_a_system_may_lack(binaries):
    for name, binary in binaries.items():
        needed = {tag.needed for tag in binary.get_section_by_name(".dynamic").iter_tags("DT_NEEDED")}
        assert needed <= LIBRARIES, name
