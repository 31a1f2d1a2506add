"""The checks of derivatives that users have: they pass what is right, and show what is wrong."""

# The parameters of partials are what they are, whether they are used or not.
# ruff: noqa: ARG005

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from forgotten_rules import forget

import dualbcast
from dualbcast import ArgumentError, differentiable_broadcast
from dualbcast.rules.table import RULES, add_later_rows
from dualbcast.testing import DerivativeError, check_derivatives, check_partials, slopes

add_later_rows()


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = set(RULES)
    yield
    for name in set(RULES) - before:
        forget(RULES[name])


def off_by(size: float) -> Any:
    """The tangent, with a partial that is wrong by a factor."""

    @dualbcast.custom_partials(lambda t, y: ((1.0 + y * y) * (1.0 + size),), domain=((-1.5, 1.5),))
    def tangent(t):
        return math.sin(t) / math.cos(t)

    return tangent


# --- check_partials ---------------------------------------------------------------------------------------------------


def test_right_partials_pass() -> None:
    assert check_partials(off_by(0.0)) < 1e-12
    assert check_partials(differentiable_broadcast(off_by(0.0)), np.linspace(-1, 1, 5)) < 1e-12


@pytest.mark.parametrize("size", [-2.0, 1e-3, 1e-6, 1e-7])
def test_wrong_partials_do_not(size: float) -> None:
    with pytest.raises(DerivativeError, match="the custom partials of tangent differ") as caught:
        check_partials(off_by(size), np.array([0.0, 1.0]))
    assert isinstance(caught.value, AssertionError)
    rows = str(caught.value).splitlines()[2:]
    assert [re.split(r"  +", row)[:3] for row in rows] == [
        ["∂tangent/∂t", "[0]", "(0)"],
        ["∂tangent/∂t", "[1]", "(1)"],
    ]
    assert float(rows[1].split()[3]) == pytest.approx((1 + size) / math.cos(1) ** 2, rel=1e-8)
    assert float(rows[1].split()[4]) == pytest.approx(1 / math.cos(1) ** 2, rel=1e-8)


def test_how_far_they_may_differ() -> None:
    # Relative to the larger of the two.
    assert check_partials(off_by(1e-3), rtol=1.1e-3) == pytest.approx(1e-3, rel=2e-3)
    with pytest.raises(DerivativeError):
        check_partials(off_by(1e-3), rtol=0.9e-3)


def test_only_the_wrong_argument_and_element_are_shown() -> None:
    @dualbcast.custom_partials(lambda a, b, y: (b, a if a < 2 else 7.0))
    def product(a, b):
        return a * b

    with pytest.raises(DerivativeError) as caught:
        check_partials(product, np.array([[1.0], [3.0]]), np.array([4.0, 5.0, 6.0]))
    rows = [re.split(r"  +", row) for row in str(caught.value).splitlines()[2:]]
    assert [row[:5] for row in rows] == [["∂product/∂b", f"[1, {at}]", f"(3, {4 + at})", "7", "3"] for at in range(3)]
    assert "(3 of 12 elements)" in str(caught.value)


def test_a_long_table_is_cut() -> None:
    with pytest.raises(DerivativeError, match="… and 56 more"):
        check_partials(off_by(1.0))


def test_points_without_automatic_partials_are_left_out_and_others_are_not() -> None:
    def softplus(t):
        return math.log(1.0 + math.exp(t))

    dualbcast.custom_partials(lambda t, y: (1.0 / (1.0 + math.exp(-t)),))(softplus)
    points = np.array([-1.0, 0.0, 1.0, 800.0])  # at 800 the automatic one is inf / inf
    assert check_partials(softplus, points) < 1e-15
    with pytest.raises(ArgumentError, match="nothing to compare"):
        check_partials(softplus, points[3:])
    dualbcast.custom_partials(lambda t, y: (1.0 / t,))(softplus)
    with pytest.raises(DerivativeError, match=r"\[1\].*inf"):
        check_partials(softplus, points)


def test_rules_and_integer_arguments() -> None:
    def power(t, n):
        total = 1.0
        for _ in range(n):
            total = total * t
        return total

    class Unhashable:
        """Stands for the same function, in a library."""

        __hash__ = None  # type: ignore[assignment]

        def __call__(self, t, n):
            return t**n

    library_power = Unhashable()
    row = {"function": power, "integer": (1,), "domain": ((0.5, 2.0), (1, 6))}
    dualbcast.rule("power", lambda t, n, y: (n * y / t, 0), library_power, **row)
    assert check_partials(power) < 1e-13
    assert check_partials(library_power) < 1e-13
    dualbcast.rule("power", lambda t, n, y: (y / t, 0), **row)
    with pytest.raises(DerivativeError, match="power"):
        check_partials(power)


def test_the_body_is_differentiated_with_the_partials_of_what_it_calls() -> None:
    step = dualbcast.custom_partials(lambda t, y: (1.0,))(lambda t: 1.0 if t > 0 else 0.0)

    @dualbcast.custom_partials(lambda t, y: (3.0,))
    def three(t):
        return 3 * step(t)

    assert check_partials(three) == 0.0


def test_what_has_no_partials_is_refused() -> None:
    for function in (math.sin, off_by, differentiable_broadcast(lambda t: t), dualbcast.special.sigmoid):
        with pytest.raises(ArgumentError, match="has no partials of its own"):
            check_partials(function)
    with pytest.raises(ArgumentError, match="points are arrays of numbers"):
        check_partials(off_by(0.0), np.array(["text"]))


# --- check_derivatives ------------------------------------------------------------------------------------------------


@differentiable_broadcast
def model(a, b, n):
    if a > b:
        return a * math.tanh(b) + n, math.exp(-a * a)
    return b / (2.0 + math.sin(a)), a * b


def wrong(size: float) -> Any:
    """Right in `a`, wrong by a factor in `b`."""
    return dualbcast.custom_partials(lambda a, b, y: (b, a * (1.0 + size)))(lambda a, b: a * b)


A, B = np.array([0.5, 3.0, -20.0, 1e-3]), np.array([[1.0], [2.0]])


@pytest.mark.parametrize(("dtype", "largest"), [("float64", 1e-8), ("float32", 1e-5), ("float16", 3e-3)])
def test_a_right_jacobian_passes(dtype: Any, largest: float) -> None:
    assert check_derivatives(model, A.astype(dtype), B.astype(dtype), np.int8(3)) < largest


def test_bfloat16_and_wrt() -> None:
    assert check_derivatives(model, A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16), np.int8(3)) < 0.02
    inner = wrong(0.5)
    f = differentiable_broadcast(lambda a, b: inner(a, b))
    assert check_derivatives(f, A, B, wrt="a") < 1e-9
    with pytest.raises(DerivativeError):
        check_derivatives(f, A, B, wrt="b")


@pytest.mark.parametrize(("dtype", "size"), [("float64", 1e-7), ("float32", 1e-4), ("float16", 0.1), ("float64", -2.0)])
def test_a_wrong_one_does_not(dtype: Any, size: float) -> None:
    inner = wrong(size)

    def f(a, b):
        return a + b, 2 * inner(a, b)

    with pytest.raises(DerivativeError, match="the Jacobian of f differs from finite differences") as caught:
        check_derivatives(f, np.array([2.0, 3.0], dtype), np.array(5.0, dtype))
    rows = [re.split(r"  +", row) for row in str(caught.value).splitlines()[2:]]
    assert [row[:3] for row in rows] == [["∂f[1]/∂b", "[0]", "(2, 5)"], ["∂f[1]/∂b", "[1]", "(3, 5)"]]
    assert float(rows[0][4]) == pytest.approx(4.0, rel=1e-8)


def test_rtol() -> None:
    inner = wrong(1e-3)
    f = differentiable_broadcast(lambda a, b: inner(a, b))
    assert check_derivatives(f, A, B, rtol=1e-2) == pytest.approx(1e-3, rel=0.01)


def test_a_silent_zero_is_found() -> None:
    f = differentiable_broadcast(lambda t: t * dualbcast.stop_derivative(t))
    with pytest.raises(DerivativeError):
        check_derivatives(f, np.array([1.0]))


def test_a_nan_is_found() -> None:
    inner = dualbcast.custom_partials(lambda t, y: (math.sqrt(-t),))(lambda t: t)
    with pytest.raises(DerivativeError, match="nan"):
        check_derivatives(lambda t: inner(t), np.array([1.0]))


@pytest.mark.parametrize(
    ("function", "kink"),
    [
        (lambda t: abs(t), 0.0),
        (lambda t: max(t, 0.0), 0.0),
        (lambda t: 1.0 if t > 3 else t * t, 3.0),
        (lambda t: math.sqrt(t), 0.0),
        (lambda t: math.log(t), -1.0),
        (lambda t: math.floor(t) + t * t, 2.0),
    ],
)
def test_kinks_and_ends_are_left_out_and_their_neighbours_are_not(function: Any, kink: float) -> None:
    with pytest.raises(ArgumentError, match="nothing to compare"):
        check_derivatives(function, np.array([kink]))
    near = abs(kink) + np.array([1e-5, 1e-3, 0.1])
    assert check_derivatives(function, np.append(near, kink)) < 1e-5
    inner = dualbcast.custom_partials(lambda t, y: (1.01 if t > 0 else 0.5,))(lambda t: t)
    for place in near:
        with pytest.raises(DerivativeError):
            check_derivatives(lambda t: function(t) + inner(t), np.array([place]))


def test_flat_and_steep_functions() -> None:
    for function in (lambda t: 0.0 * t + 3.0, lambda t: float(math.floor(t)), lambda t: 1e8 * t, lambda t: t * 1e-200):
        assert check_derivatives(function, np.array([0.3, 1e6 + 0.5, -7.25])) < 1e-7


@pytest.mark.parametrize(
    ("function", "low", "high"),
    [(np.exp, -5, 5), (np.sin, -10, 10), (np.sqrt, 0.5, 50), (np.reciprocal, 0.5, 50), (lambda x: x**3, -3, 3)],
)
def test_differences_are_those_of_scipy(function: Any, low: float, high: float) -> None:
    differentiate = pytest.importorskip("scipy.differentiate")
    x = np.linspace(low, high, 40)
    ((found, error, usable),) = slopes(lambda _, moved: [function(moved)], 0, x)
    theirs = differentiate.derivative(function, x, initial_step=np.abs(x) / 16)
    assert usable.all()
    assert theirs.success.all()
    tolerance = 1e-12 * np.maximum(np.abs(found), 1e-3 * np.max(np.abs(found)))
    assert np.all(np.abs(found - theirs.df) <= 10 * (error + theirs.error) + tolerance)
    assert np.all(error <= 1e-10 * np.max(np.abs(found)))


def test_integers_and_bools_carry_nothing() -> None:
    @differentiable_broadcast
    def f(t, n, flag):
        return (n * t if flag else t), n, t > 0

    assert check_derivatives(f, A, np.arange(4), np.array([True, False, True, False])) < 1e-9
    with pytest.raises(ArgumentError):
        check_derivatives(f, A, np.arange(4), True, wrt="n")


# --- where the value is asked for -------------------------------------------------------------------------------------


def colebrook(reynolds, roughness):
    """The friction factor of a rough pipe, by iteration: what is no pipe never ends."""
    root = 8.0
    step = 1.0
    while not abs(step) <= 1e-13 * root:  # nan is never small
        new = -2.0 * math.log10(roughness / 3.7 + 2.51 * root / reynolds)
        step = new - root
        root = new
    return 1.0 / (root * root)


def test_an_argument_keeps_its_sign_and_stays_near() -> None:
    asked: list[np.ndarray[Any, Any]] = []

    class Recording(type(differentiable_broadcast(colebrook))):  # type: ignore[misc]
        def __call__(self, *arrays: Any, **named: Any) -> Any:
            asked.append(np.asarray(arrays[1]))
            return super().__call__(*arrays, **named)

    f = differentiable_broadcast(colebrook)
    f.__class__ = Recording
    assert check_derivatives(f, np.array([1e4, 1e6]), 1e-4) < 1e-7
    assert len(asked) > 24
    assert min(map(np.min, asked)) >= 1e-4 * (1 - 1 / 16)
    assert max(map(np.max, asked)) <= 1e-4 * (1 + 1 / 16)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e-8, 1.0, 1e8, 1e30, 1e150])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_steps_are_those_of_the_argument(size: float, sign: float) -> None:
    f = differentiable_broadcast(lambda t: math.sqrt(abs(t)) / (1.0 + size))
    assert check_derivatives(f, np.array([sign * size])) < 1e-9
    inner = dualbcast.custom_partials(lambda t, y: (1.000001 * y / (2 * t),))(lambda t: math.sqrt(abs(t)))
    with pytest.raises(DerivativeError):
        check_derivatives(lambda t: inner(t), np.array([sign * size]))


def test_zero_is_moved_as_its_neighbours_are() -> None:
    f = differentiable_broadcast(lambda t: math.sqrt(1e-4 + t) if abs(t) < 1e-4 else math.nan)
    assert check_derivatives(f, np.array([0.0, 1e-5, -5e-5])) < 1e-9
    assert check_derivatives(lambda t: t * t + 3 * t, np.array([0.0])) < 1e-9


ENDS = {
    "nan below": lambda t: t * t * t + 2 * t if t >= 2 else math.nan,
    "nan above": lambda t: math.exp(t) if t <= 2 else math.nan,
    "inf below": lambda t: math.sin(t) if t >= 2 else -math.inf,
    "flat": lambda t: (t - 2) * (t - 2) if t >= 2 else math.nan,
}


@pytest.mark.parametrize("end", ENDS)
def test_at_an_end_of_the_domain_differences_are_one_sided(end: str) -> None:
    function, at = ENDS[end], np.array([2.0])
    assert check_derivatives(function, at) < 1e-8
    inner = dualbcast.custom_partials(lambda t, y: (1.001,))(lambda t: t)
    with pytest.raises(DerivativeError):
        check_derivatives(lambda t: function(t) + inner(t), at)


@pytest.mark.parametrize("function", [lambda t: t**1.5, math.sqrt, lambda t: t * math.log(t) if t > 0 else 0.0 * t])
def test_at_an_end_without_a_slope_there_is_nothing_to_compare(function: Any) -> None:
    f = differentiable_broadcast(lambda t: function(t) if t >= 0 else math.nan)
    with pytest.raises(ArgumentError, match="nothing to compare"):
        check_derivatives(f, np.array([0.0]))


def test_where_the_function_raises_differences_are_one_sided() -> None:
    class Raising(type(differentiable_broadcast(colebrook))):  # type: ignore[misc]
        def __call__(self, t: Any) -> Any:
            if (np.asarray(t) < 1).any():
                raise ArithmeticError("outside")
            return super().__call__(t)

    f = differentiable_broadcast(lambda t: t * t * t)
    f.__class__ = Raising
    assert check_derivatives(f, np.array([1.0, 1.01, 3.0])) < 1e-8
    inner = dualbcast.custom_partials(lambda t, y: (1.001,))(lambda t: t)
    g = differentiable_broadcast(lambda t: t * t * t + inner(t))
    g.__class__ = Raising
    with pytest.raises(DerivativeError, match="3 of 3 elements"):
        check_derivatives(g, np.array([1.0, 1.01, 3.0]))


def test_a_whole_array_stays_as_it_is() -> None:
    """Its first element stood in the place of all, so that right derivatives were reported as wrong."""
    table = np.array([1.0, -2.0, 3.0, 4.0])
    x, i = np.array([1.0, 2.0, 3.0]), np.array([0, -1, 2])
    function = differentiable_broadcast(whole="table")(lambda x, i, table: table[i] * x * x + table[i] * table[-1] * x)
    assert check_derivatives(function, x, i, table) < 1e-10
    assert check_derivatives(function, x, table=table[::-1], i=i) < 1e-10
    wrong_by = off_by(1e-3)
    function = differentiable_broadcast(whole="table")(lambda x, i, table: table[i] * wrong_by(x / 4))
    with pytest.raises(DerivativeError, match=r"∂x +\[0\] +\(1, 0\)"):
        check_derivatives(function, x, i, table)


def test_the_parts_of_complex_numbers_are_checked() -> None:
    """The imaginary part of an argument was dropped, and its real part was said to be captured."""
    z, w = np.array([1 + 2j, 3 - 1j]), np.array([0.5, -0.25])
    function = differentiable_broadcast(lambda z, w: (z * z * w + np.conj(z), abs(z) ** 2 * w))
    assert check_derivatives(function, z, w) < 1e-10
    assert check_derivatives(function, np.complex64(z), np.float32(w)) < 1e-4
    assert check_derivatives(function, z, w, wrt="z.imag") < 1e-10
    assert check_derivatives(differentiable_broadcast(lambda x: x * 1j), w) < 1e-10
    wrong_by = off_by(1e-3)
    with pytest.raises(DerivativeError, match=r"∂<lambda>\[1\]/∂z.imag +\[0\] +\(1\+2j\)"):
        check_derivatives(differentiable_broadcast(lambda z: complex(z.real, wrong_by(z.imag / 4))), z)


def test_a_function_of_vectors_is_refused() -> None:
    function = differentiable_broadcast(signature="(2)->()")(lambda v: v[0] * v[1])
    with pytest.raises(ArgumentError, match="is a function of vectors, and check_derivatives takes"):
        check_derivatives(function, np.ones((3, 2)))


def test_arrays_of_another_library_are_refused() -> None:
    """They ended in `KeyError: 'cupy'`."""
    pandas = pytest.importorskip("pandas")
    function = differentiable_broadcast(lambda x, y: x * y)
    for arrays, named in (((pandas.Series(A), 2.0), {}), ((2.0,), {"y": pandas.Series(A)})):
        with pytest.raises(ArgumentError, match=r"check_derivatives takes arrays .* of pandas's"):
            check_derivatives(function, *arrays, **named)
    assert check_derivatives(function, [0.5, 2.0], np.ma.masked_array([1.0, 2.0])) < 1e-10
