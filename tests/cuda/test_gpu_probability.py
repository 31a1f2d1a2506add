"""Error, gamma and beta functions on a GPU, against the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, special
from dualbcast.runtime.cuda import launch as cuda_launch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_launch.available(), reason=cuda_launch.why_not() or "a GPU is there"),
]

DRAW = np.random.default_rng(0)
A, B = 10 ** DRAW.uniform(-0.5, 2, (2, 200))
SHARE = np.clip(A / (A + B) + DRAW.normal(0, 0.05, 200), 0.01, 0.99)
ARGUMENTS: dict[str, tuple[np.ndarray, ...]] = {
    "log_ndtr": (DRAW.normal(0, 5, 200),),
    "gammainc": (A, A * np.exp(DRAW.normal(0, 0.4, 200))),
    "betainc": (A, B, SHARE),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_values_and_derivatives(name: str) -> None:
    import cupy

    function: Any = differentiable_broadcast(getattr(special, name))
    arrays = ARGUMENTS[name]
    wanted, wanted_slopes = function.value_and_jacobian(*arrays)
    value, slopes = function.value_and_jacobian(*map(cupy.asarray, arrays))
    assert isinstance(value, cupy.ndarray)
    np.testing.assert_allclose(value.get(), wanted, rtol=1e-11)
    for position in range(len(arrays)):
        np.testing.assert_allclose(slopes[0, position].get(), wanted_slopes[0, position], rtol=1e-9, atol=1e-12)
