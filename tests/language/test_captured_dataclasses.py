"""Dataclass objects that a function captures mean what they mean in Python, beside those that the kernel makes."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from dualbcast import CompileError, differentiable_broadcast


@dataclass(frozen=True)
class Fluid:
    density: float
    viscosity: float = 1.0
    name: str = "water"

    def reynolds(self, speed: Any) -> Any:
        return self.density * speed / self.viscosity

    def heated(self, factor: Any) -> Fluid:
        return replace(self, viscosity=self.viscosity * factor)

    def __add__(self, other: Fluid) -> Fluid:
        return Fluid(self.density + other.density, self.viscosity + other.viscosity)


@dataclass
class Setting:
    gain: float
    note: str = field(default="", compare=False)


@dataclass
class Computed:
    side: float
    area: float = field(init=False)

    def __post_init__(self) -> None:
        self.area = self.side**2


@dataclass
class Tagged:
    value: float
    tags: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Token:
    value: float


WATER, STEAM = Fluid(1000.0, 2.0), Fluid(0.5, 0.25)
COMPUTED, TAGGED = Computed(2.0), Tagged(1.0)


def replaced(x: Any) -> Any:
    return dataclasses.replace(WATER, density=x * x).reynolds(3.0)


def replaced_in_a_method(x: Any) -> Any:
    return WATER.heated(x).reynolds(x)


def added(x: Any) -> Any:
    return (WATER + Fluid(x, x * x)).reynolds(x) + (Fluid(x) + STEAM).reynolds(1.0) + (WATER + STEAM).density


def matched(x: Any) -> Any:
    match WATER:
        case Fluid(density, viscosity=v):
            return density * v * x
    return 0.0


def chosen(x: Any) -> Any:
    fluid = WATER if x < 1.5 else STEAM
    return fluid.reynolds(x)


def chosen_beside_a_new_one(x: Any) -> Any:
    if x < 1.5:
        fluid = WATER
    elif x < 2.5:
        fluid = Fluid(x * x, x, WATER.name)
    else:
        fluid = STEAM.heated(x)
    return fluid.reynolds(x)


def carried_by_a_loop(x: Any) -> Any:
    fluid = WATER
    for _ in range(int(x + 0.5)):
        fluid = fluid.heated(x)
        if fluid.viscosity > 20:
            fluid = STEAM
            break
    return fluid.reynolds(x)


def equal(x: Any) -> Any:
    return x if Fluid(1000.0, x) == WATER else -x


def among(x: Any) -> Any:
    return x if WATER in (STEAM, Fluid(1000.0, x)) else -x


def equal_but_for_a_field(x: Any) -> Any:
    return x if Setting(2.0, "here") == Setting(x, "there") else -x


PROGRAMS = [
    replaced,
    replaced_in_a_method,
    added,
    matched,
    chosen,
    chosen_beside_a_new_one,
    carried_by_a_loop,
    equal,
    among,
    equal_but_for_a_field,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_it_means_what_it_means_in_python(program: Any) -> None:
    x = np.array([1.25, 2.0, 3.25])
    value, jacobian = differentiable_broadcast(program).value_and_jacobian(x)
    np.testing.assert_allclose(value, [program(each) for each in x.tolist()], rtol=1e-15)
    h = 1e-5  # no branch is within this of a point but those of `equal` and `among`, which test for one number
    if program not in (equal, among, equal_but_for_a_field):
        slopes = [(program(each + h) - program(each - h)) / (2 * h) for each in x.tolist()]
        np.testing.assert_allclose(jacobian["x"], slopes, rtol=1e-7, atol=1e-7)


def test_what_is_compared_may_change() -> None:
    """A comparison reads the fields at each call, and not only once when the kernel is compiled."""
    one, two = Setting(1.0), Setting(1.0)
    scaled = differentiable_broadcast(lambda x: x if one == two else -x)
    assert scaled(2.0) == 2.0
    one.gain = 3.0
    assert scaled(2.0) == -2.0


def test_arrays_in_fields() -> None:
    """The arrays of the objects that are chosen from are arguments, with the label of the field."""

    @dataclass
    class Layer:
        weight: Any

    thin, thick = Layer(np.array([1.0, 2.0])), Layer(np.array([10.0, 20.0]))
    chosen = differentiable_broadcast(lambda x: x * (thin if x < 0 else thick).weight)
    value, jacobian = chosen.value_and_jacobian(np.array([-1.0, 1.0]), wrt=("x", "thin.weight", "thick.weight"))
    np.testing.assert_array_equal(value, [-1.0, 20.0])
    np.testing.assert_array_equal(jacobian["x"], [1.0, 20.0])
    np.testing.assert_array_equal(jacobian["thin.weight"], [-1.0, 0.0])
    np.testing.assert_array_equal(jacobian["thick.weight"], [0.0, 1.0])


def test_unused_fields_are_not_read() -> None:
    used = differentiable_broadcast(lambda x: TAGGED.value * math.sin(x))
    assert used(1.0) == math.sin(1.0)


def same_token(x: Any) -> Any:
    return x if Token(x) == Token(1.0) else -x


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (lambda x: replace(COMPUTED, side=x).area, "making a Computed runs code of its own"),
        (
            lambda x: replace(TAGGED, value=x).value,
            "TAGGED.tags is captured .* of type list, which a kernel cannot use",
        ),
        (same_token, "objects of Token are compared by identity"),
    ],
)
def test_what_a_kernel_cannot_do_is_said(program: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        differentiable_broadcast(program)(2.0)
