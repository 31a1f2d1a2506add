"""Line information of kernels: Numba-CUDA and NVRTC write it for two modules, and here the two are made to link.

Comes in: the text of an element function, and Numba-CUDA's module that compiles. Goes out: the same, with lines.

Each module says which version of debug information it has, and what a linker shall do about another version: NVRTC that
it is an error, Numba-CUDA that it is a warning. The versions are the same, but nvJitLink refuses modules that want
different things ("IDs have conflicting behaviors"). So Numba-CUDA's module is made to say what NVRTC's does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from dualbcast.errors import BackendError

_FLAG = re.compile(r'(!\{\s*i32\s+)\d+(,\s*!"Debug Info Version")')
_ERROR = 1  # the behaviour "error" of LLVM's module flags
# Says which variable has which value. These are left out: where they are, the optimiser may make other instructions.
_VARIABLE = re.compile(r'^[^\n]*@"?llvm\.dbg\.\w+"?\([^\n]*\n', re.MULTILINE)


# The first lines of our own functions that load and store numbers, and are inlined as helpers are.
LOADS, STORES = 10_000_000, 20_000_000


def begun_at(line: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with other numbers of its lines, which begin at this one."""
    assert isinstance(function, FunctionType)
    function.__code__ = function.__code__.replace(co_firstlineno=line)
    return function


@contextmanager
def linkable(nvvm: Any) -> Iterator[None]:
    """A block in which what Numba-CUDA's module `numba.cuda.cudadrv.nvvm` compiles links with what NVRTC compiles, with
    line information in both. It changes that module: one block at a time."""
    compile_ir = getattr(nvvm, "compile_ir", None)
    if compile_ir is None:
        raise BackendError("this release of Numba-CUDA compiles in another way, whose line information does not link")

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
    """The code of a kernel's text, where some numbers of lines are greater, by as many lines as the text has.

    Those of helper functions are, so that they are beyond those of the element function: where a helper is inlined,
    Numba-CUDA gives each line that is before the element function the number of its head. Those of stores are greater
    by twice as much, but for the values that are stored.
    """
    tree, count = ast.parse(text, path), len(text.splitlines())
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name != element:
            ast.increment_lineno(node, count)
        elif isinstance(node, ast.FunctionDef):
            for part in (part for statement in node.body for part in _store_of(statement)):
                part.lineno += 2 * count
                part.end_lineno = (part.end_lineno or 0) + 2 * count
    return compile(tree, path, "exec")


def _store_of(statement: ast.stmt) -> list[ast.stmt | ast.expr]:
    """The nodes of a statement that store, as `Writer.store` writes it; none of another statement."""
    match statement:
        case ast.Assign(targets=[ast.Subscript() as target]):
            return [statement, target]
        case ast.Expr(value=ast.Call(func=ast.Name(id=name) as function) as call) if name.startswith("store_"):
            return [statement, call, function]
    return []


def line_of(number: int, count: int) -> tuple[int, bool]:
    """The line of a text of so many lines that a number from its `code_with_lines` stands for, 0 for none, and whether
    it stores there.

    Examples
    --------
    >>> line_of(7, 10), line_of(13, 10), line_of(28, 10), line_of(0, 10)
    ((7, False), (3, False), (8, True), (0, False))
    """
    if number >= LOADS:
        return 0, number >= STORES
    return ((number - 1) % count + 1, number > 2 * count) if number else (0, False)
