"""`f.sum` and `f.normal_equations` on CuPy arrays, held against the CPU backend; their kernels, compiled."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.runtime.cuda import launch as cuda_launch


@differentiable_broadcast
def log_density(x: float, mu: float, scale: float) -> float:
    z = (x - mu) / scale
    return -0.5 * z * z - math.log(scale) if z > -1 else z - math.log(scale)


PRODUCTS = ("sum", "sum_and_gradient", "sum_gradient_and_hessian", "normal_equations")


@pytest.fixture
def xp() -> Any:
    return pytest.importorskip("cupy")


def compare(ours: Any, theirs: Any, shape: tuple[int, ...]) -> None:
    for found, expected in zip(ours, theirs, strict=True):
        found = found.stacked() if hasattr(found, "stacked") else found
        expected = np.asarray(expected)
        assert found.shape == expected.shape
        assert found.dtype == np.float64
        np.testing.assert_allclose(found.get(), expected, rtol=1e-6, atol=1e-5 * (1 + abs(expected).max()))
    assert ours[0].shape == shape


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("data", "parameters"), [((70,), ()), ((30, 50), ()), ((30, 50), (30, 1)), ((50,), (30, 1))])
def test_sums_are_those_of_the_cpu(xp: Any, data: Any, parameters: Any, dtype: Any) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=data).astype(dtype)
    mu, scale = rng.normal(size=parameters), rng.uniform(1, 2, parameters)
    weights, wrt = rng.random(data).astype(dtype), ("mu", "scale")
    if parameters:
        arguments: Any = x, mu.astype(dtype), scale.astype(dtype)
        device = tuple(map(xp.asarray, arguments))
    else:
        arguments = x, float(mu), float(scale)
        device = xp.asarray(x), *arguments[1:]
    ours, theirs = (log_density.sum(*each, wrt=wrt, order=2) for each in (device, arguments))
    compare(ours, theirs, parameters)
    ours = log_density.normal_equations(*device, wrt=wrt, weights=xp.asarray(weights))
    compare(ours, log_density.normal_equations(*arguments, wrt=wrt, weights=weights), parameters)
    assert isinstance(ours.gradient["mu"], xp.ndarray)


@pytest.mark.gpu
def test_a_sum_is_one_launch(xp: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    x, launches = xp.asarray(np.linspace(-1, 1, 1000)), []
    launch = cuda_launch.launch
    monkeypatch.setattr(cuda_launch, "launch", lambda *given: launches.append(1) or launch(*given))
    log_density.sum(x, 0.5, 1.5, wrt=("mu", "scale"), order=2)
    assert len(launches) == 1


@pytest.mark.cuda_compilers
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("rows", [(), (100, 1)])
def test_the_kernels_spill_nothing(product: Any, rows: tuple[int, ...]) -> None:
    mu, scale = np.full(rows, 0.5), np.full(rows, 1.5)
    explanation = log_density.explain(np.zeros((100, 1000)), mu, scale, wrt=("mu", "scale"), product=product, cc=(9, 0))
    kernel = explanation.cuda
    assert kernel is not None
    assert (kernel.spill_stores, kernel.spill_loads, kernel.stack) == (0, 0, 0)
    assert kernel.registers <= 96
