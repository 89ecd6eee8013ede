"""The OpenMP runtime that torch computes with on the CPU. Its threads go on spinning for a while after each of torch's
operations; threads of our own would fight with them for the cores."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import torch

from attune.c_api import OpenMP

_PF_FORKNOEXEC = 0x40  # of Linux: forked, and nothing executed since


def find() -> OpenMP | None:
    """None where torch has no such runtime, or where it may be unusable."""
    if not torch.backends.openmp.is_available() or _is_forked():
        return None
    # In the order in which the loader binds torch's own calls: what is visible to everybody, then what torch needs.
    for path in (None, Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"):
        try:
            library = ctypes.CDLL(path and str(path), mode=os.RTLD_NOLOAD)
            functions = [getattr(library, name) for name in ("GOMP_parallel", "omp_get_max_threads")]
        except (OSError, AttributeError):
            continue
        if library.omp_get_max_threads() == torch.get_num_threads():  # otherwise it is another one
            return OpenMP(*(ctypes.cast(function, ctypes.c_void_p).value for function in functions))
    return None


def _is_forked() -> bool:
    """A runtime that the parent of this process has used would wait for the parent's threads."""
    try:
        flags = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[6]
    except OSError:
        return False
    return bool(int(flags) & _PF_FORKNOEXEC)
