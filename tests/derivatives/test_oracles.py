"""The oracles against derivatives found by hand, and against each other."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from oracles import Dual, Watch, differentiate, evaluate, finite_differences, rebuild

RATE = 3.0


def _sigmoid(v):
    return 1 / (1 + math.exp(-v))


def _arithmetic(x, y):
    return x * y - x / y + 2 * x - y**3 + 7


def _circular(x, y):
    return math.sin(x * y) + np.cos(x) / np.sqrt(y)


def _branch(x, y):
    return x * x if x > y else math.log(y)


def _loop(x, y):
    total = 1
    for _ in range(int(y)):
        total = total * x
    return total


def _helper(x, y):
    return RATE * _sigmoid(x) + (lambda v, w=y: v * w)(x)


def _closure(x, y):
    def inner(v):
        return v * y

    return inner(x) + float(x) % y + abs(-x)


def _exponent(x, y):
    return x**y + 2**y


POINT = (1.5, 2.25)
S = 1 / (1 + math.exp(-1.5))
HAND = [
    (_arithmetic, 1.5 * 2.25 - 1.5 / 2.25 + 3 - 2.25**3 + 7, 2.25 - 1 / 2.25 + 2, 1.5 + 1.5 / 2.25**2 - 3 * 2.25**2),
    (
        _circular,
        math.sin(3.375) + math.cos(1.5) / 1.5,
        2.25 * math.cos(3.375) - math.sin(1.5) / 1.5,
        1.5 * math.cos(3.375) - 0.5 * math.cos(1.5) / 1.5**3,
    ),
    (_branch, math.log(2.25), 0.0, 1 / 2.25),
    (_loop, 2.25, 3.0, 0.0),
    (_helper, 3 * S + 3.375, 3 * S * (1 - S) + 2.25, 1.5),
    (_closure, 3.375 + 1.5 + 1.5, 2.25 + 1 + 1, 1.5),
    (
        _exponent,
        1.5**2.25 + 2**2.25,
        2.25 * 1.5**1.25,
        1.5**2.25 * math.log(1.5) + 2**2.25 * math.log(2),
    ),
]


@pytest.mark.parametrize(("function", "value", "by_x", "by_y"), HAND, ids=[row[0].__name__ for row in HAND])
def test_both_oracles_agree_with_hand(function, value, by_x, by_y):
    (found,), (slopes,) = differentiate(function, POINT, (0, 1))
    assert found == pytest.approx(value, rel=1e-14)
    assert [slopes[0], slopes[1]] == pytest.approx([by_x, by_y], rel=1e-14)
    (differences,) = finite_differences(function, POINT, (0, 1))
    assert [differences[0], differences[1]] == pytest.approx([by_x, by_y], rel=1e-14)


def test_the_untaken_side_is_not_evaluated():
    (value,), (slopes,) = differentiate(lambda x: math.sqrt(x) if x > 0 else 2 * x, (-1.0,), (0,))
    assert (value, slopes[0]) == (-2.0, 2.0)


def test_what_ends_differentiation():
    def function(x):
        return x // 2, int(x), round(x), x > 1, math.floor(x), np.sign(x), 3

    values, slopes = differentiate(function, (2.75,), (0,))
    assert values == (1.0, 2, 3, True, 2, 1.0, 3)
    assert [slope[0] for slope in slopes] == [0.0] * 7


def test_remainder():
    _, (slopes,) = differentiate(lambda x, y: x % y, (-7.5, 2.0), (0, 1))
    assert (slopes[0], slopes[1]) == (1.0, 4.0)


def test_conventions_at_kinks():
    assert differentiate(abs_of, (0.0,), (0,))[1][0][0] == 0.0
    assert differentiate(lambda x, y: max(x, y), (1.0, 1.0), (0, 1))[1][0] == {0: 1.0, 1: 0.0}
    assert differentiate(lambda x, y: min(x, y), (1.0, 1.0), (0, 1))[1][0] == {0: 1.0, 1: 0.0}


def abs_of(x):
    return abs(x)


def test_only_what_is_asked_is_differentiated():
    _, (slopes,) = differentiate(lambda x, y: x * y, (2.0, 3.0), (1,))
    assert slopes == {1: 2.0}


def test_a_derivative_cannot_be_lost_silently():
    with pytest.raises(TypeError, match="lose its derivative"):
        math.gamma(Dual(2.0, {0: 1.0}))
    with pytest.raises(NotImplementedError, match=r"math\.gamma"):
        differentiate(lambda x: math.gamma(x), (2.0,), (0,))


def test_recursion_and_mutual_globals_are_rebuilt():
    def power(x, n):
        return 1.0 if n == 0 else math.exp(0.0) * x * power(x, n - 1)

    assert differentiate(power, (2.0, 3), (0,))[1][0][0] == 12.0
    assert rebuild(power) is not power


def test_elementary_slopes_against_mpmath():
    unary = ("sqrt", "exp", "log", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "erf", "log1p")
    for name in (*unary, "expm1", "exp2", "cbrt", "log2", "log10"):
        function = eval(f"lambda x: math.{name}(x)", {"math": math})
        _, (slopes,) = differentiate(function, (0.625,), (0,))
        exact = {
            "exp2": lambda x: mp.mpf(2) ** x,
            "log2": lambda x: mp.log(x) / mp.log(2),
        }.get(name) or getattr(mp, name)
        assert slopes[0] == pytest.approx(float(mp.diff(exact, 0.625)), rel=1e-13), name


# --- who watches -----------------------------------------------------------------------------------------------------


def _watched(function, *args, single=False):
    watch = Watch(single=single)
    evaluate(rebuild(function), args, (0,), watch)
    return watch.ties, watch.doubts


def test_exact_numbers_tie_without_a_doubt():
    assert _watched(lambda x, y: x if x > y else y, 1.5, 1.5) == (1, 0)
    assert _watched(lambda x, y: max(x + 0.25, y), 1.25, 1.5) == (1, 0)
    assert _watched(lambda x: int(x * 2), 1.5) == (1, 0)
    assert _watched(lambda x: abs(x - 1.0), 1.0) == (1, 0)
    assert _watched(lambda x: x if math.sin(x) >= 0 else 2 * x, 0.0) == (1, 0)  # sin(0) is 0 everywhere


def test_rounded_numbers_that_tie_are_in_doubt():
    assert _watched(lambda x: x if math.sin(x) > math.sin(x + 1e-12) else 2 * x, 1.0) == (1, 1)
    assert _watched(lambda x: int(math.exp(math.log(x))), 3.0) == (1, 1)
    assert _watched(lambda x: math.exp(math.log(x)) // 1.0, 3.0) == (1, 1)
    assert _watched(lambda x: math.exp(math.log(x)) % 1.0, 3.0) == (1, 1)
    assert _watched(lambda x: round(math.exp(math.log(x))), 2.5) == (1, 1)
    assert _watched(lambda x: x if bool(math.sin(x)) else 0.0, math.pi) == (1, 1)


def test_decisions_that_are_clear_are_neither():
    assert _watched(lambda x, y: max(math.sin(x), y) + int(x) + x % 2.0 + round(x), 1.3, 0.5) == (0, 0)


def test_float32_rounds_its_arithmetic_too():
    assert _watched(lambda x: x if x * 0.1 > 0.15 else 0.0, 1.5, single=True) == (1, 1)
    assert _watched(lambda x: x if x * 0.5 > 0.75 else 0.0, 1.5, single=True) == (1, 0)
    assert _watched(lambda x: x if x > 0.1 else 0.0, float(np.float32(0.1)), single=True) == (1, 1)


def test_a_disturbance_shows_what_hangs_on_the_last_bits():
    def function(x):
        return math.sin(x) - math.sin(x + 1e-9)

    exact, _ = evaluate(rebuild(function), (1.0,), (0,))
    disturbed, _ = evaluate(rebuild(function), (1.0,), (0,), Watch(noise=1e-12))
    assert 1e-14 < abs(disturbed[0] - exact[0]) < 1e-11
    assert evaluate(rebuild(lambda x: 3 * x - x), (1.0,), (0,), Watch(noise=1e-15))[0] == (2.0,)


def test_the_sign_of_a_zero_is_kept():
    def function(x):
        return math.copysign(2.0, np.ceil(x)), math.copysign(2.0, math.modf(x)[1]), math.copysign(2.0, math.ceil(x))

    assert differentiate(function, (-0.5,), (0,))[0] == tuple(map(float, function(-0.5))) == (-2.0, -2.0, 2.0)

    def fractions(x):
        return math.copysign(2.0, math.modf(x)[0]), math.copysign(2.0, math.modf(-3.0)[0]), math.modf(x)[0]

    for x in (-1.0, 1.0):
        values, slopes = differentiate(fractions, (x,), (0,))
        assert values == fractions(x) == (math.copysign(2.0, x), -2.0, 0.0)
        assert slopes[2] == {0: 1}
