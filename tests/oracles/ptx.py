"""Runs a CUDA kernel where there is no GPU: its PTX, as the compilers made and optimised it, translated to C.

What an instruction means is in `ptx.c`, after the manual (PTX ISA 9.0, docs.nvidia.com/cuda/parallel-thread-execution).
One that is not known there is an error. So are accesses outside the arrays that a kernel was given and misaligned ones.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

COMPILER = shutil.which("gcc")
_HEAD = Path(__file__).with_suffix(".c")
_FLAGS = ("-std=gnu11", "-O1", "-fno-strict-aliasing", "-ffp-contract=off", "-fwrapv", "-U_FORTIFY_SOURCE", "-w")

_TYPES = re.compile(r"(?:[sub](?:8|16|32|64|128)|f16|bf16|f32|f64|pred)$")
_FUNCTION = re.compile(
    r"\.(entry|func)\s*(?:\(([^)]*)\))?\s*([\w$]+)\s*\(([^)]*)\)([^{;]*)([{;])",
)
_VARIABLE = re.compile(
    r"\.(global|const|shared|local)\s+(?:\.align\s+(\d+)\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d*)\])?(?:\s*=\s*\{([^}]*)\})?\s*;"
)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([\w$]+)(?:\[(\d+)\])?")
# What a register has that nothing was written to: NaN.
_NOTHING = "(u64)0x7fd5a5a57fd5a5a5"
_COMBINED = {"and": "&", "or": "|", "xor": "^"}
_DIRECTIONS = {"rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}
_SPECIAL = {
    f"%{name}.{axis}": f"thread->{name}[{at}]"
    for name in ("tid", "ntid", "ctaid", "nctaid")
    for at, axis in enumerate("xyz")
}
_SPECIAL["%laneid"] = "lane_of(thread)"


class PtxError(Exception):
    """A text that cannot be translated, or a kernel that does what it may not."""


def _bits(kind: str) -> int:
    return 8 if kind == "pred" else int(re.sub(r"\D", "", kind))


def _stored(kind: str) -> str:
    """The C type of a register of this type: its bits."""
    return f"u{_bits(kind)}"


def _name(text: str) -> str:
    """A C name for one of PTX."""
    return ("r_" if text.startswith("%") else "n_") + text.lstrip("%").replace("$", "_D_").replace(".", "_")


class _Function:
    """The translation of one function's body."""

    def __init__(self, body: str, variables: dict[str, str], shared: dict[str, tuple[int, int]]) -> None:
        self.variables = dict(variables)  # names that are addresses, and of which memory
        self.shared = shared  # where each variable of shared memory begins and ends
        self.lines: list[str] = []
        self.together = False
        for statement in body.split(";"):
            self._statement(statement.strip())

    def _statement(self, text: str) -> None:
        while text:
            if text[0] in "{}":
                self.lines.append(text[0])
                text = text[1:].strip()
            elif label := re.match(r"([\w$]+):", text):
                self.lines.append(f"{_name(label[1])}: ;")
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
            guard, text = f"if ({found[1]}{_name(found[2])}) ", text[found.end() :]
        opcode, *rest = text.split(None, 1)
        self.lines.append(f"{guard}{{ {self._instruction(opcode, _operands(''.join(rest)))} }}")

    def _directive(self, text: str) -> None:
        if found := re.match(r"\.reg\s+\.(\w+)\s+(.*)$", text, re.DOTALL):
            names = []
            for each in found[2].split(","):
                many = re.match(r"\s*(%?[\w$]+)<(\d+)>", each)
                names += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [each.strip()]
            self.lines.append(f"{_stored(found[1])} {', '.join(f'{_name(name)} = {_NOTHING}' for name in names)};")
        elif found := _PARAMETER.match(text):
            size = _bits(found[1]) // 8 * int(found[3] or 1)
            self.lines.append(f"_Alignas(16) u8 {_name(found[2])}[{size}];")
        elif found := _VARIABLE.match(text + ";"):
            self.variables[found[4]] = found[1]
            if found[1] == "shared":
                _share(found, self.shared)
            else:
                self.lines.append(_variable(found))
        elif not text.startswith((".pragma", ".loc", ".file")):
            raise PtxError(f"not known: {text}")

    # --- operands ---

    def _read(self, operand: str, kind: str) -> str:
        """An operand as a C expression of a type."""
        if operand in _SPECIAL:
            return f"({_number(kind)}){_SPECIAL[operand]}"
        if found := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", operand):
            bits = f"0x{found[1]}u"
        elif found := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", operand):
            bits = f"0x{found[1]}ull"
        elif re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", operand):
            bits = f"({operand.rstrip('U')}ll)"
        elif operand in self.shared:  # shared memory has addresses of its own
            bits = str(self.shared[operand][0])
        elif operand in self.variables:
            return f"(u64){_name(operand)}"
        elif re.fullmatch(r"%?[\w$]+", operand):
            bits = _name(operand)
        else:
            raise PtxError(f"not known as an operand: {operand}")
        if kind in ("f16", "bf16", "f32", "f64"):
            return f"as_{kind}({bits})"
        return f"!!{bits}" if kind == "pred" else f"({_number(kind)}){bits}"

    def _write(self, operand: str, kind: str, value: str) -> str:
        if operand == "_":
            return f"{value};"
        if kind in ("f16", "bf16", "f32", "f64"):
            value = f"of_{kind}({value})"
        elif kind != "pred":
            value = f"({_number(kind)})({value})"
        return f"{_name(operand)} = {value};"

    def _address(self, text: str, space: str, size: int) -> str:
        found = re.fullmatch(r"\[\s*(%?[\w$]+)\s*(?:\+\s*(-?\d+))?\s*\]", text)
        if not found:
            raise PtxError(f"not known as an address: {text}")
        base = f"{self._read(found[1], 'u64')} + ({found[2] or 0})"
        return f"{space if space in ('global', 'shared') else 'own'}(thread, {base}, {size})"

    # --- instructions ---

    def _instruction(self, opcode: str, operands: list[str]) -> str:
        base, *modifiers = opcode.split(".")
        types = [each for each in modifiers if _TYPES.match(each)]
        flags = [each for each in modifiers if not _TYPES.match(each)]
        try:
            translate: Callable[..., str] = getattr(self, f"_{base}_", self._arithmetic)
            return translate(base, flags, types, operands)
        except (PtxError, KeyError, IndexError, ValueError) as error:
            raise PtxError(f"{opcode} {', '.join(operands)}: {error or 'not known'}") from error

    def _arithmetic(self, base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        """What computes a value from operands that have all the same type."""
        (kind,) = types
        target, *rest = operands
        integer = kind[0] in "sub" and kind != "bf16"
        carry = "cc" in flags
        if base in ("addc", "subc", "madc") or carry:
            return self._carried(base, flags, kind, operands)
        args = [self._read(each, kind) for each in rest]
        if not integer and kind != "pred":
            return self._floats(base, flags, kind, target, args)
        signs = {"add": "+", "sub": "-", "and": "&", "or": "|", "xor": "^"}
        bits = _bits(kind)
        if base in signs:
            value = f"{args[0]} {signs[base]} {args[1]}"
        elif base == "not":
            value = f"!{args[0]}" if kind == "pred" else f"~{args[0]}"
        elif base in ("min", "max"):
            value = f"{args[0]} {'<' if base == 'min' else '>'} {args[1]} ? {args[0]} : {args[1]}"
        elif base == "abs":
            value = f"{args[0]} < 0 ? 0 - {args[0]} : {args[0]}"
        elif base == "neg":
            value = f"0 - {args[0]}"
        elif base in ("div", "rem"):
            sign = "/" if base == "div" else "%"
            # Of the least number by -1 C says nothing: the processor stops.
            by_one = f"{args[1]} == -1 ? {f'0 - {args[0]}' if base == 'div' else '0'} : " if kind[0] == "s" else ""
            undefined = "-1" if base == "div" else args[0]
            value = f"{args[1]} == 0 ? {undefined} : {by_one}{args[0]} {sign} {args[1]}"
        elif base in ("mul", "mad"):
            return self._product(base, flags, kind, target, rest)
        elif base == "shl":
            value = f"shl_{bits}({args[0]}, {self._read(rest[1], 'u32')})"
        elif base == "shr":
            value = f"shr_{'s' if kind[0] == 's' else 'u'}{bits}({args[0]}, {self._read(rest[1], 'u32')})"
        elif base == "shf":
            count = self._read(rest[2], "u32")
            value = f"shf({args[0]}, {args[1]}, {count}, {int('l' in flags)}, {int('wrap' in flags)})"
        elif base in ("bfi", "bfe"):
            numbers = [self._read(each, "u32") for each in rest[-2:]]
            last = "" if base == "bfi" else f", {int(kind[0] == 's')}"
            whole = [self._read(each, f"u{bits}") for each in rest[:-2]]
            value = f"{base}({', '.join([*whole, *numbers, str(bits)])}{last})"
        elif base == "clz":
            wide = "ll" if bits == 64 else ""
            return self._write(target, "u32", f"{args[0]} ? __builtin_clz{wide}({args[0]}) : {bits}")
        elif base == "popc":
            return self._write(target, "u32", f"__builtin_popcountll({args[0]})")
        elif base in ("brev", "prmt", "lop3") and bits == 32:
            value = f"{base}({', '.join(args)})"
        else:
            raise PtxError("not known")
        return self._write(target, kind, value)

    def _product(self, base: str, flags: list[str], kind: str, target: str, rest: list[str]) -> str:
        wide = kind[0] + str(2 * _bits(kind))
        left, right = (f"({wide}){self._read(each, kind)}" for each in rest[:2])
        result = wide if "wide" in flags else kind
        product = f"({left} * {right})"
        if "hi" in flags:
            product = f"({kind})({product} >> {_bits(kind)})"
        elif "lo" in flags:
            product = f"({kind}){product}"
        elif "wide" not in flags:
            raise PtxError("a product of integers is .lo, .hi or .wide")
        if base == "mad":
            product += f" + {self._read(rest[2], result)}"
        return self._write(target, result, product)

    def _carried(self, base: str, flags: list[str], kind: str, operands: list[str]) -> str:
        """Sums that read or write the carry."""
        unsigned = f"u{_bits(kind)}"
        target, *rest = operands
        args = [f"(u128){self._read(each, unsigned)}" for each in rest]
        if base.startswith("mad"):
            product = f"({args[0]} * {args[1]})"
            args = [f"(u128)({unsigned})({product} >> {_bits(kind) if 'hi' in flags else 0})", args[2]]
        old = "carry" if base.endswith("c") else "0"
        sign = "-" if base.startswith("sub") else "+"
        keep = f"carry = sum_ >> {_bits(kind)} & 1; " if "cc" in flags else ""
        return (
            f"const u128 sum_ = {args[0]} {sign} {args[1]} {sign} {old}; {keep}{self._write(target, unsigned, 'sum_')}"
        )

    def _floats(self, base: str, flags: list[str], kind: str, target: str, args: list[str]) -> str:
        if kind not in ("f32", "f64"):
            raise PtxError("arithmetic of halves is not known")
        suffix = "f" if kind == "f32" else ""
        if "ftz" in flags and kind == "f32":
            args = [f"flushed({each})" for each in args]
        direction = next((_DIRECTIONS[each] for each in flags if each in _DIRECTIONS), None)
        if direction:
            args = [f"HELD({kind}, {each})" for each in args]
        approximate = "approx" in flags
        signs = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
        if base in signs:
            value = f"{args[0]} {signs[base]} {args[1]}"
        elif base in ("fma", "mad"):
            value = f"fma{suffix}({', '.join(args)})"
        elif base in ("min", "max"):
            value = f"{base}_{kind}({args[0]}, {args[1]})"
            if "NaN" in flags:
                value = f"{args[0]} != {args[0]} ? {args[0]} : {args[1]} != {args[1]} ? {args[1]} : {value}"
        elif base == "abs":
            value = f"fabs{suffix}({args[0]})"
        elif base == "neg":
            value = f"-{args[0]}"
        elif base == "copysign":  # the sign is the first's
            value = f"copysign{suffix}({args[1]}, {args[0]})"
        elif base == "sqrt":
            value = f"sqrt{suffix}({args[0]})"
        elif base == "rcp":
            value = f"rcp_approx_f64({args[0]})" if approximate and kind == "f64" else f"1 / {args[0]}"
        elif base == "rsqrt" and approximate:
            value = f"rsqrt_approx_f64({args[0]})" if kind == "f64" else f"1 / sqrtf({args[0]})"
        elif approximate and kind == "f32" and base in ("sin", "cos"):
            value = f"{base}f({args[0]})"
        elif approximate and kind == "f32" and base in ("ex2", "lg2", "tanh"):
            value = {"ex2": "exp2f", "lg2": "log2f", "tanh": "tanh_approx"}[base] + f"({args[0]})"
        else:
            raise PtxError("not known")
        if direction:
            value = f"ROUNDED({direction}, {kind}, {value})"
        if "ftz" in flags and kind == "f32":
            value = f"flushed({value})"
        if "sat" in flags:
            value = f"saturated_{kind}({value})"
        return self._write(target, kind, value)

    def _mov_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        target, source = operands
        if kind == "pred":
            return f"{_name(target)} = {self._read(source, 'pred')};"
        whole = f"u{_bits(kind)}"
        if target.startswith("{"):
            parts = _operands(target[1:-1])
            part = f"u{_bits(kind) // len(parts)}"
            value = self._read(source, whole)
            lines = [self._write(each, part, f"whole_ >> {at * _bits(part)}") for at, each in enumerate(parts)]
            return f"const {whole} whole_ = {value}; {' '.join(lines)}"
        if source.startswith("{"):
            parts = _operands(source[1:-1])
            part = f"u{_bits(kind) // len(parts)}"
            values = [f"({whole}){self._read(each, part)} << {at * _bits(part)}" for at, each in enumerate(parts)]
            return self._write(target, whole, " | ".join(values))
        return self._write(target, whole, self._read(source, whole))

    def _cvta_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        return self._write(operands[0], types[0], self._read(operands[1], types[0]))

    def _cvt_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        to, of = types
        value = self._read(operands[1], of)
        floats = ("f16", "bf16", "f32", "f64")
        rounding = next((each for each in flags if each in ("rni", "rzi", "rmi", "rpi", "rn", "rz", "rm", "rp")), "")
        if of == "f32" and "ftz" in flags:
            value = f"flushed({value})"
        if rounding.endswith("i"):
            function = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}[rounding]
            value = f"{function}{'f' if of == 'f32' else ''}({value})"
        if of in floats and to not in floats:
            if not rounding:
                raise PtxError("how it is rounded is not said")
            value = f"to_{to}({value}, {int(of == 'f64')})"
        elif to in floats:
            if rounding in _DIRECTIONS:
                value = f"ROUNDED({_DIRECTIONS[rounding]}, {to}, HELD({_number(of)}, {value}))"
            value = f"({'f32' if to == 'bf16' else to})({value})"
            if "sat" in flags:
                value = f"saturated_{to}({value})"
            if to == "f32" and "ftz" in flags:
                value = f"flushed({value})"
        elif "sat" in flags:
            raise PtxError("not known")
        return self._write(operands[0], to, value)

    def _setp_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        comparison, *more = [each for each in flags if each != "ftz"]
        left, right = (self._read(each, kind) for each in operands[1:3])
        if "ftz" in flags:
            left, right = f"flushed({left})", f"flushed({right})"
        signs = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
        signs |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
        nan = f"({left} != {left} || {right} != {right})"
        if kind not in ("f32", "f64"):
            value = f"{left} {signs[comparison]} {right}"
        elif comparison in ("num", "nan"):
            value = nan if comparison == "nan" else f"!{nan}"
        elif comparison in signs:
            value = f"(!{nan} && {left} {signs[comparison]} {right})"
        else:
            value = f"({nan} || {left} {signs[comparison[:-1]]} {right})"
        first, _, second = operands[0].partition("|")
        combined = ""
        if more:
            combined = f" {_COMBINED[more[0]]} ({self._predicate(operands[3])})"
        # The second gets the opposite of the comparison, combined with the same.
        lines = f"const u8 found_ = {value}; {_name(first)} = found_{combined};"
        return lines + (f" {_name(second)} = !found_{combined};" if second else "")

    def _predicate(self, operand: str) -> str:
        return f"!{_name(operand[1:])}" if operand.startswith("!") else _name(operand)

    def _selp_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        whole = f"u{_bits(types[0])}"
        yes, no = (self._read(each, whole) for each in operands[1:3])
        return self._write(operands[0], whole, f"{self._predicate(operands[3])} ? {yes} : {no}")

    def _testp_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        value = self._read(operands[1], types[0])
        tests = {"finite": "isfinite", "infinite": "isinf", "notanumber": "isnan", "normal": "isnormal"}
        if flags[0] == "number":
            return f"{_name(operands[0])} = !isnan({value});"
        return f"{_name(operands[0])} = !!{tests[flags[0]]}({value});"

    def _ld_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        targets = _operands(operands[0].strip("{}"))
        size = _bits(kind) // 8
        at = self._address(operands[1], flags[0], size * len(targets))
        # All is read before a register is written, which may be that of the address.
        lines = [f"const {_stored(kind)} value_{i} = (({_stored(kind)}*)at_)[{i}];" for i in range(len(targets))]
        lines += [
            f"{_name(each)} = ({_number(kind) if kind[0] in 'su' else _stored(kind)})value_{i};"
            for i, each in enumerate(targets)
        ]
        return f"const u8* at_ = {at}; {' '.join(lines)}"

    def _st_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        values = _operands(operands[1].strip("{}"))
        stored = _stored(kind)
        at = self._address(operands[0], flags[0], _bits(kind) // 8 * len(values))
        lines = [f"(({stored}*)at_)[{i}] = {self._read(each, stored)};" for i, each in enumerate(values)]
        return f"u8* at_ = {at}; {' '.join(lines)}"

    def _bra_(self, _base: str, _flags: list[str], _types: list[str], operands: list[str]) -> str:
        return f"goto {_name(operands[0])};"

    def _ret_(self, *_: object) -> str:
        return "return;"

    _exit_ = _ret_

    def _trap_(self, *_: object) -> str:
        return "failed(TRAP, thread, 0);"

    def _call_(self, _base: str, _flags: list[str], _types: list[str], operands: list[str]) -> str:
        result = [operands.pop(0)] if operands[0].startswith("(") else []
        function, arguments = operands[0], operands[1] if len(operands) > 1 else "()"
        every = [each for part in (*result, arguments) for each in _operands(part.strip("()"))]
        return f"{_name(function)}({', '.join(['thread', *map(_name, every)])});"

    def _bar_(self, _base: str, flags: list[str], _types: list[str], operands: list[str]) -> str:
        if "sync" not in flags or operands not in (["0"], ["-1"]):
            raise PtxError("not known")
        self.together = True
        return "wait(WARP);" if "warp" in flags else "wait(BLOCK);"

    _barrier_ = _bar_

    def _shfl_(self, _base: str, flags: list[str], _types: list[str], operands: list[str]) -> str:
        how = next(name for flag, name in _SHUFFLES.items() if flag in flags)
        value, b, c, mask = (self._read(each, "u32") for each in operands[1:5])
        target, _, inside = operands[0].partition("|")
        self.together = True
        keep = f" {_name(inside)} = inside_;" if inside else ""
        found = f"if ({mask} != 0xffffffffu) failed(APART, thread, 0); u8 inside_; "
        return f"{found}{_name(target)} = shuffled(thread, {value}, {b}, {c}, {how}, &inside_);{keep}"


_DYNAMIC = 48 * 1024
_SHUFFLES = {"up": "UP", "down": "DOWN", "bfly": "BUTTERFLY", "idx": "INDEX"}


def _number(kind: str) -> str:
    """The C type of a number of this type."""
    if kind == "bf16":
        return "f32"
    return _stored(kind) if kind[0] in "bp" else kind


def _operands(text: str) -> list[str]:
    """What stands between the commas that are in no brackets."""
    found, depth, start = [], 0, 0
    for at, character in enumerate(text):
        depth += (character in "{[(") - (character in "}])")
        if character == "," and not depth:
            found.append(text[start:at].strip())
            start = at + 1
    return [*found, text[start:].strip()] if text.strip() else []


def _variable(found: re.Match[str], before: str = "") -> str:
    _, align, kind, name, length, values = found.groups()
    number = _stored(kind)
    given = f" = {{{values}}}" if values else ""
    return f"{before}_Alignas({align or _bits(kind) // 8}) {number} {_name(name)}[{length or 1}]{given};"


def _share(found: re.Match[str], shared: dict[str, tuple[int, int]]) -> None:
    """Give a variable of shared memory its place."""
    _, align, kind, name, length, _ = found.groups()
    size = _bits(kind) // 8
    step = int(align or size)
    start = -(-max((end for _, end in shared.values()), default=0) // step) * step
    # How long one without a length is, is said at the launch: at most this.
    shared[name] = start, start + (_DYNAMIC if length == "" else size * int(length or 1))


def translate(ptx: str, entry: str) -> tuple[str, list[int], bool, int]:
    """A kernel as C.

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
            tables.append(f"within(address, size, (u64){_name(name)}, sizeof {_name(name)})")
    names = {name: found[1] for name, found in variables.items()}
    heads, bodies, together, sizes, most = [], [], False, [], 1024
    for found, body in functions:
        kind, results, name, parameters = found[1], found[2] or "", found[3], found[4]
        if kind == "entry" and name != entry:
            continue
        made = _Function(body, names, shared)
        together = together or made.together
        if kind == "entry":
            given = list(_PARAMETER.finditer(parameters))
            sizes = [_bits(each[1]) // 8 * int(each[3] or 1) for each in given]
            unpacked = [f"u8* {_name(each[2])} = parameters[{i}];" for i, each in enumerate(given)]
            head = "static void kernel(const Thread* thread, u8** parameters)"
            if bound := re.search(r"\.maxntid\s+(\d+)", found[5]):
                most = int(bound[1])
        else:
            given = [*_PARAMETER.finditer(results), *_PARAMETER.finditer(parameters)]
            pointers = "".join(f", u8* {_name(each[2])}" for each in given)
            head = f"static void {_name(name)}(const Thread* thread{pointers})"
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


def block_of(array: np.ndarray) -> tuple[int, int]:
    """The address and the size of the memory of an array, whatever its strides."""
    low, high = np.lib.array_utils.byte_bounds(array)
    return low, high - low


_REPORT = 256  # as in `ptx.c`


class Kernel:
    """A kernel of a PTX text, to be launched on host memory.

    Where `may_end` is set, threads may end before a barrier that others wait at, as the hardware lets them.
    """

    def __init__(self, ptx: str, entry: str, folder: Path, may_end: bool = False) -> None:
        assert COMPILER is not None
        text, self.sizes, waits, self.most = translate(ptx, entry)
        self.together = waits * (1 + may_end)
        text = f"{_HEAD.read_text()}\n{text}"
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        self.path = folder / f"{name}.so"
        if not self.path.exists():  # or another test has made it, or makes it now
            made = folder / f"{name}.{os.getpid()}.so"
            command = [COMPILER, *_FLAGS, "-shared", "-fPIC", "-x", "c", "-o", str(made), "-", "-lm"]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            if done.returncode:
                raise PtxError(f"the translation does not compile:\n{done.stderr[:4000]}")
            made.replace(self.path)

    def __call__(
        self, grid: Sequence[int], block: Sequence[int], arguments: Sequence[bytes], blocks: Sequence[tuple[int, int]]
    ) -> None:
        """Run the kernel; `blocks` are the addresses and sizes of the memory that it may touch."""
        if [len(each) for each in arguments] != self.sizes:
            raise PtxError(f"arguments of {[len(a) for a in arguments]} bytes for parameters of {self.sizes}")
        if block[0] * block[1] * block[2] > self.most:
            raise PtxError(f"blocks of {block} threads, of {self.most} at most")
        held = [ctypes.create_string_buffer(each, len(each)) for each in arguments]
        pointers = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        known = (ctypes.c_ulonglong * (2 * len(blocks)))(*(number for each in blocks for number in each))
        report = ctypes.create_string_buffer(_REPORT)
        triple = ctypes.c_uint * 3
        launch = ctypes.CDLL(str(self.path)).launch
        if launch(triple(*grid), triple(*block), self.together, pointers, known, len(blocks), report):
            raise PtxError(report.value.decode())
