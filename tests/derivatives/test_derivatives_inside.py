"""Derivatives inside the language: nested, in every place of a call, against mpmath and values worked out by hand."""

# ruff: noqa: ARG005, E731

from __future__ import annotations

import copy
import functools
import math
import pickle
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import mpmath as mp
import nested
import numpy as np
import pytest
from cells import Cell, check_traceback, program, rows, verify
from corpus import CORPUS, Case
from forgotten_rules import forget
from ir_invariants import verify_single_assignment
from oracles import differentiate, numbers_of, second_derivatives

import dualbcast
from dualbcast import (
    ArgumentError,
    CompileError,
    derivative,
    differentiable_broadcast,
    gradient,
    value_and_derivative,
    value_and_gradient,
)
from dualbcast import derivative as D  # noqa: N812
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Op
from dualbcast.ir.traversal import expressions, statements
from dualbcast.program.explain import operations
from dualbcast.rules.table import RULES, add_later_rows

add_later_rows()

BACKENDS = ("python", "cpu")
POINTS = ((0.5, 0.8), (1.7, 0.6), (2.3, 1.4), (0.9, 2.2))
EPS = float(np.finfo(float).eps)
x = np.array([0.5, 2.0])


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Takes out of the rule table what a test has added."""
    before = set(RULES)
    yield
    for name in set(RULES) - before:
        forget(RULES[name])


def here(function: Callable[..., Any], *args: Any, wrt: Any = None) -> tuple[Any, Any]:
    """The value and the Jacobian, by the backend that interprets."""
    return differentiable_broadcast(function, backend="python").value_and_jacobian(*args, wrt=wrt)


def close(found: Any, wanted: Any, roundings: float = 64) -> None:
    """Equal to within some roundings of float64, relative to one more than the size."""
    np.testing.assert_allclose(np.asarray(found, float), np.asarray(wanted, float), roundings * EPS, roundings * EPS)


# --- against exact differences ----------------------------------------------------------------------------------------

ON_CPU = {"third_of_a_branch", "inside_a_loop", "of_an_iteration", "returns_in_loops", "loops_that_return", "fourth"}
EACH = [
    pytest.param(function, backend, id=f"{function.__name__}-{backend}")
    for function in nested.PROGRAMS
    for backend in BACKENDS
    if backend == "python" or function.__name__ in ON_CPU
]


@pytest.mark.parametrize(("function", "backend"), EACH)
def test_programs_against_mpmath(function: Any, backend: Any) -> None:
    columns = [np.array(column) for column in zip(*POINTS, strict=True)]
    value, jacobian = differentiable_broadcast(function, backend=backend).value_and_jacobian(*columns)
    values, exact = numbers_of(value), nested.exactly(function)
    for at, point in enumerate(POINTS):
        close([part[at] for part in values], exact(*point), 4096)
        for name, slopes in zip("xy", nested.slopes_of(exact, point), strict=True):
            close([jacobian[output, name][at] for output in range(len(values))], slopes, 32768)


@pytest.mark.parametrize("function", nested.PROGRAMS, ids=lambda function: function.__name__)
def test_the_same_programs_in_plain_python(function: Any) -> None:
    for point in POINTS[:2]:
        close(numbers_of(function(*point)), nested.exactly(function)(*point), 4096)


@pytest.mark.parametrize("function", nested.PROGRAMS, ids=lambda function: function.__name__)
def test_the_ir_is_what_the_passes_rely_on(function: Any) -> None:
    lowered = verify_single_assignment(lower(function, ("float", "float")).function)
    for stmt in statements(lowered.body):
        for expr in expressions(stmt):
            assert not isinstance(expr, Op) or not any(isinstance(arg, Op) for arg in expr.args)


# Points of the corpus where a second derivative jumps though the first does not.
JUMPS = {("smoothstep", (0.0,)), ("smoothstep", (1.0,))}


@pytest.mark.parametrize("case", [case for case in CORPUS if case.floats], ids=lambda case: case.name)
def test_gradients_of_the_corpus_and_their_jacobians(case: Case) -> None:
    """The whole language inside a derivative: against dual numbers, and differences of those at 60 digits."""
    function = differentiable_broadcast(gradient(case.function, wrt=case.floats), backend="python")
    value, jacobian = function.value_and_jacobian(*map(np.array, zip(*case.points, strict=True)), wrt=case.floats)
    blocks = [numbers_of(part) for part in value]
    count = len(blocks[0])
    for at, point in enumerate(case.points):
        if at in case.kinks or (case.name, point) in JUMPS:
            continue
        _, slopes = differentiate(case.function, point, case.floats)
        for block, seed in zip(blocks, case.floats, strict=True):
            close([part[at] for part in block], [slope[seed] for slope in slopes], case.allowance)
        wanted = second_derivatives(case.function, point, case.floats)
        for moved in case.floats:
            found = [jacobian[position, f"args_{moved}"][at] for position in range(count * len(blocks))]
            close(found, [second[seed, moved] for seed in case.floats for second in wanted], 32768)


# --- perturbation confusion -------------------------------------------------------------------------------------------


def test_a_derivative_inside_a_derivative_has_a_direction_of_its_own() -> None:
    """J. M. Siskind and B. A. Pearlmutter, "Perturbation confusion and referential transparency: correct functional
    implementation of forward-mode AD" (IFL 2005), the example of the introduction:

    d/dx (x · d/dy (x + y) at y = 1) at x = 1. The inner derivative is 1 whatever x is, so the outer is that of x · 1,
    which is 1. Where the two directions are one, d/dy sees the slope of x as well: x · 2, and 2.
    """
    value, jacobian = here(lambda x: derivative(lambda x: x * derivative(lambda y: x + y)(1.0))(x), x)
    close(value, [1, 1])
    close(jacobian["x"], [0, 0])
    assert derivative(lambda x: x * derivative(lambda y: x + y)(1.0))(1.0) == 1.0


def test_an_inner_derivative_that_depends_on_the_outer_variable() -> None:
    """J. M. Siskind and B. A. Pearlmutter, "Nesting forward-mode AD in a functional framework" (HOSC 21, 2008), the
    kind of expression of its introduction: d/dx (x · d/dy (x · y) at y = 2) at x = 1.

    The inner derivative is x, so the outer is that of x², 2x; its own derivative is 2.
    """
    value, jacobian = here(lambda x: derivative(lambda x: x * derivative(lambda y: x * y)(2.0))(x), x)
    close(value, 2 * x)
    close(jacobian["x"], [2, 2])
    assert derivative(lambda x: x * derivative(lambda y: x * y)(2.0))(1.0) == 2.0


def test_three_levels_share_one_variable() -> None:
    """d/dx (x · d/dy (y · d/dz (x · y · z²) at z = y) at y = x).

    Innermost: 2xyz at z = y is 2xy². Then d/dy of y · 2xy² = 2xy³ is 6xy², at y = x 6x³. Then d/dx of x · 6x³ = 6x⁴ is
    24x³; its derivative is 72x².
    """

    def f(x):
        inner = lambda x, y: derivative(lambda z: x * y * z * z)(y)
        return derivative(lambda x: x * derivative(lambda y: y * inner(x, y))(x))(x)

    value, jacobian = here(f, x)
    close(value, 24 * x**3)
    close(jacobian["x"], 72 * x**2)


def test_a_shift_operator_that_returns_functions() -> None:
    """O. Manzyuk, B. A. Pearlmutter, A. A. Radul, D. R. Rush and J. M. Siskind, "Perturbation confusion in forward
    automatic differentiation of higher-order functions" (JFP 29, 2019; arXiv:1211.4892): the amazing bug.

    The shift operator is s(u)(f)(x) = f(x + u), so its derivative at u = 0 is the derivative operator D̂:
    D̂(f)(x) = f'(x), and D̂(D̂(f)) = f''. An implementation that gives the derivative of a function that returns
    functions one tag for all their later calls gets 0. For exp at any x all are exp(x); for t³ f'' is 6t, and its
    derivative 6.
    """

    def f(x):
        shift = lambda u: lambda f: lambda x: f(x + u)
        slope = derivative(shift)(0.0)
        cube = lambda t: t**3
        return slope(cube)(x), slope(slope(math.exp))(x), slope(slope(cube))(x), slope(slope(slope(cube)))(x)

    value, jacobian = here(f, x)
    for found, wanted in zip(value, (3 * x**2, np.exp(x), 6 * x, [6, 6]), strict=True):
        close(found, wanted)
    for output, wanted in enumerate((6 * x, np.exp(x), [6, 6], [0, 0])):
        close(jacobian[output, "x"], wanted)


def test_a_function_that_is_returned_keeps_the_derivative_of_what_it_holds() -> None:
    """d/du of x ↦ u² · x is x ↦ 2u · x, called twice: 2u · 3 + 2u · u, which has the derivative 6 + 4u."""

    def f(u):
        slope = derivative(lambda u: lambda x: u * u * x)(u)
        return slope(3.0) + slope(u)

    value, jacobian = here(f, x)
    close(value, 6 * x + 2 * x * x)
    close(jacobian["u"], 6 + 4 * x)


# --- Kepler's equation ------------------------------------------------------------------------------------------------


def anomaly(mean, e):
    def f(t):
        return t - e * math.sin(t) - mean

    t, step = mean + 0.85 * e, 1.0
    while abs(step) > 1e-14 * max(1.0, abs(t)):
        step = f(t) / D(f)(t)
        t = t - step
    return t


def _exact_anomaly(mean: float, e: float) -> float:
    return float(mp.findroot(lambda t: t - e * mp.sin(t) - mean, mean + 0.8 * e))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_derivative_of_a_newton_iteration_is_that_of_its_limit(backend: Any) -> None:
    """E - e sin E = M: dE/dM = 1 / (1 - e cos E) and dE/de = sin E / (1 - e cos E)."""
    mean, e = np.linspace(0.05, 3.1, 41), np.linspace(0.0, 0.9, 19)[:, None]
    found, jacobian = differentiable_broadcast(anomaly, backend=backend).value_and_jacobian(mean, e)
    wanted = np.array([[_exact_anomaly(a, b) for a in mean] for b in e[:, 0]])
    slope = 1 / (1 - e * np.cos(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-13)
    np.testing.assert_allclose(jacobian["mean"], slope, rtol=1e-12)
    np.testing.assert_allclose(jacobian["e"], slope * np.sin(wanted), rtol=1e-12)


def test_a_kernel_computes_no_more_than_with_the_derivative_by_hand() -> None:
    def by_hand(mean, e):
        t, step = mean + 0.85 * e, 1.0
        while abs(step) > 1e-14 * max(1.0, abs(t)):
            step = (t - e * math.sin(t) - mean) / (1 - e * math.cos(t))
            t = t - step
        return t

    for wrt in (("mean", "e"), "e"):
        calls = [
            differentiable_broadcast(f)._inspected((x, 0.5), wrt, "value_and_jacobian") for f in (anomaly, by_hand)
        ]
        # Before a product and a sum of what is known to be a derivative become one operation.
        counts = [operations(call.spec.product.forward) for call in calls]
        assert counts[0] == counts[1]


def test_the_derivative_of_a_newton_iteration_in_float32() -> None:
    def root(a):
        y = 1.0
        for _ in range(30):
            y = y - (y * y - a) / derivative(lambda t: t * t - a)(y)
        return y

    a = np.float32([0.25, 2.0, 9.0])
    y, jacobian = differentiable_broadcast(root).value_and_jacobian(a)
    assert y.dtype == jacobian["a"].dtype == np.float32
    np.testing.assert_allclose(y, np.sqrt(a), rtol=1e-6)
    np.testing.assert_allclose(jacobian["a"], 0.5 / np.sqrt(a), rtol=1e-6)


# --- what may be differentiated, and how ------------------------------------------------------------------------------


class Pair(NamedTuple):
    first: Any
    second: Any


class Spring:
    def __init__(self) -> None:
        self.stiffness = 2.0

    def energy(self, at):
        return self.stiffness * at * at

    def force(self, at):
        return derivative(self.energy)(at)


spring = Spring()
slope_of_sine = derivative(math.sin)
cubed = differentiable_broadcast(lambda t: t**3)


def weighted(a, b, *, scale):
    return a * a * b * scale


# Expressions of x, with their values and derivatives at 0.5 and 2.
FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "of math": (lambda x: derivative(math.sin)(x), np.cos, lambda x: -np.sin(x)),
    "of a ufunc": (lambda x: derivative(np.exp)(2 * x), lambda x: np.exp(2 * x), lambda x: 2 * np.exp(2 * x)),
    "of a builtin": (lambda x: derivative(abs)(-x) * x, lambda x: -x, lambda x: -np.ones(2)),
    "of what is decorated": (lambda x: derivative(cubed)(x), lambda x: 3 * x**2, lambda x: 6 * x),
    "of a method": (lambda x: spring.force(x), lambda x: 4 * x, lambda x: 4 * np.ones(2)),
    "of a partial": (
        lambda x: derivative(functools.partial(weighted, 3.0, scale=2.0))(x) * x,
        lambda x: 18 * x,
        lambda x: 18 * np.ones(2),
    ),
    "bound outside": (lambda x: slope_of_sine(x), np.cos, lambda x: -np.sin(x)),
    "bound inside": (
        lambda x: (lambda d: d(x) * d(2 * x))(derivative(lambda t: t**2)),
        lambda x: 8 * x**2,
        lambda x: 16 * x,
    ),
    "of one bound outside": (lambda x: derivative(slope_of_sine)(x), lambda x: -np.sin(x), lambda x: -np.cos(x)),
    "under another name": (lambda x: D(D(lambda t: t**3))(x), lambda x: 6 * x, lambda x: 6 * np.ones(2)),
    "through the module": (lambda x: dualbcast.derivative(math.exp)(x), np.exp, np.exp),
    "the first of several": (
        lambda x: derivative(weighted)(x, 3.0, scale=x),
        lambda x: 6 * x**2,
        lambda x: 12 * x,
    ),
    "in another": (lambda x: derivative(weighted, wrt=1)(x, 3.0, scale=2.0), lambda x: 2 * x**2, lambda x: 4 * x),
    "from the end": (lambda x: derivative(lambda *a: a[0] * a[1], wrt=-1)(x, x), lambda x: x, lambda x: np.ones(2)),
    "by name": (lambda x: derivative(weighted, wrt="b")(x, 3.0, scale=2.0), lambda x: 2 * x**2, lambda x: 4 * x),
    "by name, given by it": (
        lambda x: derivative(weighted, wrt="scale")(x, 3.0, scale=2.0),
        lambda x: 3 * x**2,
        lambda x: 6 * x,
    ),
    "by position, given by name": (
        lambda x: derivative(weighted, wrt=1)(x, scale=2.0, b=x),
        lambda x: 2 * x**2,
        lambda x: 4 * x,
    ),
    "at an integer literal": (
        lambda x: derivative(lambda t: t * t * x)(2),
        lambda x: 4 * x,
        lambda x: 4 * np.ones(2),
    ),
    "value and derivative": (
        lambda x: sum(value_and_derivative(lambda t: t**3)(x)),
        lambda x: x**3 + 3 * x**2,
        lambda x: 3 * x**2 + 6 * x,
    ),
    "gradient": (
        lambda x: (lambda g: g[0] * g[1])(gradient(lambda a, b: a * a * b)(x, 3.0)),
        lambda x: 6 * x**3,
        lambda x: 18 * x**2,
    ),
    "gradient in one": (lambda x: gradient(lambda a, b: a * b, wrt="b")(x, 3), lambda x: x, lambda x: np.ones(2)),
    "gradient in some": (
        lambda x: gradient(lambda a, b, n: a**n * b, wrt=(1, "a"))(x, 3.0, int(x) + 2)[0] * x,
        lambda x: x ** (np.floor(x) + 3),
        lambda x: (np.floor(x) + 3) * x ** (np.floor(x) + 2),
    ),
    "value and gradient": (
        lambda x: (lambda v, g: v * g[0] + g[1])(*value_and_gradient(lambda a, b: a * b)(x, 3.0)),
        lambda x: 9 * x + x,
        lambda x: 10 * np.ones(2),
    ),
    "mapped": (lambda x: sum(map(derivative(lambda t: t**3), (x, 2 * x))), lambda x: 15 * x**2, lambda x: 30 * x),
    "structures": (
        lambda x: (lambda p: p.first * p.second[0])(derivative(lambda t: Pair(t * t, [t**3, t]))(x)),
        lambda x: 6 * x**3,
        lambda x: 18 * x**2,
    ),
    "integers and bools have none": (
        lambda x: (lambda d: d[0] + d[1] + d[2])(derivative(lambda t: (t * t, int(t), t > 1))(x)),
        lambda x: 2 * x,
        lambda x: 2 * np.ones(2),
    ),
    "of what does not depend": (lambda x: derivative(lambda t: x)(3.0), lambda x: 0 * x, lambda x: 0 * x),
    "true": (lambda x: x if derivative(math.sin) else 2 * x, lambda x: x, lambda x: np.ones(2)),
    "an infinite slope on the other path": (
        lambda x: derivative(lambda t: math.log(t - 1) if t > 1 else t)(x),
        lambda x: np.where(x > 1, 1 / np.where(x > 1, x - 1, 1), 1),
        lambda x: np.where(x > 1, -1 / np.where(x > 1, x - 1, 1) ** 2, 0),
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_a_form_of_call(name: str) -> None:
    function, value, slope = FORMS[name]
    found, jacobian = here(function, x)
    close(found, value(x))
    close(jacobian["x"], slope(x))
    close([function(float(at)) for at in x], value(x))


def test_choices_between_derivatives_that_are_one() -> None:
    def f(x):
        d, e = derivative(math.sin), derivative(lambda u: lambda t: u * t)(2.0)
        if x > 1:
            d = derivative(math.sin)
        return d(x) * e(x)

    close(here(f, x)[0], np.cos(x) * x)


def test_captured_arrays_are_constant_inside_and_differentiated_outside() -> None:
    weights = np.array([3.0, 5.0])

    def f(x):
        return derivative(lambda t: t * t * weights * x)(x)

    value, jacobian = here(f, x, wrt=("x", "weights"))
    close(value, 2 * x * x * weights)
    close(jacobian["x"], 4 * x * weights)
    close(jacobian["weights"], 2 * x * x)
    close(derivative(lambda t: t * t * weights)(2.0), 4 * weights)


def test_static_parameters() -> None:
    function = differentiable_broadcast(lambda f, x: derivative(f)(x), static="f", backend="python")
    close(function(math.sin, x), np.cos(x))
    close(function(slope_of_sine, x), -np.sin(x))


def test_a_derivative_that_is_decorated() -> None:
    value, jacobian = here(derivative(lambda t: t**4), x)
    close(value, 4 * x**3)
    close(jacobian["args_0"], 12 * x**2)


# --- rules, custom partials, and where differentiation ends ----------------------------------------------------------

factor = 3.0


@dualbcast.custom_partials(lambda x, y: (factor * x * x,))
def custom(x):
    return 100 * x


@dualbcast.not_differentiable
def level(x):
    return float(int(4 * x))


def test_custom_partials_are_used_inside_and_again_outside() -> None:
    """The value 100x has the slope 3x², which has 6x; a value that a derivative passes on keeps its custom slope."""
    value, jacobian = here(lambda x: (derivative(custom)(x), *value_and_derivative(custom)(x)), x)
    for found, wanted in zip(value, (3 * x * x, 100 * x, 3 * x * x), strict=True):
        close(found, wanted)
    for output, wanted in enumerate((6 * x, 3 * x * x, 6 * x)):
        close(jacobian[output, "x"], wanted)
    close(here(lambda x: derivative(derivative(custom))(x), x)[0], 6 * x)
    # d/dt (t · custom(x)) = custom(x), with its custom slope in x.
    close(here(lambda x: derivative(lambda t: t * custom(x))(2.0), x)[1]["x"], 3 * x * x)


def test_custom_partials_may_call_derivatives() -> None:
    @dualbcast.custom_partials(lambda x, y: (derivative(lambda t: t**3)(x),))
    def cube(x):
        return x * x * x

    value, jacobian = here(lambda x: derivative(cube)(x), x)
    close(value, 3 * x**2)
    close(jacobian["x"], 6 * x)


def test_rules_of_users() -> None:
    def smooth(x, w):
        return math.sqrt(x * x + w * w)

    dualbcast.rule("smooth", lambda x, w, y: (x / y, w / y), function=smooth)
    value, jacobian = here(lambda x: derivative(smooth)(x, 1.0), x)
    close(value, x / np.sqrt(x * x + 1))
    close(jacobian["x"], (x * x + 1) ** -1.5)


def test_stopped_derivatives() -> None:
    value, jacobian = here(lambda x: derivative(lambda t: t * dualbcast.stop_derivative(t * t))(x), x)
    close(value, x * x)
    close(jacobian["x"], [0, 0])


def test_what_is_not_differentiable_is_constant_where_its_derivative_is_not_needed() -> None:
    close(here(lambda x: derivative(lambda t: t * level(2.0))(x), x)[0], [8, 8])
    assert derivative(lambda t: t * level(2.0))(1.0) == 8.0


# --- what is compiled in is guarded -----------------------------------------------------------------------------------


def test_a_captured_number_of_the_inner_function(monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(lambda x: derivative(lambda t: factor * t * t)(x), backend="python")
    close(function(x), 6 * x)
    monkeypatch.setitem(globals(), "factor", 5.0)
    close(function(x), 10 * x)


def test_what_custom_partials_capture_though_the_operation_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(lambda x: derivative(custom)(x), backend="python")
    close(function(x), 3 * x * x)
    monkeypatch.setitem(globals(), "factor", 5.0)
    close(function(x), 5 * x * x)


def test_a_rule_that_changes_and_what_its_partials_capture() -> None:
    gain = 2.0

    def bent(x):
        return abs(x)

    dualbcast.rule("bent", lambda x, y: (gain,), function=bent)
    function = differentiable_broadcast(lambda x: derivative(bent)(x), backend="python")
    close(function(x), [2, 2])
    gain = 7.0
    close(function(x), [7, 7])
    dualbcast.rule("bent", lambda x, y: (-gain,), function=bent)
    close(function(x), [-7, -7])


def test_a_derivative_under_a_global_name(monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(lambda x: slope_of_sine(x), backend="python")
    close(function(x), np.cos(x))
    monkeypatch.setitem(globals(), "slope_of_sine", derivative(math.cos))
    close(function(x), -np.sin(x))


def test_an_attribute_of_an_object(monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(spring.force, backend="python")
    close(function(x), 4 * x)
    monkeypatch.setattr(spring, "stiffness", 3.0)
    close(function(x), 6 * x)
    assert spring.force(2.0) == 12.0


# --- in plain Python --------------------------------------------------------------------------------------------------


def test_python_numbers_give_python_numbers() -> None:
    found = value_and_derivative(lambda t: (t * t, Pair(3, t > 1)))(2)
    assert found == ((4.0, Pair(3, True)), (4.0, Pair(0.0, 0.0)))
    assert isinstance(found[0][1], Pair)
    assert [type(number) for number in numbers_of(found)] == [float, int, bool, float, float, float]
    assert type(derivative(math.sin)(np.float64(0.0))) is float


def test_arrays_are_broadcast_over() -> None:
    close(derivative(math.sin)(x), np.cos(x))
    close(gradient(lambda a, b: a * b)(x[:, None], x)[0], np.broadcast_to(x, (2, 2)))
    assert derivative(lambda t: t * t)(np.float32([1.5])).dtype == np.float32


def test_a_function_around_it_is_python() -> None:
    def f(a):
        found = {"slope": derivative(lambda t: a * t * t)(3.0)}  # no kernel could make a dictionary
        return found["slope"]

    assert [f(1.0), f(2.0)] == [6.0, 12.0]


def test_arguments_by_name() -> None:
    assert derivative(weighted)(3.0, b=2.0, scale=1.0) == 12.0
    assert derivative(weighted, wrt="scale")(3.0, b=2.0, scale=1) == 18.0
    assert gradient(weighted)(3, 2, scale=1) == (12.0, 9.0, 18.0)
    assert derivative(lambda t, mode: t * t if mode == "square" else t)(3.0, mode="square") == 6.0


def test_it_is_an_object_like_others() -> None:
    assert repr(derivative(derivative(math.sin))) == "<derivative(derivative(sin))>"
    assert pickle.loads(pickle.dumps(derivative(math.sin, wrt=-1)))(0.0) == 1.0
    assert copy.deepcopy(slope_of_sine)(0.0) == 1.0


def test_a_changed_closure_is_seen() -> None:
    slope = derivative(lambda t: gain * t)
    gain = 2.0
    assert slope(1.0) == 2.0
    gain = 3.0
    assert slope(1.0) == 3.0


PLAIN = {
    "no function": (lambda: derivative(3.0), "derivative() takes a function, not a float"),
    "several for one": (lambda: derivative(math.sin, wrt=(0, 1)), "taken in one argument, not in wrt=(0, 1)"),
    "no argument": (lambda: derivative(math.sin, wrt=1.5), "wrt=1.5 is no argument; give names or positions"),
    "bool": (lambda: derivative(math.sin, wrt=True), "wrt=True is no argument; give names or positions"),
    "integers": (
        lambda: derivative(abs)(np.arange(3)),
        "argument 1 of derivative(abs) is of dtype int64, which carries",
    ),
    "a bool": (lambda: derivative(abs)(True), "argument 1 of derivative(abs) is a bool, which carries"),
    "an integer by name": (
        lambda: gradient(weighted, wrt="scale")(1.0, 2.0, scale=np.int8(1)),
        "scale of gradient(weighted) is of dtype int8, which carries no derivative",
    ),
    "text": (lambda: derivative(abs)("a"), "argument 1 of derivative(abs) is a str, and must be a number or an array"),
    "a list": (lambda: derivative(abs)([1.0]), "argument 1 of derivative(abs) is a list, and must be a number"),
    "text in a gradient": (
        lambda: gradient(weighted)(1.0, 2.0, scale="a"),
        "scale of gradient(weighted) is a str, and",
    ),
    "not given": (lambda: derivative(math.sin)(), "derivative() is taken in argument 1, which this call does not give"),
    "no such name": (lambda: gradient(weighted)(1.0, z=2.0), "weighted() has no parameter z"),
    "no rule": (lambda: derivative(math.gcd)(1.0), "there is no derivative rule for math.gcd"),
}


@pytest.mark.parametrize(("call", "message"), rows(PLAIN))
def test_wrong_arguments_in_plain_python(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        call()
    assert message in str(caught.value)
    check_traceback(caught.value)


def test_an_error_inside_the_function_shows_the_users_lines_only() -> None:
    def inner(t):
        return t.shape

    with pytest.raises(CompileError) as caught:
        derivative(inner)(1.0)
    assert "called at" not in str(caught.value)
    assert caught.value.filename == __file__
    check_traceback(caught.value)


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS: dict[str, tuple[str, str, Any]] = {
    "no function": (
        "return «derivative(x)»",
        "derivative() takes a function, and this is a number",
        "derivative(g)(x)",
    ),
    "the arguments too early": (
        "return «derivative(math.sin, x)»",
        "derivative() takes only a function; its result takes the arguments",
        "derivative(g)(x)",
    ),
    "nothing": ("return «derivative()»(x)", "derivative() does not take 0 arguments", None),
    "not called": ("return «derivative(math.sin)» + x", "this is the function derivative(sin)", "a call of it"),
    "another keyword": ("return «derivative(abs, order=2)»(x)", "derivative() takes only the keyword wrt", None),
    "an integer": (
        "return derivative(lambda t: t * t)(«int(x)»)",
        "argument 1 is an integer, in which there is no derivative",
        "float(…) around it",
    ),
    "a bool": ("return derivative(abs)(«x > y»)", "argument 1 is a bool, in which there is no derivative", "float"),
    "an integer in a gradient": (
        "return gradient(lambda a, n: a**n)(x, «int(y)»)[0]",
        "argument 2 is an integer, in which there is no derivative",
        "or wrt= for the arguments that are floats",
    ),
    "an integer by name": (
        "return «derivative(lambda t, n: t * n, wrt='n')(x, n=int(y))»",
        "n is an integer, in which there is no derivative",
        "float(…) around it",
    ),
    "a tuple": (
        "return derivative(sum)(«(x, y)»)",
        "a derivative is taken in numbers, and argument 1 is a tuple of 2",
        None,
    ),
    "a function in a gradient": (
        "return gradient(lambda f, a: f(a))(«math.sin», x)",
        "a derivative is taken in numbers, and argument 1 is the function sin",
        "wrt= for the arguments that are floats",
    ),
    "no such argument": (
        "return «derivative(lambda a, b: a * b, wrt=2)(x, y)»",
        "derivative() is taken in argument 3, which this call does not give",
        "a call that also gives it",
    ),
    "no such name": (
        "return «derivative(lambda a, b: a * b, wrt='c')(x, y)»",
        "derivative() is taken in wrt='c', which this call does not give",
        "a call that also gives it",
    ),
    "a default": (
        "return «derivative(lambda a, b=2.0: a * b, wrt='b')(x)»",
        "derivative() is taken in wrt='b', which this call does not give",
        "a call that also gives it",
    ),
    "no arguments": ("return «gradient(lambda: x)()»", "in the arguments of this call, and there are none", None),
    "several for one": (
        "return «derivative(lambda a, b: a * b, wrt=(0, 1))»(x, y)",
        "derivative() is taken in one argument, not in wrt=(0, 1); gradient() is taken in several",
        None,
    ),
    "wrt from data": (
        "return «derivative(lambda a, b: a * b, wrt=int(x))»(x, y)",
        "wrt= must be known when the kernel is compiled, and this is a number",
        None,
    ),
    "wrt that is no argument": ("return «derivative(abs, wrt=0.5)»(x)", "wrt=0.5 is no argument", None),
    "text returned": (
        "return «derivative(lambda t: (t, 'a'))(x)»",
        "an output of the function <lambda> is text, which has no derivative",
        "numbers, or tuples of them",
    ),
    "the value of a function of functions": (
        "return «value_and_derivative(lambda t: lambda u: t * u)(x)»",
        "the function <lambda> returns the function <lambda>, which cannot be an output",
        "derivative(…), and the value by a call of its own",
    ),
    "not differentiable": (
        "return derivative(lambda t: t * «level(t)»)(x)",
        "level() is marked as not differentiable, and its derivative is needed here",
        "dualbcast.stop_derivative(level(...))",
    ),
    "an error inside": (
        "def g(t):\n    return «t.shape» * t\nreturn derivative(g)(x)",
        "a number has no shape here",
        ...,
    ),
    "wrong arguments inside": (
        "return «derivative(lambda t: t)(x, y)»",
        "<lambda>() takes 1 positional argument",
        ...,
    ),
    "a choice of derivatives": (
        "d = «derivative(math.sin) if x > y else derivative(math.cos)»\nreturn d(x)",
        "the function derivative(sin) and the function derivative(cos)",
        ...,
    ),
    "raised for certain": (
        "def g(t, m):\n    if m != 'a':\n        «raise ValueError(m)»\n    return t\nreturn derivative(g)(x, 'b')",
        "this call raises ValueError: b",
        None,
    ),
    "recursion": ("def g(t):\n    return «derivative(g)(t)»\nreturn g(x)", "within itself too deep", "a while loop"),
}
NAMES = {
    "derivative": derivative,
    "gradient": gradient,
    "value_and_derivative": value_and_derivative,
    "level": level,
}


@pytest.mark.usefixtures("no_kernel")
@pytest.mark.parametrize(("body", "message", "hint"), rows(ERRORS))
def test_an_error_at_the_users_line(body: str, message: str, hint: Any) -> None:
    verify(Cell(program(body), NAMES), message, hint)


def test_an_error_that_a_differentiated_function_raises_for_data() -> None:
    @differentiable_broadcast
    def slope(x):
        def g(t):
            if t > 1:
                raise ValueError("too large")
            return t**3

        return derivative(g)(x)

    close(slope(np.array([0.5, -2.0])), [0.75, 12.0])
    close(slope.jacobian(np.array([0.5, -2.0]))["x"], [3.0, -12.0])
    for product in (slope, slope.jacobian):
        with pytest.raises(ValueError, match="too large"):
            product(np.array([0.5, 1.5]))


@pytest.mark.usefixtures("no_kernel")
def test_a_value_that_is_not_differentiable_is_an_error_of_the_jacobian_only() -> None:
    function = differentiable_broadcast(lambda x: derivative(lambda t: t * level(x))(x), backend="python")
    close(function(x), [2, 8])
    with pytest.raises(CompileError, match="level\\(\\) is marked as not differentiable"):
        function.jacobian(x)


@pytest.mark.usefixtures("no_kernel")
def test_a_derivative_too_large_to_compile() -> None:
    turn = "t = math.sin(t * k) * math.exp(t) + math.cos(t) * t"
    body = f"def g(t):\n    for k in (1.0,) * 900:\n        {turn}\n    return t\n"
    verify(Cell(program(body + "return «D(D(g))(x)»"), {"D": derivative}), "more than 20,000 operations", ...)
