"""The least that a case can take: its inputs read and its outputs written once, by a C program that computes nothing.

Takes the sizes of a case's arrays and gives the forms in which the program may go through as many of its own: plain
stores, and stores past the cache. Needs a C compiler with OpenMP (`cc -fopenmp`); without one the floor is skipped.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from constants import THREADS

SOURCE = Path(__file__).with_name("floor.c")
LINE = 64
# How far apart arrays begin, in bytes, or a multiple of it: of 2, 4 and 8 MiB that at which several are read fastest.
APART = 8 << 20


@functools.cache
def library() -> ctypes.CDLL:
    """The program, compiled for this processor; ImportError if it cannot be."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "floor.so"
        command = ["cc", "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", str(SOURCE), "-o", str(path)]
        try:
            subprocess.run(command, check=True, capture_output=True)
            loaded = ctypes.CDLL(str(path))
        except (OSError, subprocess.CalledProcessError) as error:
            raise ImportError(f"no C compiler with OpenMP: {error}") from error
    sizes, numbers = [ctypes.c_size_t] * 2, [ctypes.c_int] * 4
    loaded.touch.argtypes, loaded.touch.restype = [ctypes.c_void_p, *sizes, *numbers], None
    return loaded


def forms(inputs: int, outputs: int, size: int) -> dict[str, Callable[[], Callable[[], None]]]:
    """Ways through `inputs` arrays that are read and `outputs` that are written, of `size` bytes each."""
    touch = library().touch
    size -= size % LINE
    step = size + -size % APART + 5 * LINE  # and not at the same place of a page, since a first cache has few for those
    # Of random bytes: some processors write lines of equal bytes in half of the time (AMD's Zen 4).
    memory = np.random.default_rng(0).integers(256, size=(inputs + outputs) * step + LINE, dtype=np.uint8)
    first = memory[-memory.ctypes.data % LINE :].ctypes.data_as(ctypes.c_void_p)  # which keeps the memory

    def form(streamed: bool) -> Callable[[], None]:
        return lambda: touch(first, step, size, inputs, outputs, streamed, THREADS)

    return {"stored": lambda: form(False), "streamed": lambda: form(True)}
