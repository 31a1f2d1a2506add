"""Rules of users, custom partials, and where differentiation ends; expected derivatives are written out by hand."""

# The parameters of partials are what they are, whether they are used or not.
# ruff: noqa: ARG001, ARG005

from __future__ import annotations

import importlib
import itertools
import linecache
import math
import re
import runpy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special
from forgotten_rules import forget

import dualbcast
from dualbcast import ArgumentError, CompileError, differentiable_broadcast
from dualbcast.rules.table import RULES, add_later_rows, lookup
from dualbcast.runtime.cpu import kernel as cpu_kernel

add_later_rows()

BACKENDS = ("python", "cpu")
DTYPES = ("float32", "float64")
x = np.array([-1.5, -0.25, 0.75, 2.0])


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Takes out of the rule table what a test has added."""
    before = set(RULES)
    yield
    for name in set(RULES) - before:
        forget(RULES[name])


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=DTYPES)
def dtype(request: pytest.FixtureRequest) -> Any:
    return request.param


def close(got: Any, wanted: Any, dtype: str = "float64", roundings: int = 8) -> None:
    """Equal to within some roundings of the dtype, relative to values of about 1."""
    got = np.asarray(got)
    assert got.dtype == dtype
    eps = float(np.finfo(dtype).eps)
    np.testing.assert_allclose(got, np.asarray(wanted, "float64"), rtol=roundings * eps, atol=roundings * eps)


cells = itertools.count(1)


def run_cell(namespace: dict[str, Any], text: str) -> dict[str, Any]:
    """Run a text as a notebook runs a cell: in a namespace that lasts, under a file name of its own."""
    name = f"<cell {next(cells)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec"), namespace)
    return namespace


# --- rule: rows of users ----------------------------------------------------------------------------------------------


def cube(t):
    return t * t * t


def blend(a, b):
    return a * math.exp(b)


def kelvin_ber(t):
    """The power series of Kelvin's function ber."""
    term = total = 1.0
    for k in range(1, 20):
        term = -term * t**4 / (16.0 * (2 * k - 1) ** 2 * (2 * k) ** 2)
        total = total + term
    return total


def kelvin_ber_slope(t):
    term = total = -(t**3) / 16.0
    for k in range(2, 20):
        term = -term * t**4 / (16.0 * (2 * k - 1) ** 2 * (2 * k) * (2 * k - 2))
        total = total + term
    return total


def kelvin_bei(t):
    term = total = t**2 / 4.0
    for k in range(1, 20):
        term = -term * t**4 / (16.0 * (2 * k) ** 2 * (2 * k + 1) ** 2)
        total = total + term
    return total


def add_kelvin() -> None:
    # Rules may lead to each other: by the Python functions, which are known before their rules are.
    dualbcast.rule("ber", lambda t, y: (kelvin_ber_slope(t),), "scipy.special.ber", function=kelvin_ber)
    dualbcast.rule("bei", lambda t, y: (0.0 * y,), "scipy.special.bei", function=kelvin_bei, domain=((0.0, 0.0),))
    # ber'' = -bei - ber' / t, and 0 at 0.
    dualbcast.rule(
        "berp",
        lambda t, y: (0.0 if t == 0 else -scipy.special.bei(t) - y / t,),
        scipy.special.berp,
        function=kelvin_ber_slope,
    )


def test_a_ufunc_of_a_c_library(backend: Any, dtype: Any) -> None:
    add_kelvin()

    @differentiable_broadcast(backend=backend)
    def f(t):
        return 2 * scipy.special.ber(t)

    points = np.array([-3.0, 0.0, 0.5, 4.0], dtype)
    value, jacobian = f.value_and_jacobian(points)
    close(value / 2, [float(mp.ber(0, float(t))) for t in points], dtype, 32)
    close(jacobian["t"] / 2, [float(mp.diff(lambda s: mp.ber(0, s), float(t))) for t in points], dtype, 32)


def test_the_partials_of_a_rule_may_use_other_rules_and_are_differentiated(backend: Any) -> None:
    add_kelvin()
    slope = lookup(scipy.special.ber).partials
    second = differentiable_broadcast(backend=backend)(lambda t: slope(t, scipy.special.ber(t)))
    points = np.array([-3.0, 0.5, 4.0])
    wanted = [float(mp.diff(lambda s: mp.ber(0, s), float(t), 2)) for t in points]
    close(second.jacobian(points)[0, "t"], wanted, roundings=64)


def test_a_python_function_and_its_python_value(backend: Any, dtype: Any) -> None:
    # Partials that are not the body's, so that it shows which of the two is used.
    dualbcast.rule("cube", lambda t, y: (5.0 * t + y,), function=cube)
    f = differentiable_broadcast(backend=backend)(lambda t: cube(t) + cube(2 * t))
    points = x.astype(dtype)
    value, jacobian = f.value_and_jacobian(points)
    close(value, x**3 + (2 * x) ** 3, dtype, 128)
    close(jacobian["t"], 5 * x + x**3 + 2 * (10 * x + 8 * x**3), dtype, 256)
    assert cube(2.0) == 8.0


def test_the_function_of_a_rule_may_be_broadcast_itself(backend: Any) -> None:
    dualbcast.rule("cube", lambda t, y: (7.0,), function=cube)
    f = differentiable_broadcast(backend=backend)(cube)
    value, jacobian = f.value_and_jacobian(x)
    close(value, x**3)
    close(jacobian["t"], np.full(4, 7.0))
    counted, slope = f.value_and_jacobian(np.array([2]), wrt=())
    assert (counted.tolist(), counted.dtype, list(slope)) == ([8.0], np.float64, [])


def test_keywords_and_defaults_of_a_rules_function(backend: Any) -> None:
    def power(t, scale=3.0, shift=1.0):
        return scale * t + shift

    dualbcast.rule("affine", lambda t, scale, shift, y: (scale, t, 1.0), function=power)
    f = differentiable_broadcast(backend=backend)(lambda t, s: power(t) + power(shift=s, t=t) + power(t, 2.0, shift=s))
    value, jacobian = f.value_and_jacobian(x, 10.0)
    close(value, (3 * x + 1) + (3 * x + 10) + (2 * x + 10))
    close(jacobian["t"], np.full(4, 8.0))
    close(jacobian["s"], np.full(4, 2.0))


def test_integer_arguments_of_a_rule(backend: Any) -> None:
    def times(t, n):
        total = 0.0
        for _ in range(n):
            total = total + t
        return total

    dualbcast.rule("times", lambda t, n, y: (n, 0), function=times, integer=(1,))
    f = differentiable_broadcast(backend=backend)(lambda t, n: times(t, n) + times(t, 2))
    value, jacobian = f.value_and_jacobian(x, np.array([0, 1, 2, 3]))
    close(value, x * np.array([2, 3, 4, 5]))
    # The partial `n` is an integer, and a derivative all the same.
    close(jacobian["t"], [2.0, 3.0, 4.0, 5.0])
    with pytest.raises(CompileError, match=r"argument 2 of times\(\) must be an integer"):
        differentiable_broadcast(lambda t: times(t, t))(x)


def test_a_partial_that_is_zero_has_no_code(backend: Any) -> None:
    dualbcast.rule("first", lambda a, b, y: (b, 0), function=lambda a, b: a * b)
    f = differentiable_broadcast(backend=backend)(RULES[next(reversed(RULES))].function)
    jacobian = f.jacobian(x, 2.0)
    close(jacobian["a"], np.full(4, 2.0))
    close(jacobian["b"], np.zeros(4))
    assert jacobian["b"].strides == (0,)


def test_the_row_is_the_librarys_kind_and_the_call_is_the_librarys() -> None:
    from dualbcast.rules import library

    assert dualbcast.rule is library.rule
    row = dualbcast.rule("cube", lambda t, y: (3 * t * t,), function=cube, domain=((-1, 2),), kinks=(((0,), (0,)),))
    assert (row.label, row.arity, row.domain, row.kinks) == ("cube", 1, ((-1.0, 2.0),), (((0,), (0,)),))
    assert lookup(cube) is row


def test_names_in_the_text() -> None:
    def inner(a):
        return a + 1.0

    def outer(b):
        return inner(b) * 2.0

    dualbcast.rule("helper", lambda a, y: (1.0,), function=inner)
    dualbcast.rule("scale", lambda b, y: (2.0,), function=outer)

    # Variables with the names of rules, and a second rule of a name.
    first = dualbcast.rule("helper", lambda a, y: (1.0,), function=lambda a: a - 1.0).function

    @differentiable_broadcast(backend="python")
    def f(helper):
        scale = outer(helper) + first(helper)
        helper_1 = math.exp(scale)
        return helper_1 * scale

    text = f.inspect_source("float64")
    heads = re.findall(r"^def (\w+)\((.*)\):", text, re.MULTILINE)
    assert [name for name, _ in heads][:4] == ["helper_2", "scale_1", "helper_3", "f"]
    s = (x + 1) * 2 + x - 1
    value, jacobian = f.value_and_jacobian(x)
    close(value, np.exp(s) * s, roundings=10_000)
    close(jacobian["helper"], np.exp(s) * (1 + s) * 3, roundings=10_000)


def test_a_name_like_an_operator_or_a_native_function_of_targets(backend: Any) -> None:
    dualbcast.rule("add", lambda a, b, y: (2.0, 3.0), function=blend)
    dualbcast.rule("float64", lambda t, y: (5.0,), function=cube)
    f = differentiable_broadcast(backend=backend)(lambda a, b: blend(a, b) + cube(a))
    value, jacobian = f.value_and_jacobian(x, 0.5)
    close(value, x * math.exp(0.5) + x**3)
    close(jacobian["a"], np.full(4, 7.0))
    close(jacobian["b"], np.full(4, 3.0))


@pytest.mark.parametrize(
    ("arguments", "keywords", "message"),
    [
        (("not a name", lambda t, y: (1.0,)), {"function": cube}, "'not a name' is no name for a rule"),
        (("lambda", lambda t, y: (1.0,)), {"function": cube}, "identifier that is no keyword"),
        (("tanh", lambda t, y: (1.0,)), {"function": cube}, "there is a rule for tanh in the library already"),
        (("f", lambda t, y: (1.0,)), {}, "needs function="),
        (("f", lambda t, y: (1.0,)), {"function": math.cos}, "not a Python function"),
        (("f", 1.0), {"function": cube}, "the partials of f are 1.0"),
        (("f", lambda a, b, y: (1.0, 1.0)), {"function": cube}, "before the result, 2, the function takes 1"),
        (("f", lambda t, y: (1.0,)), {"function": cube, "domain": ((0, 1), (0, 1))}, "domain= has 2"),
        (("f", lambda t, y: (1.0,)), {"function": cube, "domain": ((1, 0),)}, "it is a .low, high. for each"),
        (("f", lambda t, y: (1.0,)), {"function": cube, "integer": (1,)}, "positions of its arguments"),
        (("f", lambda t, y: (1.0,)), {"function": cube, "kinks": (((0.0, 0.0), (0.0,)),)}, "each of 1 numbers"),
        (("f", lambda *ts: (1.0,)), {"function": lambda *ts: 1.0}, "give domain="),
        (("f", lambda t, y: (1.0,), "math.cos"), {"function": cube}, "math.cos has a meaning in kernels already"),
        (("f", lambda t, y: (1.0,), "math.floor"), {"function": cube}, "floor has a meaning in kernels already"),
        (("f", lambda t, y: (1.0,), np.add), {"function": cube}, "add has a meaning in kernels already"),
        (("f", lambda t, y: (1.0,), "numpy.square"), {"function": cube}, "numpy.square has a meaning"),
        (("f", lambda t, y: (1.0,), "ber"), {"function": cube}, "'ber' is not the dotted name"),
        (("f", lambda t, y: (1.0,), "scipy.special.ber0"), {"function": cube}, "the module scipy.special has no ber0"),
        (("f", lambda t, y: (1.0,), 3), {"function": cube}, "a dotted name or a callable, not 3"),
        (("f", lambda t, y: (1.0,), "math.pi"), {"function": cube}, "math.pi is a float"),
    ],
)
def test_what_a_rule_refuses(arguments: Any, keywords: Any, message: str) -> None:
    before = dict(RULES)
    with pytest.raises(ArgumentError, match=message):
        dualbcast.rule(*arguments, **keywords)
    assert before == RULES
    assert lookup(cube) is None


@pytest.mark.parametrize(
    ("partials", "function", "message", "text"),
    [
        (
            lambda t, y: (1.0, 2.0),
            cube,
            "1 argument needs 1 partial derivative, and these partials are 2",
            "lambda t, y",
        ),
        (lambda a, b, y: (1.0,), blend, "2 arguments need 2, and these partials are 1", "lambda a, b, y"),
        (lambda t, y: (undefined_name,), cube, "the name undefined_name is not defined", "undefined_name"),  # noqa: F821
        (lambda t, y: ({t},), cube, "a set cannot be compiled", "{t}"),
        (lambda t, y: (1.0,), lambda t: {t}, "a set cannot be compiled", "{t}"),
        (lambda t, y: (1.0,), lambda t: (t, t), "the function of the rule broken returns a tuple", "lambda t: (t, t)"),
    ],
)
def test_what_a_rule_refuses_at_its_line(partials: Any, function: Any, message: str, text: str) -> None:
    with pytest.raises(CompileError) as caught:
        dualbcast.rule("broken", partials, function=function)
    assert caught.value.message.startswith(message)
    assert caught.value.filename == __file__
    assert text in linecache.getline(__file__, caught.value.lineno)
    assert lookup(function) is None


def test_a_rule_that_calls_itself_is_refused() -> None:
    def round_and_round(t):
        return scipy.special.ber(t)

    with pytest.raises(CompileError, match="the function of the rule ber calls itself"):
        dualbcast.rule("ber", lambda t, y: (1.0,), "scipy.special.ber", function=round_and_round)
    assert lookup(scipy.special.ber) is None


def test_a_failed_registration_leaves_the_earlier_one(backend: Any) -> None:
    dualbcast.rule("ber", lambda t, y: (2.0,), "scipy.special.ber", function=cube)
    with pytest.raises(CompileError):
        dualbcast.rule("ber", lambda t, y: (2.0, 3.0), "scipy.special.ber", function=cube)
    with pytest.raises(ArgumentError, match=r"scipy\.special\.ber has a meaning in kernels already: the rule ber"):
        dualbcast.rule("other", lambda t, y: (3.0,), "scipy.special.ber", function=kelvin_ber)
    f = differentiable_broadcast(backend=backend)(lambda t: scipy.special.ber(t) + cube(t))
    value, jacobian = f.value_and_jacobian(x)
    close(value, 2 * x**3)
    close(jacobian["t"], np.full(4, 4.0))


# --- custom partials --------------------------------------------------------------------------------------------------


@dualbcast.custom_partials(lambda t, y: (1.0,))
def step(t):
    return 1.0 if t > 0.5 else 0.0


@dualbcast.custom_partials(lambda t, y: (1.0,))
def whole_step(t):
    return 1 if t > 0.5 else 0


@dualbcast.custom_partials(lambda a, b, y: (10.0 * b + y, 0))
def product(a, b):
    return a * b


def test_the_decorated_function_is_still_that_function() -> None:
    assert step(0.7) == 1.0
    assert type(step) is type(cube)
    assert step.__name__ == "step"


@pytest.mark.parametrize("function", [step, whole_step])
def test_straight_through(function: Any, backend: Any, dtype: Any) -> None:
    f = differentiable_broadcast(backend=backend)(function)
    value, jacobian = f.value_and_jacobian(x.astype(dtype))
    close(value, [0.0, 0.0, 1.0, 1.0], dtype)
    close(jacobian["t"], np.ones(4), dtype)


def test_inside_another_function(backend: Any, dtype: Any) -> None:
    def middle(u):
        return product(u, 3.0) + step(u)

    f = differentiable_broadcast(backend=backend)(lambda u, v: middle(u * v))
    value, jacobian = f.value_and_jacobian(x.astype(dtype), np.asarray(2.0, dtype))
    t = 2 * x
    close(value, 3 * t + (t > 0.5), dtype)
    slope = 30 + 3 * t + 1
    close(jacobian["u"], 2 * slope, dtype, 32)
    close(jacobian["v"], x * slope, dtype, 32)


def test_through_a_broadcast_function(backend: Any) -> None:
    inner = differentiable_broadcast(step)
    f = differentiable_broadcast(backend=backend)(lambda t: 4 * inner(t))
    value, jacobian = f.value_and_jacobian(x)
    close(value, [0.0, 0.0, 4.0, 4.0])
    close(jacobian["t"], np.full(4, 4.0))


def test_a_structural_zero(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(product)
    value, jacobian = f.value_and_jacobian(x, x[::-1].copy())
    close(value, x * x[::-1])
    close(jacobian["a"], 10 * x[::-1] + x * x[::-1])
    assert jacobian["b"].strides == (0,)
    assert not jacobian["b"].any()


def test_in_loops_and_branches(backend: Any, dtype: Any) -> None:
    def f(t, n):
        total = t
        for _ in range(n):
            total = product(total, 0.5) if total > 0 else total - 1.0
        while total > 2.0:
            total = product(total, 0.25)
        return total

    def by_hand(t: float, n: int) -> tuple[float, float]:
        slope = 1.0
        for _ in range(n):
            if t > 0:
                t = t * 0.5
                slope = (10 * 0.5 + t) * slope
            else:
                t = t - 1.0
        while t > 2.0:
            t = t * 0.25
            slope = (10 * 0.25 + t) * slope
        return t, slope

    points, counts = np.array([-1.0, 0.5, 3.0, 40.0], dtype), np.array([3, 1, 2, 0], "int8")
    value, jacobian = differentiable_broadcast(backend=backend)(f).value_and_jacobian(points, counts)
    wanted = [by_hand(float(t), int(n)) for t, n in zip(points, counts, strict=True)]
    close(value, [v for v, _ in wanted], dtype)
    close(jacobian["t"], [s for _, s in wanted], dtype, 512)


def test_integers_keep_their_kind(backend: Any) -> None:
    @dualbcast.custom_partials(lambda t, n, y: (n, 99.0))
    def multiple(t, n):
        total = 0.0
        for _ in range(n):
            total = total + t
        return total // 1.0

    f = differentiable_broadcast(backend=backend)(lambda t, n: multiple(t, n) + multiple(n=2, t=t))
    value, jacobian = f.value_and_jacobian(x, np.array([0, 1, 2, 3]))
    close(value, np.floor(x * [0, 1, 2, 3]) + np.floor(2 * x))
    close(jacobian["t"], [2.0, 3.0, 4.0, 5.0])
    # Nothing but integers: nothing to be differentiated, so the body's own result.
    counts = differentiable_broadcast(backend=backend)(whole_step)(np.array([0, 1]))
    assert (counts.tolist(), counts.dtype) == ([0, 1], np.int64)


def test_a_bool_partial_is_a_number(backend: Any) -> None:
    @dualbcast.custom_partials(lambda t, y: (t > 0,))
    def relu(t):
        return max(t, 0.0)

    jacobian = differentiable_broadcast(backend=backend)(lambda t: 2 * relu(t)).jacobian(x)
    close(jacobian["t"], [0.0, 0.0, 2.0, 2.0])


def test_keywords_defaults_and_rest_arguments(backend: Any) -> None:
    def slopes(*arguments):
        total = arguments[-1]
        found = ()
        for argument in arguments[:-1]:
            found = found + (argument / total,)  # noqa: RUF005
        return found

    @dualbcast.custom_partials(slopes)
    def norm(first, *rest, scale=2.0):
        total = first * first + scale
        for item in rest:
            total = total + item * item
        return math.sqrt(total)

    f = differentiable_broadcast(backend=backend)(lambda a, b: norm(a, b, b) + norm(a, scale=b))
    value, jacobian = f.value_and_jacobian(x, 3.0)
    first, second = np.sqrt(x * x + 2 + 18), np.sqrt(x * x + 3)
    close(value, first + second)
    close(jacobian["a"], x / first + x / second)
    close(jacobian["b"], 6 / first + 3 / second)  # the partial in `scale` as slopes() has it


def test_second_order(backend: Any) -> None:
    """The partials are scalar functions too: their derivative minds that the result has custom partials."""

    def slope(a, b, y):
        return (10.0 * b + y, 0)

    own = dualbcast.custom_partials(slope)(lambda a, b: a * b)
    twice = differentiable_broadcast(backend=backend)(lambda a, b: slope(a, b, own(a, b))[0])
    value, jacobian = twice.value_and_jacobian(x, 3.0)
    close(value, 30 + 3 * x)
    close(jacobian["a"], 30 + 3 * x)
    close(jacobian["b"], np.full(4, 10.0))


def test_partials_that_call_the_function_itself(backend: Any) -> None:
    @dualbcast.custom_partials(lambda n, t, y: (0, derivative(n + 1, t)))
    def derivative(n, t):
        """The n-th derivative of sin."""
        phase = n % 4
        return (
            math.sin(t) if phase == 0 else math.cos(t) if phase == 1 else -math.sin(t) if phase == 2 else -math.cos(t)
        )

    f = differentiable_broadcast(backend=backend)(lambda t: derivative(1, t))
    close(f.jacobian(x)["t"], -np.sin(x))


def test_functions_made_by_a_function_have_partials_of_their_own(backend: Any) -> None:
    def make(factor):
        @dualbcast.custom_partials(lambda t, y: (factor,))
        def scaled(t):
            return factor * t

        return scaled

    two, three = make(2.0), make(3.0)
    f = differentiable_broadcast(backend=backend)(lambda t: two(t) * 10 + three(t) * 100)
    close(f.jacobian(x)["t"], np.full(4, 320.0))


def test_a_kernel_of_the_value_reads_nothing_for_the_partials() -> None:
    @dualbcast.custom_partials(lambda t, weight, y: (weight, 0))
    def gate(t, weight):
        return 1.0 if t > 0 else 0.0

    f = differentiable_broadcast(gate)
    assert "weight[" not in f.inspect_source("float64", "float64", product="value")
    assert "weight[" in f.inspect_source("float64", "float64")
    assert f.explain("float64", "float64", product="value").bytes_read == 16


@pytest.mark.parametrize(
    ("decorate", "message"),
    [
        (lambda: dualbcast.custom_partials(lambda t, y: (1.0,))(math.cos), "decorates a Python function"),
        (lambda: dualbcast.custom_partials(lambda t, y: (1.0,))(differentiable_broadcast(cube)), "BroadcastFunction"),
        (lambda: dualbcast.custom_partials(lambda t, y: (1.0,))(blend), "the function takes 2"),
        (lambda: dualbcast.custom_partials(lambda t: (1.0,))(cube), "before the result, 0"),
        (lambda: dualbcast.custom_partials((1.0,))(cube), "not a Python function"),
        (lambda: dualbcast.custom_partials(lambda t, y: (1.0,))(dualbcast.special.sigmoid), "has a rule already"),
        (lambda: dualbcast.not_differentiable(differentiable_broadcast(cube)), "not_differentiable decorates"),
    ],
)
def test_what_the_decorators_refuse(decorate: Callable[[], Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        decorate()


def test_errors_of_custom_partials_are_at_the_users_line() -> None:
    @dualbcast.custom_partials(lambda t, y: (1.0, 2.0))
    def two_partials(t):
        return t

    @dualbcast.custom_partials(lambda t, y: (1.0,))
    def two_outputs(t):
        return t, t

    @dualbcast.custom_partials(lambda t, s, y: (1.0, 1.0))
    def of_a_tuple(t, s):
        return t + s[0]

    cases = [
        (two_partials, "1 argument needs 1 partial derivative", "lambda t, y: (1.0, 2.0)"),
        (lambda t: two_partials(t), "1 argument needs 1 partial derivative", "lambda t, y: (1.0, 2.0)"),
        (two_outputs, "two_outputs() returns a tuple of 2", "def two_outputs"),
        (lambda t: two_outputs(t), "two_outputs() returns a tuple of 2", "two_outputs(t)"),
        (lambda t: of_a_tuple(t, (t, t)), "argument 2 of of_a_tuple() is a tuple of 2", "of_a_tuple(t, (t, t))"),
    ]
    for function, message, text in cases:
        with pytest.raises(CompileError) as caught:
            differentiable_broadcast(function).jacobian(x)
        assert caught.value.message.startswith(message)
        assert text in linecache.getline(__file__, caught.value.lineno), message


@dualbcast.custom_partials(lambda t, y: (2.0 * t,))
def squared(t):
    return t * t


def repeated(t):
    """A rule's function with a loop, which is inlined, and a custom derivative in it, which is not needed any more."""
    total = 0.0
    for _ in range(3):
        total = total + squared(t)
    return total


def test_a_custom_derivative_in_the_loop_of_a_rules_function(backend: str) -> None:
    rule = dualbcast.rule("repeated", lambda t, y: (6.0 * t,), function=repeated)
    assert rule.label == "repeated"
    value, jacobian = differentiable_broadcast(backend=backend)(lambda t: 2.0 * repeated(t)).value_and_jacobian(x)
    close(value, 6.0 * x * x)
    close(jacobian["t"], 12.0 * x)


# --- not_differentiable and stop_derivative ---------------------------------------------------------------------------


@dualbcast.not_differentiable
def level(t):
    return int(4 * t)


@dualbcast.not_differentiable
def pair(t):
    return (2.0 * t, 1.0 if t > 0 else 0.0)


def test_values_of_what_is_not_differentiable(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda t: level(t) + pair(t)[0])
    close(f(x), np.trunc(4 * x) + 2 * x)


@pytest.mark.parametrize(
    "function",
    [
        lambda t, s: t + level(t),
        lambda t, s: s * (t + level(t)),
        lambda t, s: float(level(t)),
        lambda t, s: level(t) * 2 + s,
        lambda t, s: s * (level(t) > 0) if level(t) else s * (level(t) + 1),
        lambda t, s: pair(t)[0],
        lambda t, s: s * pair(t * t)[1],
        lambda t, s: math.sin(level(t)) + s,
        lambda t, s: product(level(t), s),
    ],
)
def test_a_jacobian_through_it_is_an_error(function: Any) -> None:
    f = differentiable_broadcast(function)
    with pytest.raises(CompileError, match=r"(level|pair)\(\) is marked as not differentiable") as caught:
        f.value_and_jacobian(x, 1.0)
    assert "stop_derivative(" in caught.value.hint and "custom_partials" in caught.value.hint
    assert re.search(r"(level|pair)\(", linecache.getline(__file__, caught.value.lineno))
    f(x, 1.0)
    f.jacobian(x, 1.0, wrt="s")


def test_a_decorated_function_that_is_not_differentiable() -> None:
    f = differentiable_broadcast(pair)
    assert [part.tolist() for part in f(x)] == [(2 * x).tolist(), [0.0, 0.0, 1.0, 1.0]]
    with pytest.raises(CompileError, match="pair"):
        f.jacobian(x)


def test_what_only_decides_needs_no_derivative(backend: Any) -> None:
    def f(t, s):
        total = s * t if level(t) > 0 else s
        for _ in range(level(t)):
            total = total + t
        unused = pair(t)  # noqa: F841
        return total

    value, jacobian = differentiable_broadcast(backend=backend)(f).value_and_jacobian(x, 3.0)
    counts = np.maximum(np.trunc(4 * x), 0)
    positive = np.trunc(4 * x) > 0
    close(value, np.where(positive, 3 * x, 3.0) + counts * x)
    close(jacobian["t"], np.where(positive, 3.0, 0.0) + counts)


def test_stop_derivative(backend: Any, dtype: Any) -> None:
    stop = dualbcast.stop_derivative
    f = differentiable_broadcast(backend=backend)(
        lambda t: (t * stop(t), stop(level(t) + t), stop(product(t, t)), 0.5 * stop(level(t)))
    )
    value, jacobian = f.value_and_jacobian(x.astype(dtype))
    close(value[0], x * x, dtype)
    close(value[1], np.trunc(4 * x) + x, dtype)
    close(jacobian[0, "t"], x, dtype)
    close(value[3], np.trunc(4 * x) / 2, dtype)
    for output in (1, 2, 3):
        assert jacobian[output, "t"].strides == (0,)
        assert not jacobian[output, "t"].any()


def test_stop_derivative_of_plain_numbers_and_integers() -> None:
    assert (dualbcast.stop_derivative(2.5), dualbcast.stop_derivative(3)) == (2.5, 3)
    counted = differentiable_broadcast(lambda n: dualbcast.stop_derivative(n) + 1)(np.array([1, 2]))
    assert (counted.dtype, counted.tolist()) == (np.int64, [2, 3])


# --- what changes after a kernel was compiled -------------------------------------------------------------------------


def test_running_a_cell_again_replaces_custom_partials(backend: Any) -> None:
    cell = "@dualbcast.custom_partials(lambda t, y: ({0},))\ndef shape(t):\n    return {1} * t\n"
    scope = run_cell({"dualbcast": dualbcast}, cell.format(2.0, 1.0))
    run_cell(scope, "def f(t):\n    return 10 * shape(t)\n")
    f = differentiable_broadcast(backend=backend)(scope["f"])
    for slope, factor in ((2.0, 1.0), (3.0, 1.0), (3.0, 5.0), (2.0, 1.0)):
        run_cell(scope, cell.format(slope, factor))
        value, jacobian = f.value_and_jacobian(x)
        close(value, 10 * factor * x)
        close(jacobian["t"], np.full(4, 10 * slope))


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "as a new process would"])
def test_running_a_cell_again_replaces_a_rule(backend: Any, fresh: bool) -> None:
    cell = (
        "def shape(t):\n    return {1} * t\n"
        "dualbcast.rule('shape', lambda t, y: ({0} * t,), 'scipy.special.ber', function=shape)\n"
    )
    scope = {"dualbcast": dualbcast, "scipy": scipy}
    run_cell(scope, "def f(t):\n    return 10 * scipy.special.ber(t) + shape(t)\n")
    f = differentiable_broadcast(backend=backend)(scope["f"])
    texts = set()
    for slope, factor in ((2.0, 1.0), (3.0, 1.0), (3.0, 5.0), (2.0, 1.0)):
        run_cell(scope, cell.format(slope, factor))
        if fresh:
            # The loaded kernels are forgotten, those on disk are there.
            cpu_kernel._kernels.clear()
            f = differentiable_broadcast(backend=backend)(scope["f"])
        value, jacobian = f.value_and_jacobian(x)
        close(value, 11 * factor * x)
        close(jacobian["t"], 11 * slope * x)
        source = f.inspect_source("float64")
        assert "def shape(" in source
        texts.add(re.sub(r" *#.*", "", source))
    # The third and the first time it is the same kernel, under the same names.
    assert len(texts) == 3


def test_a_rule_registered_after_the_function_was_compiled_in(backend: Any) -> None:
    f = differentiable_broadcast(backend=backend)(lambda t: 2 * cube(t))
    close(f.jacobian(x)["t"], 6 * x * x)
    direct = differentiable_broadcast(backend=backend)(cube)
    close(direct.jacobian(x)["t"], 3 * x * x)
    row = dualbcast.rule("cube", lambda t, y: (7.0,), function=cube)
    close(f.jacobian(x)["t"], np.full(4, 14.0))
    close(direct.jacobian(x)["t"], np.full(4, 7.0))
    forget(row)
    close(f.jacobian(x)["t"], 6 * x * x)
    close(direct.jacobian(x)["t"], 3 * x * x)


def test_custom_partials_given_after_the_function_was_compiled_in(backend: Any) -> None:
    def square(t):
        return t * t

    def middle(t):
        return square(t)

    f = differentiable_broadcast(backend=backend)(lambda t: 2 * middle(t))
    direct = differentiable_broadcast(backend=backend)(square)
    close(f.jacobian(x)["t"], 4 * x)
    close(direct.jacobian(x)["t"], 2 * x)
    for slope in (7.0, 9.0):
        assert dualbcast.custom_partials(SLOPES[slope])(square) is square
        close(f.jacobian(x)["t"], np.full(4, 2 * slope))
        close(direct.jacobian(x)["t"], np.full(4, slope))
    dualbcast.not_differentiable(square)
    with pytest.raises(CompileError, match="square"):
        f.jacobian(x)


SLOPES = {7.0: lambda t, y: (7.0,), 9.0: lambda t, y: (9.0,)}

factor, inner_factor = 1.0, 1.0


def scaled(t):
    return factor * t


def through(t):
    return inner_factor * t


@pytest.mark.parametrize("how", ["rule", "custom"])
def test_numbers_that_a_rule_captures_are_guarded(how: str, backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def value(t):
        return factor * t

    def slope(t, y):
        return (100.0 * factor + through(inner_factor),)

    if how == "rule":
        dualbcast.rule("value", slope, function=value)
    else:
        dualbcast.custom_partials(slope)(value)
    f = differentiable_broadcast(backend=backend)(lambda t: value(t) + 0 * value(2.0))
    direct = differentiable_broadcast(backend=backend)(value)
    for outer, inner in ((1.0, 1.0), (2.0, 1.0), (2.0, 3.0), (1.0, 3.0)):
        monkeypatch.setitem(globals(), "factor", outer)
        monkeypatch.setitem(globals(), "inner_factor", inner)
        for function in (f, direct):
            result, jacobian = function.value_and_jacobian(x)
            close(result, outer * x)
            close(function(x), outer * x)
            close(jacobian["t"], np.full(4, 100 * outer + inner * inner))


def test_numbers_that_a_rule_of_a_rule_captures_are_guarded(backend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dualbcast.rule("through", lambda t, y: (10.0 * inner_factor,), function=through)

    def outer(t):
        return through(t) + 1.0

    dualbcast.rule("outer", lambda t, y: (through(1.0),), function=outer)
    f = differentiable_broadcast(backend=backend)(lambda t: outer(t))
    for inner in (1.0, 4.0):
        monkeypatch.setitem(globals(), "inner_factor", inner)
        value, jacobian = f.value_and_jacobian(x)
        close(value, inner * x + 1)
        close(jacobian["t"], np.full(4, inner))


def test_a_rule_that_partials_call_is_guarded(backend: Any) -> None:
    def slope(t):
        return t

    @dualbcast.custom_partials(lambda t, y: (slope(t),))
    def f(t):
        return 1.0 * t

    broadcast = differentiable_broadcast(backend=backend)(f)
    close(broadcast.jacobian(x)["t"], x)
    dualbcast.custom_partials(lambda t, y: (1.0,))(slope)
    close(broadcast.jacobian(x)["t"], x)
    slope = cube
    close(broadcast.jacobian(x)["t"], x**3)


def test_an_unchanged_kernel_is_not_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = differentiable_broadcast(lambda t: product(step(t), t))
    f.jacobian(x)

    def refuse(*_: Any) -> Any:
        raise AssertionError("compiled again")

    monkeypatch.setattr("dualbcast.program.products.make_product", refuse)
    dualbcast.custom_partials(lambda t, y: (1.0,))(lambda t: t)
    dualbcast.rule("bystander", lambda t, y: (1.0,), function=lambda t: t)
    f.jacobian(x)


# --- CUDA, the table's page, the example ------------------------------------------------------------------------------


@pytest.mark.cuda_compilers
@pytest.mark.parametrize("dtype", DTYPES)
def test_cuda_text_compiles_without_a_gpu(dtype: str) -> None:
    add_kelvin()
    f = differentiable_broadcast(lambda t, n: scipy.special.ber(t) * step(t) + product(t, dualbcast.stop_derivative(t)))
    ptx = f.inspect_ptx(dtype, dtype, cc=(9, 0))
    assert ".visible .entry" in ptx
    assert dtype == "float64" or not re.search(r"\b(mul|add|fma)\S*\.f64", ptx)


def test_rules_of_users_are_not_on_the_librarys_page() -> None:
    dualbcast.rule("cube", lambda t, y: (3 * t * t,), function=cube)
    page = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "generate_rules.py"))
    assert page["page"]() == page["PAGE"].read_text(encoding="utf-8")


def test_module_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, backend: Any) -> None:
    """A module with rules can be reloaded after an edit; kernels that call its functions follow."""
    text = (
        "import dualbcast\n\ndef own(t):\n    return t\n\n"
        "dualbcast.rule('own', lambda t, y: ({slope},), 'extension_module.own', function=own)\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "extension_module.py"
    path.write_text(text.format(slope="2.0"))
    monkeypatch.delitem(sys.modules, "extension_module", raising=False)
    module: ModuleType = importlib.import_module("extension_module")
    scope = run_cell({"m": module}, "def f(t):\n    return m.own(t)\n")
    f = differentiable_broadcast(backend=backend)(scope["f"])
    close(f.jacobian(x)["t"], np.full(4, 2.0))
    path.write_text(text.format(slope="300.0"))
    importlib.reload(module)
    close(f.jacobian(x)["t"], np.full(4, 300.0))
