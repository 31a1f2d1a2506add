"""How much the compiler and its kernels do, in counts that are the same on a busy machine.

A kernel's work is the instructions that it executes: each basic block of the optimised LLVM module gets code that adds
the number of its instructions to a counter. The alignment of the arrays, another one in each run, changes it by a few
percent.
"""

from __future__ import annotations

import cProfile
import ctypes
import re
from collections.abc import Callable, Iterator
from typing import Any

import llvmlite.binding as llvm
import numpy as np
import pytest

from dualbcast.codegen.llvm import build
from dualbcast.codegen.llvm.target import LOCK, features, host

# How many calls of Python functions take as long as LLVM takes for a module that has nothing in it, and for each of its
# instructions, before or after it optimises: about 0.13 µs each.
LLVM_MODULE = 60_000
LLVM_INSTRUCTION = 250
# How many instructions a call of a function in a library stands for, such as one of libm's.
LIBRARY_CALL = 20
_EXECUTED = ctypes.c_uint64()
_ADDRESS = str(ctypes.addressof(_EXECUTED))
_LABEL = re.compile(r'[-\w.$"]+:')
_PHI = re.compile(r"  %\S+ = phi ")
_CALLED = re.compile(r"\bcall\b.* @([\w.$]+)\(")
_VECTOR = re.compile(r"<(\d+) x (?:i(\d+)|half|bfloat|(float)|(double)|ptr)>")
_COUNT = """\
  %counted.{block} = load i64, ptr inttoptr (i64 {address} to ptr)
  %added.{block} = add i64 %counted.{block}, {instructions}
  store i64 %added.{block}, ptr inttoptr (i64 {address} to ptr)"""


class Counter:
    """Counts the work of the compiler, and of the kernels that it compiles while the patches are there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._llvm = 0
        optimised = build._optimised

        def counted(lowered: Any, source: Any) -> Any:
            module = optimised(lowered, source)
            instructions = sum(str(each).count("\n") for each in (lowered, module))
            self._llvm += LLVM_MODULE + LLVM_INSTRUCTION * instructions
            return module

        def object_file(built: build.Built) -> bytes:
            with LOCK:
                return bytes(host().emit_object(llvm.parse_assembly(with_counts(str(built.module)))))

        monkeypatch.setattr(build, "_optimised", counted)
        monkeypatch.setattr(build.Built, "object_file", object_file)

    def compiled(self, run: Callable[[], object]) -> int:
        """The work to compile what a call needs, in calls of Python functions."""
        self._llvm, profile = 0, cProfile.Profile()
        profile.runcall(run)
        return sum(entry.callcount for entry in profile.getstats()) + self._llvm

    @staticmethod
    def executed(run: Callable[[], object]) -> int:
        """The instructions that the kernels of a call execute."""
        with np.errstate(all="ignore"):
            run()
            _EXECUTED.value = 0
            run()
        return _EXECUTED.value


def with_counts(text: str) -> str:
    """A module whose blocks count the instructions that are executed.

    Examples
    --------
    >>> text = "define i64 @f(i64 %x) {\\n  %y = add i64 %x, 1\\n  ret i64 %y\\n}"
    >>> print(with_counts(text).replace(_ADDRESS, "…"))
    define i64 @f(i64 %x) {
      %counted.0 = load i64, ptr inttoptr (i64 … to ptr)
      %added.0 = add i64 %counted.0, 2
      store i64 %added.0, ptr inttoptr (i64 … to ptr)
      %y = add i64 %x, 1
      ret i64 %y
    }
    """
    defined = set(re.findall(r"^define .*?@([\w.$]+)\(", text, re.MULTILINE))
    return "\n".join(_counting(text.splitlines(), defined))


def _counting(lines: list[str], defined: set[str]) -> Iterator[str]:
    block: list[str] = []
    number, inside = 0, False
    for line in lines:
        if inside and line != "}" and not _LABEL.match(line):
            block.append(line)
            continue
        if block:
            yield from _counted(block, number, defined)
            block, number = [], number + 1
        inside = line.startswith("define ") or (inside and line != "}")
        yield line


def _counted(block: list[str], number: int, defined: set[str]) -> Iterator[str]:
    """A block with the code that counts its instructions, after those that have to be first."""
    # The lines of a switch are further in.
    weight = sum(_weight(line, defined) for line in block if re.match(r"  [^ \]]", line))
    yield from (line for line in block if _PHI.match(line))
    yield _COUNT.format(block=number, address=_ADDRESS, instructions=weight)
    yield from (line for line in block if not _PHI.match(line))


def _weight(line: str, defined: set[str]) -> int:
    """How many instructions of the machine one of LLVM's is, about: one for each register of its widest vector."""
    register = 512 if "avx512f" in features() else 256 if "avx2" in features() else 128
    registers = 1
    for count, integer, single, double in _VECTOR.findall(line):
        bits = int(integer or (32 if single else 64 if double else 16))
        registers = max(registers, -(-int(count) * bits // register))
    called = _CALLED.search(line)
    library = called is not None and called[1] not in defined and not called[1].startswith("llvm.")
    return registers * (LIBRARY_CALL if library else 1)
