"""include/attune/attune.h through ctypes: structs, functions, errors, and where the library is. A test compares every
constant, field and offset with the header's, and fails if one of the header's is missing here."""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import POINTER, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from pathlib import Path
from typing import Callable, NamedTuple

ABI_VERSION = 3

OK, INVALID_ARGUMENT, UNSUPPORTED, NO_DEVICE, NOT_BUILT, NOT_PREPARED = range(6)
COMPILE_ERROR, DEVICE_ERROR, OUT_OF_MEMORY, INTERNAL_ERROR = range(6, 10)
F16, BF16, F32 = 0, 1, 2
CPU, CUDA = 0, 1
CAUSAL_NONE, CAUSAL_TOP_LEFT, CAUSAL_BOTTOM_RIGHT = 0, 1, 2

FEATURE_SCALE = 0x001
FEATURE_WINDOW = 0x002
FEATURE_SOFTCAP = 0x004
FEATURE_SINK = 0x008
FEATURE_BIAS = 0x010
FEATURE_MASK = 0x020
FEATURE_PACKED = 0x040
FEATURE_USED_Q = 0x080
FEATURE_USED_K = 0x100
FEATURE_LSE = 0x200
FEATURE_OVERLAP = 0x400
FEATURE_KV_READY = 0x800
FEATURE_F32_HIGH = 0x1000
FEATURE_DLSE = 0x2000
FEATURE_DSINK = 0x4000
FEATURE_DBIAS = 0x8000
FEATURE_ANY_ORDER = 0x10000

WORKSPACE_ALIGNMENT = 256
_USUAL_EXPLANATION_BYTES = 4096  # a longer one is asked for twice


def fields(kind, names: str) -> list:
    return [(name, kind) for name in names.split()]


class Strides(ctypes.Structure):
    _fields_ = fields(c_int64, "batch row head")


class ScoreStrides(ctypes.Structure):
    _fields_ = fields(c_int64, "batch head query key")


class ForwardDesc(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("features", c_uint32),
        *fields(c_int32, "device_kind device_index dtype bias_dtype causal"),
        ("reserved", c_uint32),
        *fields(c_int64, "batch heads_q heads_kv seq_q seq_k dim_qk dim_v total_q total_k"),
        *fields(Strides, "q k v o lse"),
        *fields(ScoreStrides, "bias mask"),
        *fields(c_int64, "window_left window_right"),
        *fields(c_float, "scale softcap"),
    ]


class ForwardArgs(ctypes.Structure):
    _fields_ = [
        *fields(c_uint32, "struct_size reserved"),
        *fields(c_void_p, "q k v o lse sink bias mask cu_seqlens_q cu_seqlens_k used_q used_k workspace"),
        ("workspace_bytes", c_uint64),
    ]


class BackwardDesc(ctypes.Structure):
    """Begins as ForwardDesc does."""

    _fields_ = [
        *ForwardDesc._fields_,
        *fields(Strides, "dout dlse dq dk dv"),
        ("dbias", ScoreStrides),
    ]


class BackwardArgs(ctypes.Structure):
    _fields_ = [
        *fields(c_uint32, "struct_size reserved"),
        *fields(c_void_p, "q k v o lse sink bias mask cu_seqlens_q cu_seqlens_k used_q used_k"),
        *fields(c_void_p, "dout dlse dq dk dv dsink dbias workspace"),
        ("workspace_bytes", c_uint64),
    ]


class Options(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_uint32),
        ("threads", c_int32),
        *fields(c_void_p, "parallel_for parallel_for_user"),
        ("kernel", c_char_p),
        *fields(c_void_p, "gomp_parallel omp_get_max_threads"),
    ]


class OpenMP(NamedTuple):
    """Addresses of two functions of an OpenMP runtime that this process has."""

    gomp_parallel: int
    omp_get_max_threads: int


# Descriptors and arguments are byref(struct), or the struct's bytes: then nothing has to be kept per thread.
FUNCTIONS = {
    "attune_create": (c_int32, [POINTER(Options), POINTER(c_void_p)]),
    "attune_destroy": (None, [c_void_p]),
    "attune_prepare": (c_int32, [c_void_p, c_void_p]),
    "attune_workspace_bytes": (c_int32, [c_void_p, c_void_p, POINTER(c_uint64)]),
    "attune_forward": (c_int32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attune_explain": (c_int32, [c_void_p, c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
    "attune_last_error": (c_char_p, []),
    "attune_abi_version": (c_uint32, []),
}
GRADIENT_FUNCTIONS = {
    "attune_backward_prepare": (c_int32, [c_void_p, c_void_p]),
    "attune_backward_workspace_bytes": (c_int32, [c_void_p, c_void_p, POINTER(c_uint64)]),
    "attune_backward": (c_int32, [c_void_p, c_void_p, c_void_p, c_void_p]),
    "attune_backward_explain": (c_int32, [c_void_p, c_void_p, c_char_p, c_size_t, POINTER(c_size_t)]),
}


def load(path: str | Path, functions: dict) -> ctypes.CDLL:
    """The library with the types of its functions set. OSError or AttributeError if it is not that library."""
    # A name without a slash would be searched for elsewhere.
    library = ctypes.CDLL(str(Path(path).absolute()))
    for name, (result, arguments) in functions.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


class AttuneError(RuntimeError):
    """A call that failed, with the library's sentence; `status` is that of attune.h."""

    status = 0


class InvalidArgument(AttuneError, ValueError):
    """The call contradicts the contract; the text names the argument."""

    status = INVALID_ARGUMENT


class Unsupported(AttuneError, NotImplementedError):
    """A legal call that nothing present can serve."""

    status = UNSUPPORTED


_ERRORS = {error.status: error for error in (InvalidArgument, Unsupported)}


def library_path() -> Path:
    """$ATTUNE_LIBRARY, or the library in this package, or that of the checkout this package lies in."""
    if named := os.environ.get("ATTUNE_LIBRARY"):
        return Path(named)
    package = Path(__file__).resolve().parent
    places = [package / "libattune.so", package.parents[1] / "build/libattune.so"]
    for place in places:
        if place.is_file():
            return place
    raise AttuneError(f"libattune.so is at none of {', '.join(map(str, places))}; ATTUNE_LIBRARY can name it")


class Library:
    """libattune with one context. On the CPU it computes with the threads of that OpenMP runtime, otherwise with
    `threads` of its own."""

    def __init__(self, path: Path, threads: int = 0, openmp: OpenMP | None = None):
        try:
            self.functions = load(path, FUNCTIONS)
        except (OSError, AttributeError) as error:
            raise AttuneError(f"{path} cannot be loaded: {error}") from error
        version = self.functions.attune_abi_version()
        if version < ABI_VERSION:
            raise AttuneError(f"{path} has ABI version {version}; this package needs {ABI_VERSION} or newer")
        self.gradients = load(path, GRADIENT_FUNCTIONS)
        self.path = path
        self.openmp = openmp
        self.forward = self.functions.attune_forward
        self.backward = self.gradients.attune_backward
        context = c_void_p()
        options = Options(struct_size=ctypes.sizeof(Options), threads=threads, **(openmp._asdict() if openmp else {}))
        self.require(self.functions.attune_create(ctypes.byref(options), ctypes.byref(context)))
        self.context = context.value

    # `say` turns a sentence about the fields of structs into one about what the caller passed.

    def require(self, status: int, say: Callable[[str], str] = str) -> None:
        if status != OK:
            raise self.error(status, say)

    def error(self, status: int, say: Callable[[str], str] = str) -> AttuneError:
        error = _ERRORS.get(status, AttuneError)(say(self.functions.attune_last_error().decode()))
        error.status = status
        return error

    def workspace_bytes(self, desc: bytes, say: Callable[[str], str]) -> int:
        return self._size(self.functions.attune_workspace_bytes, desc, say)

    def explain(self, desc: bytes, say: Callable[[str], str]) -> str:
        return self._text(self.functions.attune_explain, desc, say)

    def backward_workspace_bytes(self, desc: bytes, say: Callable[[str], str]) -> int:
        return self._size(self.gradients.attune_backward_workspace_bytes, desc, say)

    def explain_backward(self, desc: bytes, say: Callable[[str], str]) -> str:
        return self._text(self.gradients.attune_backward_explain, desc, say)

    def _size(self, function, desc: bytes, say: Callable[[str], str]) -> int:
        size = c_uint64()
        self.require(function(self.context, desc, ctypes.byref(size)), say)
        return size.value

    def _text(self, function, desc: bytes, say: Callable[[str], str]) -> str:
        length, text = c_size_t(_USUAL_EXPLANATION_BYTES), None
        while text is None or length.value >= len(text):
            text = ctypes.create_string_buffer(length.value + 1)
            self.require(function(self.context, desc, text, len(text), ctypes.byref(length)), say)
        return text.value.decode()


def kernel_of(explanation: str) -> str:
    """The name of the kernel that would run, from what explain() said."""
    return re.search(r"^kernel: (\S+)", explanation, re.MULTILINE)[1]
