"""∏ tanh(g(x)) and all its partials by the number of arguments, float32: dualbcast, NumPy by hand, JAX."""

from __future__ import annotations

from typing import Any

import jax_models
import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.cli.checking import check_product
from dualbcast.cli.measure import Device, HostDevice
from dualbcast.cli.models import product

ARITIES = (1, 2, 4, 8, 16)
N = 1024


def inputs(arity: int) -> list[Any]:
    """Random arrays on the host."""
    generator = np.random.default_rng(0)
    return [generator.uniform(-2, 2, (N, N)).astype(np.float32) for _ in range(arity)]


def by_hand(xp: Any, xs: list[Any]) -> tuple[Any, list[Any]]:
    """Products from the left and from the right, one array operation after another."""
    slopes = [xp.where(x > 0.5, xp.float32(1), xp.float32(-1)) for x in xs]
    factors = [xp.tanh(slope * x) for slope, x in zip(slopes, xs, strict=True)]
    before = [xp.ones_like(xs[0])]
    for factor in factors:
        before.append(before[-1] * factor)
    after = xp.ones_like(xs[0])
    partials = []
    for slope, factor, left in zip(slopes[::-1], factors[::-1], before[-2::-1], strict=True):
        partials.append(slope * (1 - factor * factor) * left * after)
        after = after * factor
    return before[-1], partials[::-1]


@pytest.mark.parametrize("arity", ARITIES)
def bench_dualbcast(benchmark: Any, device: Device, finish: Any, arity: int) -> None:
    """One kernel; its outputs are fresh, as the others' are."""
    benchmark.group = f"arity {arity:2}"
    function: Any = differentiable_broadcast(product)
    xs = [device.array(x) for x in inputs(arity)]
    check_product(device, xs, *function.value_and_jacobian(*xs))

    def call() -> None:
        function.value_and_jacobian(*xs)
        finish()

    benchmark(call)


@pytest.mark.parametrize("arity", ARITIES)
def bench_by_hand(benchmark: Any, device: Device, finish: Any, arity: int) -> None:
    """Whole-array NumPy (CuPy on a GPU)."""
    benchmark.group = f"arity {arity:2}"
    xs = [device.array(x) for x in inputs(arity)]
    check_product(device, xs, *by_hand(device.xp, xs))

    def call() -> None:
        by_hand(device.xp, xs)
        finish()

    benchmark(call)


@pytest.mark.parametrize("arity", ARITIES)
def bench_jax(benchmark: Any, jax: Any, arity: int) -> None:
    """JAX on its default device."""
    benchmark.group = f"arity {arity:2}"
    host = inputs(arity)
    xs = [jax.numpy.asarray(x) for x in host]
    function = jax_models.product(jax, arity)
    value, partials = function(*xs)
    check_product(HostDevice(), host, np.asarray(value), [np.asarray(partial) for partial in partials])
    benchmark(lambda: jax.block_until_ready(function(*xs)))
