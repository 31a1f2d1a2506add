"""Translates a kernel from PTX to C: its functions, statements and variables.

Comes in: a text of PTX. Goes out: C that `executor.c` is the head of, and the sizes of the kernel's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dualbcast.counting.instructions import Instructions
from dualbcast.counting.operands import Operands, PtxError, bits_of, name_of, operands_of, stored

_FUNCTION = re.compile(
    r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*\(([^)]*)\)([^{;]*)([{;])",
)
_VARIABLE = re.compile(
    r"\.(global|const|shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*\{([^}]*)\})?\s*;"
)
# Where the instructions after it come from: such a line has no semicolon.
_POSITION = re.compile(r"\.(?:loc\s+(\d+)\s+(\d+)|file)\b[^\n]*(?:\n|$)\s*")
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+"
    r"(?:\.ptr\s+(?:\.(?:global|const|shared|local)\s+)?(?:\.align\s+\d+\s+)?)?"  # what a pointer points to
    r"([\w$]+)(?:\[(\d+)\])?"
)
# What a register has that nothing was written to: NaN.
_NOTHING = "(u64)0x7fd5a5a57fd5a5a5"
_DYNAMIC = 48 * 1024


class Function:
    """The translation of one function's body."""

    def __init__(self, body: str, variables: dict[str, str], shared: dict[str, tuple[int, int]]) -> None:
        self.operands = Operands(dict(variables), shared)
        self.instructions = Instructions(self.operands)
        self.lines: list[str] = []
        for statement in body.split(";"):
            self._statement(statement.strip())

    def _statement(self, text: str) -> None:
        while text:
            if text[0] in "{}":
                self.lines.append(text[0])
                text = text[1:].strip()
            elif position := _POSITION.match(text):
                if position[1]:
                    self.position(int(position[1]), int(position[2]))
                text = text[position.end() :]
            elif label := re.match(r"([\w$]+):", text):
                self.label(label[1])
                text = text[label.end() :].strip()
            else:
                break
        if not text:
            return
        if text.startswith("."):
            self._directive(text)
            return
        guard = ""
        if found := re.match(r"@(!?)(%?[\w$]+)\s+", text):
            guard, text = f"{found[1]}{name_of(found[2])}", text[found.end() :]
        opcode, *rest = text.split(None, 1)
        self.instruction(guard, opcode, operands_of("".join(rest)))

    def position(self, file: int, line: int) -> None:
        """The instructions that follow come from a line of a file."""

    def label(self, name: str) -> None:
        """A label stands before the next instruction."""
        self.lines.append(f"{name_of(name)}: ;")

    def instruction(self, guard: str, opcode: str, operands: list[str]) -> None:
        """An instruction, under a condition in C unless `guard` is empty."""
        given = f"if ({guard}) " if guard else ""
        self.lines.append(f"{given}{{ {self.instructions.translated(opcode, operands)} }}")

    def _directive(self, text: str) -> None:
        if found := re.match(r"\.reg\s+\.(\w+)\s+(.*)$", text, re.DOTALL):
            names: list[str] = []
            for each in found[2].split(","):
                many = re.match(r"\s*(%?[\w$]+)<(\d+)>", each)
                names += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [each.strip()]
            self.lines.append(f"{stored(found[1])} {', '.join(f'{name_of(name)} = {_NOTHING}' for name in names)};")
        elif found := _PARAMETER.match(text):
            size = bits_of(found[1]) // 8 * int(found[3] or 1)
            self.lines.append(f"_Alignas(16) u8 {name_of(found[2])}[{size}];")
        elif found := _VARIABLE.match(text + ";"):
            self.operands.variables[found[4]] = found[1]
            if found[1] == "shared":
                _share(found, self.operands.shared)
            else:
                self.lines.append(_variable(found))
        elif not text.startswith(".pragma"):
            raise PtxError(f"not known: {text}")


FunctionKind = Callable[[str, dict[str, str], dict[str, tuple[int, int]]], Function]


def _variable(found: re.Match[str], before: str = "") -> str:
    _, align, kind, name, length, values = found.groups()
    number = stored(kind)
    given = f" = {{{values}}}" if values else ""
    return f"{before}_Alignas({align or bits_of(kind) // 8}) {number} {name_of(name)}[{length or 1}]{given};"


def _share(found: re.Match[str], shared: dict[str, tuple[int, int]]) -> None:
    """Give a variable of shared memory its place."""
    _, align, kind, name, length, _ = found.groups()
    size = bits_of(kind) // 8
    step = int(align or size)
    start = -(-max((end for _, end in shared.values()), default=0) // step) * step
    # How long one without a length is, is said at the launch: at most this.
    shared[name] = start, start + (_DYNAMIC if length == "" else size * int(length or 1))


def translate(ptx: str, entry: str, kind: FunctionKind | None = None) -> tuple[str, list[int], bool, int]:
    """A kernel as C.

    Parameters
    ----------
    ptx : str
        The whole text.
    entry : str
        The name of the kernel.
    kind : callable, optional
        What translates each function, by default `Function`.

    Returns
    -------
    str
        Without the head.
    list of int
        The sizes of its parameters in bytes.
    bool
        Whether its threads wait for one another.
    int
        The most threads that a block may have.
    """
    ptx = re.sub(r"//[^\n]*|/\*.*?\*/", "", ptx, flags=re.DOTALL)
    functions, texts, at = [], [], 0
    while found := _FUNCTION.search(ptx, at):
        texts.append(ptx[at : found.start()])
        at = found.end()
        if found[6] == "{":
            depth = 1
            while depth:
                depth += (ptx[at] == "{") - (ptx[at] == "}")
                at += 1
            functions.append((found, ptx[found.end() : at - 1]))
    texts.append(ptx[at:])
    variables = {found[4]: found for text in texts for found in _VARIABLE.finditer(text)}
    shared: dict[str, tuple[int, int]] = {}
    lines, tables = [], ["0"]
    for name, found in variables.items():
        if found[1] == "shared":
            _share(found, shared)
        else:
            lines.append(_variable(found, "static "))
            tables.append(f"within(address, size, (u64){name_of(name)}, sizeof {name_of(name)})")
    names = {name: found[1] for name, found in variables.items()}
    heads, bodies, together, sizes, most = [], [], False, [], 1024
    for found, body in functions:
        which, results, name, parameters = found[1], found[2] or "", found[3], found[4]
        if which == "entry" and name != entry:
            continue
        made = (kind or Function)(body, names, shared)
        together = together or made.instructions.together
        if which == "entry":
            given = list(_PARAMETER.finditer(parameters))
            sizes = [bits_of(each[1]) // 8 * int(each[3] or 1) for each in given]
            unpacked = [f"u8* {name_of(each[2])} = parameters[{i}];" for i, each in enumerate(given)]
            head = "static void kernel(const Thread* thread, u8** parameters)"
            if bound := re.search(r"\.maxntid\s+(\d+)", found[5]):
                most = int(bound[1])
        else:
            given = [*_PARAMETER.finditer(results), *_PARAMETER.finditer(parameters)]
            pointers = "".join(f", u8* {name_of(each[2])}" for each in given)
            head = f"static void {name_of(name)}(const Thread* thread{pointers})"
            unpacked = []
            heads.append(f"{head};")
        bodies += [head, "{", "u8 carry = 0;", *unpacked, *made.lines, "}"]
    if not sizes:
        raise PtxError(f"there is no kernel {entry} with parameters")
    size = max((end for _, end in shared.values()), default=0)
    tail = [
        f"static u8* table(u64 address, u32 size) {{ return {' || '.join(tables)} ? (u8*)address : 0; }}",
        f"static const u32 shared_size = {size};",
    ]
    return "\n".join([*lines, *heads, *bodies, *tail, ""]), sizes, together, most
