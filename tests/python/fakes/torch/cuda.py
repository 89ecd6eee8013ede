"""Streams that do nothing, and graphs that the fake driver knows."""

import ctypes
import os
from contextlib import contextmanager

library = ctypes.CDLL(os.environ["FAKE_LIBRARY"])
library.fake_capture_begin.restype = ctypes.c_void_p


class Stream:
    cuda_stream = 77


class _Default:
    cuda_stream = None


_current = [_Default()]


def current_stream():
    return _current[-1]


@contextmanager
def stream(given):
    _current.append(given)
    try:
        yield
    finally:
        _current.pop()


class CUDAGraph:
    def __init__(self, keep_graph):
        assert keep_graph

    def capture_begin(self, capture_error_mode):
        assert current_stream().cuda_stream == Stream.cuda_stream
        self._graph = library.fake_capture_begin()

    def capture_end(self):
        library.fake_capture_end()

    if "FAKE_OLD_TORCH" not in os.environ:

        def raw_cuda_graph(self):
            return self._graph


def is_available():
    return "FAKE_NO_GPU" not in os.environ


def set_device(index):
    assert index == 0


def synchronize():
    pass


def empty_cache():
    pass


def mem_get_info():
    return 1, 4  # little is left: the cache is emptied
