"""Types, names and operands of PTX as C: what an instruction reads and writes, and the address that it accesses."""

from __future__ import annotations

import re

from dualbcast.errors import BackendError

_SPECIAL = {
    f"%{name}.{axis}": f"thread->{name}[{at}]"
    for name in ("tid", "ntid", "ctaid", "nctaid")
    for at, axis in enumerate("xyz")
}
_SPECIAL["%laneid"] = "lane_of(thread)"


class PtxError(BackendError):
    """A text that cannot be translated, or a kernel that does what it may not."""


def bits_of(kind: str) -> int:
    return 8 if kind == "pred" else int(re.sub(r"\D", "", kind))


def stored(kind: str) -> str:
    """The C type of a register of this type: its bits."""
    return f"u{bits_of(kind)}"


def name_of(text: str) -> str:
    """A C name for one of PTX."""
    return ("r_" if text.startswith("%") else "n_") + text.lstrip("%").replace("$", "_D_").replace(".", "_")


def number_of(kind: str) -> str:
    """The C type of a number of this type."""
    if kind == "bf16":
        return "f32"
    return stored(kind) if kind[0] in "bp" else kind


def operands_of(text: str) -> list[str]:
    """What stands between the commas that are in no brackets."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if character == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()] if text.strip() else []


class Operands:
    """The operands of one function's instructions.

    `variables` are the names that are addresses, and of which memory; `shared` says where each variable of shared
    memory begins and ends. Both may grow while the function is read.
    """

    def __init__(self, variables: dict[str, str], shared: dict[str, tuple[int, int]]) -> None:
        self.variables, self.shared = variables, shared

    def read(self, operand: str, kind: str) -> str:
        """An operand as a C expression of a type."""
        if operand in _SPECIAL:
            return f"({number_of(kind)}){_SPECIAL[operand]}"
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            bits = f"0x{found[1]}u"
        elif found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            bits = f"0x{found[1]}ull"
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            bits = f"({operand.rstrip('U')}ll)"
        elif operand in self.shared:  # shared memory has addresses of its own
            bits = str(self.shared[operand][0])
        elif operand in self.variables:
            return f"(u64){name_of(operand)}"
        elif re.fullmatch(r"%?[\w$]+", operand):
            bits = name_of(operand)
        else:
            raise PtxError(f"not known as an operand: {operand}")
        if kind in ("f16", "bf16", "f32", "f64"):
            return f"as_{kind}({bits})"
        return f"!!{bits}" if kind == "pred" else f"({number_of(kind)}){bits}"

    def write(self, operand: str, kind: str, value: str) -> str:
        if operand == "_":
            return f"{value};"
        if kind in ("f16", "bf16", "f32", "f64"):
            value = f"of_{kind}({value})"
        elif kind != "pred":
            value = f"({number_of(kind)})({value})"
        return f"{name_of(operand)} = {value};"

    def address(self, text: str, space: str, size: int) -> str:
        found = re.fullmatch(r"\[\s*(%?[\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]", text)
        if not found:
            raise PtxError(f"not known as an address: {text}")
        base = f"{self.read(found[1], 'u64')} + ({found[2] or 0})"
        return f"{space if space in ('global', 'shared') else 'own'}(thread, {base}, {size})"

    def predicate(self, operand: str) -> str:
        return f"!{name_of(operand[1:])}" if operand.startswith("!") else name_of(operand)
