"""Counts the instructions of CUDA machine code, as nvdisasm prints it: what a kernel costs, without a GPU to ask."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

_SECTION = re.compile(r"^\s*(?:\.section\s+|//-+\s+)\.text\.([^\s\",]+)", re.MULTILINE)
_LINE = re.compile(
    r"^(?P<label>\.L_x_\w+):|/\*[0-9a-f]{4,}\*/\s+(?:@(?P<predicate>!?U?P\w+)\s+)?"
    r"(?P<opcode>[A-Z][A-Z0-9_.]*)(?:[^;]*?(?P<target>\.L_x_\w+))?[^;]*;",
    re.MULTILINE,
)
_BITS = re.compile(r"\.[US]?(8|16|64|128|256)\b")
_FLOAT64 = re.compile(r"D(ADD|MUL|FMA|MNMX|SETP|MMA)\b|(F2F|I2F|F2I|FRND)\b.*\.F64|MUFU\.\w+64H?\b")


class Instructions(NamedTuple):
    """Counts of a kernel's instructions. Each stands once in the text, however often a loop runs it."""

    total: int  # all but padding and the endless loop after the kernel's last exit
    straight: int  # from the entry to the first exit if no conditional branch is taken
    loads: Mapping[int, int]  # from global memory, by how many bits each moves
    stores: Mapping[int, int]  # to it
    read_only: int  # loads through the read-only path (`.CONSTANT`)
    transcendental: Mapping[str, int]  # of the multi-function unit, by function: "EX2", "RCP", "TANH", …
    float64: int  # arithmetic, comparisons and conversions in float64
    local: int  # loads and stores of spilled registers, and of arrays that are indexed at run time

    def __str__(self) -> str:
        def listed(counts: Mapping[int, int]) -> str:
            return " + ".join(f"{many} of {bits} bits" for bits, many in counts.items()) or "none"

        functions = ", ".join(f"{many} {name.lower()}" for name, many in self.transcendental.items()) or "none"
        return (
            f"{self.total} instructions ({self.straight} where no branch is taken); loads {listed(self.loads)}; "
            f"stores {listed(self.stores)}; transcendental {functions}; {self.float64} float64; "
            f"{self.local} local memory"
        )


class _Instruction(NamedTuple):
    opcode: str  # with modifiers: "LDG.E.128.CONSTANT"
    is_conditional: bool  # whether a predicate guards it
    target: int | None  # for a branch, the position of the instruction that it goes to

    @property
    def kind(self) -> str:
        return self.opcode.partition(".")[0]


def count(sass: str, entry: str | None = None) -> Instructions:
    """Count the instructions of a kernel in the output of nvdisasm; `entry` is its name, where there are several. A
    ValueError says that there is none."""
    code = _parse(sass, entry)
    loads = [at.opcode for at in code if at.kind in {"LDG", "LD"}]
    return Instructions(
        total=len(code),
        straight=_straight(code),
        loads=_by_bits(loads),
        stores=_by_bits(at.opcode for at in code if at.kind in {"STG", "ST"}),
        read_only=sum(".CONSTANT" in opcode for opcode in loads),
        transcendental=dict(sorted(Counter(at.opcode.split(".")[1] for at in code if at.kind == "MUFU").items())),
        float64=sum(_FLOAT64.match(at.opcode) is not None for at in code),
        local=sum(at.kind in {"LDL", "STL"} for at in code),
    )


def _parse(sass: str, entry: str | None) -> list[_Instruction]:
    """The instructions of a kernel in order, without padding."""
    if entry is not None:
        _, *sections = _SECTION.split(sass)
        names_and_texts = zip(sections[::2], sections[1::2], strict=True)
        sass = "\n".join(text for name, text in names_and_texts if name == entry)
    lines: list[re.Match[str]] = []
    labels: dict[str, int] = {}
    for match in _LINE.finditer(sass):
        if match["label"]:
            labels[match["label"]] = len(lines)
        elif match["opcode"] != "NOP":
            lines.append(match)
    code = [
        _Instruction(line["opcode"], line["predicate"] not in (None, "PT"), labels.get(line["target"]))
        for line in lines
    ]
    # An endless loop of one instruction stands after the code, in case that an exit is missed.
    while code and code[-1].kind == "BRA" and code[-1].target == len(code) - 1:
        code.pop()
    if not code:
        raise ValueError(f"the text has no machine code of {entry or 'any kernel'}")
    return code


def _by_bits(opcodes: Iterable[str]) -> dict[int, int]:
    """How many loads or stores there are, by how many bits each moves for each thread."""
    found = [_BITS.search(opcode) for opcode in opcodes]
    return dict(sorted(Counter(int(bits[1]) if bits else 32 for bits in found).items()))


def _straight(code: list[_Instruction]) -> int:
    """How many instructions run up to the first exit. Every unconditional branch is taken, and no conditional one."""
    place, passed = 0, set[int]()
    while place < len(code) and place not in passed:
        passed.add(place)
        at = code[place]
        if at.kind in {"EXIT", "RET"} and not at.is_conditional:
            break
        is_jump = at.kind in {"BRA", "JMP"} and not at.is_conditional
        place = at.target if is_jump and at.target is not None else place + 1
    return len(passed)
