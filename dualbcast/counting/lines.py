"""What was counted, by line of the user's function.

Comes in: counts of a text with lines, and where each of those lines comes from. Goes out: a row for each.
"""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dualbcast.codegen.cuda.line_information import line_of
from dualbcast.codegen.text_places import Place, Store
from dualbcast.counting.counter import Counts, Executed
from dualbcast.errors import Location
from dualbcast.tracebacks import place_of

_REST = "indices, and what has no line"
_NAME = re.compile(r"(%[a-z]+(?=\d)|\$L(?=\w))\w+")
# A section has one pair of braces, and no others in it.
# Labels at the ends of functions are for sections of debug information.
_POSITIONS = (".loc ", ".file ", ".reg ", "$L__func_", "$L__tmp")
_SECTION = re.compile(r"^\s*\.section\b[^{]*\{[^}]*\}", re.MULTILINE)


@dataclass(frozen=True)
class CountedLine:
    """What warps have done for one line of the user's function, or beside its lines.

    Attributes
    ----------
    filename : str
        The user's file; empty for what belongs to no line.
    line : int
        The line's number; 0 for what belongs to no line.
    text : str
        The line, or what the instructions are for.
    issued : int
        The instructions that warps have executed.
    lanes : int
        For how many lanes in all.
    divergent : int
        The branches after which the lanes of a warp have parted.
    sectors, repeated : int
        The sectors of global memory that warps have asked for, and those that the same warp had asked for before.
    instruction_share, sector_share : float
        The shares of all instructions and sectors of the launch.
    """

    filename: str
    line: int
    text: str
    issued: int
    lanes: int
    divergent: int
    sectors: int
    repeated: int
    instruction_share: float
    sector_share: float

    @property
    def lane_share(self) -> float:
        """The share of the lanes that execute an instruction when a warp does."""
        return self.lanes / (32 * self.issued)

    @property
    def label(self) -> str:
        """The line's number and text; another file than the function's is named in the text."""
        return f"{self.line:>4}  {self.text}" if self.line else f"      ({self.text})"


def lines_of(counts: Counts, name: str, places: Sequence[Place], main: str) -> tuple[CountedLine, ...]:
    """The lines in order, those of the user's file `main` first, and then what belongs to none.

    Parameters
    ----------
    counts : Counts
    name : str
        The file of the text that the kernel was compiled from.
    places : sequence of Place
        Where each line of that text comes from.
    main : str
        The file of the user's function.
    """
    groups: dict[tuple[str, int, str], list[Executed]] = {}
    for each in counts.instructions:
        if each.issued:
            groups.setdefault(_key(_place(each, name, places)), []).append(each)
    # First lines with numbers, of them those of the function's file; what belongs to no line at all is last.
    order = sorted(groups, key=lambda key: (not key[1], key[0] != main, key[0], key[1], key[2] == _REST, key[2]))
    return tuple([_line(key, groups[key], counts, main) for key in order])


def _place(each: Executed, name: str, places: Sequence[Place]) -> Place:
    if each.line is None or not places or os.path.basename(each.line[0]) != os.path.basename(name):
        return None
    line, is_store = line_of(each.line[1], len(places))
    if is_store:
        return Store()
    place = places[line - 1] if line else None
    return (place.computed or place) if isinstance(place, Store) else place


def _key(place: Place) -> tuple[str, int, str]:
    """The file, the line, and where there is none what the instructions are for."""
    if isinstance(place, Location):
        return place.filename, place.line, ""
    if place is None:
        return "", 0, _REST
    return "", 0, "stores of results" if isinstance(place, Store) else f"inside {place}"


def _line(key: tuple[str, int, str], group: Sequence[Executed], counts: Counts, main: str) -> CountedLine:
    filename, line, text = key
    if line:
        text = linecache.getline(filename, line).strip()
        if filename != main:
            text = f"{os.path.basename(place_of(filename, line))}  {text}"
    issued = sum(each.issued for each in group)
    accesses = [each for each in group if each.space == "global"]
    sectors = sum(each.sectors for each in accesses)
    return CountedLine(
        filename=filename,
        line=line,
        text=text,
        issued=issued,
        lanes=sum(each.lanes for each in group),
        divergent=sum(each.divergent for each in group),
        sectors=sectors,
        repeated=sum(each.repeated for each in accesses),
        instruction_share=issued / counts.issued,
        sector_share=sectors / counts.sectors if counts.sectors else 0.0,
    )


def instructions_of(ptx: str) -> list[str]:
    """The lines of a text without what says where they come from: comments, `.loc`, `.file` and debug sections.
    Registers and labels are named in the order in which they appear, since their numbers mean nothing.

    Examples
    --------
    >>> instructions_of("// made by a compiler\\n.loc 1 2 3\\nadd.s32 %r7, %r5, 1;\\n.file 1 \\"f.py\\"\\nret;")
    ['add.s32 %r:1, %r:2, 1;', 'ret;']
    """
    names: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        return names.setdefault(found[0], f"{found[1]}:{len(names) + 1}")

    text = _SECTION.sub("", re.sub(r"//[^\n]*", "", ptx))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_POSITIONS)]
    return [_NAME.sub(renamed, line) for line in lines]
