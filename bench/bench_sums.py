"""Log-likelihoods of two data arrays and three numbers, summed: the value alone, with gradient, and with Hessian; and
normal equations, of one fit and of many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast

COUNT = 10**7


@differentiable_broadcast
def student(x: float, error: float, mu: float, log_scale: float, nu: float) -> float:
    """Student's t with a variance of its own at each point."""
    variance = error * error + math.exp(2 * log_scale)
    t = (x - mu) * (x - mu) / variance
    norm = math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(math.pi * nu * variance)
    return norm - (nu + 1) / 2 * math.log1p(t / nu)


@differentiable_broadcast
def logistic(x: float, y: float, a: float, b: float, c: float) -> float:
    """A logistic regression on a quadratic polynomial."""
    z = a + b * x + c * x * x
    return y * z - math.log1p(math.exp(z)) if z < 0 else (y - 1) * z - math.log1p(math.exp(-z))


@differentiable_broadcast
def decay(t: float, y: float, height: float, rate: float, base: float) -> float:
    """The residual of an exponential decay."""
    return height * math.exp(-rate * t) + base - y


def with_jax(name: str) -> Callable[..., Any]:
    """The same log-likelihood, summed, in JAX."""
    import jax.numpy as jnp
    from jax.scipy.special import gammaln

    def student(x: Any, error: Any, mu: Any, log_scale: Any, nu: Any) -> Any:
        variance = error * error + jnp.exp(2 * log_scale)
        t = (x - mu) ** 2 / variance
        norm = gammaln((nu + 1) / 2) - gammaln(nu / 2) - 0.5 * jnp.log(jnp.pi * nu * variance)
        return jnp.sum(norm - (nu + 1) / 2 * jnp.log1p(t / nu))

    def logistic(x: Any, y: Any, a: Any, b: Any, c: Any) -> Any:
        z = a + b * x + c * x * x
        return jnp.sum(y * z - jnp.where(z < 0, 0.0, z) - jnp.log1p(jnp.exp(-abs(z))))

    return {"student": student, "logistic": logistic}[name]


CASES = {"student": (student, (0.1, 0.2, 5.0)), "logistic": (logistic, (0.1, 0.2, 0.3))}


def data(name: str) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal(COUNT)
    return x, (rng.uniform(0.5, 2, COUNT) if name == "student" else (rng.random(COUNT) < 0.5) * 1.0)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("system", ["dualbcast", "jax"])
def bench_likelihood(benchmark: Any, system: str, name: str, order: int) -> None:
    """10⁷ points of float64 in one pass."""
    benchmark.group = f"the sum of a log-likelihood, {name}, order {order}"
    benchmark.extra_info["label"] = system
    function, numbers = CASES[name]
    arrays, wrt = data(name), tuple(function.sum(np.ones(1), np.ones(1), *numbers, order=1).gradient)
    ours = function.sum(*arrays, *numbers, order=order)
    if system == "dualbcast":
        benchmark(lambda: function.sum(*arrays, *numbers, order=order))
        return
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    total, at = with_jax(name), (2, 3, 4)

    def several(*given: Any) -> Any:
        if not order:
            return total(*given)
        both = jax.value_and_grad(total, at)(*given)
        return (*both, jax.hessian(total, at)(*given)) if order == 2 else both

    compiled = jax.jit(several)
    given = [jax.numpy.asarray(each) for each in (*arrays, *numbers)]
    theirs = compiled(*given)
    np.testing.assert_allclose(theirs[0] if order else theirs, ours[0] if order else ours, rtol=1e-11)
    for p, name_p in enumerate(wrt if order else ()):
        np.testing.assert_allclose(theirs[1][p], ours[1][name_p], rtol=1e-9)
        for q, name_q in enumerate(wrt if order == 2 else ()):
            np.testing.assert_allclose(theirs[2][p][q], ours[2][name_p, name_q], rtol=1e-9)
    benchmark(lambda: jax.block_until_ready(compiled(*given)))


@pytest.mark.parametrize("rows", [1, 100, 10_000, 200_000])
@pytest.mark.parametrize("way", ["normal_equations", "Jacobian, then einsum"])
def bench_normal_equations(benchmark: Any, way: str, rows: int) -> None:
    """Four million points, divided among fits."""
    points = 4_000_000 // rows
    benchmark.group = f"normal equations of {rows:,} decays, {points:,} points each"
    rng, wrt = np.random.default_rng(0), ("height", "rate", "base")
    t, y = np.linspace(0, 3, points), rng.standard_normal((rows, points))
    parameters = [rng.uniform(0.5, 2, (rows, 1)) for _ in wrt]

    def ours() -> Any:
        return decay.normal_equations(t, y, *parameters, wrt=wrt)

    def stored() -> Any:
        r, jacobian = decay.value_and_jacobian(t, y, *parameters, wrt=wrt)
        blocks = [np.broadcast_to(jacobian[name], r.shape) for name in wrt]
        return [[np.einsum("ij,ij->i", p, q) for q in (r, *blocks)] for p in blocks]

    matrix, expected = np.asarray(ours().matrix), stored()
    np.testing.assert_allclose(matrix[:, 0, 1, 2], expected[1][3], rtol=1e-9, atol=1e-9)
    benchmark(ours if way == "normal_equations" else stored)
