"""Complex numbers on a GPU, held against the CPU backend on the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from corpus_complex import COMPLEX, ComplexCase

from dualbcast import differentiable_broadcast

pytestmark = pytest.mark.gpu


@pytest.fixture
def xp() -> Any:
    return pytest.importorskip("cupy")


@pytest.mark.parametrize("case", COMPLEX, ids=lambda case: case.name)
def test_corpus(xp: Any, case: ComplexCase) -> None:
    function, arguments = differentiable_broadcast(case.function), case.arguments(300)
    expected, blocks = function.value_and_jacobian(*arguments)
    value, jacobian = function.value_and_jacobian(*map(xp.asarray, arguments))
    pairs = [(value, expected)] if not isinstance(value, tuple) else [*zip(value, expected, strict=True)]
    for name in blocks.wrt:
        found, wanted = jacobian[name], blocks[name]
        pairs += [(found, wanted)] if not isinstance(found, tuple) else [*zip(found, wanted, strict=True)]
    for got, want in pairs:
        assert isinstance(got, xp.ndarray)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got.get(), want, rtol=1e-10, atol=1e-11)
