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
LINE, PAGE = 64, 4096


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
    step = size + -size % PAGE + 37 * LINE  # what is read or written together is not all at one place of the cache
    memory = np.ones((inputs + outputs) * step + LINE, np.uint8)
    first = memory[-memory.ctypes.data % LINE :].ctypes.data_as(ctypes.c_void_p)  # which keeps the memory

    def form(streamed: bool) -> Callable[[], None]:
        return lambda: touch(first, step, size, inputs, outputs, streamed, THREADS)

    return {"stored": lambda: form(False), "streamed": lambda: form(True)}
