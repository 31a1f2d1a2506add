"""Operations that both sides of a branch have: which run once, that no bit depends on it, and that nothing is lost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bits import same_bits
from ir_invariants import verify
from run_ir import execute

from dualbcast import differentiable_broadcast, special
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import Function, If
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import operations_of, statements
from dualbcast.passes import vector_analysis
from dualbcast.passes.if_conversion import branch_choices, convert_ifs
from dualbcast.passes.inlining import drop_custom_derivatives
from dualbcast.passes.masked_loops import mask_loops
from dualbcast.program.derived_functions import jacobian_of

INF, NAN = math.inf, math.nan
SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 1e-300, -1e-300, 800.0, -800.0, INF, -INF, NAN]


def logistic_loss(z: float, y: float) -> float:
    """A function in the form that does not overflow."""
    return y * z - math.log1p(math.exp(z)) if z < 0 else (y - 1) * z - math.log1p(math.exp(-z))


def sigmoid(z: float, y: float) -> float:
    return y / (1 + math.exp(-z)) if z >= 0 else y * math.exp(z) / (1 + math.exp(z))


def crossed(z: float, y: float) -> float:
    """The functions of the other side come in another order."""
    if z > 0:
        return math.sin(z) * math.exp(y)
    return math.exp(-y) + math.sin(y - z)


def option(z: float, y: float) -> float:
    a, b = z + y, z - y
    if z > 0:
        return y * math.erfc(-a) - math.exp(-y) * math.erfc(-b)
    return math.exp(-y) * math.erfc(b) - y * math.erfc(a)


def roots(z: float, y: float) -> float:
    """A power of a known number has a form of its own."""
    return (z * z + 1) ** (2 / 3) if z > y else (y * y + 1) ** (z * 0.25)


def chain(z: float, y: float) -> float:
    if z < -1:
        return math.exp(z) * y
    if z < 0:
        return 2 * math.exp(2 * z) - y
    if z < 1:
        return (math.tanh(y) if y > 0 else math.tanh(z - y)) - math.exp(-z * y)
    return math.exp(-z)


def reads_again(z: float, y: float) -> float:
    """What an operation is given is read after it, too, and is a result."""
    if z > 0:
        a = z * y
        t = math.exp(a) + a
    else:
        a = z - y
        t = math.exp(a) * a
    return t + a


def drag(z: float, y: float) -> float:
    """Each iteration takes one side."""
    for _ in range(10):
        z = z - 0.1 * math.sqrt(z) * y if z > 0 else z + 0.1 * math.sqrt(-z) * (1 - y)
    return z


def switching(z: float, y: float) -> float:
    """Elements leave the loop one by one, and change sides."""
    rises, step = True, 0.0
    for _ in range(12):
        if rises:
            step = math.exp(-z * z)
            z = z + step
            rises = z < y * y
        else:
            step = math.exp(-1 / (1 + z * z))
            z = z - step / (2 + y)
            if z < -y * y:
                break
    return z + step


FUNCTIONS = [logistic_loss, sigmoid, crossed, option, roots, chain, reads_again]
LOOPS = [drag, switching]
EVERY = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)


def of(function: Callable[..., float]) -> Function:
    return drop_custom_derivatives(simplify(lower(function, ["float", "float"]).function))


def count(function: Function) -> Counter[str]:
    return Counter(op.name for op in operations_of(function))


@pytest.mark.parametrize(
    ("function", "once"),
    [
        (logistic_loss, {"exp": 1, "log1p": 1}),
        (sigmoid, {"exp": 1, "div": 1}),
        (crossed, {"exp": 1, "sin": 2}),
        (option, {"exp": 1, "erfc": 2}),
        (reads_again, {"exp": 1}),
    ],
)
def test_an_operation_of_both_sides_runs_once(function: Callable[..., float], once: dict[str, int]) -> None:
    converted = convert_ifs(of(function), set())
    assert not any(isinstance(stmt, If) for stmt in statements(converted.body))
    found = count(converted)
    assert {name: found[name] for name in once} == once


def parts(z: float, y: float) -> float:
    """A quotient by a known number takes a product or three, and no division."""
    return (z + y) / 3 if z > y else (1 + z * y) / 7


@pytest.mark.parametrize("function", [roots, parts])
def test_functions_of_known_numbers_are_not_fused(function: Callable[..., float]) -> None:
    assert "once" not in str(branch_choices(of(function), set()))


def test_what_the_sides_share_is_not_fused_with_something_else() -> None:
    """It runs once anyway; fused, its other copy would be left."""

    def shares(z: float, y: float) -> float:
        return math.exp(y) * 2 if z > 0 else math.exp(z) + math.exp(y)

    assert count(convert_ifs(of(shares), set()))["exp"] == 2


def test_explain_names_what_runs_once() -> None:
    (choice,) = branch_choices(of(logistic_loss), set())
    assert str(choice) == "select (both sides computed: 4 + 6 operations; exp, log1p once for both)"


def test_a_side_that_has_much_besides_stays_a_branch() -> None:
    def mostly_another(z: float, y: float) -> float:
        if z > 0:
            return math.exp(-z)
        return math.exp(math.sin(z) * math.tanh(y) + math.atan(z) * math.log(1 + y * y) ** 1.7)

    (choice,) = branch_choices(of(mostly_another), set())
    assert not choice.selects


@EVERY
@pytest.mark.parametrize("derivatives", [False, True])
def test_no_bit_depends_on_it(
    function: Callable[..., float], derivatives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_analysis, "LEAST_SAVING", INF)
    plain = of(function)
    if derivatives:
        plain = simplify(jacobian_of(plain, (0, 1)).function)
    rng = np.random.default_rng(0)
    z, y = np.concatenate([np.array(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1), rng.normal(size=(2, 500))], 1)
    with np.errstate(all="ignore"):
        for one, other in zip(execute(verify(convert_ifs(plain, set())), [z, y]), execute(plain, [z, y]), strict=True):
            same_bits(one, other)


@pytest.mark.parametrize(("function", "name"), [(drag, "sqrt"), (switching, "exp")])
def test_an_operation_of_both_sides_runs_once_in_an_iteration(function: Callable[..., float], name: str) -> None:
    assert count(convert_ifs(mask_loops(of(function), set()), set()))[name] == 1


@pytest.mark.parametrize("function", [*FUNCTIONS, *LOOPS], ids=lambda function: function.__name__)
def test_kernels_give_what_python_gives(function: Callable[..., float]) -> None:
    """Values, partials and products, on arrays long enough for vectors."""
    rng = np.random.default_rng(1)
    z, y, bar = rng.normal(size=(3, 1003))
    cpu, python = (differentiable_broadcast(function, backend=backend) for backend in ("cpu", "python"))
    value, pullback = cpu.vjp(z, y)
    slope_z, slope_y = pullback(bar)
    jacobian = cpu.jacobian(z, y)
    some = slice(None, None, 7)
    tolerance: dict[str, Any] = {"rtol": 1e-14, "atol": 1e-14}
    np.testing.assert_allclose(value[some], python(z[some], y[some]), **tolerance)
    np.testing.assert_allclose(slope_z, bar * jacobian["z"], **tolerance)
    np.testing.assert_allclose(slope_y, bar * jacobian["y"], **tolerance)
    expected = python.jacobian(z[some], y[some])
    for name in ("z", "y"):
        np.testing.assert_allclose(jacobian[name][some], expected[name], **tolerance)
    if function in LOOPS:  # Beside an element an iteration may be on another side.
        return
    step = 1e-6
    central = (cpu(z + step, y) - cpu(z - step, y)) / (2 * step)
    away = np.min(np.abs(np.stack([z, z - 1, z + 1, z - y])), 0) > 2 * step
    np.testing.assert_allclose(jacobian["z"][away], central[away], rtol=1e-7, atol=1e-8)


def test_special_functions_of_each_sign() -> None:
    """An argument of the side that is not taken does not reach the function."""

    def either(x: float) -> float:
        return math.log(x) if x > 0 else special.ndtr(x) - math.log(-x)

    x = np.array([-2.0, -1e-300, 1e-300, 5.0] * 40)
    f = differentiable_broadcast(either)
    slope = f.jacobian(x)["x"]
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(slope, np.where(x > 0, 1 / x, density - 1 / x), rtol=1e-14)
