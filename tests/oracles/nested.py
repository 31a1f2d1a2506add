"""Scalar functions that differentiate others inside, and what they mean exactly: mpmath's differences in the place of
the derivatives, in the user's own function, run by Python.
"""

# Written as users write them, not as a linter would have them.
# ruff: noqa: B007, B023, E731

from __future__ import annotations

import math
import types
from collections.abc import Callable
from types import FunctionType
from typing import Any

import mpmath as mp

from dualbcast import derivative, gradient, value_and_derivative

__all__ = ["PROGRAMS", "exactly", "slopes_of"]

DIGITS = 50
PROGRAMS: list[FunctionType] = []
_MATH = types.SimpleNamespace(
    **{name: getattr(mp, name) for name in ("sin", "cos", "exp", "log", "sqrt", "tanh")}, pi=mp.pi
)


def exactly(function: Any) -> Callable[..., Any]:
    """The function on mpmath's numbers, with differences for the derivatives that it takes."""

    def of(g: Callable[..., Any], wrt: int = 0) -> Callable[..., Any]:
        return lambda *args: mp.diff(lambda t: g(*args[:wrt], t, *args[wrt + 1 :]), args[wrt])

    scope = {
        **function.__globals__,
        "math": _MATH,
        "derivative": of,
        "gradient": lambda g: lambda *args: tuple(of(g, at)(*args) for at in range(len(args))),
        "value_and_derivative": lambda g: lambda *args: (g(*args), of(g)(*args)),
    }
    exact = FunctionType(function.__code__, scope)

    def run(*args: float) -> tuple[Any, ...]:
        with mp.workdps(DIGITS):
            found = exact(*map(mp.mpf, args))
            return found if isinstance(found, tuple) else (found,)

    return run


def slopes_of(function: Callable[..., Any], args: tuple[float, ...]) -> list[list[float]]:
    """For each argument the slopes of all outputs in it."""
    step = mp.mpf(10) ** -(DIGITS // 3)
    found = []
    for at in range(len(args)):
        with mp.workdps(DIGITS):
            above, below = ([*args[:at], args[at] + by, *args[at + 1 :]] for by in (step, -step))
        pairs = zip(function(*above), function(*below), strict=True)
        with mp.workdps(DIGITS):
            found.append([float((b - a) / (2 * step)) for b, a in pairs])
    return found


def program(function: Any) -> Any:
    """Put a function into the list."""
    PROGRAMS.append(function)
    return function


@program
def third_of_a_branch(x, y):
    def f(t):
        if t > 0.7:
            return math.sin(t * x) * t
        return math.exp(t * y)

    return derivative(derivative(derivative(f)))(x * y)


@program
def fourth(x, y):
    f = lambda t: math.exp(x * t) / (1 + t * t)
    return derivative(derivative(derivative(derivative(f))))(y)


@program
def third_of_a_loop(x, y):
    def f(t):
        s = 1.0
        for k in range(1, 5):
            s = s * t / k + math.cos(t * k) * y
        return s

    def g(t):
        return derivative(f)(t) * t + x

    return derivative(lambda u: derivative(g)(u * x))(y)


@program
def inside_a_loop(x, y):
    total, t = 0.0, x
    while t < 3:
        total = total + derivative(lambda u: u * math.sin(u * total + y) / (1 + u * u))(t)
        t = t + 0.8
        if total > 1.5:
            break
    return total, t


@program
def of_gradients(x, y):
    d1, d2 = gradient(lambda a, b: math.log(a * a + b * b + x))(x * y, y)
    return d1 * d2, derivative(lambda z: d1 * z * z + gradient(lambda a, b: a * b * z * z * z)(y, z)[1])(x)


@program
def three_levels_of_closures(x, y):
    return derivative(lambda a: a * derivative(lambda b: b * a * derivative(lambda c: math.exp(a * b * c))(b))(a * x))(
        y / 2
    )


@program
def in_tests(x, y):
    f = lambda t: math.sqrt(t) if t > 1.1 * y else t**3
    v, d = value_and_derivative(f)(x * 1.3)
    return v * d + (derivative(f)(x) if x > 1 and derivative(f)(y) > 0.2 else derivative(derivative(f))(y))


@program
def of_an_iteration(x, y):
    def newton(a):
        z, step = 1.0, 1.0
        while abs(step) > 1e-12:
            h = lambda t: t * t * t + t - a
            step = h(z) / derivative(h)(z)
            z = z - step
        return z

    return derivative(newton)(x), derivative(newton)(y) * x


@program
def of_each(x, y):
    powers = sum(derivative(lambda t: t**k * x)(y) for k in range(1, 5))
    return powers + max(derivative(h)(x) for h in (math.sin, math.exp, math.tanh))


@program
def returns_in_loops(x, y):
    def outer(t):
        i, acc = 0, t
        while i < 3:
            if acc > 2:
                return acc * derivative(lambda u: u * u * acc)(t)
            acc = acc + derivative(lambda u: math.sin(u) * acc)(acc)
            i += 1
        return acc * t

    return derivative(outer)(x), derivative(derivative(outer))(y)


@program
def kind_raised(x, y):
    total = 0
    for i in range(4):
        total = total + derivative(lambda t: t * t * (total + 1) * y)(x)
    return total


@program
def carried_and_swapped(x, y):
    a, b = x, y
    for i in range(3):
        a, b = b, math.sin(a + derivative(lambda t: t * a * math.exp(b * t))(x))
    return a, b


@program
def loops_that_return(x, y):
    def g(t):
        s = 0
        for i in range(5):
            for j in range(3):
                s = s + t * t / (i + j + 1)
                if s > y:
                    return s * t + i
        else:
            s = s * 2
        return s

    return derivative(g)(x), derivative(derivative(g))(y)


@program
def in_the_test_of_a_loop(x, y):
    f = lambda t: 1 / (1 + t * t)
    t, n = x, 0
    while derivative(f)(t) < -0.05:
        t = t * 1.3 + 0.01 * y
        n += 1
    return t, n


@program
def in_a_sum_that_depends_on_data(x, y):
    n = int(x * 3)
    return sum(derivative(lambda t: t ** (k + 1) * y / (k + 1))(x) for k in range(n))


@program
def late_binding(x, y):
    k = 1.0

    def g(t):
        return t**2 * k

    a = derivative(g)(x)
    k = y
    return a + 3 * derivative(g)(x)


@program
def same_names(x, y):
    x_dx, x_1 = x * y, x + y
    x_1_dx = 2 * x

    def g(x):
        t = x * y
        t = t * t
        return t * x_dx

    return derivative(lambda x: x * x * x_dx + x_1 * x_1_dx * x)(x) + derivative(g)(x_1) * x_dx


@program
def jumps(x, y):
    best = 0.0
    for i in range(3):
        if i == 1:
            continue
        d = derivative(lambda u: math.sin(u * (i + 1)) * y)(x)
        if d > best:
            best = d
            if best > 2:
                break
    else:
        best = best * 2
    return best


@program
def recursion(x, y):
    def f(a, n):
        return a if n == 0 else derivative(lambda t: f(t * t * y, n - 1))(a)

    return f(x, 3)


@program
def written_out(x, y):
    z = (*[derivative(lambda t: t**k * y)(x) for k in (1, 2, 3)],)
    a, *rest = z
    total = 0.0
    for k, h in enumerate((math.sin, math.cos, math.tanh)):
        if derivative(h)(x) < 0.1:
            continue
        total += derivative(lambda t: h(t * z[k]))(y)
    return a * rest[0] + derivative(lambda t: sum(t * q * t for q in z))(y), total


@program
def cases(x, y):
    def g(t):
        match int(t):
            case 0:
                return t * y
            case 1:
                return t * t
            case _:
                return t**3

    return derivative(g)(x) * derivative(g)(y)


@program
def mixed_arguments(x, y):
    return derivative(lambda a, b: derivative(lambda c: a * b * c * c)(b), wrt=1)(x, y)


@program
def depends_on_one_path_only(x, y):
    u = x if x > 1 else 0.3
    f = lambda t: math.sqrt(t * u)
    return derivative(f)(y) * derivative(derivative(f))(u)
