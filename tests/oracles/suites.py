"""Which parameters of a long test run in the default suite, and which only in the slow one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

__all__ = ["sampled"]


def sampled(values: Iterable[Any], every: int) -> list[Any]:
    """Parameters of which the default suite runs one of `every`, the first one among them, and the slow suite the rest.

    They keep their order, and with it the names that pytest gives them.
    """
    return [
        value if at % every == 0 else pytest.param(value, marks=pytest.mark.slow) for at, value in enumerate(values)
    ]
