"""Methods of parent classes, which `super()` finds as in Python."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from dualbcast import CompileError, differentiable_broadcast

X = np.array([0.5, 2.0])


class Spring:
    scale = 2.0

    def __init__(self, stiffness: float) -> None:
        self.stiffness = stiffness

    def energy(self, x: Any) -> Any:
        return self.stiffness * x * x

    @property
    def doubled(self) -> float:
        return 2 * self.stiffness

    @classmethod
    def scaled(cls, x: Any) -> Any:
        return cls.scale * x

    def __call__(self, x: Any) -> Any:
        return self.energy(x)


class Wavy(Spring):
    def energy(self, x: Any) -> Any:
        return super().energy(x) + math.sin(x)


class Stiff(Wavy):
    scale = 5.0

    def energy(self, x: Any) -> Any:
        return super().energy(x) * self.stiffness + super().scale + super().doubled

    @classmethod
    def scaled(cls, x: Any) -> Any:
        return super().scaled(x) + 1

    def __call__(self, x: Any) -> Any:
        return super().__call__(x) + super(Wavy, self).energy(x)


def test_it_finds_what_python_finds() -> None:
    spring = Stiff(1.5)
    for function in (spring, spring.scaled, lambda x: spring.energy(x) + Stiff.scaled(x)):
        value, jacobian = differentiable_broadcast(lambda x, f=function: f(x)).value_and_jacobian(X)
        np.testing.assert_allclose(value, [function(x) for x in X.tolist()], rtol=1e-15)
        slopes = [(function(x + 1e-6) - function(x - 1e-6)) / 2e-6 for x in X.tolist()]
        np.testing.assert_allclose(jacobian["x"], slopes, rtol=1e-8)


def test_it_sees_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    spring = Stiff(1.5)
    energy = differentiable_broadcast(spring)
    energy(X)
    spring.stiffness = 3.0
    np.testing.assert_allclose(energy(X), [spring(x) for x in X.tolist()], rtol=1e-15)
    monkeypatch.setattr(Wavy, "energy", lambda self, x: x * self.stiffness)
    np.testing.assert_allclose(energy(X), [spring(x) for x in X.tolist()], rtol=1e-15)


@dataclass
class Square:
    side: float

    def area(self) -> Any:
        return self.side**2


@dataclass
class Framed(Square):
    def area(self) -> Any:
        return super().area() + 1


def test_objects_that_the_kernel_makes_need_the_class_by_name() -> None:
    captured = Framed(3.0)
    np.testing.assert_array_equal(differentiable_broadcast(lambda x: x * captured.area())(X), X * 10)
    with pytest.raises(CompileError, match=r"this one is a Framed that the kernel makes[\s\S]*Square\.method\(self\)"):
        differentiable_broadcast(lambda x: Framed(x).area())(X)
    with pytest.raises(CompileError, match="belongs in a method of a class"):
        differentiable_broadcast(lambda x: super().area() * x)(X)
