"""Bessel functions, elliptic and other integrals of a million elements, with and without the derivative, beside SciPy
and JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from dualbcast import differentiable_broadcast, special

COUNT = 1 << 20
INTERVALS = {
    "i0e": (-20.0, 20.0),
    "j0": (-30.0, 30.0),
    "k1": (0.01, 20.0),
    "ellipk": (-3.0, 0.99),
    "expi": (0.1, 40.0),
    "lambertw": (-0.3, 20.0),
    "entr": (0.01, 5.0),
    "spence": (0.01, 5.0),
}
WAYS = ("dualbcast", "dualbcast with derivatives", "scipy", "jax", "jax with derivatives")


def call_of(name: str, way: str, dtype: str) -> Callable[[], Any]:
    """A call of the function on numbers of its interval."""
    x = np.random.default_rng(0).uniform(*INTERVALS[name], COUNT).astype(dtype)
    if way == "scipy":
        return lambda: getattr(scipy.special, name)(x)
    if way.startswith("dualbcast"):
        scalar = getattr(special, name)
        function: Any = differentiable_broadcast(scalar)
        return lambda: (function if way == "dualbcast" else function.value_and_jacobian)(x)
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    function = getattr(jax.scipy.special, name, None)
    if function is None:
        pytest.skip("JAX has no such function")
    compiled = jax.jit(function if way == "jax" else jax.vmap(jax.value_and_grad(function)))
    on_device = jax.numpy.asarray(x)
    return lambda: jax.block_until_ready(compiled(on_device))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", INTERVALS)
def bench_classical(benchmark: Any, name: str, way: str, dtype: str) -> None:
    """SciPy has one thread; `taskset -c 0` gives the others one, too."""
    benchmark.group = f"{name} of {COUNT:,} elements, {dtype}"
    benchmark(call_of(name, way, dtype))
