"""What an instruction of PTX does, as statements in C; `executor.c` has the functions that these call.

An instruction that is not known is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from dualbcast.counting.operands import Operands, PtxError, bits_of, name_of, number_of, operands_of, stored

_TYPES = re.compile(r"(?:[sub](?:8|16|32|64|128)|f16|bf16|f32|f64|pred)$")
_COMBINED = {"and": "&", "or": "|", "xor": "^"}
_DIRECTIONS = {"rz": "FE_TOWARDZERO", "rm": "FE_DOWNWARD", "rp": "FE_UPWARD"}
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
_SHUFFLES = {"up": "UP", "down": "DOWN", "bfly": "BUTTERFLY", "idx": "INDEX"}


class Instructions:
    """The instructions of one function, each translated by itself; `together` says whether threads wait for others."""

    def __init__(self, operands: Operands) -> None:
        self.operands = operands
        self.together = False

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
        args = [self.operands.read(each, kind) for each in rest]
        if not integer and kind != "pred":
            return self._floats(base, flags, kind, target, args)
        if base in ("mul", "mad"):
            return self._product(base, flags, kind, target, rest)
        if base in ("clz", "popc"):  # the result has another type
            wide = "ll" if bits_of(kind) == 64 else ""
            value = f"{args[0]} ? __builtin_clz{wide}({args[0]}) : {bits_of(kind)}"
            return self.operands.write(target, "u32", value if base == "clz" else f"__builtin_popcountll({args[0]})")
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
        return self.operands.write(target, kind, value)

    def _shifted(self, base: str, flags: list[str], kind: str, operands: list[str]) -> str:
        """Shifts, and what inserts and extracts bits: the last operands are numbers of bits."""
        bits, signed = bits_of(kind), kind[0] == "s"
        if base == "shf":
            low, high, count = (self.operands.read(each, "u32") for each in operands)
            return f"shf({low}, {high}, {count}, {int('l' in flags)}, {int('wrap' in flags)})"
        if base in ("bfi", "bfe"):
            numbers = [self.operands.read(each, "u32") for each in operands[-2:]]
            last = "" if base == "bfi" else f", {int(signed)}"
            whole = [self.operands.read(each, f"u{bits}") for each in operands[:-2]]
            return f"{base}({', '.join([*whole, *numbers, str(bits)])}{last})"
        value, count = self.operands.read(operands[0], kind), self.operands.read(operands[1], "u32")
        how = f"shl_{bits}" if base == "shl" else f"shr_{'s' if signed else 'u'}{bits}"
        return f"{how}({value}, {count})"

    def _product(self, base: str, flags: list[str], kind: str, target: str, rest: list[str]) -> str:
        wide = kind[0] + str(2 * bits_of(kind))
        left, right = (f"({wide}){self.operands.read(each, kind)}" for each in rest[:2])
        result = wide if "wide" in flags else kind
        product = f"({left} * {right})"
        if "hi" in flags:
            product = f"({kind})({product} >> {bits_of(kind)})"
        elif "lo" in flags:
            product = f"({kind}){product}"
        elif "wide" not in flags:
            raise PtxError("a product of integers is .lo, .hi or .wide")
        if base == "mad":
            product += f" + {self.operands.read(rest[2], result)}"
        return self.operands.write(target, result, product)

    def _carried(self, base: str, flags: list[str], kind: str, operands: list[str]) -> str:
        """Sums that read or write the carry."""
        unsigned = f"u{bits_of(kind)}"
        target, *rest = operands
        args = [f"(u128){self.operands.read(each, unsigned)}" for each in rest]
        if base.startswith("mad"):
            product = f"({args[0]} * {args[1]})"
            args = [f"(u128)({unsigned})({product} >> {bits_of(kind) if 'hi' in flags else 0})", args[2]]
        old = "carry" if base.endswith("c") else "0"
        sign = "-" if base.startswith("sub") else "+"
        keep = f"carry = sum_ >> {bits_of(kind)} & 1; " if "cc" in flags else ""
        written = self.operands.write(target, unsigned, "sum_")
        return f"const u128 sum_ = {args[0]} {sign} {args[1]} {sign} {old}; {keep}{written}"

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
        return self.operands.write(target, kind, value)

    def _mov_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        target, source = operands
        if kind == "pred":
            return f"{name_of(target)} = {self.operands.read(source, 'pred')};"
        whole = f"u{bits_of(kind)}"
        if target.startswith("{"):
            parts = operands_of(target[1:-1])
            part = f"u{bits_of(kind) // len(parts)}"
            value = self.operands.read(source, whole)
            lines = [
                self.operands.write(each, part, f"whole_ >> {at * bits_of(part)}") for at, each in enumerate(parts)
            ]
            return f"const {whole} whole_ = {value}; {' '.join(lines)}"
        if source.startswith("{"):
            parts = operands_of(source[1:-1])
            part = f"u{bits_of(kind) // len(parts)}"
            values = [
                f"({whole}){self.operands.read(each, part)} << {at * bits_of(part)}" for at, each in enumerate(parts)
            ]
            return self.operands.write(target, whole, " | ".join(values))
        return self.operands.write(target, whole, self.operands.read(source, whole))

    def _cvta_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        return self.operands.write(operands[0], types[0], self.operands.read(operands[1], types[0]))

    def _cvt_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        to, of = types
        value = self.operands.read(operands[1], of)
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
                value = f"ROUNDED({_DIRECTIONS[rounding]}, {to}, HELD({number_of(of)}, {value}))"
            value = f"({'f32' if to == 'bf16' else to})({value})"
            if "sat" in flags:
                value = f"saturated_{to}({value})"
            if to == "f32" and "ftz" in flags:
                value = f"flushed({value})"
        elif "sat" in flags:
            raise PtxError("not known")
        return self.operands.write(operands[0], to, value)

    def _setp_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        comparison, *more = [each for each in flags if each != "ftz"]
        left, right = (self.operands.read(each, kind) for each in operands[1:3])
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
            combined = f" {_COMBINED[more[0]]} ({self.operands.predicate(operands[3])})"
        # The second gets the opposite of the comparison, combined with the same.
        lines = f"const u8 found_ = {value}; {name_of(first)} = found_{combined};"
        return lines + (f" {name_of(second)} = !found_{combined};" if second else "")

    def _selp_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        whole = f"u{bits_of(types[0])}"
        yes, no = (self.operands.read(each, whole) for each in operands[1:3])
        return self.operands.write(operands[0], whole, f"{self.operands.predicate(operands[3])} ? {yes} : {no}")

    def _testp_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        value = self.operands.read(operands[1], types[0])
        tests = {"finite": "isfinite", "infinite": "isinf", "notanumber": "isnan", "normal": "isnormal"}
        if flags[0] == "number":
            return f"{name_of(operands[0])} = !isnan({value});"
        return f"{name_of(operands[0])} = !!{tests[flags[0]]}({value});"

    def _ld_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        targets = operands_of(operands[0].strip("{}"))
        size = bits_of(kind) // 8
        at = self.operands.address(operands[1], flags[0], size * len(targets))
        # All is read before a register is written, which may be that of the address.
        lines = [f"const {stored(kind)} value_{i} = (({stored(kind)}*)at_)[{i}];" for i in range(len(targets))]
        lines += [
            f"{name_of(each)} = ({number_of(kind) if kind[0] in 'su' else stored(kind)})value_{i};"
            for i, each in enumerate(targets)
        ]
        return f"const u8* at_ = {at}; {' '.join(lines)}"

    def _st_(self, _base: str, flags: list[str], types: list[str], operands: list[str]) -> str:
        (kind,) = types
        values = operands_of(operands[1].strip("{}"))
        bits = stored(kind)
        at = self.operands.address(operands[0], flags[0], bits_of(kind) // 8 * len(values))
        lines = [f"(({bits}*)at_)[{i}] = {self.operands.read(each, bits)};" for i, each in enumerate(values)]
        return f"u8* at_ = {at}; {' '.join(lines)}"

    def _bra_(self, _base: str, _flags: list[str], _types: list[str], operands: list[str]) -> str:
        return f"goto {name_of(operands[0])};"

    def _ret_(self, *_: object) -> str:
        return "return;"

    _exit_ = _ret_

    def _trap_(self, *_: object) -> str:
        return "failed(TRAP, thread, 0);"

    def _createpolicy_(self, _base: str, _flags: list[str], types: list[str], operands: list[str]) -> str:
        """How caches are to treat an access, which is a hint."""
        return self.operands.write(operands[0], types[0], "0")

    def _call_(self, _base: str, _flags: list[str], _types: list[str], operands: list[str]) -> str:
        result = [operands.pop(0)] if operands[0].startswith("(") else []
        function, arguments = operands[0], operands[1] if len(operands) > 1 else "()"
        every = [each for part in (*result, arguments) for each in operands_of(part.strip("()"))]
        return f"{name_of(function)}({', '.join(['thread', *map(name_of, every)])});"

    def _bar_(self, _base: str, flags: list[str], _types: list[str], operands: list[str]) -> str:
        if "sync" not in flags or operands not in (["0"], ["-1"]):
            raise PtxError("not known")
        self.together = True
        return "wait(WARP);" if "warp" in flags else "wait(BLOCK);"

    _barrier_ = _bar_

    def _shfl_(self, _base: str, flags: list[str], _types: list[str], operands: list[str]) -> str:
        how = next(name for flag, name in _SHUFFLES.items() if flag in flags)
        value, b, c, mask = (self.operands.read(each, "u32") for each in operands[1:5])
        target, _, inside = operands[0].partition("|")
        self.together = True
        keep = f" {name_of(inside)} = inside_;" if inside else ""
        found = f"if ({mask} != 0xffffffffu) failed(APART, thread, 0); u8 inside_; "
        return f"{found}{name_of(target)} = shuffled(thread, {value}, {b}, {c}, {how}, &inside_);{keep}"


def _quotient(base: str, kind: str, left: str, right: str) -> str:
    sign = "/" if base == "div" else "%"
    # Of the least number by -1 C says nothing: the processor stops.
    negated = f"0 - {left}" if base == "div" else "0"
    by_one = f"{right} == -1 ? {negated} : " if kind[0] == "s" else ""
    return f"{right} == 0 ? {'-1' if base == 'div' else left} : {by_one}{left} {sign} {right}"
