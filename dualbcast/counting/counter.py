"""Counts what a GPU would do for a launch: warp instructions, lanes, branches, sectors of memory. Nothing is timed.

Numbers of instructions are of PTX. The assembler makes machine code of it, in which constants and parameters are
operands, and a division is several instructions.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualbcast.counting.executor import HEAD, Kernel, block_of
from dualbcast.counting.recording import Program, Site
from dualbcast.counting.translation import translate

SECTOR = 32  # bytes
ALIGNMENT = 256  # bytes of which the address of an allocation of a GPU is a multiple
_COUNTING = Path(__file__).with_name("counting.c")
_READ, _WRITTEN = 1, 2  # as in `counting.c`


@dataclass(frozen=True)
class Executed:
    """What warps have done at one instruction of the text.

    Attributes
    ----------
    opcode : str
        With its modifiers.
    line : tuple of (str, int) or None
        The file and the line that it comes from, if the text has `.loc`.
    issued : int
        How often a warp has executed it.
    lanes : int
        For how many lanes in all; those whose predicate is false do not count.
    divergent : int
        How often the lanes of a warp have parted at it.
    space, writes : str, bool
        The memory that it accesses, and whether it writes there.
    sectors : int
        The sectors of 32 bytes that warps have asked for, once for each instruction.
    repeated : int
        Those of them that the same warp had asked for before, so that a first-level cache may have them.
    conflicts : int
        The passes over the banks of shared memory beyond those that as many lanes need without a conflict.
    """

    opcode: str
    line: tuple[str, int] | None
    issued: int
    lanes: int
    divergent: int
    space: str
    writes: bool
    sectors: int
    repeated: int
    conflicts: int


@dataclass(frozen=True)
class Counts:
    """What warps have done in a launch, or in several (`total`).

    Attributes
    ----------
    instructions : tuple of Executed
        All instructions of the text, in order.
    warps : int
    launches : int
    dram_read, dram_written : int
        The sectors that memory has to move at least: those that are read before anything is written there, and those
        that are written; each once a launch.
    """

    instructions: tuple[Executed, ...] = field(repr=False)
    warps: int
    launches: int
    dram_read: int
    dram_written: int

    def _sum(self, value: Callable[[Executed], int]) -> int:
        return sum(map(value, self.instructions))

    @property
    def issued(self) -> int:
        """The instructions that warps have executed."""
        return self._sum(lambda each: each.issued)

    @property
    def lanes(self) -> int:
        """The instructions that threads have executed."""
        return self._sum(lambda each: each.lanes)

    @property
    def lane_share(self) -> float:
        """The share of the lanes that execute an instruction when a warp does."""
        return self.lanes / (32 * self.issued)

    @property
    def branches(self) -> int:
        """The branches that warps have executed, with those that always jump."""
        return self._sum(lambda each: each.issued if each.opcode.startswith("bra") else 0)

    @property
    def divergent(self) -> int:
        """The branches after which the lanes of a warp have parted."""
        return self._sum(lambda each: each.divergent)

    @property
    def sectors_read(self) -> int:
        """The sectors of global memory that loads of warps have asked for."""
        return self._sum(lambda each: each.sectors if each.space == "global" and not each.writes else 0)

    @property
    def sectors_written(self) -> int:
        """The sectors of global memory that stores of warps have asked for."""
        return self._sum(lambda each: each.sectors if each.space == "global" and each.writes else 0)

    @property
    def sectors(self) -> int:
        """The sectors of global memory that warps have asked for."""
        return self.sectors_read + self.sectors_written

    @property
    def repeated(self) -> int:
        """Those of `sectors` that the same warp had asked for before."""
        return self._sum(lambda each: each.repeated)

    @property
    def local_sectors(self) -> int:
        """The sectors of local memory that warps have asked for; what the assembler spills is not among them."""
        return self._sum(lambda each: each.sectors if each.space == "local" else 0)

    @property
    def bank_conflicts(self) -> int:
        """The passes over shared memory that conflicts of banks have added."""
        return self._sum(lambda each: each.conflicts)

    @property
    def dram_sectors(self) -> int:
        """The sectors that memory has to move at least."""
        return self.dram_read + self.dram_written

    @property
    def dram_bytes(self) -> int:
        """The bytes that memory has to move at least, if no launch finds in a cache what another one has left."""
        return SECTOR * self.dram_sectors

    def by_opcode(self) -> dict[str, int]:
        """The executed warp instructions by opcode, the most frequent first."""
        return self._by(lambda each: each.opcode)

    def by_line(self) -> dict[tuple[str, int] | None, int]:
        """The executed warp instructions by file and line, the most frequent first; None is for those without."""
        return self._by(lambda each: each.line)

    def _by(self, key: Callable[[Executed], Any]) -> dict[Any, int]:
        found: Counter[Any] = Counter()
        for each in self.instructions:
            if each.issued:
                found[key(each)] += each.issued
        return dict(found.most_common())


def total(counts: Iterable[Counts]) -> Counts:
    """The counts of several launches together; each starts with empty caches."""
    every = list(counts)
    return Counts(
        tuple(each for one in every for each in one.instructions),
        *(sum(getattr(one, name) for one in every) for name in ("warps", "launches", "dram_read", "dram_written")),
    )


class Room(np.ndarray[Any, np.dtype[np.uint8]]):
    """Bytes in which arrays lie where a GPU has them: an array in them is no view of another one of the caller's."""

    @classmethod
    def of(cls, size: int) -> Room:
        """So many bytes."""
        return cls((size,), np.uint8)


class Memory:
    """The arrays that launches use, and the sectors that they touch.

    Parameters
    ----------
    arrays : sequence of arrays
        As on a GPU they should begin at multiples of 256 bytes (`aligned`), or sectors are cut otherwise than there.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]]) -> None:
        self._arrays = list(arrays)  # keeps them alive
        self.blocks = [block_of(array) for array in arrays]
        sizes = [(start + size - 1) // SECTOR - start // SECTOR + 1 if size else 0 for start, size in self.blocks]
        self._now = [np.zeros(size, np.uint8) for size in sizes]
        self._ever = [np.zeros(size, np.uint8) for size in sizes]

    @staticmethod
    def aligned(array: NDArray[Any]) -> NDArray[Any]:
        """A contiguous copy that begins at a multiple of 256 bytes."""
        room = Room.of(array.nbytes + ALIGNMENT)
        copy: NDArray[Any] = np.ndarray(array.shape, array.dtype, room, -room.ctypes.data % ALIGNMENT)
        copy[...] = array
        return copy

    def begin(self) -> Any:
        """Forget the last launch; the flags in which the next one leaves what it touches."""
        for flags in self._now:
            flags.fill(0)
        return (ctypes.c_void_p * len(self._now))(*(flags.ctypes.data for flags in self._now))

    def end(self) -> tuple[int, int]:
        """Note what the launch has touched; the sectors that it has read first, and written."""
        for ever, now in zip(self._ever, self._now, strict=True):
            ever |= np.where(ever == 0, now, now & _WRITTEN)
        return _sectors(self._now)

    def union(self) -> tuple[int, int]:
        """The sectors that all launches together have to read and to write if caches kept everything between them."""
        return _sectors(self._ever)


def _sectors(flags: Sequence[NDArray[np.uint8]]) -> tuple[int, int]:
    read, written = (sum(int(np.count_nonzero(each & bit)) for each in flags) for bit in (_READ, _WRITTEN))
    return read, written


class CountedKernel(Kernel):
    """A kernel of a PTX text whose launches are counted."""

    def translated(self, ptx: str, entry: str) -> tuple[str, list[int], bool, int]:
        self.program = Program()
        self._files = {int(number): name for number, name in re.findall(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', ptx, re.M)}
        text, sizes, waits, most = translate(ptx, entry, self.program.function)
        parts = [HEAD.read_text(), self.program.tables(), _COUNTING.read_text(), text]
        return "\n".join(parts), sizes, waits, most

    def count(self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[bytes], memory: Memory) -> Counts:
        """Run the kernel, and count.

        Parameters
        ----------
        grid, block : sequences of three int
        arguments : sequence of bytes
        memory : Memory
            All that the kernel may touch.
        """
        library = self.library()
        flags = memory.begin()  # kept until the kernel has run
        library.count_into(flags)
        self(grid, block, arguments, memory.blocks)
        read, written = memory.end()
        blocks = self.program.blocks
        recorded = sum(site.is_recorded for block in blocks for site in block.sites)
        issued, lanes, divergent = (_counts(library, name, len(blocks)) for name in ("issued_", "lanes_", "divergent_"))
        of_sites = [_counts(library, f"{name}_", max(1, recorded)) for name in _OF_SITES]
        sites = iter(zip(*of_sites, strict=True))
        executed = []
        for at, run in enumerate(blocks):
            for site in run.sites:
                parted = divergent[at] if site is run.sites[-1] else 0
                more = next(sites) if site.is_recorded else (lanes[at], 0, 0, 0, 0)
                executed.append(self._executed(site, issued[at], lanes[at], parted, more))
        (warps,) = _counts(library, "warps_", 1)
        return Counts(tuple(executed), warps, 1, read, written)

    def _executed(self, site: Site, issued: int, lanes: int, parted: int, more: tuple[int, ...]) -> Executed:
        active, sectors, first, passes, least = more
        line = site.position and (self._files.get(site.position[0], ""), site.position[1])
        return Executed(
            opcode=site.opcode,
            line=line,
            issued=issued,
            lanes=active if site.guarded else lanes,
            divergent=parted,
            space=site.space,
            writes=site.writes,
            sectors=sectors,
            repeated=sectors - first if site.space == "global" else 0,
            conflicts=passes - least,
        )


_OF_SITES = ("site_lanes", "sectors", "first", "passes", "least_passes")


def _counts(library: ctypes.CDLL, name: str, length: int) -> list[int]:
    return list((ctypes.c_ulonglong * length).in_dll(library, name))
