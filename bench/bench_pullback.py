"""Value and pullback of the HM-LSTM update, float32, control by rows: computed anew, kept and contracted, JAX's vjp."""

from __future__ import annotations

from typing import Any

import jax_models
import numpy as np
import pytest
from bench_hmlstm import WRT, inputs

from dualbcast import differentiable_broadcast
from dualbcast.cli.measure import Device
from dualbcast.cli.models import cell_update

SIZES = (512, 1024, 2048)


def reference(arrays: list[Any], cotangent: Any) -> list[Any]:
    """The cotangents of c, f, i, g by hand, in float64."""
    c, f, i, g, z, zb = (np.asarray(array, np.float64) for array in arrays)
    s, t, u = 1 / (1 + np.exp(-f)), 1 / (1 + np.exp(-i)), np.tanh(g)
    flush, copy = z == 1, (z != 1) & (zb == 0)
    update = ~flush & ~copy
    partials = [copy + update * s, update * s * (1 - s) * c, ~copy * t * (1 - t) * u, ~copy * t * (1 - u * u)]
    return [cotangent * partial for partial in partials]


def check(found: Any, arrays: list[Any], cotangent: Any) -> None:
    for result, wanted in zip(found, reference(arrays, cotangent), strict=True):
        np.testing.assert_allclose(np.asarray(result), wanted, rtol=0, atol=2e-5)


@pytest.mark.parametrize("n", SIZES)
def bench_dualbcast_vjp(benchmark: Any, device: Device, finish: Any, n: int) -> None:
    """One kernel for the value, one that computes the derivatives and contracts them."""
    benchmark.group = f"hmlstm pullback n={n}"
    function: Any = differentiable_broadcast(cell_update)
    host = inputs(n)
    arrays = [device.array(array) for array in host]
    cotangent = device.array(np.random.default_rng(1).standard_normal((n, n)).astype(np.float32))

    def call() -> Any:
        _, pullback = function.vjp(*arrays, wrt=WRT)
        found = pullback(cotangent)
        finish()
        return found

    if device.backend == "cpu":
        check(call(), host, cotangent)
    benchmark(call)


@pytest.mark.parametrize("n", SIZES)
def bench_cache_and_contract(benchmark: Any, device: Device, finish: Any, n: int) -> None:
    """Value and Jacobian in one kernel; another that contracts them."""
    benchmark.group = f"hmlstm pullback n={n}"
    function: Any = differentiable_broadcast(cell_update)
    contract: Any = differentiable_broadcast(lambda bar, c, f, i, g: (bar * c, bar * f, bar * i, bar * g))
    host = inputs(n)
    arrays = [device.array(array) for array in host]
    cotangent = device.array(np.random.default_rng(1).standard_normal((n, n)).astype(np.float32))

    def call() -> Any:
        _, jacobian = function.value_and_jacobian(*arrays, wrt=WRT)
        found = contract(cotangent, *[jacobian[name] for name in WRT])
        finish()
        return found

    if device.backend == "cpu":
        check(call(), host, cotangent)
    benchmark(call)


@pytest.mark.parametrize("n", SIZES)
def bench_jax_vjp(benchmark: Any, jax: Any, n: int) -> None:
    """JAX, jit of value and vjp, on its default device."""
    benchmark.group = f"hmlstm pullback n={n}"
    function = jax_models.cell_pullback(jax)
    host = inputs(n)
    cotangent = np.random.default_rng(1).standard_normal((n, n)).astype(np.float32)
    arrays = [jax.numpy.asarray(array) for array in (*host, cotangent)]
    check(function(*arrays)[1], host, cotangent)
    benchmark(lambda: jax.block_until_ready(function(*arrays)))
