"""The graph on CuPy arrays, held against the same on NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import test_array_functions
import test_arrays
import test_complex_variables
import test_linalg
from operation_cases import Case, weights_for
from suites import sampled

from dualbcast import graph

pytestmark = pytest.mark.gpu
CASES = [*test_arrays.CASES, *test_array_functions.CASES, *test_linalg.CASES, *test_complex_variables.CASES]


@pytest.fixture
def xp() -> Any:
    return pytest.importorskip("cupy")


def keys_on_device(xp: Any, function: Any) -> Any:
    """The function with CuPy arrays for the index arrays that it uses."""
    names = {name: xp.asarray(value) for name, value in function.__globals__.items() if isinstance(value, np.ndarray)}
    if not names:
        return function  # what is made anew has no default arguments
    return type(function)(function.__code__, {**function.__globals__, **names})


@pytest.mark.parametrize("case", sampled(CASES, 2), ids=lambda case: case.name)
def test_as_on_the_host(xp: Any, case: Case) -> None:
    if "fft" in case.name and "shift" not in case.name:
        try:
            xp.cuda.cufft  # noqa: B018
        except ImportError:
            pytest.skip("needs cuFFT: pip install 'cuda-toolkit[cufft]'")
    args = case.arguments()
    wrt = tuple(range(len(args)))
    weights = weights_for(case.reference(*args))
    on_device = keys_on_device(xp, case.function)

    def loss(function: Any, scale: Any) -> Any:
        return lambda *inputs: np.sum(scale * function(*inputs) ** 2)

    expected = graph.grad(loss(case.function, weights), wrt)
    found = graph.grad(loss(on_device, xp.asarray(weights)), wrt)
    device_args = [xp.asarray(arg) for arg in args]
    pairs = [(found(*device_args), expected(*args))]
    pairs.append((graph.jvp(found, device_args, device_args)[1], graph.jvp(expected, args, args)[1]))
    for each, host in pairs:
        for one, other in zip(each, host, strict=True):
            assert isinstance(one, xp.ndarray)
            np.testing.assert_allclose(one.get(), other, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("key", [[2, 0, 2], np.array([2, 0, 2]), np.array([True, False, True])], ids=type)
def test_keys_of_the_host(xp: Any, key: Any) -> None:
    x = np.array([1.0, 2.0, 4.0])
    expected = graph.grad(lambda v: np.sum(v[key] ** 2))(x)
    np.testing.assert_array_equal(graph.grad(lambda v: np.sum(v[key] ** 2))(xp.asarray(x)).get(), expected)


def test_a_key_that_is_changed_later(xp: Any) -> None:
    key = xp.asarray([0, 0])

    def changed(v: Any) -> Any:
        found = np.sum(v[key] ** 2)
        key[...] = 1
        return found

    np.testing.assert_array_equal(graph.grad(changed)(xp.asarray([3.0, 5.0])).get(), [12.0, 0.0])


@pytest.mark.parametrize("number", [np.float64(1.5), np.float32(1.5), np.int64(3)], ids=lambda each: each.dtype.name)
def test_numbers_of_numpy(xp: Any, number: Any) -> None:
    def mixed(v: Any) -> Any:
        return np.sum(v * number + np.maximum(number, v) * np.where(v > number, v, number) - number / v)

    x = np.linspace(1, 2, 12, dtype=np.float32).reshape(3, 4)
    value, slope = graph.value_and_grad(mixed)(x)
    found, found_slope = graph.value_and_grad(mixed)(xp.asarray(x))
    assert (found.dtype, found_slope.dtype) == (value.dtype, slope.dtype)
    np.testing.assert_allclose(found.get(), value, rtol=1e-6)
    np.testing.assert_allclose(found_slope.get(), slope, rtol=1e-6)
