"""Names for profilers, if the environment asks for them with `DUALBCAST_PROFILE=1`: the map that Linux's perf reads for
machine code that has no file, and NVTX ranges around the launches on a GPU.
"""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

WANTED = os.environ.get("DUALBCAST_PROFILE", "0") not in ("", "0")

# The numbers of ELF for a table of symbols, and for a function in it.
_SYMBOL_TABLE, _FUNCTION = 2, 2


class _Symbol(NamedTuple):
    name: str
    section: int
    place: int
    size: int


def name_code(code: bytes, function: str, address: int, label: str) -> None:
    """Enter an object file's functions into the map of this process, given the address of one of them.

    That one gets the label, and the others of its section their own names after it. perf prescribes where the map of a
    process is.
    """
    if sys.platform != "linux" or not code.startswith(b"\x7fELF\x02\x01"):
        return
    symbols = list(_functions(code))
    own = next(symbol for symbol in symbols if symbol.name == function)
    lines = []
    for symbol in symbols:
        if symbol.section == own.section and symbol.size:
            name = label if symbol is own else f"{label}:{symbol.name}"
            lines.append(f"{address + symbol.place - own.place:x} {symbol.size:x} {name}\n")
    with open(f"/tmp/perf-{os.getpid()}.map", "a", encoding="utf-8") as file:
        file.write("".join(lines))


def _functions(code: bytes) -> Iterator[_Symbol]:
    """The functions of an object file in the format ELF of 64 bits, little-endian."""
    (first,), (step, count) = struct.unpack_from("<Q", code, 0x28), struct.unpack_from("<HH", code, 0x3A)
    # Of each section: its kind, where it begins, its size, and the section that it refers to.
    headers = [struct.unpack_from("<4xI16xQQI", code, first + step * at) for at in range(count)]
    for kind, begin, size, names in headers:
        if kind != _SYMBOL_TABLE:
            continue
        for at in range(begin, begin + size, 24):
            name, info, section, place, length = struct.unpack_from("<IBxHQQ", code, at)
            if info & 15 == _FUNCTION:
                start = headers[names][1] + name
                yield _Symbol(code[start : code.index(b"\0", start)].decode(), section, place, length)


class Ranged:
    """A function of CuPy's whose launches are in an NVTX range of this name."""

    def __init__(self, function: Any, name: str) -> None:
        import cupy.cuda.nvtx

        self.ptr, self._function, self._name = function.ptr, function, name
        self._push, self._pop = cupy.cuda.nvtx.RangePush, cupy.cuda.nvtx.RangePop

    def __call__(self, *args: Any) -> None:
        self._push(self._name)
        try:
            self._function(*args)
        finally:
            self._pop()
