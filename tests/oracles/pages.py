"""Memory that has none to be read before and after it."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Iterator

import numpy as np


@contextlib.contextmanager
def alone(pages: int) -> Iterator[np.ndarray]:
    """Bytes of so many pages, between two that nobody may read."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, (pages + 2) * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    edges = start, start + (pages + 1) * page
    for edge in edges:
        assert protect(edge, page, 0) == 0
    try:
        yield np.frombuffer((ctypes.c_char * (pages * page)).from_address(start + page), np.uint8)
    finally:
        for edge in edges:
            protect(edge, page, mmap.PROT_READ | mmap.PROT_WRITE)
