"""Complex numbers while a function is lowered: pairs of floats, whose operators and functions are inlined."""

from __future__ import annotations

import ast
import builtins
import cmath
from typing import Any

import numpy as np

from dualbcast import complex_functions, complex_numbers
from dualbcast.frontend.arithmetic import as_number, as_scalar
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.inlining import inline
from dualbcast.frontend.values import Arguments, Record, Value, complex_number, is_complex
from dualbcast.ir.nodes import Atom, Const, Kind
from dualbcast.ir.simplification import zero
from dualbcast.rules.guards import Capture, PartsOf

_NOTHING = Const(0, "int")
_POWERS = pow, np.power, np.float_power
# By the name of our own function, the callables that mean it where an argument is complex; those of `cmath` always do.
_SPELLINGS = {
    "exp": "cmath.exp numpy.exp",
    "log": "numpy.log",
    "log10": "cmath.log10 numpy.log10",
    "sqrt": "cmath.sqrt numpy.sqrt",
    "sin": "cmath.sin numpy.sin",
    "cos": "cmath.cos numpy.cos",
    "tan": "cmath.tan numpy.tan",
    "sinh": "cmath.sinh numpy.sinh",
    "cosh": "cmath.cosh numpy.cosh",
    "tanh": "cmath.tanh numpy.tanh",
    "asin": "cmath.asin numpy.arcsin",
    "acos": "cmath.acos numpy.arccos",
    "atan": "cmath.atan numpy.arctan",
    "asinh": "cmath.asinh numpy.arcsinh",
    "acosh": "cmath.acosh numpy.arccosh",
    "atanh": "cmath.atanh numpy.arctanh",
    "phase": "cmath.phase numpy.angle",
    "polar": "cmath.polar",
    "is_nan": "cmath.isnan numpy.isnan",
    "is_inf": "cmath.isinf numpy.isinf",
    "is_finite": "cmath.isfinite numpy.isfinite",
    "square": "numpy.square",
    "reciprocal": "numpy.reciprocal",
    "conjugate": "numpy.conjugate",
    "real": "numpy.real",
    "imag": "numpy.imag",
    "size": "builtins.abs numpy.absolute",
}
# As objects to be inlined, not as functions to be called.
_OWN: Any = complex_numbers
_MODULES: dict[str, Any] = {"cmath": cmath, "numpy": np, "builtins": builtins}


def _entries() -> dict[int, tuple[Any, Any]]:
    """The callables by their id, as some cannot be hashed, with the functions that they mean."""
    found = {}
    for name, spellings in _SPELLINGS.items():
        for spelling in spellings.split():
            module, _, attribute = spelling.partition(".")
            callable_ = getattr(_MODULES[module], attribute)
            found[id(callable_)] = callable_, getattr(_OWN, name, None) or getattr(complex_functions, name)
    return found


_FUNCTIONS = _entries()


def made(env: Environment, real: Value, imag: Value, node: ast.AST) -> Record:
    """The complex number of two real ones."""
    parts = [env.convert(as_scalar(env, part, node), "float", node) for part in (real, imag)]
    return complex_number(parts)


def from_parts(env: Environment, node: ast.AST, real: Value = _NOTHING, imag: Value = _NOTHING) -> Value:
    """`complex(real, imag)`, or `complex(z)`."""
    return real if is_complex(real) and imag == _NOTHING else made(env, real, imag, node)


def real_of_real(env: Environment, node: ast.AST, x: Atom, /) -> Value:
    """NumPy's `real`, and its conjugate, of a number that is real."""
    return env.convert(x, "int" if x.kind == "bool" else x.kind, node)


def imag_of_real(_env: Environment, _node: ast.AST, x: Atom, /) -> Value:
    """NumPy's `imag` of a number that is real."""
    return zero("int" if x.kind == "bool" else x.kind)


def captured(env: Environment, capture: Capture, kind: Kind) -> Value:
    """The element of a captured array of complex numbers, of which each part is a parameter."""
    key = id(capture.place), capture.key
    if key not in env.cores:
        parts = PartsOf(capture._replace(value=None)).captures()
        env.cores[key] = complex_number([env.array(part, kind) for part in parts])
    return env.cores[key]


def from_any(env: Environment, value: Value, node: ast.AST) -> Record:
    """A number as a complex one."""
    return value if is_complex(value) else made(env, value, Const(0.0, "float"), node)  # type: ignore[return-value]


def call(env: Environment, function: Any, arguments: Arguments, node: ast.AST) -> Value | None:
    """The result of a function of complex numbers; None where it is none, or takes none here."""
    is_of_cmath = getattr(function, "__module__", None) == "cmath"
    if not is_of_cmath and function is not np.angle and not any(map(is_complex, arguments.args)):
        return None
    if function is cmath.rect:
        r_and_phi = tuple([as_scalar(env, part, node) for part in arguments.args])
        return inline(env, _OWN.rect, Arguments(r_and_phi, arguments.keywords), node)
    if function is cmath.log or function is np.log:
        return _logarithm(env, arguments, node)
    if any(function is each for each in _POWERS) and len(arguments.args) == 2:
        return power(env, arguments.args[0], arguments.args[1], node)
    entry = _FUNCTIONS.get(id(function))
    if entry is None or entry[0] is not function or len(arguments.args) != 1 or arguments.keywords:
        return None
    return inline(env, entry[1], Arguments((from_any(env, arguments.args[0], node),)), node)


def reduced(env: Environment, name: str, total: Value, value: Value, node: ast.AST) -> Value:
    """The sum ("add") or the product ("mul") of two numbers, of which one is complex."""
    method = {"add": _OWN.Complex.__add__, "mul": _OWN.Complex.__mul__}[name]
    return inline(env, method, Arguments((from_any(env, total, node), as_number(env, value, node))), node)


def _logarithm(env: Environment, arguments: Arguments, node: ast.AST) -> Value:
    """`log(z)`, or `log(z, base)`."""
    logs = [inline(env, _OWN.log, Arguments((from_any(env, z, node),)), node) for z in arguments.args]
    if len(logs) == 1:
        return logs[0]
    if len(logs) != 2:
        env.fail(node, f"log() takes 1 or 2 arguments, not {len(logs)}")
    return inline(env, _OWN.quotient, Arguments((logs[0], logs[1])), node)


def power(env: Environment, base: Value, exponent: Value, node: ast.AST) -> Value:
    """`base ** exponent`, of which one is complex: a product for small whole exponents that are known."""
    is_whole = isinstance(exponent, Const) and float(exponent.value).is_integer()
    count = int(exponent.value) if is_whole and isinstance(exponent, Const) else 0
    z = from_any(env, base, node)
    exponent = as_number(env, exponent, node)
    if exponent == Const(0.5, "float"):
        return inline(env, _OWN.sqrt, Arguments((z,)), node)
    if not is_whole or abs(count) > _OWN.LARGEST_PRODUCT:
        return inline(env, _OWN.power, Arguments((z, exponent)), node)
    if not count:
        return made(env, Const(1.0, "float"), Const(0.0, "float"), node)
    product: Value = _product(env, z, abs(count), node)
    return product if count > 0 else inline(env, _OWN.reciprocal, Arguments((product,)), node)


def _product(env: Environment, z: Value, count: int, node: ast.AST) -> Value:
    """A power as a product, by repeated squaring."""
    if count == 1:
        return z
    half = _product(env, z, count // 2, node)
    squared = inline(env, _OWN.square, Arguments((half,)), node)
    return inline(env, _OWN.Complex.__mul__, Arguments((squared, z)), node) if count % 2 else squared
