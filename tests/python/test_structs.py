"""The ctypes mirrors against the C compiler: sizes, offsets and constants. And against the header's text: nothing of it
is missing in Python."""

import ctypes
import re
import subprocess

import pytest
from attune import c_api
from attune.lab import driver, structs
from support import REPO, compile_c

MIRRORS = {
    "attune_strides": c_api.Strides,
    "attune_score_strides": c_api.ScoreStrides,
    "attune_forward_desc": c_api.ForwardDesc,
    "attune_forward_args": c_api.ForwardArgs,
    "attune_backward_desc": c_api.BackwardDesc,
    "attune_backward_args": c_api.BackwardArgs,
    "attune_options": c_api.Options,
    "attune_lab_graph": structs.LabGraph,
    "attune_lab_call": structs.LabCall,
    "attune_lab_callable": structs.LabCallable,
    "attune_contender_api": structs.ContenderApi,
}
# Of the header, and nothing that Python calls.
NOT_IN_PYTHON = {"ATTUNE_MERGE_MAX_PARTS", "attune_merge_desc", "attune_merge_args"}
HEADER = re.sub(r"/\*.*?\*/", "", (REPO / "include/attune/attune.h").read_text(), flags=re.DOTALL)


def constants_of_the_header() -> dict[str, str]:
    """Each name with what Python calls it. Bits are written in hexadecimal."""
    defined = re.findall(r"#define (ATTUNE_\w+) (0x)?[0-9a-f]+u?\b", HEADER)
    names = {name: ("FEATURE_" if bit else "") + name.removeprefix("ATTUNE_") for name, bit in defined}
    for body in re.findall(r"enum \{(.*?)\}", HEADER, flags=re.DOTALL):
        names |= {name: name.removeprefix("ATTUNE_") for name in re.findall(r"(ATTUNE_\w+) =", body)}
    return names


def structs_of_the_header() -> dict[str, list[str]]:
    """The names of their fields."""
    bodies = re.findall(r"typedef struct (\w+) \{(.*?)\} \w+;", HEADER, flags=re.DOTALL)
    return {
        name: [
            re.search(r"\(\*(\w+)\)", declared).group(1) if "(*" in declared else re.findall(r"\w+", declared)[-1]
            for declaration in body.split(";")
            for declared in (declaration.split(",") if "(*" not in declaration else [declaration])
            if declared.strip()
        ]
        for name, body in bodies
    }


CONSTANTS = {
    **{
        name: getattr(c_api, in_python)
        for name, in_python in constants_of_the_header().items()
        if hasattr(c_api, in_python)
    },
    "ATTUNE_LAB_ENGINE_VERSION": structs.ENGINE_VERSION,
    "ATTUNE_CONTENDER_VERSION": structs.CONTENDER_VERSION,
    "ATTUNE_LAB_CONTENDER": structs.ROLE_CONTENDER,
    "ATTUNE_LAB_TWIN": structs.ROLE_TWIN,
}


@pytest.fixture(scope="module")
def in_c(tmp_path_factory):
    """What C says: 'struct' -> size, 'struct.field' -> offset and size, 'CONSTANT' -> value."""
    lines = [f'printf("{name} %zu\\n", sizeof({name}));' for name in MIRRORS]
    for name, mirror in MIRRORS.items():
        for field in mirror._fields_:
            size = f"sizeof((({name}*)0)->{field[0]})"
            lines.append(f'printf("{name}.{field[0]} %zu %zu\\n", offsetof({name}, {field[0]}), {size});')
    lines += [f'printf("{name} %d\\n", (int){name});' for name in CONSTANTS]
    folder = tmp_path_factory.mktemp("structs")
    source = folder / "print.c"
    headers = '#include <stdio.h>\n#include "attune/attune.h"\n#include "lab/measure/engine_c_api.h"\n'
    source.write_text(headers + "int main(void) {\n" + "\n".join(lines) + "\nreturn 0;\n}\n")
    program = compile_c(source, folder / "print")
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in printed.splitlines()]
    return {row[0]: [int(number) for number in row[1:]] for row in rows}


@pytest.mark.parametrize("name", MIRRORS)
def test_a_mirror_has_the_layout_of_its_struct(in_c, name):
    mirror = MIRRORS[name]
    offsets = {
        field[0]: [getattr(mirror, field[0]).offset, getattr(mirror, field[0]).size] for field in mirror._fields_
    }
    assert in_c[name] == [ctypes.sizeof(mirror)]
    assert {field: in_c[f"{name}.{field}"] for field in offsets} == offsets


def test_constants_are_those_of_the_headers(in_c):
    assert {name: in_c[name] for name in CONSTANTS} == {name: [value] for name, value in CONSTANTS.items()}


def test_python_knows_every_constant_of_the_header():
    constants = constants_of_the_header()
    assert {"ATTUNE_OK", "ATTUNE_F32_HIGH", "ATTUNE_ABI_VERSION"} <= constants.keys(), "they were not found"
    missing = {name for name, in_python in constants.items() if not hasattr(c_api, in_python)}
    assert missing == NOT_IN_PYTHON & constants.keys()


def test_python_has_every_struct_of_the_header_with_all_its_fields():
    of_header = structs_of_the_header()
    assert of_header["attune_strides"] == ["batch", "row", "head"], "they are read wrongly"
    assert of_header.keys() - MIRRORS.keys() == NOT_IN_PYTHON & of_header.keys()
    for name in of_header.keys() & MIRRORS.keys():
        assert [field[0] for field in MIRRORS[name]._fields_] == of_header[name], name


def test_edge_data_has_the_drivers_size():
    assert ctypes.sizeof(driver.EdgeData) == 8
