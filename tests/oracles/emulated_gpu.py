"""CuPy itself on a GPU that is not there: `pytest -m gpu --emulated-gpu` runs the GPU tests without one.

CuPy finds the driver of `emulated_gpu.c` in place of NVIDIA's, and its calls of the CUDA runtime, which is part of its
modules, go there too. Its own kernels and this package's are loaded as PTX, which `dualbcast/counting` runs. What
NVIDIA's libraries have as machine code, sorting and products of matrices, NumPy does. Times mean nothing, and all is
done in the order in which it is asked for, whatever the stream. For Linux on x86-64, with gcc and binutils.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dualbcast.counting import executor as ptx

__all__ = ["install", "why_not"]

_SOURCE = Path(__file__).with_suffix(".c")
_BY_NUMPY = ("argsort", "convolve", "dot", "einsum", "matmul", "tensordot")
_LINALG_BY_NUMPY = ("solve", "inv", "det", "slogdet", "cholesky", "qr", "eigh", "eigvalsh", "svd", "pinv", "lstsq")
_DEVICES = 2
_kept: list[Any] = []  # what C code has the addresses of
# What this package's kernels begin with. CuPy's have threads that end before barriers, ours may not.
_OURS = b"// of dualbcast\n"


def why_not() -> str:
    """Why there can be no emulation here; empty if there can."""
    if sys.platform != "linux" or os.uname().machine != "x86_64":
        return "a GPU is emulated on Linux on x86-64 only"
    if ptx.COMPILER is None or shutil.which("readelf") is None:
        return "to emulate a GPU takes gcc and readelf"
    if importlib.util.find_spec("cupy") is None:
        return 'to emulate a GPU takes CuPy: pip install -e ".[dev,cuda13]"'
    return ""


def install(folder: Path) -> ctypes.CDLL:
    """Let CuPy, which nothing may have imported yet, run on the emulation.

    Parameters
    ----------
    folder : Path
        For what is compiled, this package's kernels too: as PTX they must not come into a cache that others read.

    Returns
    -------
    ctypes.CDLL
        The driver.
    """
    assert "cupy" not in sys.modules
    os.environ["CUPY_COMPILE_WITH_PTX"] = "1"
    os.environ["CUPY_ACCELERATORS"] = ""
    os.environ["CUPY_CACHE_DIR"] = str(folder / "cupy")
    os.environ["DUALBCAST_CACHE_DIR"] = str(folder)
    driver = _driver(folder)
    runtime = importlib.import_module("cupy_backends.cuda.api.runtime")
    _replace_functions(runtime.__file__, driver)
    _let_numpy_do()
    _keep_ptx()
    return driver


def _driver(folder: Path) -> ctypes.CDLL:
    """The driver, compiled and loaded under the name by which CuPy looks for NVIDIA's."""
    library = folder / "libcuda.so.1"
    if not library.exists():
        made = folder / f"libcuda.{os.getpid()}"
        flags = ["-std=gnu11", "-O1", "-fvisibility=hidden", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
        subprocess.run(["gcc", *flags, "-o", str(made), str(_SOURCE)], check=True)
        made.replace(library)
    driver = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    pointers = (ctypes.POINTER(ctypes.c_int),) * 3
    prototype = ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_char), *pointers
    )

    def translate(text: bytes, name: bytes, path: Any, sizes: Any, together: Any, most: Any) -> int:
        try:
            kernel = ptx.Kernel(text.decode(), name.decode(), folder, may_end=not text.startswith(_OURS))
        except Exception as error:  # it was a C function that called
            print(f"emulated GPU: {name.decode()}: {error}", file=sys.stderr)
            return -1
        ctypes.memmove(path, str(kernel.path).encode() + b"\0", len(str(kernel.path)) + 1)
        for at, size in enumerate(kernel.sizes):
            sizes[at] = size
        together[0], most[0] = kernel.together, kernel.most
        return len(kernel.sizes)

    callback = prototype(translate)
    _kept.append(callback)
    driver.emulated_setup(callback, _DEVICES)
    return driver


def _replace_functions(path: str, driver: ctypes.CDLL) -> None:
    """Begin each function of the CUDA runtime in a loaded library with a jump to the driver's of that name."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        base = min(int(line.partition("-")[0], 16) for line in maps if line.rstrip().endswith(path))
    table = subprocess.run(["readelf", "-sW", path], capture_output=True, text=True, check=True).stdout
    functions = re.findall(r"^\s*\d+: ([0-9a-f]+)\s+\d+ FUNC\s.* (cuda[A-Z]\w+)$", table, re.MULTILINE)
    protect = ctypes.CDLL(None).mprotect
    protect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    replaced = 0
    for offset, name in functions:
        try:
            target = ctypes.cast(getattr(driver, name), ctypes.c_void_p).value
        except AttributeError:
            continue  # NVIDIA's own, which says that there is no driver
        address = base + int(offset, 16)
        protect(address & -4096, 8192, 7)
        jump = b"\xff\x25\0\0\0\0" + struct.pack("<Q", target)
        ctypes.memmove(address, jump, len(jump))
        replaced += 1
    if not replaced:
        raise RuntimeError(f"this release of CuPy hides the functions of the CUDA runtime in {path}")


def _let_numpy_do() -> None:
    cupy = importlib.import_module("cupy")
    linalg = importlib.import_module("dualbcast.graph.linalg.products")

    def host(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)([host(each) for each in value])
        return value.get() if isinstance(value, cupy.ndarray) else value

    def on_device(value: Any) -> Any:
        return tuple(map(on_device, value)) if isinstance(value, tuple) else cupy.asarray(value)

    def by_numpy(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **named: on_device(function(*host(args), **named))

    for name in _BY_NUMPY:
        setattr(cupy, name, by_numpy(getattr(np, name)))
    for name in _LINALG_BY_NUMPY:
        setattr(cupy.linalg, name, by_numpy(getattr(np.linalg, name)))
    multiply = linalg.MATMUL.forward
    linalg.MATMUL.forward = lambda a, b: cupy.matmul(a, b) if isinstance(a, cupy.ndarray) else multiply(a, b)


def _keep_ptx() -> None:
    """Let kernels of this package, and those by hand, be PTX, and not machine code, which nothing here can run."""
    from cuda import core

    from dualbcast.codegen.cuda import build as cuda_build

    build, program = cuda_build.build, core.Program
    log = "Used 32 registers, 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"

    def build_ptx(source: Any, cc: tuple[int, int], fastmath: bool, *, ptx: bool = False) -> tuple[bytes, str]:
        image, _ = build(source, cc, fastmath, ptx=True)
        return image if ptx else _OURS + image.rstrip(b"\0") + b"\0", log

    class Program:
        def __init__(self, *arguments: Any) -> None:
            self.whole = program(*arguments)

        def compile(self, kind: str, **named: Any) -> Any:
            found = self.whole.compile(kind, **named)
            return self.whole.compile("ptx") if kind == "cubin" else found

    cuda_build.build, core.Program = build_ptx, Program
