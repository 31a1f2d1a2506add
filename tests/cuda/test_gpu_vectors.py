"""Functions of vectors and matrices on CuPy arrays, held against the CPU backend on the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from core_corpus import CORE_CORPUS, CoreCase

from dualbcast import differentiable_broadcast

pytestmark = pytest.mark.gpu


def outputs_of(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("case", CORE_CORPUS[1::2], ids=lambda case: case.name)
def test_products_on_a_gpu(case: CoreCase):
    xp = pytest.importorskip("cupy")
    function = differentiable_broadcast(signature=case.signature)(case.function)
    host = case.arguments((33,))
    device = [xp.asarray(each) for each in host]
    close = {"rtol": 1e-10, "atol": 1e-10}
    for _turn in range(2):  # the second call takes the fast path
        value, jacobian = function.value_and_jacobian(*device)
        wanted, expected = function.value_and_jacobian(*host)
        for output, (found, other) in enumerate(zip(outputs_of(value), outputs_of(wanted), strict=True)):
            assert isinstance(found, xp.ndarray)
            np.testing.assert_allclose(xp.asnumpy(found), other, **close)
            for name in jacobian.wrt:
                np.testing.assert_allclose(xp.asnumpy(jacobian[output, name]), expected[output, name], **close)
        for found, other in zip(outputs_of(function(*device)), outputs_of(wanted), strict=True):
            np.testing.assert_allclose(xp.asnumpy(found), other, **close)
    pulled = function.vjp(*device)[1](*[xp.ones_like(each) for each in outputs_of(value)])
    for found, other in zip(pulled, function.vjp(*host)[1](*map(np.ones_like, outputs_of(wanted))), strict=True):
        np.testing.assert_allclose(xp.asnumpy(found), other, **close)


@differentiable_broadcast(signature="(2,2),(2)->(),(2)")
def energy(F, v):  # noqa: N803
    return np.linalg.det(F) * v[0], np.array([v @ v, F[0, 1] + F[1, 0] ** 3])


def test_arrays_with_cores_that_later_calls_write_to_on_a_gpu():
    xp = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    # So many that columns begin at cache lines.
    host = rng.normal(size=(301, 2, 2)), rng.normal(size=(301, 2))
    device = [xp.asarray(each) for each in host]
    for _turn in range(3):
        found, wanted = energy.value_jacobian_and_hessian(*device), energy.value_jacobian_and_hessian(*host)
        for output in range(2):
            np.testing.assert_allclose(xp.asnumpy(found[0][output]), wanted[0][output], rtol=1e-12)
            for name in "Fv":
                block = xp.asnumpy(found[1][output, name])
                np.testing.assert_allclose(block, wanted[1][output, name], rtol=1e-12, atol=1e-14)
                for other in "Fv":
                    block = xp.asnumpy(found[2][output, name, other])
                    np.testing.assert_allclose(block, wanted[2][output, name, other], rtol=1e-12, atol=1e-14)
        pushed, expected = energy.jvp(device, device)[1], energy.jvp(host, host)[1]
        pulled, other = energy.value_and_vjp(tuple(device), found[0])[1], energy.value_and_vjp(host, wanted[0])[1]
        for ours, theirs in zip((*pushed, *pulled), (*expected, *other), strict=True):
            assert isinstance(ours, xp.ndarray)
            np.testing.assert_allclose(xp.asnumpy(ours), theirs, rtol=1e-11, atol=1e-13)


@differentiable_broadcast(signature="(2,2),(2),()->(2),()")
def gate(m, v, angle):
    w = m @ v * np.exp(1j * angle)
    return w, np.vdot(w, v).real


def test_complex_elements_on_a_gpu():
    xp = pytest.importorskip("cupy")
    rng = np.random.default_rng(0)
    m, v = (rng.normal(size=(33, *core)) + 1j * rng.normal(size=(33, *core)) for core in ((2, 2), (2,)))
    host = m, v, rng.normal(size=33)
    device = [xp.asarray(each) for each in host]
    for _turn in range(2):
        found, wanted = gate.value_and_jacobian(*device), gate.value_and_jacobian(*host)
        for output in range(2):
            np.testing.assert_allclose(xp.asnumpy(found[0][output]), wanted[0][output], rtol=1e-12, atol=1e-14)
            for name in found[1].wrt:
                block = xp.asnumpy(found[1][name][output])
                np.testing.assert_allclose(block, wanted[1][name][output], rtol=1e-12, atol=1e-14)
        pulled, other = gate.vjp(*device)[1](found[0]), gate.vjp(*host)[1](wanted[0])
        for ours, theirs in zip(pulled, other, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_allclose(xp.asnumpy(ours), theirs, rtol=1e-11, atol=1e-13)
