"""ForwardMode of a turn of a loop through its partials: where they are found so, and that they are the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, Case
from dualbcast.autodiff.loop_jacobians import LoopJacobians, is_shorter
from ir_invariants import verify
from models import eccentric_anomaly
from run_ir import execute, lowered

from dualbcast import differentiable_broadcast
from dualbcast.autodiff.linearize import Direction, ForwardMode
from dualbcast.frontend.lower import lower
from dualbcast.ir.nodes import ONE, For, Function, While
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import operations_of, statements


def oscillator(x: float, v: float, damping: float) -> float:
    for _ in range(30):
        v += 0.05 * (damping * (1 - x * x) * v - x)
        x += 0.05 * v
    return x


def pendulum(angle: float, speed: float, length: float, friction: float) -> tuple[float, float]:
    """By Runge and Kutta's method."""

    def force(angle: float, speed: float) -> float:
        return -9.81 / length * math.sin(angle) - friction * speed * abs(speed)

    h = 0.02
    for _ in range(25):
        a = force(angle, speed)
        b = force(angle + h / 2 * speed, speed + h / 2 * a)
        c = force(angle + h / 2 * (speed + h / 2 * a), speed + h / 2 * b)
        d = force(angle + h * (speed + h / 2 * b), speed + h * c)
        angle += h * (speed + h * (a + b + c) / 6)
        speed += h * (a + 2 * b + 2 * c + d) / 6
    return angle, speed


def predators(prey: float, hunters: float, births: float, deaths: float) -> float:
    """With a branch in each turn, and until the prey is few."""
    turns = 0
    while prey > 0.05 and turns < 40:
        eaten = prey * hunters / (1 + prey)
        if hunters > prey:
            eaten = eaten * (0.5 + 0.5 * math.exp(prey - hunters))
        grown = births * prey
        prey, hunters = prey + 0.1 * (grown - eaten), hunters + 0.1 * (eaten - deaths * hunters)
        turns += 1
    return prey + 2 * hunters


def swapped(a: float, b: float, c: float) -> float:
    for k in range(7):
        a, b, c = b * c, a + 0.1 * c, math.sin(a) + 0.01 * k
    return a - b + c


def kept_from_the_turn_before(x: float, y: float) -> float:
    last = y
    for _ in range(6):
        now = 0.5 * x * last + math.cos(last)
        before, last = last, now
        x = x + 0.1 * before * now
    return x * last + before


def one_value_under_several_names(x: float, y: float, z: float) -> float:
    last = best = x
    for _ in range(4):
        z = z - 0.25 * x
        last = z
        y = y * z
        best = y
        x = math.sin(z * y)
    return z + y * best + x * last


def one_value_under_several_names_in_a_branch(x: float, y: float, z: float) -> float:
    u, v = x, y
    for _ in range(5):
        if z > 2.0:
            u = z * y
            v = u
        else:
            u = math.sin(z)
            v = u
        z = z - 0.1 * u * v
    return u * v + z * x


LOOPS = [
    *(oscillator, pendulum, predators, swapped, kept_from_the_turn_before),
    *(one_value_under_several_names, one_value_under_several_names_in_a_branch),
]
each = pytest.mark.parametrize("function", LOOPS, ids=lambda function: function.__name__)


def floats(function: Any) -> Function:
    return lower(function, ("float",) * function.__code__.co_argcount).function


def in_all(kind: type[ForwardMode], function: Function, seeds: Any = None) -> Any:
    seeds = range(len(function.params)) if seeds is None else seeds
    directions = {at: Direction(function.params[at].name, {at: ONE}) for at in seeds}
    return kind(function, directions, None).run()


def multiplications(function: Function) -> int:
    return sum(op.name == "mul" for op in operations_of(function))


@pytest.mark.parametrize("backend", ["python", "cpu"])
@each
@pytest.mark.usefixtures("nothing_kept")
def test_partials_against_differences(function: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is shorter or not; of differences of the function itself, in extended precision of the step."""
    monkeypatch.setattr("dualbcast.autodiff.differentiate.is_shorter", lambda _: True)
    arity = function.__code__.co_argcount
    points = np.random.default_rng(7).uniform(0.4, 1.4, (arity, 21))
    value, jacobian = differentiable_broadcast(backend=backend)(function).value_and_jacobian(*points)
    values = value if isinstance(value, tuple) else (value,)

    def plain(*columns: Any) -> Any:
        rows = [function(*map(float, row)) for row in zip(*columns, strict=True)]
        return np.array(rows).T.reshape(len(values), -1)

    np.testing.assert_allclose(values, plain(*points), rtol=1e-12)
    for seed in range(arity):
        h = 1e-4
        ahead = [plain(*(column + k * h * (at == seed) for at, column in enumerate(points))) for k in (-2, -1, 1, 2)]
        slopes = (ahead[0] - 8 * ahead[1] + 8 * ahead[2] - ahead[3]) / (12 * h)
        for output in range(len(values)):
            np.testing.assert_allclose(jacobian[output, seed], slopes[output], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_both_ways_give_the_same(case: Case) -> None:
    """Of all that loops, shorter or not, also where partials are infinite or nan, and where some are absent."""
    function = lowered(case)
    if not any(isinstance(stmt, For | While) for stmt in statements(function.body)):
        pytest.skip("no loop")
    columns = list(zip(*case.points, strict=True))
    found = []
    for kind in (ForwardMode, LoopJacobians):
        dual = in_all(kind, function, case.floats)
        both = verify(simplify(verify(dual.function)))
        names = [output.name for output in function.outputs] + [dual.partials[place] for place in sorted(dual.partials)]
        values = dict(zip([output.name for output in both.outputs], execute(both, columns), strict=True))
        found.append((sorted(dual.partials), [values[name] for name in names]))
    (forward, wanted), (through, given) = found
    assert forward == through
    for one, other in zip(given, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def test_where_it_is_done() -> None:
    """An oscillator takes as many products as by hand: three for each direction, and those of two slopes."""
    assert is_shorter(floats(oscillator))
    every, through = (
        multiplications(simplify(in_all(kind, floats(oscillator)).function)) for kind in (ForwardMode, LoopJacobians)
    )
    assert through <= 19 < 23 <= every
    assert is_shorter(floats(pendulum))
    # One variable goes from turn to turn, and what is in the loop has few steps.
    assert not is_shorter(floats(eccentric_anomaly))
    assert not is_shorter(floats(lambda x, y: x * y))


def test_one_direction_goes_along() -> None:
    """A tangent, and what has one parameter, is as it was."""
    f = differentiable_broadcast(backend="cpu")(oscillator)
    start = [np.linspace(low, high, 33) for low, high in ((-2, 2), (1, -1), (0.5, 2))]
    _, tangent = f.jvp(start, [np.ones(33), np.zeros(33), np.zeros(33)])
    np.testing.assert_allclose(tangent, f.value_and_jacobian(*start)[1]["x"], rtol=1e-12)
    assert not is_shorter(floats(lambda x: oscillator(x, 1.0, 2.0)))


def test_an_absent_zero_stays_zero_where_a_slope_is_infinite() -> None:
    """What the root is of does not depend on y before the second turn, and its slope is infinite in the first."""

    def f(x: float, y: float, z: float) -> float:
        s, t = x, 0.0
        for k in range(2):
            t = t + math.sqrt(s) * z
            s = s * z + y * y * (k + 1)
        return t

    function = floats(f)
    columns = [[0.0, 2.0], [1.5, 0.5], [1.0, 3.0]]
    for kind in (ForwardMode, LoopJacobians):
        dual = in_all(kind, function)
        both = simplify(dual.function)
        values = dict(zip([output.name for output in both.outputs], execute(both, columns), strict=True))
        # t = z √x + z √(x z + y²)
        x, y, z = map(np.array, columns)
        np.testing.assert_allclose(values[dual.partials[0, 1]], z * y / np.sqrt(x * z + y * y))
