"""Value and gradient of losses of spectra: `graph.compile` beside JAX, and NumPy's transforms alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import graph


def losses(xp: Any) -> dict[str, Callable[..., Any]]:
    """Each by its first argument: the response of a filter, or complex samples."""
    return {
        "filter": lambda h, x: xp.sum((xp.fft.irfft(xp.fft.rfft(x) * h) - 1.0) ** 2),
        "spectrum": lambda z, w: xp.sum(xp.log1p(abs(xp.fft.fft(z * w)) ** 2)),
    }


def arguments(loss: str, n: int) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    length = n // 2 + 1 if loss == "filter" else n
    return random.normal(size=length) + 1j * random.normal(size=length), random.normal(size=n)


@pytest.mark.parametrize("n", [2**12, 2**18])
@pytest.mark.parametrize("loss", ["filter", "spectrum"])
@pytest.mark.parametrize("system", ["dualbcast", "jax", "transforms alone"])
def bench_fourier(benchmark: Any, system: str, loss: str, n: int) -> None:
    benchmark.group = f"{loss} of {n} numbers"
    first, second = arguments(loss, n)
    call = graph.compile(graph.value_and_grad(losses(np)[loss]))
    if system == "jax":
        jax = pytest.importorskip("jax")
        jax.config.update("jax_enable_x64", True)
        compiled, given = jax.jit(jax.value_and_grad(losses(jax.numpy)[loss])), jax.device_put((first, second))
        # JAX's gradients are the conjugates.
        np.testing.assert_allclose(np.conj(compiled(*given)[1]), call(first, second)[1], rtol=1e-8, atol=1e-8)
        benchmark(lambda: jax.block_until_ready(compiled(*given)))
    elif system == "dualbcast":
        for _ in range(3):
            call(first, second)  # until it is replayed
        benchmark(call, first, second)
    elif loss == "filter":
        benchmark(lambda: (np.fft.rfft(second), np.fft.irfft(first), np.fft.rfft(second)))
    else:
        benchmark(lambda: np.fft.ifft(np.fft.fft(first)))
