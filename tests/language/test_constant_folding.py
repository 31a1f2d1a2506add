"""Constants are Python's: computed in double precision, rounded once, compared exactly; in derivatives, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from cells import Cell

from dualbcast import derivative, differentiable_broadcast, special, value_and_derivative
from dualbcast.ir.nodes import Const, Op
from dualbcast.ir.simplification import fold
from dualbcast.rules.table import RULES, add_later_rows, resolve

add_later_rows()

BACKENDS = pytest.mark.parametrize("backend", ["python", "cpu"])
PI, TENTH = math.pi, 0.1


def default(x, angle=math.pi):
    return x * math.sin(angle)


class Holder:
    angle = math.pi


holder = Holder()

# Functions of x that are x times a constant; the constant is what Python computes.
TIMES: dict[str, Callable[[Any], Any]] = {
    "literal": lambda x: x * math.sin(math.pi),
    "captured": lambda x: x * math.sin(PI),
    "attribute": lambda x: x * math.sin(holder.angle),
    "default": default,
    "ufunc": lambda x: x * np.sin(np.pi),
    "sums": lambda x: x * (TENTH * 3 - 0.3),
    "large": lambda x: x * ((lambda a, b: a + b)(1e9, 1.0) - 1e9),
    "remainder": lambda x: x * math.fmod(math.pi * 1e6, math.pi),
    "root": lambda x: x * (math.sqrt(2.0) ** 2 - 2.0),
    "special": lambda x: x * (special.sigmoid(1e-9) - 0.5),
    "generator": lambda x: x * sum(math.sin(k * math.pi) for k in (1, 2)),
    "inlined": lambda x: default(x, math.pi * 2),
    "derivative": lambda x: x * derivative(math.cos)(math.pi),
    "derivative of a lambda": lambda x: x * derivative(lambda t: -math.cos(t))(math.pi),
    "value beside it": lambda x: x * value_and_derivative(lambda t: math.sin(t))(math.pi)[0],
}


@BACKENDS
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", TIMES)
def test_constants_are_rounded_once(kind: str, dtype: type, backend: str) -> None:
    # Python's own derivative of cos at pi is -sin(pi), of -cos it is sin(pi).
    plain = {"derivative": -math.sin(math.pi), "derivative of a lambda": math.sin(math.pi)}
    exact = plain.get(kind, math.sin(math.pi) if "beside" in kind else None)
    wanted = dtype(TIMES[kind](1.0) if exact is None else exact)
    value, jacobian = differentiable_broadcast(backend=backend)(TIMES[kind]).value_and_jacobian(dtype([1.0]))
    assert value.tolist() == [wanted]
    assert jacobian["x"].tolist() == [wanted]


@BACKENDS
def test_constants_of_partial_derivatives_are_rounded_once(backend: str) -> None:
    # The partial in x has the constant log(b), for b next to 1 the difference of two numbers that float32 rounds.
    f = differentiable_broadcast(backend=backend)(lambda x: 1.00000001**x)
    _, jacobian = f.value_and_jacobian(np.float32([1.0]))
    np.testing.assert_allclose(jacobian["x"], [math.log(1.00000001)], rtol=4e-7)


def test_every_function_of_the_library_is_folded_to_pythons_value() -> None:
    """At points inside each domain the folded operation is what the callable that kernels know gives."""
    folded = 0
    for name, row in RULES.items():
        if row.by_user:
            continue
        point = [
            round(low + 0.7 * (high - low)) if at in row.integer else low + 0.7 * (high - low)
            for at, (low, high) in enumerate(row.domain)
        ]
        args = tuple(Const(value, "int" if isinstance(value, int) else "float") for value in point)
        found = fold(Op(name, args, "float"))
        known = [resolve(spelling) for spelling in row.spellings if not spelling.startswith("dualbcast")]
        callables = [each for each in known if each is not None]
        if isinstance(found, Const) and callables:
            folded += 1
            assert found.value == pytest.approx(float(callables[0](*point)), rel=1e-13)
    assert folded > 30


@pytest.mark.parametrize(
    "call", ["math.log(0.0)", "math.sqrt(-1.0)", "math.exp(1e4)", "1e300 * 1e300", "math.lgamma(0.0)"]
)
def test_what_python_refuses_to_compute_the_kernel_does(call: str) -> None:
    f = differentiable_broadcast(backend="python")(
        Cell(f"import math\n\n\ndef f(x):\n    return x + {call}").names["f"]
    )
    assert not np.isfinite(f(np.float32([1.0]))[0])


NUMBERS = [
    "2.0**53",
    "2**53",
    "2**53 + 1",
    "-(2**53 + 1)",
    "2**62 + 1",
    "2.0**62",
    "0.5",
    "1",
    "True",
    "math.nan",
    "-0.0",
]
MORE = [
    "(2**53 + 1) in (2.0**53, 3)",
    "2.0**53 in range(2**53 + 1, 2**53 + 5)",
    "min(2**53 + 1, 2.0**53) == 2**53 + 1",
    "max((2.0**53, 2**53 + 1)) > 2.0**53",
    "max(k for k in (2.0**53, 2**53 + 1)) == 2**53 + 1",
    "sorted((2**53 + 1, 2.0**53))[1] == 2**53 + 1",
    "(2.0**53, 1) == (2**53 + 1, 1)",
    "1 < 2.0**53 < 2**53 + 1",
    "any(2.0**53 == k for k in (2**53 + 1,))",
]


@pytest.mark.parametrize("sign", ["==", "!=", "<", "<=", ">", ">="])
def test_constants_are_compared_as_python_compares_them(sign: str) -> None:
    tests = [f"{a} {sign} {b}" for a in NUMBERS for b in NUMBERS]
    check_conditions(tests)


def test_constants_are_found_and_ordered_as_python_does() -> None:
    check_conditions(MORE)


def check_conditions(tests: list[str]) -> None:
    """Compile all tests, as outputs of one function, and compare with what Python says."""
    lines = "".join(f"        1 if {test} else 0,\n" for test in tests)
    cell = Cell(f"import math\n\n\ndef f(x):\n    return (\n        x,\n{lines}    )")
    f = cell.names["f"]
    found = differentiable_broadcast(backend="python")(f)(np.float32(0.0))
    wrong = [test for test, got, want in zip(tests, found[1:], f(0.0)[1:], strict=True) if got != want]
    assert not wrong


def test_an_integer_of_an_array_is_compared_as_numpy_compares_it() -> None:
    f = differentiable_broadcast(backend="python")(lambda n, x: 1 if n == x else 0)
    n = np.array([2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2])
    assert f(n, np.float64(2.0**53)).tolist() == (n == np.float64(2.0**53)).astype(int).tolist()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("backend", ["cpu", "python"])
def test_a_constant_beyond_float32_is_infinite_without_a_warning(backend):
    huge = differentiable_broadcast(lambda x: x * 1e300, backend=backend)
    np.testing.assert_array_equal(huge(np.ones(3, np.float32)), np.inf)
