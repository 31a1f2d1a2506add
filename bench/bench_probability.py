"""Error, gamma and beta functions of float64 arrays, with and without all derivatives, beside SciPy and JAX."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.special

from dualbcast import differentiable_broadcast, special

# JAX goes on with all elements until the last has converged, which takes seconds for more.
COUNT = 1 << 17


def arguments() -> dict[str, tuple[np.ndarray, ...]]:
    """Parameters of 0.3 to 100, and numbers around the middle of their distributions."""
    draw = np.random.default_rng(0)
    a, b = 10 ** draw.uniform(-0.5, 2, (2, COUNT))
    middle = a / (a + b)
    share = np.clip(middle + draw.normal(0, 1, COUNT) * np.sqrt(middle * (1 - middle) / (a + b + 1)), 1e-3, 0.999)
    p = draw.uniform(0.01, 0.99, COUNT)
    return {
        "log_ndtr": (draw.normal(0, 4, COUNT),),
        "erfcx": (draw.normal(0, 4, COUNT),),
        "gammainc": (a, a * np.exp(draw.normal(0, 0.4, COUNT))),
        "gammaincinv": (a, p),
        "betainc": (a, b, share),
        "betaincinv": (a, b, p),
        "beta": (a, b),
        "zeta": (1 + a / 10, b),
    }


ARGUMENTS = arguments()
WAYS = ("dualbcast", "dualbcast with derivatives", "scipy", "jax", "jax with derivatives")


def call_of(name: str, way: str) -> Callable[[], Any]:
    """A call of the function on its arguments; derivatives of JAX are those in the last argument."""
    arrays = ARGUMENTS[name]
    if way == "scipy":
        return lambda: getattr(scipy.special, name)(*arrays)
    if way.startswith("dualbcast"):
        function = differentiable_broadcast(getattr(special, name))
        call = function if way == "dualbcast" else function.value_and_jacobian
        return lambda: call(*arrays)
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    function = getattr(jax.scipy.special, name, None)
    if function is None or name == "gammaincinv":
        pytest.skip("JAX has no such function")
    compiled = jax.jit(function)
    if way != "jax":
        last = len(inspect.signature(getattr(special, name)).parameters) - 1
        compiled = jax.jit(jax.value_and_grad(lambda *args: function(*args).sum(), argnums=last))
    on_device = [jax.numpy.asarray(array) for array in arrays]
    return lambda: jax.block_until_ready(compiled(*on_device))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ARGUMENTS)
def bench_probability(benchmark: Any, name: str, way: str) -> None:
    """SciPy has one thread; `taskset -c 0` gives the others one, too."""
    benchmark.group = f"{name} of {COUNT:,} elements"
    benchmark(call_of(name, way))
