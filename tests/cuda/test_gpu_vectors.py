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
