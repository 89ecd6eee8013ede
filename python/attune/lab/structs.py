"""ctypes mirrors of lab/measure/engine_c_api.h and attune/attune_contender.h. A test compares every offset with C's."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_double, c_int32, c_uint32, c_uint64, c_void_p

from attune.c_api import ForwardArgs, ForwardDesc, fields

ENGINE_VERSION = 1
ROLE_CONTENDER, ROLE_TWIN = 0, 1

Capture = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_int32, c_uint64)
Progress = ctypes.CFUNCTYPE(c_int32, c_void_p, c_char_p, c_double)


class LabGraph(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("role", c_int32),
        *fields(c_char_p, "name facts_json"),
        ("capture", Capture),
        *fields(c_void_p, "user graph"),
        *fields(c_int32, "calls reserved"),
    ]


Call = ctypes.CFUNCTYPE(None, c_void_p)
Make = ctypes.CFUNCTYPE(None, c_void_p, c_uint64)


class LabCall(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("role", c_int32),
        ("name", c_char_p),
        ("call", Call),
        ("make", Make),
        ("user", c_void_p),
    ]


CONTENDER_VERSION = 1


class ContenderApi(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("version", c_uint32),
        ("name", c_char_p),
        ("create", ctypes.CFUNCTYPE(c_int32, POINTER(ForwardDesc), POINTER(c_void_p))),
        ("run", ctypes.CFUNCTYPE(c_int32, c_void_p, POINTER(ForwardArgs), c_void_p)),
        ("destroy", ctypes.CFUNCTYPE(None, c_void_p)),
        ("workspace_bytes", ctypes.CFUNCTYPE(c_uint64, c_void_p)),
        ("last_error", ctypes.CFUNCTYPE(c_void_p)),  # a function of Python can give no c_char_p
    ]


class LabCallable(ctypes.Structure):
    _fields_ = [("callable", c_char_p), ("contender", POINTER(ContenderApi))]


# Of attune_lab_serve, which only processes of `trial` need.
SERVE = (c_int32, [c_char_p, c_int32, POINTER(LabCallable), c_int32])

ENGINE_FUNCTIONS = {
    "attune_lab_session_create": (c_int32, [c_char_p, c_int32, POINTER(c_void_p)]),
    "attune_lab_session_destroy": (None, [c_void_p]),
    "attune_lab_add_graph": (c_int32, [c_void_p, POINTER(LabGraph)]),
    "attune_lab_add_call": (c_int32, [c_void_p, POINTER(LabCall)]),
    "attune_lab_run": (c_int32, [c_void_p, Progress, c_void_p, POINTER(c_char_p)]),
    "attune_lab_environment": (c_int32, [c_void_p, POINTER(c_char_p)]),
    "attune_lab_last_error": (c_char_p, []),
    "attune_lab_engine_version": (c_uint32, []),
}
