"""The ctypes mirrors against the C compiler: sizes, offsets and constants."""

import ctypes
import subprocess

import pytest
from attune import c_api
from attune.lab import driver, structs
from support import compile_c

MIRRORS = {
    "attune_strides": c_api.Strides,
    "attune_score_strides": c_api.ScoreStrides,
    "attune_forward_desc": c_api.ForwardDesc,
    "attune_forward_args": c_api.ForwardArgs,
    "attune_options": c_api.Options,
    "attune_lab_graph": structs.LabGraph,
    "attune_lab_call": structs.LabCall,
}
CONSTANTS = {
    "ATTUNE_ABI_VERSION": c_api.ABI_VERSION,
    "ATTUNE_LAB_ENGINE_VERSION": structs.ENGINE_VERSION,
    "ATTUNE_OK": c_api.OK,
    "ATTUNE_INVALID_ARGUMENT": c_api.INVALID_ARGUMENT,
    "ATTUNE_UNSUPPORTED": c_api.UNSUPPORTED,
    "ATTUNE_NOT_PREPARED": c_api.NOT_PREPARED,
    "ATTUNE_CPU": c_api.CPU,
    "ATTUNE_F16": c_api.F16,
    "ATTUNE_BF16": c_api.BF16,
    "ATTUNE_F32": c_api.F32,
    "ATTUNE_CUDA": c_api.CUDA,
    "ATTUNE_CAUSAL_NONE": c_api.CAUSAL_NONE,
    "ATTUNE_CAUSAL_TOP_LEFT": c_api.CAUSAL_TOP_LEFT,
    "ATTUNE_CAUSAL_BOTTOM_RIGHT": c_api.CAUSAL_BOTTOM_RIGHT,
    **{f"ATTUNE_{name[8:]}": value for name, value in vars(c_api).items() if name.startswith("FEATURE_")},
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


def test_edge_data_has_the_drivers_size():
    assert ctypes.sizeof(driver.EdgeData) == 8
