"""Arrays compared bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np


def same_bits(found: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(found, wanted, strict=True)
    np.testing.assert_array_equal(np.signbit(found.astype(float)), np.signbit(wanted.astype(float)))
