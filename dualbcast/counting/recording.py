"""Translates a kernel to C that also records, for each thread, the way that it takes and the memory that it touches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from dualbcast.counting.control_flow import END, joins
from dualbcast.counting.operands import PtxError, bits_of, operands_of
from dualbcast.counting.translation import Function

Space = Literal["global", "shared", "local", ""]
_SPACES: tuple[Space, ...] = ("", "global", "shared", "local")


@dataclass
class Site:
    """An instruction of the text.

    Attributes
    ----------
    opcode : str
        With its modifiers.
    position : tuple of int or None
        The file's number and the line that `.loc` gives.
    guarded : bool
        Whether a predicate decides if a lane executes it; of branches it is known from what follows.
    space : str
        The memory that it accesses.
    size : int
        The bytes that a lane accesses.
    writes : bool
    """

    opcode: str
    position: tuple[int, int] | None
    guarded: bool = False
    space: Space = ""
    size: int = 0
    writes: bool = False

    @property
    def is_recorded(self) -> bool:
        """Whether a thread records something where it comes here."""
        return self.guarded or bool(self.space)


@dataclass
class Block:
    """A straight run of instructions: all are executed once a visit, by the lanes that come to it together."""

    sites: list[Site] = field(default_factory=list)
    calls: bool = False  # whether it ends in a call
    join: int = END  # where lanes that part after it meet again


class Program:
    """All blocks of the functions of a kernel, in the order of the text; `function` is a kind for `translate`."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def function(self, body: str, variables: dict[str, str], shared: dict[str, tuple[int, int]]) -> Function:
        """Translate a function, and add its blocks."""
        return _Recording(self, body, variables, shared)

    def tables(self) -> str:
        """The tables that `counting.c` needs, as macros in C."""
        blocks: list[str] = []
        sites: list[str] = []
        for block in self.blocks:
            recorded = [site for site in block.sites if site.is_recorded]
            blocks.append(f"{{{len(sites)}, {len(sites) + len(recorded)}, {block.join}, {int(block.calls)}}}")
            for site in recorded:
                space = _SPACES.index(site.space)
                sites.append(f"{{{int(site.guarded)}, {space}, {int(site.writes)}, {site.size}}}")
        return "\n".join(
            [
                f"#define BLOCK_COUNT {len(blocks)}",
                f"#define SITE_COUNT {max(1, len(sites))}",
                f"#define BLOCK_TABLE {', '.join(blocks)}",
                f"#define SITE_TABLE {', '.join(sites) or '{0, 0, 0, 0}'}",
            ]
        )


class _Recording(Function):
    """The translation of a function whose threads record where they are (`NOTE`, of `counting.c`)."""

    def __init__(
        self, program: Program, body: str, variables: dict[str, str], shared: dict[str, tuple[int, int]]
    ) -> None:
        self._program, self._first = program, len(program.blocks)
        self._labels: dict[str, int] = {}
        self._targets: list[list[str | int]] = []  # of each block: labels, numbers, or END
        self._open: Block | None = None
        self._position: tuple[int, int] | None = None
        super().__init__(body, variables, shared)
        self._close([len(program.blocks)])
        self.lines.append("NOTE(RETURNED);")
        last = len(program.blocks)
        successors = [[self._number(each, last) for each in targets] for targets in self._targets]
        for block, join in zip(program.blocks[self._first :], joins(successors), strict=True):
            block.join = join if join == END else join + self._first

    def _number(self, target: str | int, last: int) -> int:
        """The number of a block, among those of this function."""
        number = self._labels[target] if isinstance(target, str) else target
        return END if number in (END, last) else number - self._first

    def _close(self, targets: list[str | int]) -> None:
        """End the block that is open, if there is one."""
        if self._open is not None:
            self._targets.append(targets)
            self._open = None

    def position(self, file: int, line: int) -> None:
        self._position = file, line

    def label(self, name: str) -> None:
        self._close([len(self._program.blocks)])
        self._labels[name] = len(self._program.blocks)
        super().label(name)

    def instruction(self, guard: str, opcode: str, operands: list[str]) -> None:
        if self._open is None:
            self._open = Block()
            self.lines.append(f"NOTE({len(self._program.blocks)}ull);")
            self._program.blocks.append(self._open)
        base = opcode.partition(".")[0]
        site = Site(opcode, self._position)
        self._open.sites.append(site)
        after = [len(self._program.blocks)]
        if base == "bra":
            super().instruction(guard, opcode, operands)
            self._close([operands[0], *(after if guard else [])])
        elif base in ("ret", "exit"):
            self.lines.append(f"{f'if ({guard}) ' if guard else ''}{{ NOTE(RETURNED); return; }}")
            self._close([END, *(after if guard else [])])
        elif base == "call":
            if guard:
                raise PtxError(f"{opcode}: calls under a predicate are not counted")
            super().instruction(guard, opcode, operands)
            self._open.calls = True
            self._close([*after])
        else:
            self._recorded(site, guard, opcode, operands)

    def _recorded(self, site: Site, guard: str, opcode: str, operands: list[str]) -> None:
        """An instruction that the next one follows."""
        code = self.instructions.translated(opcode, operands)
        base, *modifiers = opcode.split(".")
        if base in ("ld", "st") and modifiers[0] in ("global", "shared", "local"):
            values = operands_of(operands[base == "st"].strip("{}"))
            site.space = _SPACES[_SPACES.index(modifiers[0])]
            site.size, site.writes = len(values) * bits_of(modifiers[-1]) // 8, base == "st"
            first, separator, rest = code.partition(";")  # the address is known after the first statement
            code = f"{first}{separator} NOTE((u64)at_);{rest}"
        if guard:
            site.guarded = True
            self.lines.append(f"{{ const u8 guard_ = !!({guard}); NOTE(guard_); if (guard_) {{ {code} }} }}")
        else:
            self.lines.append(f"{{ {code} }}")
