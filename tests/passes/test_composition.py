"""Composition of IR functions: each step once, whatever their names are, and differentiable again."""

from __future__ import annotations

import math

import numpy as np
import pytest
from corpus import CORPUS, Case
from ir_invariants import verify

from dualbcast.frontend.lower import lower
from dualbcast.ir.compose import Step, compose, restrict
from dualbcast.ir.nodes import Const, Function, Kind
from dualbcast.program.element import Element
from dualbcast.program.explain import operations
from dualbcast.program.products import Options

X = np.linspace(-2.0, 2.0, 9)


def run(function: Function, *values: object) -> tuple[object, ...]:
    names = tuple(param.name for param in function.params)
    return Element(function, names, function.name, Options(backend="python")).parts(values)


def clamp_then_power(x: float, n: int) -> tuple[float, float]:
    out = 0.0
    for k in range(n):
        if x > k:
            out += x * math.sin(out + k)
            continue
        out -= 0.5
    return out, x


STEPPED = lower(clamp_then_power, ["float", "int"]).function


def test_one_after_the_other_and_one_in_two_places() -> None:
    steps = [Step(STEPPED, (0, 1)), Step(STEPPED, (2, 1)), Step(STEPPED, (2, Const(2, "int")))]
    found = verify(compose("f", ["float", "int"], steps, [2, 4, 6, 3]))
    first = [clamp_then_power(x, 3)[0] for x in X]
    wanted = [
        first,
        [clamp_then_power(x, 3)[0] for x in first],
        [clamp_then_power(x, 2)[0] for x in first],
        X,
    ]
    for got, want in zip(run(found, X, 3), wanted, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-14)


def test_the_derivative_goes_through_all_steps() -> None:
    found = compose("f", ["float", "int"], [Step(STEPPED, (0, 1)), Step(STEPPED, (2, 1))], [4])
    element = Element(found, ("x", "n"), "f", Options(backend="python"))
    (slope,) = element.derive("partial", (0,)).parts((X + 0.013, 4))

    def twice(x: float) -> float:
        return clamp_then_power(clamp_then_power(x, 4)[0], 4)[0]

    h = 1e-6
    wanted = [(twice(x + h) - twice(x - h)) / (2 * h) for x in X + 0.013]
    np.testing.assert_allclose(slope, wanted, rtol=1e-6, atol=1e-6)


def test_what_is_computed_twice_is_computed_once() -> None:
    sine = lower(lambda x: math.sin(x), ["float"]).function
    total = lower(lambda x, y: x + y, ["float", "float"]).function
    found = compose("f", ["float"], [Step(sine, (0,)), Step(sine, (0,)), Step(total, (1, 2))], [3])
    call = Element(found, ("x",), "f", Options()).prepare("parts", (X,))
    assert operations(call.spec.product.function) == {"sin": 1, "add": 1}


@pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
def test_the_corpus_after_another_step(case: Case) -> None:
    kinds: list[Kind] = [{float: "float", int: "int", bool: "bool"}[type(arg)] for arg in case.points[0]]
    lowered = lower(case.function, kinds).function
    count = len(lowered.params)
    double = lower(lambda x: 2.0 * x, ["float"]).function
    moved = {at: count + place for place, at in enumerate(case.floats)}
    steps = [Step(double, (at,)) for at in case.floats]
    steps.append(Step(lowered, tuple(moved.get(at, at) for at in range(count))))
    first = count + len(case.floats)
    kinds = [param.kind for param in lowered.params]
    composed = verify(compose("f", kinds, steps, range(first, first + len(lowered.outputs))))
    values = tuple(map(np.array, zip(*case.points, strict=True)))
    halved = tuple(value / 2 if at in case.floats else value for at, value in enumerate(values))
    for got, want in zip(run(composed, *halved), run(lowered, *values), strict=True):
        np.testing.assert_array_equal(got, want)


def test_some_outputs() -> None:
    assert [output.name for output in restrict(STEPPED, [1]).outputs] == [STEPPED.outputs[1].name]
    (found,) = run(restrict(STEPPED, [1]), X, 3)
    np.testing.assert_array_equal(found, X)
