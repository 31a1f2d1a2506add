"""Integers on a GPU wrap around at 64 bits, against Python's own, which have no end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast

pytestmark = pytest.mark.gpu
LOWEST, HIGHEST = -(2**63), 2**63 - 1
NUMBERS = [0, 1, -1, 2, -3, 5, 7, 63, 64, -64, 2**31, 2**32, 2**62, 2**62 + 1, -(2**62), HIGHEST, LOWEST]
A, B = (np.array(column.ravel()) for column in np.meshgrid(np.array(NUMBERS), np.array(NUMBERS)))


def wrapped(number: int) -> int:
    return (number - LOWEST) % 2**64 + LOWEST


def on_gpu(function: Callable[..., Any]) -> np.ndarray[Any, Any]:
    xp = pytest.importorskip("cupy")
    found: np.ndarray[Any, Any] = differentiable_broadcast(function)(xp.asarray(A), xp.asarray(B)).get()
    return found


def assert_equal(function: Callable[..., Any], exact: Callable[[int, int], int]) -> None:
    expected = [exact(a, b) for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    np.testing.assert_array_equal(on_gpu(function), expected)


def test_sums_and_differences_compare_as_wrapped() -> None:
    def larger(a: int, b: int) -> int:
        return (1 if a + 1 > a else 0) + (2 if a + b > a else 0) + (4 if a - b < a else 0)

    def exact(a: int, b: int) -> int:
        return (wrapped(a + 1) > a) + 2 * (wrapped(a + b) > a) + 4 * (wrapped(a - b) < a)

    assert_equal(larger, exact)


def test_products_are_divided_as_wrapped() -> None:
    def divided(a: int, b: int) -> int:
        return a * 3 // 3 + (a * 8 >> 3) + a * b // 5

    def exact(a: int, b: int) -> int:
        return wrapped(wrapped(3 * a) // 3 + (wrapped(8 * a) >> 3) + wrapped(a * b) // 5)

    assert_equal(divided, exact)


def test_a_square_that_wraps_around_may_be_negative() -> None:
    def square(a: int, b: int) -> bool:
        return (a + b) * (a + b) < 0

    assert_equal(square, lambda a, b: wrapped((a + b) ** 2) < 0)


def test_quotients() -> None:
    def quotient(a: int, b: int) -> int:
        return a // b - 7 * (a // -1)

    assert_equal(quotient, lambda a, b: wrapped((a // b if b else 0) + 7 * a))


def test_shifts_by_any_number_of_places() -> None:
    def shifted(a: int, b: int) -> int:
        return (a << b) ^ (a >> b)

    def exact(a: int, b: int) -> int:
        places = b if 0 <= b < 64 else 64
        return wrapped(a << places) ^ (a >> places)

    assert_equal(shifted, exact)


def test_a_counter_in_a_loop() -> None:
    def mixed(a: int, b: int) -> int:
        state = a
        for _ in range(5):
            state = state * 6364136223846793005 + b
            if state - 1 > state:
                state += 1
        return state

    def exact(a: int, b: int) -> int:
        for _ in range(5):
            a = wrapped(a * 6364136223846793005 + b)
            a = wrapped(a + 1) if a == LOWEST else a
        return a

    assert_equal(mixed, exact)


@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_ranges_between_any_integers(step: int) -> None:
    def counted(a: int, b: int) -> int:
        count = 0
        for place in range(a, b, step):
            count += place
            if place % 11 == 4:
                break
        for _ in range(1, b, 2):
            count += 1
            if count % 5 == 4:
                break
        return count

    def exact(a: int, b: int) -> int:
        count = 0
        for place in range(a, b, step):
            count = wrapped(count + place)
            if place % 11 == 4:
                break
        for _ in range(1, b, 2):
            count = wrapped(count + 1)
            if count % 5 == 4:
                break
        return count

    assert_equal(counted, exact)


def test_a_range_up_to_a_number_that_is_no_integer() -> None:
    """A GPU makes the lowest integer of it, whose distance from 1 would wrap around."""
    xp = pytest.importorskip("cupy")

    @differentiable_broadcast
    def terms(x: float) -> int:
        count = 0
        for _ in range(1, int(x)):
            count += 1
            if count == 9:
                break
        return count

    assert terms(xp.asarray([-np.inf, -1e30, 1.0, 4.0, 1e30])).tolist() == [0, 0, 0, 3, 9]
