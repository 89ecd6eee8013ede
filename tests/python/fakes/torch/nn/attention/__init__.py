"""SDPBackend and sdpa_kernel."""

import enum
from contextlib import contextmanager


class SDPBackend(enum.IntEnum):
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3


chosen = [None]


@contextmanager
def sdpa_kernel(backend):
    chosen.append(backend)
    try:
        yield
    finally:
        chosen.pop()
