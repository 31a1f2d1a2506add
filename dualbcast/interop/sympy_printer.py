"""Prints expressions of SymPy's as expressions of the scalar language; SymPy is imported by the first."""

from __future__ import annotations

import functools
import importlib
import keyword
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dualbcast.errors import ArgumentError, MissingDependencyError

# By the name of a function of SymPy's, what it is here. An argument stands in parentheses where it needs them.
FUNCTIONS = {
    **{name: f"math.{name}({{}})" for name in ["exp", "log", "sin", "cos", "tan", "asin", "acos", "atan"]},
    **{name: f"math.{name}({{}})" for name in ["sinh", "cosh", "tanh", "asinh", "acosh", "atanh"]},
    **{name: f"math.{name}({{}})" for name in ["expm1", "log1p", "exp2", "log2", "log10", "erf", "erfc", "gamma"]},
    "atan2": "math.atan2({}, {})",
    "hypot": "math.hypot({}, {})",
    "logaddexp": "np.logaddexp({}, {})",
    "logaddexp2": "np.logaddexp2({}, {})",
    "Sqrt": "math.sqrt({})",
    "Cbrt": "math.cbrt({})",
    "fma": "({}*{} + {})",
    "sec": "(1/math.cos({}))",
    "csc": "(1/math.sin({}))",
    "cot": "(1/math.tan({}))",
    "sech": "(1/math.cosh({}))",
    "csch": "(1/math.sinh({}))",
    "coth": "(1/math.tanh({}))",
    "asec": "math.acos(1/{})",
    "acsc": "math.asin(1/{})",
    "acot": "math.atan(1/{})",
    "asech": "math.acosh(1/{})",
    "acsch": "math.asinh(1/{})",
    "acoth": "math.atanh(1/{})",
    "sinc": "np.sinc({}/math.pi)",
    "erf2": "(math.erf({1}) - math.erf({0}))",
    "erfinv": "special.erfinv({})",
    "loggamma": "math.lgamma({})",
    "digamma": "special.digamma({})",
    "trigamma": "special.polygamma(1, {})",
    "polygamma": "special.polygamma({}, {})",
    "factorial": "math.gamma({} + 1)",
    "binomial": "(math.gamma({0} + 1)/(math.gamma({1} + 1)*math.gamma({0} - {1} + 1)))",
    "beta": "(math.gamma({0})*math.gamma({1})/math.gamma({0} + {1}))",
    "Abs": "abs({})",
    "sign": "np.sign({})",
    "Heaviside": "np.heaviside({}, {})",
    "floor": "np.floor({})",
    "ceiling": "np.ceil({})",
    "frac": "({0} - np.floor({0}))",
    "Mod": "({} % {})",
}
# The names that the texts above and the printer use, beside Python's own words.
RESERVED = frozenset({*keyword.kwlist, "math", "np", "special", "abs", "min", "max"})

# The other parts of expressions that the printer knows, by the names of their classes or bases.
_PARTS = frozenset(
    [
        "Symbol",
        "Add",
        "Mul",
        "Pow",
        "Number",
        "NumberSymbol",
        "Min",
        "Max",
        "And",
        "Or",
        "Not",
        "Xor",
        "ITE",
        "Relational",
        "BooleanAtom",
        "Piecewise",
        "ExprCondPair",
    ]
)
# Up to here an integer is a float without rounding.
_LARGEST_EXACT = 2**53


def sympy_module() -> Any:
    """SymPy."""
    try:
        return importlib.import_module("sympy")
    except ModuleNotFoundError:
        raise MissingDependencyError("SymPy", "from_sympy", "sympy") from None


def parts_of(expressions: Iterable[Any], stop: type | tuple[type, ...] = ()) -> Iterator[Any]:
    """Every part of expressions once, the expressions among them, but none that is only in a part of a type in `stop`.

    SymPy's own ways through an expression visit a part as often as it occurs, which may be exponentially often.
    """
    seen, pending = set(), [*expressions]
    while pending:
        part = pending.pop()
        if part not in seen:
            seen.add(part)
            yield part
            if not isinstance(part, stop):
                pending.extend(part.args)


def check_parts(expressions: Iterable[Any], functions: Iterable[str]) -> None:
    """Refuse expressions with functions or other parts that have no meaning here."""
    sympy, known, missing = sympy_module(), {*FUNCTIONS, *functions}, {}
    for part in parts_of(expressions):
        names = [kind.__name__ for kind in type(part).__mro__]
        if not (names[0] in known or _PARTS.intersection(names)) or part is sympy.zoo:
            missing[names[0]] = part
    if not missing:
        return
    name, part = next(iter(missing.items()))
    others = f" The same holds for {', '.join([*missing][1:])}." if len(missing) > 1 else ""
    if name in ("Derivative", "Integral", "Sum", "Product", "Limit", "Subs"):
        hint = "Write expr.doit() to carry it out first"
    elif name in ("ImaginaryUnit", "re", "im", "conjugate", "arg", "ComplexInfinity"):
        hint = "Numbers are real here: declare symbols with real=True, and simplify the expression"
    else:
        hint = f"Give a scalar function for it: from_sympy(…, functions={{{name!r}: function}})"
    raise ArgumentError(f"{name}, in {part}, has no counterpart in the scalar language. {hint}.{others}")


def text_of(expression: Any, names: Mapping[Any, str], functions: Iterable[str]) -> str:
    """An expression as a text; `names` has that of each symbol."""
    if expression.is_Integer:
        return repr(float(expression))  # a whole result is a float, too
    printer = _printer_class()()
    printer.names, printer.user_functions = names, frozenset(functions)
    text: str = printer.doprint(expression)
    return text


@functools.cache
def _printer_class() -> Any:
    """SymPy's printer of Python, with methods for the functions and numbers of the scalar language."""
    base = importlib.import_module("sympy.printing.pycode").PythonCodePrinter
    methods = {**dict.fromkeys(FUNCTIONS, _call), **_METHODS}
    return type("Printer", (base,), {f"_print_{name}": method for name, method in methods.items()})


def _call(printer: Any, expression: Any) -> str:
    name, arguments = type(expression).__name__, expression.args
    if name in printer.user_functions:
        return f"{name}({', '.join(map(printer._print, arguments))})"
    if name == "polygamma" and arguments[0] == 0:
        name, arguments = "digamma", arguments[1:]
    return FUNCTIONS[name].format(*[printer.parenthesize(argument, _ATOM, strict=True) for argument in arguments])


def _rational(_: Any, expression: Any) -> str:
    p, q = int(expression.p), int(expression.q)
    return f"{p}/{q}" if max(abs(p), q) <= _LARGEST_EXACT else repr(p / q)


def _conditional(printer: Any, expression: Any) -> str:
    condition, yes, no = map(printer._print, expression.args)
    return f"({yes} if {condition} else {no})"


def _unequal(printer: Any, expression: Any) -> str:
    """Of several truths: whether an odd number of them holds."""
    truths = [f"({printer._print(argument)})" for argument in expression.args]
    return functools.reduce(lambda left, right: f"({left} != {right})", truths)


def _float(_: Any, expression: Any) -> str:
    return repr(float(expression))


_METHODS = {
    "Symbol": lambda printer, symbol: printer.names[symbol],
    "Dummy": lambda printer, symbol: printer.names[symbol],
    "Function": _call,
    "Integer": lambda _, number: str(number) if abs(number) <= _LARGEST_EXACT else repr(float(number)),
    "Rational": _rational,
    "Half": _rational,
    "Float": _float,
    **dict.fromkeys(("NumberSymbol", "GoldenRatio", "EulerGamma", "Catalan", "TribonacciConstant"), _float),
    "ITE": _conditional,
    "Xor": _unequal,
}
# The precedence of what needs no parentheses.
_ATOM = 1000
