"""The HM-LSTM cell update, value and ∂/∂(c, f, i, g), float32, control by rows: dualbcast, NumPy by hand, JAX."""

from __future__ import annotations

from typing import Any

import jax_models
import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.cli.checking import check_cell_update
from dualbcast.cli.hmlstm import control_values
from dualbcast.cli.measure import Device, HostDevice
from dualbcast.cli.models import cell_update, cell_update_by_hand

WRT = ("c", "f", "i", "g")
SIZES = (512, 1024, 2048)


def inputs(n: int) -> list[Any]:
    """c, f, i, g of shape (n, n) and z, zb of shape (n, 1), on the host."""
    generator = np.random.default_rng(0)
    gates = [generator.standard_normal((n, n)).astype(np.float32) for _ in WRT]
    return [*gates, *control_values(generator, n, "rows", "random")]


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("reuse", [True, False], ids=["out", "new"])
def bench_dualbcast(benchmark: Any, device: Device, finish: Any, n: int, reuse: bool) -> None:
    """One kernel; its outputs reused, or new at each call."""
    benchmark.group = f"hmlstm n={n}"
    function: Any = differentiable_broadcast(cell_update)
    arrays = [device.array(array) for array in inputs(n)]
    value, jacobian = function.value_and_jacobian(*arrays, wrt=WRT)
    check_cell_update(device, arrays, value, [jacobian[name] for name in WRT], 4)
    out = (value, jacobian) if reuse else None
    del value, jacobian

    def call() -> None:
        function.value_and_jacobian(*arrays, wrt=WRT, out=out)
        finish()

    benchmark(call)


@pytest.mark.parametrize("n", SIZES)
def bench_by_hand(benchmark: Any, device: Device, finish: Any, n: int) -> None:
    """Whole-array NumPy (CuPy on a GPU)."""
    benchmark.group = f"hmlstm n={n}"
    arrays = [device.array(array) for array in inputs(n)]
    check_cell_update(device, arrays, *cell_update_by_hand(device.xp, *arrays), 16)

    def call() -> None:
        cell_update_by_hand(device.xp, *arrays)
        finish()

    benchmark(call)


@pytest.mark.parametrize("n", SIZES)
def bench_jax(benchmark: Any, jax: Any, n: int) -> None:
    """JAX on its default device."""
    benchmark.group = f"hmlstm n={n}"
    host = inputs(n)
    arrays = [jax.numpy.asarray(array) for array in host]
    function = jax_models.cell_update(jax)
    value, partials = function(*arrays)
    check_cell_update(HostDevice(), host, np.asarray(value), [np.asarray(partial) for partial in partials], 16)
    benchmark(lambda: jax.block_until_ready(function(*arrays)))
