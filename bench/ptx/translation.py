"""Translates a kernel from PTX to C, instruction by instruction; `executor.c` has what an instruction means.

An instruction that is not known is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable

__all__ = ["Function", "PtxError", "bits_of", "operands_of", "translate"]

_TYPES = re.compile(r"(?:[sub](?:8|16|32|64|128)|f16|bf16|f32|f64|pred)$")
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
_COMBINED = {"and": "&", "or": "|", "xor": "^"}
_DIRECTIONS = {"rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}
_SPECIAL = {
    f"%{name}.{axis}": f"thread->{name}[{at}]"
    for name in ("tid", "ntid", "ctaid", "nctaid")
    for at, axis in enumerate("xyz")
}
_SPECIAL["%laneid"] = "lane_of(thread)"


_INTEGERS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "min": "{0} < {1} ? {0} : {1}",
    "max": "{0} > {1} ? {0} : {1}",
    "abs": "{0} < 0 ? 0 - {0} : {0}",
    "neg": "0 - {0}",
}
_FLOATS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "fma": "fma{suffix}({0}, {1}, {2})",
    "mad": "fma{suffix}({0}, {1}, {2})",
    "min": "min_{kind}({0}, {1})",
    "max": "max_{kind}({0}, {1})",
    "abs": "fabs{suffix}({0})",
    "neg": "-{0}",
    "copysign": "copysign{suffix}({1}, {0})",  # the sign is the first's
    "sqrt": "sqrt{suffix}({0})",
    "rcp": "1 / {0}",
}
_APPROXIMATIONS = {
    ("rcp", "f64"): "rcp_approx_f64({0})",
    ("rsqrt", "f64"): "rsqrt_approx_f64({0})",
    ("rsqrt", "f32"): "1 / sqrtf({0})",
    ("sin", "f32"): "sinf({0})",
    ("cos", "f32"): "cosf({0})",
    ("ex2", "f32"): "exp2f({0})",
    ("lg2", "f32"): "log2f({0})",
    ("tanh", "f32"): "tanh_approx({0})",
}


class PtxError(Exception):
    """A text that cannot be translated, or a kernel that does what it may not."""


def bits_of(kind: str) -> int:
    return 8 if kind == "pred" else int(re.sub(r"\D", "", kind))


def _stored(kind: str) -> str:
    """The C type of a register of this type: its bits."""
    return f"u{bits_of(kind)}"


def _name(text: str) -> str:
    """A C name for one of PTX."""
    return ("r_" if text.startswith("%") else "n_") + text.lstrip("%").replace("$", "_D_").replace(".", "_")


class Function:
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
            guard, text = f"{found[1]}{_name(found[2])}", text[found.end() :]
        opcode, *rest = text.split(None, 1)
        self.instruction(guard, opcode, operands_of("".join(rest)))

    def position(self, file: int, line: int) -> None:
        """The instructions that follow come from a line of a file."""

    def label(self, name: str) -> None:
        """A label stands before the next instruction."""
        self.lines.append(f"{_name(name)}: ;")

    def instruction(self, guard: str, opcode: str, operands: list[str]) -> None:
        """An instruction, under a condition in C unless `guard` is empty."""
        given = f"if ({guard}) " if guard else ""
        self.lines.append(f"{given}{{ {self.translated(opcode, operands)} }}")

    def _directive(self, text: str) -> None:
        if found := re.match(r"\.reg\s+\.(\w+)\s+(.*)$", text, re.DOTALL):
            names: list[str] = []
            for each in found[2].split(","):
                many = re.match(r"\s*(%?[\w$]+)<(\d+)>", each)
                names += [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [each.strip()]
            self.lines.append(f"{_stored(found[1])} {', '.join(f'{_name(name)} = {_NOTHING}' for name in names)};")
        elif found := _PARAMETER.match(text):
            size = bits_of(found[1]) // 8 * int(found[3] or 1)
            self.lines.append(f"_Alignas(16) u8 {_name(found[2])}[{size}];")
        elif found := _VARIABLE.match(text + ";"):
            self.variables[found[4]] = found[1]
            if found[1] == "shared":
                _share(found, self.shared)
            else:
                self.lines.append(_variable(found))
        elif not text.startswith(".pragma"):
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

    def translated(self, opcode: str, operands: list[str]) -> str:
        """An instruction as statements in C."""
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
        if base in ("mul", "mad"):
            return self._product(base, flags, kind, target, rest)
        if base in ("clz", "popc"):  # the result has another type
            wide = "ll" if bits_of(kind) == 64 else ""
            value = f"{args[0]} ? __builtin_clz{wide}({args[0]}) : {bits_of(kind)}"
            return self._write(target, "u32", value if base == "clz" else f"__builtin_popcountll({args[0]})")
        if base in ("div", "rem"):
            value = _quotient(base, kind, *args)
        elif base in ("shl", "shr", "shf", "bfi", "bfe"):
            value = self._shifted(base, flags, kind, rest)
        elif base == "not" and kind == "pred":
            value = f"!{args[0]}"
        elif base in _INTEGERS:
            value = _INTEGERS[base].format(*args)
        elif base in ("brev", "prmt", "lop3") and bits_of(kind) == 32:
            value = f"{base}({', '.join(args)})"
        else:
            raise PtxError("not known")
        return self._write(target, kind, value)

    def _shifted(self, base: str, flags: list[str], kind: str, operands: list[str]) -> str:
        """Shifts, and what inserts and extracts bits: the last operands are numbers of bits."""
        bits, signed = bits_of(kind), kind[0] == "s"
        if base == "shf":
            low, high, count = (self._read(each, "u32") for each in operands)
            return f"shf({low}, {high}, {count}, {int('l' in flags)}, {int('wrap' in flags)})"
        if base in ("bfi", "bfe"):
            numbers = [self._read(each, "u32") for each in operands[-2:]]
            last = "" if base == "bfi" else f", {int(signed)}"
            whole = [self._read(each, f"u{bits}") for each in operands[:-2]]
            return f"{base}({', '.join([*whole, *numbers, str(bits)])}{last})"
        value, count = self._read(operands[0], kind), self._read(operands[1], "u32")
        how = f"shl_{bits}" if base == "shl" else f"shr_{'s' if signed else 'u'}{bits}"
        return f"{how}({value}, {count})"

    def _product(self, base: str, flags: list[str], kind: str, target: str, rest: list[str]) -> str:
        wide = kind[0] + str(2 * bits_of(kind))
        left, right = (f"({wide}){self._read(each, kind)}" for each in rest[:2])
        result = wide if "wide" in flags else kind
        product = f"({left} * {right})"
        if "hi" in flags:
            product = f"({kind})({product} >> {bits_of(kind)})"
        elif "lo" in flags:
            product = f"({kind}){product}"
        elif "wide" not in flags:
            raise PtxError("a product of integers is .lo, .hi or .wide")
        if base == "mad":
            product += f" + {self._read(rest[2], result)}"
        return self._write(target, result, product)

    def _carried(self, base: str, flags: list[str], kind: str, operands: list[str]) -> str:
        """Sums that read or write the carry."""
        unsigned = f"u{bits_of(kind)}"
        target, *rest = operands
        args = [f"(u128){self._read(each, unsigned)}" for each in rest]
        if base.startswith("mad"):
            product = f"({args[0]} * {args[1]})"
            args = [f"(u128)({unsigned})({product} >> {bits_of(kind) if 'hi' in flags else 0})", args[2]]
        old = "carry" if base.endswith("c") else "0"
        sign = "-" if base.startswith("sub") else "+"
        keep = f"carry = sum_ >> {bits_of(kind)} & 1; " if "cc" in flags else ""
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
        approximate = _APPROXIMATIONS.get((base, kind)) if "approx" in flags else None
        value = (approximate or _FLOATS[base]).format(*args, suffix=suffix, kind=kind)
        if "NaN" in flags and base in ("min", "max"):
            value = f"{args[0]} != {args[0]} ? {args[0]} : {args[1]} != {args[1]} ? {args[1]} : {value}"
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
        whole = f"u{bits_of(kind)}"
        if target.startswith("{"):
            parts = operands_of(target[1:-1])
            part = f"u{bits_of(kind) // len(parts)}"
            value = self._read(source, whole)
            lines = [self._write(each, part, f"whole_ >> {at * bits_of(part)}") for at, each in enumerate(parts)]
            return f"const {whole} whole_ = {value}; {' '.join(lines)}"
        if source.startswith("{"):
            parts = operands_of(source[1:-1])
            part = f"u{bits_of(kind) // len(parts)}"
            values = [f"({whole}){self._read(each, part)} << {at * bits_of(part)}" for at, each in enumerate(parts)]
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
        whole = f"u{bits_of(types[0])}"
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
        targets = operands_of(operands[0].strip("{}"))
        size = bits_of(kind) // 8
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
        values = operands_of(operands[1].strip("{}"))
        stored = _stored(kind)
        at = self._address(operands[0], flags[0], bits_of(kind) // 8 * len(values))
        lines = [f"(({stored}*)at_)[{i}] = {self._read(each, stored)};" for i, each in enumerate(values)]
        return f"u8* at_ = {at}; {' '.join(lines)}"

    def _bra_(self, _base: str, _flags: list[str], _types: list[str], operands: list[str]) -> str:
        return f"goto {_name(operands[0])};"

    def _ret_(self, *_: object) -> str:
        return "return;"

    _exit_ = _ret_

    def _trap_(self, *_: object) -> str:
        return "failed(TRAP, thread, 0);"

    def _createpolicy_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        """How caches are to treat an access, which is a hint."""
        return self._write(operands[0], types[0], "0")

    def _call_(self, _base: str, _flags: list[str], _types: list[str], operands: list[str]) -> str:
        result = [operands.pop(0)] if operands[0].startswith("(") else []
        function, arguments = operands[0], operands[1] if len(operands) > 1 else "()"
        every = [each for part in (*result, arguments) for each in operands_of(part.strip("()"))]
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


FunctionKind = Callable[[str, dict[str, str], dict[str, tuple[int, int]]], Function]
_DYNAMIC = 48 * 1024
_SHUFFLES = {"up": "UP", "down": "DOWN", "bfly": "BUTTERFLY", "idx": "INDEX"}


def _quotient(base: str, kind: str, left: str, right: str) -> str:
    sign = "/" if base == "div" else "%"
    # Of the least number by -1 C says nothing: the processor stops.
    negated = f"0 - {left}" if base == "div" else "0"
    by_one = f"{right} == -1 ? {negated} : " if kind[0] == "s" else ""
    return f"{right} == 0 ? {'-1' if base == 'div' else left} : {by_one}{left} {sign} {right}"


def _number(kind: str) -> str:
    """The C type of a number of this type."""
    if kind == "bf16":
        return "f32"
    return _stored(kind) if kind[0] in "bp" else kind


def operands_of(text: str) -> list[str]:
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
    return f"{before}_Alignas({align or bits_of(kind) // 8}) {number} {_name(name)}[{length or 1}]{given};"


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
            tables.append(f"within(address, size, (u64){_name(name)}, sizeof {_name(name)})")
    names = {name: found[1] for name, found in variables.items()}
    heads, bodies, together, sizes, most = [], [], False, [], 1024
    for found, body in functions:
        which, results, name, parameters = found[1], found[2] or "", found[3], found[4]
        if which == "entry" and name != entry:
            continue
        made = (kind or Function)(body, names, shared)
        together = together or made.together
        if which == "entry":
            given = list(_PARAMETER.finditer(parameters))
            sizes = [bits_of(each[1]) // 8 * int(each[3] or 1) for each in given]
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
