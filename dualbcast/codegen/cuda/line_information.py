"""Line information of kernels: Numba-CUDA and NVRTC write it for two modules, and here the two are made to link.

Comes in: the text of an element function, and Numba-CUDA's module that compiles. Goes out: the same, with lines.

Each module says which version of debug information it has, and what a linker shall do about another version: NVRTC that
it is an error, Numba-CUDA that it is a warning. The versions are the same, but nvJitLink refuses modules that want
different things ("IDs have conflicting behaviors"). So Numba-CUDA's module is made to say what NVRTC's does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
from typing import Any

_FLAG = re.compile(r'(!\{\s*i32\s+)\d+(,\s*!"Debug Info Version")')
_ERROR = 1  # the behaviour "error" of LLVM's module flags
# Says which variable has which value. These are left out: where they are, the optimiser may make other instructions.
_VARIABLE = re.compile(r'^[^\n]*@"?llvm\.dbg\.\w+"?\([^\n]*\n', re.MULTILINE)


@contextmanager
def linkable(nvvm: Any) -> Iterator[None]:
    """A block in which what Numba-CUDA's module `numba.cuda.cudadrv.nvvm` compiles links with what NVRTC compiles, with
    line information in both. It changes that module: one block at a time."""
    compile_ir = nvvm.compile_ir

    def compile_flagged(llvm_ir: str | list[str], **options: Any) -> Any:
        texts = [llvm_ir] if isinstance(llvm_ir, str) else llvm_ir
        texts = [_VARIABLE.sub("", text) for text in texts]
        return compile_ir([_FLAG.sub(rf"\g<1>{_ERROR}\g<2>", text) for text in texts], **options)

    nvvm.compile_ir = compile_flagged
    try:
        yield
    finally:
        nvvm.compile_ir = compile_ir


def code_with_lines(text: str, path: str, element: str) -> CodeType:
    """The code of a kernel's text, where the numbers of lines of helper functions are greater by as many lines as the
    text has, so that they are beyond those of the element function.

    Where a helper is inlined, Numba-CUDA gives each line that is before the element function the number of its head.
    """
    tree, count = ast.parse(text, path), len(text.splitlines())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name != element:
            ast.increment_lineno(node, count)
    return compile(tree, path, "exec")


def line_of(number: int, count: int) -> int:
    """The line of a text of so many lines that a number from its `code_with_lines` stands for; 0 for none.

    Examples
    --------
    >>> line_of(7, 10), line_of(13, 10), line_of(0, 10)
    (7, 3, 0)
    """
    return (number - 1) % count + 1 if number else 0
