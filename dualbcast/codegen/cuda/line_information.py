"""Line information of kernels: Numba-CUDA and NVRTC write it for two modules, and here the two are made to link.

Each module says which version of debug information it has, and what a linker shall do about another version: NVRTC that
it is an error, Numba-CUDA that it is a warning. The versions are the same, but nvJitLink refuses modules that want
different things ("IDs have conflicting behaviors"). So Numba-CUDA's module is made to say what NVRTC's does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_FLAG = re.compile(r'(!\{\s*i32\s+)\d+(,\s*!"Debug Info Version")')
_ERROR = 1  # the behaviour "error" of LLVM's module flags


@contextmanager
def linkable(nvvm: Any) -> Iterator[None]:
    """A block in which what Numba-CUDA's module `numba.cuda.cudadrv.nvvm` compiles links with what NVRTC compiles, with
    line information in both. It changes that module: one block at a time."""
    compile_ir = nvvm.compile_ir

    def compile_flagged(llvm_ir: str | list[str], **options: Any) -> Any:
        texts = [llvm_ir] if isinstance(llvm_ir, str) else llvm_ir
        return compile_ir([_FLAG.sub(rf"\g<1>{_ERROR}\g<2>", text) for text in texts], **options)

    nvvm.compile_ir = compile_flagged
    try:
        yield
    finally:
        nvvm.compile_ir = compile_ir
