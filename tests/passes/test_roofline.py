"""What the policy counts: operations by hand, loops, branches, and what is not vectorised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from dualbcast import special
from dualbcast.frontend.lower import lower
from dualbcast.graph.checkpoint_policy import cost_of
from dualbcast.passes.cost_model import cost_of_element
from dualbcast.program.element import Element
from dualbcast.program.products import Options


def looped(x: float) -> float:
    for _ in range(10):
        x = x * x + 1.0
    return x


def searching(x: float) -> float:
    while x < 10:
        x = x * 2
    return x


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda x: x * x + 1.0, 2),
        (lambda x: x / 3.0, 5),
        (lambda x: math.exp(x), 12),
        (lambda x: x * 2 if x > 0 else x * 3 + 1, 1 + (1 + 2) / 2),
        (looped, 20),
        (searching, 8 * 2),
    ],
)
def test_operations(function: Callable[..., Any], wanted: float) -> None:
    assert cost_of_element(lower(function, ["float"]).function) == wanted


def test_counts_of_derivatives() -> None:
    function = lower(lambda x, y: (math.exp(x) * y, 3.0 * y), ["float", "float"]).function
    found = cost_of(Element(function, ("x", "y"), "f", Options()), (0, 1))
    # ∂/∂y of the second is 3 and its ∂/∂x is zero: neither is an array.
    assert (found.outputs, found.blocks) == (2, 2)
    assert found.value == 12 + 1 + 1
    assert found.value <= found.both <= found.pullback + 2
    assert not found.scalar


@pytest.mark.parametrize("function", [searching, special.digamma, lambda x: special.digamma(x) + x % 1.5])
def test_what_is_not_vectorised(function: Callable[..., Any]) -> None:
    assert cost_of(Element(lower(function, ["float"]).function, ("x",), "f", Options()), (0,)).scalar
