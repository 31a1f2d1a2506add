"""An object file of LLVM's, in ELF for x86-64, linked: one block of code and constants that runs wherever it lies."""

from __future__ import annotations

import struct
from typing import NamedTuple

__all__ = ["Image", "Unknown", "linked"]

# The beginning of such a file: 64 bits, little endian; and the kind of machine.
_MAGIC, _MACHINE = b"\x7fELF\x02\x01", b"\x3e\x00"
# Kinds of sections, and their flags.
_SYMBOLS, _RELOCATIONS, _NO_BYTES = 2, 4, 8
_WRITABLE, _IN_MEMORY = 1, 2
# How a debugger or an exception finds its way out of a function.
_UNWINDING = b".eh_frame"
# Relocations: the distance to something, to a function, and to a slot that has the address of something.
_DISTANCE, _CALL, _SLOTS = 2, 4, {9, 41, 42}
_FUNCTION, _GLOBAL = 2, 1
# What is called for a function elsewhere, `jmp *2(%rip)` and two bytes that never run, and its slot.
_STUB, _SLOT = b"\xff\x25\x02\x00\x00\x00\xcc\xcc", bytes(8)


class Unknown(Exception):
    """The file has something that is not known here."""


class Image(NamedTuple):
    """Code that runs at any address that is a multiple of 4096, once its slots are filled.

    Attributes
    ----------
    code : bytes
    functions : dict
        Where each begins, by name.
    slots : dict
        Where the address of what is elsewhere in the process is to be written, by its name.
    """

    code: bytes
    functions: dict[str, int]
    slots: dict[str, int]


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry: int


class _Symbol(NamedTuple):
    """Its name; whether it is a function for others; where it is, None if elsewhere."""

    name: str
    exported: bool
    place: int | None


def linked(code: bytes) -> Image:
    """Lay the sections out one after the other, and a stub and a slot for each thing that is elsewhere.

    Raises
    ------
    Unknown
        The file is of another format, or has what kernels do not have: variables, say.
    """
    if code[: len(_MAGIC)] != _MAGIC or code[18:20] != _MACHINE:
        raise Unknown("no ELF for x86-64")
    sections = _sections(code)
    image, placed = _laid_out(code, sections)
    symbols = _symbols(code, sections, placed)
    slots: dict[str, int] = {}
    for section in sections:
        if section.kind != _RELOCATIONS or section.info not in placed:
            continue
        for where, info, addend in struct.iter_unpack("<QQq", _content(code, section)):
            symbol, kind, place = symbols[info >> 32], info & 0xFFFFFFFF, placed[section.info] + where
            if symbol.place is not None and kind in (_DISTANCE, _CALL):
                target = symbol.place
            elif symbol.place is None and kind in (_CALL, *_SLOTS):
                if symbol.name not in slots:
                    image += bytes(-len(image) % 8) + _STUB + _SLOT
                    slots[symbol.name] = len(image) - len(_SLOT)
                target = slots[symbol.name] - (len(_STUB) if kind == _CALL else 0)
            else:
                raise Unknown(f"relocation {kind} of {symbol.name}")
            struct.pack_into("<i", image, place, target + addend - place)
    functions = {symbol.name: symbol.place for symbol in symbols if symbol.exported and symbol.place is not None}
    return Image(bytes(image), functions, slots)


def _sections(code: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", code, 40)
    (count,) = struct.unpack_from("<H", code, 60)
    return [_Section(*struct.unpack_from("<IIQQQQIIQQ", code, start + 64 * at)) for at in range(count)]


def _content(code: bytes, section: _Section) -> bytes:
    return code[section.offset : section.offset + section.size]


def _text(code: bytes, start: int) -> bytes:
    return code[start : code.index(b"\0", start)]


def _laid_out(code: bytes, sections: list[_Section]) -> tuple[bytearray, dict[int, int]]:
    """The bytes, and where in them each section of code and constants is."""
    (names,) = struct.unpack_from("<H", code, 62)
    image, placed = bytearray(), {}
    for at, section in enumerate(sections):
        if not section.flags & _IN_MEMORY or _text(code, sections[names].offset + section.name) == _UNWINDING:
            continue
        if section.size and (section.flags & _WRITABLE or section.kind == _NO_BYTES):
            raise Unknown("variables")
        image += bytes(-len(image) % max(1, section.alignment))
        placed[at] = len(image)
        image += _content(code, section)
    return image, placed


def _symbols(code: bytes, sections: list[_Section], placed: dict[int, int]) -> list[_Symbol]:
    table = next(section for section in sections if section.kind == _SYMBOLS)
    found = []
    for name, info, _, where, value, _ in struct.iter_unpack("<IBBHQQ", _content(code, table)):
        text = _text(code, sections[table.link].offset + name).decode()
        place = placed[where] + value if where in placed else None
        found.append(_Symbol(text, info >> 4 == _GLOBAL and info & 15 == _FUNCTION, place))
    return found
