"""Functions made of SymPy's expressions, against SymPy's own evaluation and derivatives in 40 digits."""

from __future__ import annotations

import inspect
import math
import pickle
import re
from typing import Any

import numpy as np
import pytest

from dualbcast.errors import ArgumentError, CompileError
from dualbcast.interop.sympy import from_sympy
from dualbcast.interop.sympy_printer import FUNCTIONS

sp = pytest.importorskip("sympy")
cfunctions = pytest.importorskip("sympy.codegen.cfunctions")
numpy_nodes = pytest.importorskip("sympy.codegen.numpy_nodes")

# ruff: noqa: RUF001 (a Greek letter is a name, too)
x, y, z = sp.symbols("x y z", real=True)
n = sp.Symbol("n", integer=True)
rng = np.random.default_rng(11)

# By a name of SymPy's: an expression in x and y, and the ranges of these.
POSITIVE, INSIDE, REAL = (0.1, 4.0), (-0.9, 0.9), (-3.0, 3.0)
OF_FUNCTIONS: dict[str, tuple[Any, tuple[float, float]]] = {
    **{
        name: (getattr(sp, name)(x * y) * y, REAL)
        for name in ["exp", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asinh", "atan"]
    },
    **{name: (getattr(sp, name)(x) * y, REAL) for name in ["erf", "erfc", "acot", "sech"]},
    **{name: (getattr(sp, name)(x) * y, INSIDE) for name in ["asin", "acos", "atanh", "erfinv"]},
    **{name: (getattr(sp, name)(x) * y, POSITIVE) for name in ["log", "gamma", "loggamma", "digamma", "trigamma"]},
    **{name: (getattr(sp, name)(x) * y, (0.2, 1.4)) for name in ["sec", "csc", "cot", "csch", "coth", "sinc", "acsch"]},
    **{name: (getattr(sp, name)(x) * y, (1.1, 3.0)) for name in ["acosh", "asec", "acsc", "acoth", "factorial"]},
    "asech": (sp.asech(x) * y, (0.1, 0.9)),
    **{name: (getattr(sp, name)(x) * y, REAL) for name in ["Abs", "sign", "floor", "ceiling", "frac"]},
    "Heaviside": (sp.Heaviside(x) * y + sp.Heaviside(y, 1), REAL),
    "Mod": (sp.Mod(x, y) * x, POSITIVE),
    "atan2": (sp.atan2(x, y), POSITIVE),
    "erf2": (sp.erf2(x, y), REAL),
    "polygamma": (sp.polygamma(2, x) * sp.polygamma(0, y), POSITIVE),
    "beta": (sp.beta(x, y), POSITIVE),
    "binomial": (sp.binomial(x + 3, y), POSITIVE),
    **{
        name: (getattr(cfunctions, name)(x) * y, POSITIVE)
        for name in ["expm1", "log1p", "exp2", "log2", "log10", "Sqrt", "Cbrt"]
    },
    "hypot": (cfunctions.hypot(x, y), POSITIVE),
    "fma": (cfunctions.fma(x, y, x + 1) ** 2, REAL),
    "logaddexp": (numpy_nodes.logaddexp(x, y), REAL),
    "logaddexp2": (numpy_nodes.logaddexp2(x, y), REAL),
}

WHOLE: dict[str, Any] = {
    "polynomial": x**7 - 3 * x**2 * y + 2,
    "negative powers": 1 / x**2 + y**-3 - 1 / (x * y),
    "roots": sp.sqrt(x) + 1 / sp.sqrt(y) + x ** sp.Rational(3, 2) + y ** sp.Rational(1, 3) + x ** sp.Rational(-2, 7),
    "power of a sum": (x + y) ** (x - y) + (-x) ** 2 - (-x) ** 3,
    "a power of a power": (x**y) ** y + 2**x + sp.E**y,
    "rationals": sp.Rational(1, 3) * x + sp.Rational(-7, 11) * y + sp.Rational(10**30 + 1, 3 * 10**30) * x,
    "large numbers": x * 10**30 / (2**70 * y) + 12345678901234567890,
    "constants": sp.pi * x + sp.E * y + sp.GoldenRatio + sp.EulerGamma * x + sp.Catalan,
    "floats": 0.1 * x + sp.Float("1e-5", 30) * y,
    "minus": -x - (y - x) * -2 - (-(x + y)),
    "quotient": (x + y) / (x * y + 1) / (2 * x) / 3,
    "min and max": sp.Min(x, y, 2) * sp.Max(x, 1) + sp.Max(0, x - y),
    "log of a base": sp.log(x, 3) + sp.log(y, 10),
    "exponentials": sp.exp(-(x**2) / 2) / sp.sqrt(2 * sp.pi) + sp.exp(sp.sin(x) ** 2 - y),
}

PIECEWISE: dict[str, Any] = {
    "two": sp.Piecewise((x**2 * y, x > 0), (sp.exp(x), True)),
    "three": sp.Piecewise((x, x < -1), (x**2, x < 1), (sp.sqrt(x) * y, True)),
    "nested": sp.Piecewise((sp.Piecewise((x * y, y > 0), (x - y, True)), x > 0), (sp.sin(x * y), True)),
    "in an expression": 2 * sp.Piecewise((x, x > y), (y, True)) ** 2 + sp.cos(x),
    "of a condition": sp.Piecewise((x, sp.Piecewise((y, x > 0), (-y, True)) > 0), (x**3, True)),
    "of a later condition": sp.Piecewise(
        (x, x > 1), (y, sp.Piecewise((y, x > 0), (-y, True)) > 0), (x * y, y < -1), (x**3, True)
    ),
    "and": sp.Piecewise((x * y, (x > 0) & (y > 0)), (x + y, True)),
    "or": sp.Piecewise((x * y, (x > 0) | (y > 0)), (x + y, True)),
    "not": sp.Piecewise((x * y, ~((x > 0) & (y > 0))), (x + y, True)),
    "xor": sp.Piecewise((x * y, sp.Xor(x > 0, y > 0, x > y)), (x + y, True)),
    "if then else": sp.Piecewise((x * y, sp.ITE(x > 0, y > 0, y < 1)), (x + y, True)),
    "whole numbers": sp.Piecewise((1, x > 0), (2, x > -1), (x, True)) * y,
    "shared": sp.Piecewise((sp.exp(x * y) + sp.sin(x * y), x > 0), (sp.cos(x * y) * sp.exp(x * y), True)) + x * y,
}


def draw(span: tuple[float, float], count: int = 12) -> np.ndarray:
    return rng.uniform(*span, count)


def check(expression: Any, points: list[np.ndarray], symbols: tuple[Any, ...] = (x, y), rtol: float = 1e-12) -> None:
    """Values and derivatives are SymPy's at each point."""
    function = from_sympy(expression, symbols)
    value, jacobian = function.value_and_jacobian(*points)
    if expression.has(cfunctions.Sqrt, cfunctions.Cbrt, cfunctions.fma, sp.erf2):  # SymPy has no numbers of these
        expression = sp.expand_func(expression).replace(sp.erf2, lambda a, b: sp.erf(b) - sp.erf(a))
    slopes = {symbol: sp.diff(expression, symbol) for symbol in symbols}
    for at, numbers in enumerate(zip(*points, strict=True)):
        exact = dict(zip(symbols, map(sp.Float, numbers, [40] * len(numbers)), strict=True))
        np.testing.assert_allclose(value[at], float(expression.evalf(40, subs=exact)), rtol=rtol, atol=1e-13)
        for symbol, slope in slopes.items():
            wanted = float(slope.subs(exact).doit().evalf(40))
            np.testing.assert_allclose(jacobian[str(symbol)][at], wanted, rtol=rtol, atol=1e-12, err_msg=str(symbol))


@pytest.mark.parametrize("name", OF_FUNCTIONS)
def test_a_function_and_its_derivatives_are_sympys(name: str) -> None:
    expression, span = OF_FUNCTIONS[name]
    if name in ("floor", "ceiling", "frac", "sign", "Heaviside", "Mod"):
        # SymPy leaves the derivatives of these unevaluated or makes DiracDelta of them: they are known here by hand.
        check_steps(name, expression, draw(span), draw(span))
    else:
        check(expression, [draw(span), draw(span)], rtol=1e-11)


def check_steps(name: str, expression: Any, a: np.ndarray, b: np.ndarray) -> None:
    value, jacobian = from_sympy(expression, (x, y)).value_and_jacobian(a, b)
    wanted = {
        "floor": (np.floor(a) * b, 0 * a, np.floor(a)),
        "ceiling": (np.ceil(a) * b, 0 * a, np.ceil(a)),
        "frac": ((a - np.floor(a)) * b, b, a - np.floor(a)),
        "sign": (np.sign(a) * b, 0 * a, np.sign(a)),
        "Heaviside": ((a > 0) * b + (b > 0), 0 * a, 1.0 * (a > 0)),
        "Mod": (np.mod(a, b) * a, a + np.mod(a, b), -np.floor(a / b) * a),
    }[name]
    for found, expected in zip((value, jacobian["x"], jacobian["y"]), wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_every_function_of_the_table_is_tested() -> None:
    assert set(OF_FUNCTIONS) == set(FUNCTIONS)


@pytest.mark.parametrize("name", WHOLE)
def test_an_expression_and_its_derivatives_are_sympys(name: str) -> None:
    check(WHOLE[name], [draw((0.2, 3.0)), draw((0.2, 3.0))])


@pytest.mark.parametrize("name", PIECEWISE)
def test_a_piecewise_and_its_derivatives_are_sympys(name: str) -> None:
    check(PIECEWISE[name], [draw(REAL), draw(REAL)])


@pytest.mark.parametrize("seed", range(12))
def test_random_expressions(seed: int) -> None:
    choose = np.random.default_rng(seed)

    def grow(depth: int) -> Any:
        if depth == 0:
            return [x, y, sp.Rational(int(choose.integers(-5, 6)), 7), sp.pi / 3][choose.integers(4)]
        a, b = grow(depth - 1), grow(depth - 1)
        return [
            lambda: a + b,
            lambda: a * b,
            lambda: a - 2 * b,
            lambda: sp.sin(a) * b,
            lambda: a / (1 + b**2),
            lambda: sp.sqrt(1 + a**2) ** 3,
            lambda: sp.tanh(a) + sp.exp(-(b**2)),
            lambda: sp.Piecewise((a * b, a > b), (sp.cos(a), b > 1), (a - b, True)),
            lambda: sp.Max(a, b) - sp.Min(a, x),
            lambda: sp.atan(a) ** 2 + sp.Abs(b),
        ][choose.integers(10)]()

    expression = grow(3) + x * y
    check(expression, [draw(REAL, 4), draw(REAL, 4)], rtol=1e-10)


# --- several results --------------------------------------------------------------------------------------------------


def test_several_expressions_are_several_outputs() -> None:
    a, b = draw(POSITIVE), draw(POSITIVE)
    first, (second, third) = from_sympy((x * y, [x + 1, sp.Integer(3)]), [x, y])(a, b)
    np.testing.assert_allclose(first, a * b)
    np.testing.assert_allclose(second, a + 1)
    assert third.dtype == np.float64
    assert (third == 3).all()
    assert third.shape == a.shape
    (only,) = from_sympy((x,), x)(a)
    np.testing.assert_array_equal(only, a)


def test_a_matrix_is_a_tuple_of_rows_and_a_column_a_tuple() -> None:
    polar = sp.Matrix([x * sp.cos(y), x * sp.sin(y)])
    a, b = draw(POSITIVE), draw(POSITIVE)
    _, jacobian = from_sympy(polar, (x, y)).value_and_jacobian(a, b)
    rows = from_sympy(polar.jacobian([x, y]), (x, y))(a, b)
    for i in range(2):
        for j in range(2):
            np.testing.assert_allclose(rows[i][j], jacobian[i, j], rtol=1e-14)


def test_a_condition_is_a_truth() -> None:
    found = from_sympy((x > y) & (x < 2), (x, y))(np.array([1.0, 3.0, 1.0]), np.array([0.0, 0.0, 2.0]))
    assert found.dtype == np.bool_
    assert found.tolist() == [True, False, False]


# --- branches ---------------------------------------------------------------------------------------------------------


def test_the_branch_that_is_not_taken_gives_no_nan() -> None:
    guarded = sp.Piecewise((sp.sqrt(x) * sp.log(x), x > 0), (0, True)) + sp.Piecewise((1 / x, x > 0), (0, True))
    value, jacobian = from_sympy(guarded, x).value_and_jacobian(np.array([-1.0, 0.0, 1.0]))
    assert value.tolist() == [0.0, 0.0, 1.0]
    assert jacobian["x"].tolist() == [0.0, 0.0, 0.0]


def test_where_no_condition_holds_the_value_is_nan() -> None:
    value = from_sympy(sp.Piecewise((x, x > 0), (2 * x, x < -1)), x)(np.array([2.0, -0.5, -2.0]))
    np.testing.assert_array_equal(value, [2.0, np.nan, -4.0])


def test_nothing_is_taken_out_of_a_branch() -> None:
    shared = sp.gamma(x) ** 2 + sp.sin(sp.gamma(x))
    text = source(from_sympy(sp.Piecewise((shared, x > 1), (shared * 2, x > 0), (x, True)) + y, (x, y)))
    inside = [line for line in text.splitlines() if "math.gamma" in line]
    assert len(inside) == 2  # once in each of two branches
    assert all(line.startswith(" " * 8) for line in inside)


def test_a_piecewise_in_a_branch_is_computed_there() -> None:
    inner = sp.Piecewise((sp.log(x), x > 2), (sp.sqrt(x), True))
    text = source(from_sympy(sp.Piecewise((inner * y, x > 0), (y, True)), (x, y)))
    assert text.count("if ") == 2
    assert text.count("math.log") == text.count("math.sqrt") == 1


def test_common_subexpressions_are_computed_once() -> None:
    f = from_sympy([sp.cos(x * y) + 1, sp.cos(x * y) ** 2 * x * y, sp.sin(x * y)], (x, y))
    assert source(f).count("math.cos") == 1
    assert source(f).count("x*y") == 1


def test_a_shared_expression_of_exponential_size_has_a_short_text() -> None:
    whole = x
    for _ in range(40):
        whole = whole + sp.sin(whole)
    f = from_sympy(whole, x)
    assert len(source(f).splitlines()) < 100
    expected = slope = 0.5
    slope = 1.0
    for _ in range(40):
        slope *= 1 + math.cos(expected)
        expected += math.sin(expected)
    value, jacobian = f.value_and_jacobian(0.5)
    np.testing.assert_allclose([value, jacobian["x"]], [expected, slope], rtol=1e-12)


# --- arguments --------------------------------------------------------------------------------------------------------


def source(function: Any) -> str:
    return inspect.getsource(function.__wrapped__)


def test_names_that_python_cannot_take_are_changed() -> None:
    symbols = sp.symbols("lambda math x' alpha_{1} 2b min t1 α f")
    f = from_sympy(sum(k * symbol for k, symbol in enumerate(symbols, 1)) + sp.exp(symbols[6]) ** 2, symbols, name="f")
    assert list(f.__signature__.parameters) == ["lambda_", "math_", "x_", "alpha__1_", "_2b", "min_", "t1", "α", "f_"]
    numbers = draw(POSITIVE, 9)
    np.testing.assert_allclose(f(*numbers), sum(k * v for k, v in enumerate(numbers, 1)) + np.exp(numbers[6]) ** 2)
    assert f.jacobian(*numbers)["lambda_"] == 1.0


def test_two_symbols_of_one_name_are_two_arguments() -> None:
    twin = sp.Symbol("x", positive=True)
    f = from_sympy(x - 2 * twin, (x, twin))
    assert list(f.__signature__.parameters) == ["x", "x_"]
    assert f(10.0, 1.0) == 8.0


def test_an_argument_may_be_left_unused() -> None:
    _, jacobian = from_sympy(x**2, (y, x)).value_and_jacobian(1.0, 3.0)
    assert (jacobian["y"], jacobian["x"]) == (0.0, 6.0)


def test_symbols_that_may_be_complex_are_real_here() -> None:
    u = sp.Symbol("u")
    slope = sp.diff(sp.Abs(u) ** 3, u)
    assert slope.has(sp.re)
    points = np.array([-2.0, 0.5])
    np.testing.assert_allclose(from_sympy(slope, u)(points), 3 * points * np.abs(points))


def test_functions_of_the_users() -> None:
    f = sp.Function("f")

    def cubed(t):
        return t**3

    known = {"f": cubed, "besselj": lambda _, t: t * t}
    value, jacobian = from_sympy(f(x) * sp.besselj(0, y), (x, y), functions=known).value_and_jacobian(2.0, 3.0)
    assert (value, jacobian["x"], jacobian["y"]) == (72.0, 108.0, 48.0)


def test_it_can_be_pickled() -> None:
    f = from_sympy(sp.Piecewise((sp.sqrt(x), x > 0), (y, True)), (x, y), wrt="x")
    twin = pickle.loads(pickle.dumps(f))
    assert source(twin) == source(f)
    assert twin.jacobian(np.array([-1.0, 4.0]), 2.0) == f.jacobian(np.array([-1.0, 4.0]), 2.0)


def test_options_are_those_of_the_decorator() -> None:
    f = from_sympy(x * y, (x, y), name="area", wrt="x", backend="python")
    assert f.__name__ == "area"
    assert list(f.jacobian(2.0, 3.0)) == ["x"]


def test_messages_show_the_line() -> None:
    def wrong(t):
        return {t}

    f = from_sympy(sp.Function("wrong")(x + 1) + sp.sin(x), x, functions={"wrong": wrong}, name="f")
    with pytest.raises(CompileError) as caught:
        f(np.ones(3))
    assert "return" in str(caught.value)
    assert re.search(r"in wrong\(\), called at <dualbcast source \w+>:2:12", str(caught.value))
    assert "wrong(x + 1)" in str(caught.value)


REFUSED: dict[str, tuple[Any, Any, str]] = {
    "an unknown function": (
        lambda: sp.besselj(0, x),
        x,
        r"besselj, in besselj\(0, x\), has no counterpart.*functions=",
    ),
    "several": (lambda: sp.besselj(0, x) + sp.zeta(x), x, "The same holds for"),
    "an undefined function": (lambda: sp.Function("g")(x), x, r"functions=\{'g': function\}"),
    "complex numbers": (lambda: sp.I * x, x, "ImaginaryUnit.*Numbers are real"),
    "an infinity of the plane": (lambda: sp.zoo + 0, (), "ComplexInfinity"),
    "an integral": (lambda: sp.Integral(sp.sin(x), (x, 0, y)), (y,), r"Write expr\.doit\(\)"),
    "a symbol that is missing": (lambda: x * z, (x, y), "not in args=: z"),
    "a symbol of other assumptions": (lambda: sp.Symbol("x") * y, (x, y), "x of args= has other assumptions"),
    "a name": (lambda: x, "x", "'x' is none"),
    "twice": (lambda: x, (x, x), "names a symbol twice"),
    "text": (lambda: "x + 1", x, "takes expressions"),
    "an array": (lambda: np.ones(2), x, "takes expressions"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_compiled_is_one_error(case: str) -> None:
    make, args, words = REFUSED[case]
    with pytest.raises(ArgumentError, match=words):
        from_sympy(make(), args)


@pytest.mark.parametrize("name", ["1f", "lambda", "math", 3])
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(ArgumentError, match="cannot be the name of a function"):
        from_sympy(x, x, name=name)
