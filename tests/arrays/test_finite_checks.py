"""The option `check`: which results it refuses, and the element, the line and the operation that it names."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cells import Cell

from dualbcast import differentiable_broadcast, graph, rule
from dualbcast.errors import ArgumentError, NonFiniteError

NAN, INF = math.nan, math.inf
X, Y = np.array([2.0, 0.0, 4.0]), np.array([[1.0], [0.0]])

# «…» encloses the operation that the number comes from.
QUOTIENT = """
def f(x, y):
    a = x * x
    return «y / a» - 1.0
"""
DERIVATIVE = """
import math
def f(x, y):
    if y > 0.5:
        return «math.sqrt(x)» * y
    return y
"""
INSIDE = """
import math
def logarithm(x):
    return «math.log(x)»
def f(x, y):
    return y + logarithm(x)
"""
NOT_USED = """
import math
def f(x, y):
    a = math.log(-1.0 - x)
    b = «y / x»
    return b if x < 9.0 else a
"""


def failing(text: str, check: str, call: Callable[..., Any] = lambda f, *args: f(*args), *args: Any) -> NonFiniteError:
    cell = Cell(text)
    function = differentiable_broadcast(cell.names["f"], check=check)
    with pytest.raises(NonFiniteError) as caught:
        call(function, *(args or (X, Y)))
    error = caught.value
    line, column, _ = cell.place()
    assert (error.filename, error.lineno, error.offset) == (cell.filename, line, column)
    assert isinstance(error, FloatingPointError)
    return error


# --- which element, and which operation -------------------------------------------------------------------------------


def test_an_infinite_value() -> None:
    error = failing(QUOTIENT, "finite")
    assert (error.index, error.inputs) == ((0, 1), {"x": 0.0, "y": 1.0})
    lines = str(error).splitlines()
    assert lines[0].endswith(":4:12: 1.0 / 0.0 = inf here, so f is inf, for the element at index (0, 1)")
    assert lines[1:3] == ["     4 |     return y / a - 1.0", "       |            ^^^^^"]
    assert lines[3:] == ["The arguments there: x = 0.0, y = 1.0", "f.trace(…, index=(0, 1)) shows each step."]


def test_nan_and_infinity_are_told_apart() -> None:
    error = failing(QUOTIENT, "nan")
    assert (error.index, error.inputs) == ((1, 1), {"x": 0.0, "y": 0.0})
    assert "0.0 / 0.0 = nan here, so f is nan," in str(error)


def test_an_infinite_derivative() -> None:
    error = failing(DERIVATIVE, "finite", lambda f, *args: f.value_and_jacobian(*args))
    assert (error.index, error.inputs) == ((0, 1), {"x": 0.0, "y": 1.0})
    assert "0.5 / 0.0 = inf here, so ∂f/∂x is inf," in str(error)


def test_a_function_that_is_called() -> None:
    assert "log(0.0) = -inf here, so f is -inf" in str(failing(INSIDE, "finite"))


def test_a_function_of_the_library_is_at_its_call() -> None:
    text = "import cmath\ndef f(x, y):\n    z = complex(x, x)\n    return y * «cmath.sqrt(z)»\n"
    error = failing(text, "finite", lambda f, *args: f.jacobian(*args))
    assert "0.5 / 0.0 = inf here, so ∂f.real/∂x is " in str(error)


def test_only_what_a_result_comes_from_counts() -> None:
    assert "0.0 / 0.0 = nan here" in str(failing(NOT_USED, "nan"))


def test_the_infinity_that_nan_comes_from() -> None:
    error = failing("def f(x, y):\n    a = y / x\n    return «a - a»\n", "nan")
    lines = str(error).splitlines()
    assert (error.index, error.inputs) == ((0, 1), {"x": 0.0, "y": 1.0})
    assert lines[0].endswith(":3:12: inf - inf = nan here, so f is nan, for the element at index (0, 1)")
    assert lines[4].startswith("The infinity in it comes from 1.0 / 0.0 = inf, at ")
    assert lines[5:7] == ["     2 |     a = y / x", "       |         ^^^^^"]


def test_a_constant_is_a_source_too() -> None:
    error = failing("import math\ndef f(x, y):\n    if x > 1:\n        «return math.nan»\n    return y\n", "nan")
    assert "the constant nan here, so f is nan" in str(error)


def test_multiply_adds_are_shown_as_sums_of_products() -> None:
    text = "import math\ndef f(x, y):\n    return y - x * «math.log(x)»\n"
    error = failing(text, "nan", lambda f, *args: f.jacobian(*args))
    assert "inf * 0.0 + -inf = nan here, so ∂f/∂x is nan" in str(error) or "-inf - inf * 0.0 = nan" in str(error)


# --- when it is silent -----------------------------------------------------------------------------------------------


def test_arguments_that_are_not_finite() -> None:
    quotient = differentiable_broadcast(lambda x, y: y / x)
    assert np.isnan(quotient(np.array([NAN, 1.0]), 1.0, check="nan")[0])
    assert np.isnan(quotient(np.array([NAN, INF]), INF, check="finite")).all()
    with pytest.raises(NonFiniteError, match="inf / inf = nan"):  # an infinity is no NaN
        quotient(np.array([1.0, INF]), INF, check="nan")


def test_results_that_may_be_infinite() -> None:
    reciprocal = differentiable_broadcast(lambda x: 1.0 / x)
    assert reciprocal(np.array([1.0, 0.0]), check="nan").tolist() == [1.0, INF]
    with pytest.raises(NonFiniteError):
        reciprocal(np.array([1.0, 0.0]), check="finite")
    assert reciprocal(np.array([1.0, 0.0])).tolist() == [1.0, INF]  # without the option


def test_integers_and_empty_arrays() -> None:
    def counted(x: float) -> tuple[int, bool, float]:
        return int(x), x > 1, x

    function = differentiable_broadcast(counted, check="finite")
    assert function(np.array([1.5, 2.0]))[0].tolist() == [1, 2]
    assert function(np.zeros((0, 2)))[2].shape == (0, 2)


# --- products --------------------------------------------------------------------------------------------------------


@differentiable_broadcast
def pair(x: float, y: float) -> tuple[float, float]:
    return y * y, y / x


PRODUCTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "value": ("pair[1]", lambda f, x, y: f(x, y)),
    "out": ("pair[1]", lambda f, x, y: f(x, y, out=(np.empty(3), np.empty(3)))),
    "jacobian": ("∂pair[1]/∂x", lambda f, x, y: f.jacobian(x, y)),
    "value_and_jacobian": ("pair[1]", lambda f, x, y: f.value_and_jacobian(x, y)),
    "matrix": ("pair[1]", lambda f, x, y: f.value_and_jacobian(x, y, out="matrix")),
    "hessian": ("∂²pair[1]/∂x∂x", lambda f, x, y: f.hessian(x, y)),
    "jvp": ("a result of pair: pushforward in x, y", lambda f, x, y: f.jvp((x, y), (1.0, 1.0))),
    "value_and_vjp": (
        "a result of pair: value and pullback in x, y",
        lambda f, x, y: f.value_and_vjp((x, y), (np.ones(3), np.ones(3))),
    ),
    "hvp": ("a result of pair: tangent in x, y", lambda f, x, y: f.hvp((x, y), (1.0, 1.0))),
    "partial": ("a result of pair: partial in x", lambda f, x, y: f.partial("x")(x, y)),
    "sum": ("a result of pair", lambda f, x, y: f.sum(x, y)),
}


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products(name: str, backend: str) -> None:
    label, call = PRODUCTS[name]
    function = differentiable_broadcast(pair, check="finite", backend=backend)
    for _ in range(2):  # a first call, and a warm one
        call(function, np.array([1.0, 2.0, 3.0]), 2.0)
        with pytest.raises(NonFiniteError) as caught:
            call(function, np.array([1.0, 0.0, 0.0]), 2.0)
        assert caught.value.index == (1,)
        assert {**caught.value.inputs, "x": 0.0, "y": 2.0} == caught.value.inputs
        assert f"so {label} is " in str(caught.value)


def test_the_pullback_of_a_vjp() -> None:
    root = differentiable_broadcast(lambda x, scale: math.sqrt(x) * scale)
    value, pullback = root.vjp(X, 3.0, check="finite")
    assert value[1] == 0.0
    with pytest.raises(NonFiniteError) as caught:
        pullback(np.ones(3))
    assert caught.value.index == (1,)
    assert caught.value.inputs["scale"] == 3.0


def test_sums_of_terms_that_are_finite() -> None:
    function = differentiable_broadcast(lambda x: x * 1.0, check="finite")
    with pytest.raises(NonFiniteError, match="is not finite, though no term of it is") as caught:
        function.sum(np.full(4, 1e308))
    assert caught.value.index is None
    assert function.sum(np.array([NAN, 1.0])) != 0.0


def test_a_sum_of_infinities_of_both_signs() -> None:
    function = differentiable_broadcast(lambda x: 1.0 / x, check="nan")
    with pytest.raises(NonFiniteError, match=r"1\.0 / 0\.0 = inf"):
        function.sum(np.array([1.0, 0.0, -0.0]))


def test_the_results_are_written() -> None:
    out = np.zeros(3)
    with pytest.raises(NonFiniteError):
        differentiable_broadcast(lambda x: 1.0 / x)(X, check="finite", out=out)
    assert out.tolist() == [0.5, INF, 0.25]


# --- dtypes, rules, graphs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_other_dtypes(dtype: Any) -> None:
    reciprocal = differentiable_broadcast(lambda x: 1.0 / x, check="finite")
    assert reciprocal(np.array([2.0, 4.0], dtype)).tolist() == [0.5, 0.25]
    with pytest.raises(NonFiniteError, match=r"1\.0 / 0\.0 = inf") as caught:
        reciprocal(np.array([2.0, 0.0], dtype))
    assert caught.value.index == (1,)


def test_a_result_that_only_its_storage_makes_infinite() -> None:
    with pytest.raises(NonFiniteError, match=r"is inf, since 90000 is beyond the range of float16, .* index \(1,\)"):
        differentiable_broadcast(lambda x: x * x, check="finite")(np.array([1.0, 300.0], np.float16))


def test_a_rule_of_a_user() -> None:
    def halved_log(x: float) -> float:
        return 0.5 * math.log(x)

    rule("halved_log", lambda x, y: (0.5 / x,), function=halved_log)  # noqa: ARG005
    with pytest.raises(NonFiniteError, match=r"halved_log\(0.0\) = -inf here"):
        differentiable_broadcast(lambda x: 1.0 + halved_log(x))(X, check="finite")


def test_graphs() -> None:
    root = differentiable_broadcast(lambda x: math.sqrt(x), check="finite")

    def loss(v: Any) -> Any:
        return np.sum(root(v) * 3.0)

    assert graph.grad(loss)(X + 1.0)[1] == 1.5
    with pytest.raises(NonFiniteError) as caught:
        graph.grad(loss)(X)
    assert caught.value.index == (1,)
    compiled = graph.compile(graph.grad(loss))
    for _ in range(3):
        compiled(X + 1.0)
    with pytest.raises(NonFiniteError):
        compiled(X)


def test_whole_arrays() -> None:
    """NaN in a table is of no element; it counts where it is read."""

    def look_up(x: float, table: Any) -> float:
        return x * table[int(x)]

    checked, table = differentiable_broadcast(look_up, whole="table", check="nan"), np.array([1.0, 2.0, NAN])
    assert checked(np.array([0.5, 1.5]), table).tolist() == [0.5, 3.0]
    with pytest.raises(NonFiniteError, match=r"table\[2\] = nan here, so look_up is nan") as caught:
        checked.value_and_jacobian(np.array([0.5, 2.5]), table)
    assert (caught.value.index, caught.value.inputs["x"]) == ((1,), 2.5)


# --- the option ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("check", ["inf", True, 1, ""])
def test_a_check_that_is_none(check: Any) -> None:
    with pytest.raises(ArgumentError, match="is nothing to check for; choose nan or finite"):
        differentiable_broadcast(lambda x: x, check=check)
    with pytest.raises(ArgumentError, match="is nothing to check for"):
        differentiable_broadcast(lambda x: x)(1.0, check=check)


def test_it_travels_with_the_function() -> None:
    function = differentiable_broadcast.from_source("def f(x):\n    return 1.0 / x\n", check="finite")
    for each in (pickle.loads(pickle.dumps(function)), differentiable_broadcast(check="finite")(function.__wrapped__)):
        with pytest.raises(NonFiniteError):
            each(X)


def test_an_error_can_be_pickled() -> None:
    error = failing(QUOTIENT, "finite")
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.index, again.inputs) == (str(error), error.index, error.inputs)
