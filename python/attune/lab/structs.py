"""ctypes mirrors of include/attune/attune.h and lab/measure/engine_c_api.h. A test compares every offset with C's."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from pathlib import Path

ABI_VERSION = 1
ENGINE_VERSION = 1

OK = 0
DTYPE = {"f16": 0, "bf16": 1, "f32": 2}
CUDA = 1
CAUSAL = {"": 0, "causal-tl": 1, "causal-br": 2}
FEATURE_SCALE = 0x001
FEATURE_LSE = 0x200
ROLE_CONTENDER, ROLE_TWIN = 0, 1


def _fields(kind, names: str):
    return [(name, kind) for name in names.split()]


class Strides(ctypes.Structure):
    _fields_ = _fields(c_int64, "batch row head")


class ScoreStrides(ctypes.Structure):
    _fields_ = _fields(c_int64, "batch head query key")


class ForwardDesc(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("features", c_uint32),
        *_fields(c_int32, "device_kind device_index dtype bias_dtype causal"),
        ("reserved", c_uint32),
        *_fields(c_int64, "batch heads_q heads_kv seq_q seq_k dim_qk dim_v total_q total_k"),
        *_fields(Strides, "q k v o lse"),
        *_fields(ScoreStrides, "bias mask"),
        *_fields(c_int64, "window_left window_right"),
        *_fields(c_float, "scale softcap"),
    ]


class ForwardArgs(ctypes.Structure):
    _fields_ = [
        *_fields(c_uint32, "struct_size reserved"),
        *_fields(c_void_p, "q k v o lse sink bias mask cu_seqlens_q cu_seqlens_k used_q used_k workspace"),
        ("workspace_bytes", c_uint64),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("threads", c_int32),
        *_fields(c_void_p, "parallel_for parallel_for_user"),
        ("kernel", c_char_p),
    ]


Capture = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_int32, c_uint64)
Progress = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_double)


class LabGraph(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("role", c_int32),
        *_fields(c_char_p, "name facts_json"),
        ("capture", Capture),
        *_fields(c_void_p, "user graph"),
        *_fields(c_int32, "calls reserved"),
    ]


ATTUNE_FUNCTIONS = {
    "attune_create": (c_int32, [POINTER(Options), POINTER(c_void_p)]),
    "attune_destroy": (None, [c_void_p]),
    "attune_prepare": (c_int32, [c_void_p, POINTER(ForwardDesc)]),
    "attune_workspace_bytes": (c_int32, [c_void_p, POINTER(ForwardDesc), POINTER(c_uint64)]),
    "attune_forward": (c_int32, [c_void_p, POINTER(ForwardDesc), POINTER(ForwardArgs), c_void_p]),
    "attune_explain": (c_int32, [c_void_p, POINTER(ForwardDesc), c_char_p, ctypes.c_size_t, POINTER(ctypes.c_size_t)]),
    "attune_last_error": (c_char_p, []),
    "attune_abi_version": (c_uint32, []),
}

ENGINE_FUNCTIONS = {
    "attune_lab_session_create": (c_int32, [c_char_p, c_int32, POINTER(c_void_p)]),
    "attune_lab_session_destroy": (None, [c_void_p]),
    "attune_lab_add_graph": (c_int32, [c_void_p, POINTER(LabGraph)]),
    "attune_lab_run": (c_int32, [c_void_p, Progress, c_void_p, POINTER(c_char_p)]),
    "attune_lab_environment": (c_int32, [c_void_p, POINTER(c_char_p)]),
    "attune_lab_analyse": (c_int32, [c_void_p, c_char_p, POINTER(c_char_p)]),
    "attune_lab_last_error": (c_char_p, []),
    "attune_lab_engine_version": (c_uint32, []),
}


def load(path: str, functions: dict) -> ctypes.CDLL:
    """The library with the types of its functions set. OSError or AttributeError if it is not that library."""
    # A name without a slash would be searched for elsewhere.
    library = ctypes.CDLL(str(Path(path).absolute()))
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
