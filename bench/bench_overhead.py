"""What a call costs apart from its arithmetic: the HM-LSTM cell update on 4 by 4 arrays."""

from __future__ import annotations

from typing import Any

import jax_models
import pytest
from bench_hmlstm import WRT, inputs

from dualbcast import differentiable_broadcast
from dualbcast.cli.measure import Device
from dualbcast.cli.models import cell_update, cell_update_by_hand

pytestmark = pytest.mark.benchmark(group="overhead, 4 by 4")


def bench_dualbcast_value(benchmark: Any, device: Device, finish: Any) -> None:
    """The value alone."""
    function: Any = differentiable_broadcast(cell_update)
    arrays = [device.array(array) for array in inputs(4)]
    benchmark(lambda: (function(*arrays), finish()))


def bench_dualbcast_jacobian(benchmark: Any, device: Device, finish: Any) -> None:
    """Value and four partials, new arrays."""
    function: Any = differentiable_broadcast(cell_update)
    arrays = [device.array(array) for array in inputs(4)]
    benchmark(lambda: (function.value_and_jacobian(*arrays, wrt=WRT), finish()))


def bench_dualbcast_jacobian_out(benchmark: Any, device: Device, finish: Any) -> None:
    """Value and four partials, arrays reused."""
    function: Any = differentiable_broadcast(cell_update)
    arrays = [device.array(array) for array in inputs(4)]
    out = function.value_and_jacobian(*arrays, wrt=WRT)
    benchmark(lambda: (function.value_and_jacobian(*arrays, wrt=WRT, out=out), finish()))


def bench_by_hand(benchmark: Any, device: Device, finish: Any) -> None:
    """Value and four partials in whole-array NumPy (CuPy on a GPU)."""
    arrays = [device.array(array) for array in inputs(4)]
    benchmark(lambda: (cell_update_by_hand(device.xp, *arrays), finish()))


def bench_jax(benchmark: Any, jax: Any) -> None:
    """Value and four partials, compiled by JAX."""
    arrays = [jax.numpy.asarray(array) for array in inputs(4)]
    function = jax_models.cell_update(jax)
    jax.block_until_ready(function(*arrays))
    benchmark(lambda: jax.block_until_ready(function(*arrays)))
