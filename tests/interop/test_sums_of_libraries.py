"""`f.sum` and `f.normal_equations` on arrays of other libraries: the numbers of the same call on NumPy's arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast


@differentiable_broadcast
def log_density(x, mu, scale):
    z = (x - mu) / scale
    return -0.5 * z * z - math.log(scale)


RNG = np.random.default_rng(0)
X, WEIGHTS = RNG.normal(size=(6, 50)), RNG.random((6, 50))
ROWS = RNG.normal(size=(6, 1)), RNG.uniform(1, 2, (6, 1))
WRT = ("mu", "scale")


def check(found: Any, expected: Any, convert: Any = np.asarray, rtol: float = 1e-13) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        ours = convert(ours.stacked() if hasattr(ours, "stacked") else ours)
        theirs = np.asarray(theirs)
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=rtol, atol=rtol * abs(theirs).max())


def check_all(array: Any, convert: Any = np.asarray, rtol: float = 1e-13) -> None:
    """Sums over all elements, with and without an argument to differentiate in, and over rows."""
    found = log_density.sum(array(X), 0.5, 1.5, order=2)
    check(found, log_density.sum(X, 0.5, 1.5, order=2), convert, rtol)
    check((log_density.sum(array(X), 0.5, 1.5),), (log_density.sum(X, 0.5, 1.5),), convert, rtol)
    rows = log_density.sum(array(X), *map(array, ROWS), wrt=WRT, order=2)
    check(rows, log_density.sum(X, *ROWS, wrt=WRT, order=2), convert, rtol)
    for weights in (None, WEIGHTS):
        given = None if weights is None else array(weights)
        for arguments, wrt in (((0.5, 1.5), None), (ROWS, WRT)):
            mine = [array(each) if wrt else each for each in arguments]
            equations = log_density.normal_equations(array(X), *mine, wrt=wrt, weights=given)
            check(equations, log_density.normal_equations(X, *arguments, wrt=wrt, weights=weights), convert, rtol)


def test_dask():
    da = pytest.importorskip("dask.array")
    check_all(lambda array: da.from_array(array, chunks=(4, 30)), lambda each: each.compute())
    value, gradient, _ = log_density.sum(da.from_array(X, chunks=(4, 30)), 0.5, 1.5, order=2)
    assert isinstance(value, da.Array)
    assert isinstance(gradient["mu"], da.Array)


def test_torch():
    torch = pytest.importorskip("torch")
    check_all(torch.tensor, lambda each: each.numpy())


def test_torch_differentiates_sums_again():
    torch = pytest.importorskip("torch")
    mu, scale = (torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (0.5, 1.5))
    value, gradient, hessian = log_density.sum(torch.tensor(X), mu, scale, order=2)
    first = torch.autograd.grad(value, (mu, scale), create_graph=True)
    np.testing.assert_allclose([each.item() for each in first], gradient.stacked().detach(), rtol=1e-13)
    second = torch.autograd.grad(gradient["mu"], (mu, scale))
    np.testing.assert_allclose([each.item() for each in second], hessian.stacked().detach()[0], rtol=1e-13)
    # The sum of float32 tensors is float64, and the cotangent of one is float32.
    single = torch.tensor(0.5, requires_grad=True)
    total = log_density.sum(torch.tensor(X, dtype=torch.float32), single, 1.5)
    total.backward()
    assert (total.dtype, single.grad.dtype) == (torch.float64, torch.float32)
    np.testing.assert_allclose(single.grad, gradient["mu"].detach(), rtol=1e-5)


def test_jax():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        check_all(jax.numpy.asarray)


def test_jax_transforms_sums():
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        x, expected = jax.numpy.asarray(X), log_density.sum(X, 0.5, 1.5, order=2)
        gradient = jax.jit(jax.grad(lambda mu: log_density.sum(x, mu, 1.5)))(0.5)
        np.testing.assert_allclose(gradient, expected.gradient["mu"], rtol=1e-13)
        both = jax.jit(lambda mu: log_density.sum(x, mu, 1.5, order=1).gradient["mu"])
        np.testing.assert_allclose(jax.grad(both)(0.5), expected.hessian["mu", "mu"], rtol=1e-13)
    assert log_density.sum(jax.numpy.asarray(X, "float32"), 0.5, 1.5).dtype == np.float32


def test_xarray():
    xr = pytest.importorskip("xarray")
    x = xr.DataArray(X, dims=("row", "point"))
    mu, scale = (xr.DataArray(each[:, 0], dims="row") for each in ROWS)
    check(log_density.sum(x, 0.5, 1.5, order=2), log_density.sum(X, 0.5, 1.5, order=2))
    assert log_density.sum(x, 0.5, 1.5) == pytest.approx(log_density.sum(X, 0.5, 1.5), rel=1e-13)
    rows, expected = log_density.sum(x, mu, scale, wrt=WRT, order=1), log_density.sum(X, *ROWS, wrt=WRT, order=1)
    assert rows.gradient["mu"].dims == ("row",)
    np.testing.assert_allclose(rows.gradient["mu"], expected.gradient["mu"][:, 0], rtol=1e-13)


def test_pandas():
    pd = pytest.importorskip("pandas")
    found = log_density.sum(pd.Series(X[0], index=list("a" * 50)), 0.5, 1.5, order=2)
    check(found, log_density.sum(X[0], 0.5, 1.5, order=2))


def test_masked_elements_are_left_out():
    masked = np.ma.MaskedArray(X, X > 1)
    check(log_density.sum(masked, 0.5, 1.5, order=2), log_density.sum(X[X <= 1], 0.5, 1.5, order=2))
    check((log_density.sum(masked, 0.5, 1.5),), (log_density.sum(X[X <= 1], 0.5, 1.5),))


def test_lists():
    assert log_density.sum([1.0, 2.0], 0.0, 1.0, order=1).gradient["mu"] == 3.0
