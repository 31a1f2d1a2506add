"""Counts the instructions of CUDA machine code, as nvdisasm prints it: what a kernel costs, without a GPU to ask."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SECTION = re.compile(r"^\s*(?:\.section\s+|//-+\s+)\.text\.(\S+)", re.MULTILINE)
_LINE = re.compile(
    r"^(?P<label>\.L_x_\w+):|/\*[0-9a-f]{4,}\*/\s+(?:@(?P<predicate>!?U?P\w+)\s+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_.]*)(?P<rest>[^;]*);",
    re.MULTILINE,
)
_TARGET = re.compile(r"\.L_x_\w+")
_FLOAT64 = re.compile(r"D(ADD|MUL|FMA|MNMX|SETP|MMA)\b|(F2F|I2F|F2I|FRND)\b.*\.F64|MUFU\.\w+64H?\b")
_BRANCHES = frozenset({"BRA", "BRX", "BRXU", "JMP", "JMX", "CALL", "RET"})


@dataclass(frozen=True, slots=True)
class Instruction:
    """A machine instruction."""

    opcode: str  # with modifiers: "LDG.E.128.CONSTANT"
    conditional: bool  # whether a predicate guards it
    target: int | None = None  # for a branch, the position of the instruction that it goes to

    @property
    def kind(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def bits(self) -> int:
        """How many bits a load or a store moves for each thread."""
        for part in self.opcode.split(".")[1:]:
            if part in {"64", "128", "256"}:
                return int(part)
            if part in {"U8", "S8", "U16", "S16"}:
                return int(part[1:])
        return 32


@dataclass(frozen=True)
class Instructions:
    """Counts of a kernel's instructions. Each stands once in the text, however often a loop runs it.

    Attributes
    ----------
    total : int
        All but padding and the endless loop after the kernel's last exit.
    straight : int
        The instructions from the entry to the first exit if no conditional branch is taken.
    loads, stores : mapping of int to int
        From and to global memory, by how many bits each moves.
    read_only : int
        How many of the loads are through the read-only path (`.CONSTANT`).
    transcendental : mapping of str to int
        Of the multi-function unit, by function: "EX2", "RCP", "TANH", …
    float64 : int
        Arithmetic, comparisons and conversions in float64.
    local, shared : int
        Loads and stores of local memory (spilled registers, and arrays that are indexed at run time) and of shared.
    branches : int
        Branches, calls and returns.
    opcodes : mapping of str to int
        All instructions by opcode without modifiers.
    """

    total: int
    straight: int
    loads: Mapping[int, int]
    stores: Mapping[int, int]
    read_only: int
    transcendental: Mapping[str, int]
    float64: int
    local: int
    shared: int
    branches: int
    opcodes: Mapping[str, int]

    def __str__(self) -> str:
        def listed(counts: Mapping[int, int]) -> str:
            return " + ".join(f"{many} of {bits} bits" for bits, many in counts.items()) or "none"

        functions = ", ".join(f"{many} {name.lower()}" for name, many in self.transcendental.items()) or "none"
        return (
            f"{self.total} instructions ({self.straight} where no branch is taken); loads {listed(self.loads)}; "
            f"stores {listed(self.stores)}; transcendental {functions}; {self.float64} float64; "
            f"{self.local} local memory"
        )


def count(sass: str, entry: str | None = None) -> Instructions:
    """Count the instructions of a kernel in the output of nvdisasm; `entry` is its name, where there are several.

    Examples
    --------
    >>> counts = count('''
    ...     /*0000*/       LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
    ...     /*0010*/       FADD R4, R4, 1 ;
    ...     /*0020*/  @P0  BRA `(.L_x_0) ;
    ...     /*0030*/       MUFU.EX2 R4, R4 ;
    ... .L_x_0:
    ...     /*0040*/       STG.E desc[UR4][R2.64], R4 ;
    ...     /*0050*/       EXIT ;
    ... .L_x_1:
    ...     /*0060*/       BRA `(.L_x_1);
    ...     /*0070*/       NOP;
    ... ''')
    >>> counts.total, counts.straight, counts.loads, counts.stores, counts.transcendental
    (6, 6, {128: 1}, {32: 1}, {'EX2': 1})
    """
    code = parse(sass, entry)
    kinds = Counter(at.kind for at in code)
    loads = [at for at in code if at.kind in {"LDG", "LD"}]
    return Instructions(
        total=len(code),
        straight=sum(1 for _ in _up_to_exit(code)),
        loads=_by_bits(loads),
        stores=_by_bits([at for at in code if at.kind in {"STG", "ST"}]),
        read_only=sum(".CONSTANT" in at.opcode for at in loads),
        transcendental=dict(sorted(Counter(at.opcode.split(".")[1] for at in code if at.kind == "MUFU").items())),
        float64=sum(_FLOAT64.match(at.opcode) is not None for at in code),
        local=kinds["LDL"] + kinds["STL"],
        shared=kinds["LDS"] + kinds["STS"],
        branches=sum(many for kind, many in kinds.items() if kind in _BRANCHES),
        opcodes=dict(kinds.most_common()),
    )


def parse(sass: str, entry: str | None = None) -> list[Instruction]:
    """The instructions of a kernel in order, without padding.

    Raises
    ------
    ValueError
        If there is no kernel of that name, or none at all.
    """
    parsed: list[tuple[str, bool, str | None]] = []
    labels: dict[str, int] = {}
    for match in _LINE.finditer(_section(sass, entry)):
        if match["label"]:
            labels[match["label"]] = len(parsed)
        elif match["opcode"] != "NOP":
            target = _TARGET.search(match["rest"])
            parsed.append((match["opcode"], match["predicate"] not in (None, "PT"), target and target[0]))
    code = [Instruction(opcode, guarded, labels.get(name or "")) for opcode, guarded, name in parsed]
    # An endless loop of one instruction stands after the code, in case that an exit is missed.
    while code and code[-1].kind == "BRA" and code[-1].target == len(code) - 1:
        code.pop()
    if not code:
        raise ValueError(f"the text has no machine code of {entry or 'any kernel'}")
    return code


def _section(sass: str, entry: str | None) -> str:
    if entry is None:
        return sass
    marks = [(match[1].strip('"').partition(",")[0].strip('"'), match.start()) for match in _SECTION.finditer(sass)]
    ends = [start for _, start in marks[1:]] + [len(sass)]
    return "\n".join(sass[start:end] for (name, start), end in zip(marks, ends, strict=True) if name == entry)


def _by_bits(accesses: list[Instruction]) -> dict[int, int]:
    return dict(sorted(Counter(at.bits for at in accesses).items()))


def _up_to_exit(code: list[Instruction]) -> Iterator[Instruction]:
    """The instructions up to the first exit. Every unconditional branch is taken, and no conditional one."""
    place, passed = 0, set()
    while place < len(code) and place not in passed:
        passed.add(place)
        at = code[place]
        yield at
        if at.kind in {"EXIT", "RET"} and not at.conditional:
            return
        jumps = at.kind in {"BRA", "JMP"} and not at.conditional and at.target is not None
        place = at.target if jumps and at.target is not None else place + 1
