"""What the policy counts: operations by hand, loops, branches, and what is not vectorised."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from dualbcast import special
from dualbcast.frontend.lower import lower
from dualbcast.graph.checkpoint_policy import compare, cost_of, jacobian_of
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
    element = Element(function, ("x", "y"), "f", Options())
    found, (both, entries) = cost_of(element, (0, 1)), jacobian_of(element, (0, 1))
    # ∂/∂y of the second is 3 and its ∂/∂x is zero: neither is an array.
    assert (found.outputs, entries) == (2, 2)
    assert found.value == 12 + 1 + 1
    assert found.value <= both <= found.pullback + 2
    assert not found.scalar


@pytest.mark.parametrize("function", [searching, special.digamma, lambda x: special.digamma(x) + x % 1.5])
def test_what_is_not_vectorised(function: Callable[..., Any]) -> None:
    assert cost_of(Element(lower(function, ["float"]).function, ("x",), "f", Options()), (0,)).scalar


def test_a_large_program_is_not_written_twice_to_decide() -> None:
    """The Jacobian's program of a large element takes seconds to write; a decision does without it."""

    def powers(x: float, y: float) -> float:
        for _ in (0,) * 400:
            x, y = math.sin(x) * y, math.cos(x * y)
        return x + y

    element = Element(lower(powers, ["float", "float"]).function, ("x", "y"), "powers", Options())
    jacobian_of.cache_clear()
    assert not compare(element, (0, 1), 10**6, 8, 16 * 10**6, 16 * 10**6, "numpy").keeps
    assert jacobian_of.cache_info().misses == 0
