"""Many threads that call functions at once, the first calls among them; to be run as a program, by test_concurrency.py.

python concurrent_calls.py THREADS CALLS SECONDS: fails if a result is wrong, or, with all tracebacks, if it hangs.
"""

from __future__ import annotations

import faulthandler
import math
import random
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast import differentiable_broadcast, num_threads
from dualbcast.runtime.cpu import policy
from dualbcast.special import sigmoid

Array = np.ndarray
# The function, its number of arguments, and value and partials in NumPy, which shares nothing with it.
Known = tuple[Any, int, Callable[..., tuple[Array, list[Array]]]]


@differentiable_broadcast
def square(x):
    return x * x


@differentiable_broadcast
def gaussian(x):
    return math.exp(-0.5 * x * x)


@differentiable_broadcast
def gate(x, y):
    return sigmoid(x) * math.tanh(y)


@differentiable_broadcast
def wave(x, y):
    return math.sin(x) * math.cos(y)


@differentiable_broadcast
def ratio(x, y):
    return x / (2.0 + y * y)


@differentiable_broadcast
def bent(x):
    return x if x > 0 else math.expm1(x)


@differentiable_broadcast
def length(x, y):
    return math.hypot(x, y)


@differentiable_broadcast
def entropy(x):
    return x * math.log(1.0 + x * x)


@differentiable_broadcast
def horner(x):
    total = 0.0
    for c in (1.0, -0.5, 0.25, 3.0):
        total = total * x + c
    return total


@differentiable_broadcast
def powered(x, y):
    return (1.5 + x * x) ** y


def _logistic(x: Array) -> Array:
    return 0.5 * (1 + np.tanh(0.5 * x))


KNOWN: list[Known] = [
    (square, 1, lambda x: (x**2, [2 * x])),
    (gaussian, 1, lambda x: (np.exp(-(x**2) / 2), [-x * np.exp(-(x**2) / 2)])),
    (
        gate,
        2,
        lambda x, y: (
            _logistic(x) * np.tanh(y),
            [np.tanh(y) / (4 * np.cosh(x / 2) ** 2), _logistic(x) / np.cosh(y) ** 2],
        ),
    ),
    (wave, 2, lambda x, y: (np.sin(x) * np.cos(y), [np.cos(x) * np.cos(y), -np.sin(x) * np.sin(y)])),
    (ratio, 2, lambda x, y: (x / (2 + y**2), [1 / (2 + y**2), -2 * x * y / (2 + y**2) ** 2])),
    (bent, 1, lambda x: (np.where(x > 0, x, np.exp(x) - 1), [np.where(x > 0, 1, np.exp(x))])),
    (length, 2, lambda x, y: (np.sqrt(x**2 + y**2), [x / np.sqrt(x**2 + y**2), y / np.sqrt(x**2 + y**2)])),
    (entropy, 1, lambda x: (x * np.log1p(x**2), [np.log1p(x**2) + 2 * x**2 / (1 + x**2)])),
    (horner, 1, lambda x: (x**3 - x**2 / 2 + x / 4 + 3, [3 * x**2 - x + 0.25])),
    (
        powered,
        2,
        lambda x, y: (
            np.exp(y * np.log(1.5 + x**2)),
            [2 * x * y * np.exp((y - 1) * np.log(1.5 + x**2)), np.log(1.5 + x**2) * np.exp(y * np.log(1.5 + x**2))],
        ),
    ),
]
SMALL, LARGE = (3, 17, 400), 60_000
PRODUCTS = ("value", "jacobian", "vjp")


class Problem:
    """Arguments of one size, and what is right there."""

    def __init__(self, known: Known, size: int) -> None:
        self.function, arity, exact = known
        draw = np.random.default_rng([size, arity])
        self.arguments = [draw.uniform(-2, 2, size) for _ in range(arity)]
        self.names = ("x", "y")[:arity]
        self.value, self.partials = exact(*self.arguments)

    def check(self, product: str) -> None:
        """Call for one product and compare."""
        if product == "value":
            self.compare(self.function(*self.arguments), self.value)
        elif product == "jacobian":
            value, jacobian = self.function.value_and_jacobian(*self.arguments)
            self.compare(value, self.value)
            for name, partial in zip(self.names, self.partials, strict=True):
                self.compare(jacobian[name], partial)
        else:
            value, pullback = self.function.vjp(*self.arguments)
            self.compare(value, self.value)
            cotangents = pullback(np.full_like(value, 3.0))
            for cotangent, partial in zip(cotangents, self.partials, strict=True):
                self.compare(cotangent, 3.0 * partial)

    def compare(self, got: Any, right: Array) -> None:
        np.testing.assert_allclose(got, right, rtol=1e-12, atol=1e-13)


def main(threads: int, calls: int, seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)
    sys.setswitchinterval(1e-5)  # more ways of threads to meet, and less waiting for each other
    # So that all that is large enough goes over the threads of the pool.
    policy.THREAD_NS, policy.RANGE_NS = 0, 1
    problems = {size: [Problem(known, size) for known in KNOWN] for size in (*SMALL, LARGE)}
    ready, errors = threading.Barrier(threads), []

    def work(seed: int) -> None:
        draw = random.Random(seed)
        ready.wait()
        try:
            for call in range(calls):
                size = LARGE if draw.random() < 0.03 else draw.choice(SMALL)
                # All begin with the same functions, in the same order: they race to compile them.
                problem = problems[size][call if call < len(KNOWN) else draw.randrange(len(KNOWN))]
                with num_threads(draw.choice((1, 2, 5))):
                    problem.check(PRODUCTS[0] if call < len(KNOWN) else draw.choice(PRODUCTS))
        except BaseException as error:
            errors.append(error)
            raise

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if errors:
        sys.exit(f"{len(errors)} threads failed")
    assert any(thread.name.startswith("dualbcast") for thread in threading.enumerate())  # kernels have had help
    print(f"{threads} threads, {calls} calls each: all right")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
