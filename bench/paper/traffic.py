"""The bytes that a kernel with loads inside its branches has to move, and the control values that decide about them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.paper.implementation import ITEM, Mode

__all__ = ["CASES", "bytes_needed", "control_values", "gate_values"]

CASES = {"flush": (1, 0), "copy": (0, 0), "update": (0, 1)}  # z, zb
# Whether the cases FLUSH, COPY and UPDATE read c, f, i and g, for each mode.
_READS: dict[Mode, dict[str, tuple[int, int, int]]] = {
    "derivatives": {"c": (0, 0, 1), "f": (0, 0, 1), "i": (1, 0, 1), "g": (1, 0, 1)},
    "value and pullback": {"c": (0, 1, 1), "f": (0, 0, 1), "i": (1, 0, 1), "g": (1, 0, 1)},
}


def bytes_needed(z: NDArray[Any], zb: NDArray[Any], n: int, mode: Mode, unit: int) -> int:
    """The bytes that one pass with loads in branches reads and writes.

    Memory comes in units of `unit` bytes. A unit is read if any of its elements is needed: all of z, and zb where z is
    not 1.

    Parameters
    ----------
    z, zb : arrays of one shape, which broadcasts to (n, n)
    n : int
    mode : str
    unit : int
    """
    # With control of shape (n, 1) a row is one case, and a row is taken for whole units.
    run = 1 if z.shape[1] == 1 else unit // ITEM
    case = np.where(z == 1, 0, np.where(zb == 0, 1, 2))
    elements = 0
    for reads in _READS[mode].values():
        wanted = np.asarray(reads, bool)[case]
        spare = -wanted.shape[1] % run
        units = np.pad(wanted, ((0, 0), (0, spare))).reshape(len(wanted), -1, run).any(axis=2)
        # The last unit of a row may have fewer elements.
        widths = np.full(units.shape[1], run)
        widths[-1] -= spare
        elements += int((units * widths).sum()) * (n * n // wanted.size)
    whole = 4 if mode == "derivatives" else 6  # the partials; or the value, the cotangents and the value's cotangent
    return ITEM * (elements + whole * n * n) + z.nbytes + _read_where(np.not_equal(z, 1), unit)


def _read_where(wanted: NDArray[Any], unit: int) -> int:
    """The bytes of the units of a contiguous array that have a wanted element."""
    run = unit // ITEM
    spare = -wanted.size % run
    units = np.pad(wanted.reshape(-1), (0, spare)).reshape(-1, run)
    units = np.logical_or.reduce(units, axis=1)
    cut = spare if units[-1] else 0  # the last unit may have fewer elements
    return ITEM * (run * int(units.sum()) - cut)


def gate_values(generator: np.random.Generator, n: int, count: int) -> list[NDArray[np.float32]]:
    """Arrays of normal numbers, n by n."""
    return [generator.standard_normal((n, n), np.float32) for _ in range(count)]


def control_values(
    generator: np.random.Generator, n: int, control: str, pattern: str, run: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The control values z and zb, of shape (n, 1), (1, n) or (n, n), each 0 or 1.

    Parameters
    ----------
    generator : numpy.random.Generator
    n : int
    control : {"rows", "columns", "elements"}
        Which elements share a value.
    pattern : {"random", "flush", "copy", "update"}
        The same case everywhere; or random: in random order as two fair coins have it on average. A half is FLUSH, a
        quarter COPY and a quarter UPDATE, exactly where the number of values is a multiple of four, so that a figure
        does not depend on the luck of a few coins.
    run : int
        How many neighbours in the last dimension share their values.
    """
    shape = {"rows": (n, 1), "columns": (1, n), "elements": (n, n)}[control]
    if pattern in CASES:
        z, zb = (np.full(shape, value, np.float32) for value in CASES[pattern])
        return z, zb
    coins = (shape[0], -(-shape[1] // run))
    count = coins[0] * coins[1]
    # The four outcomes of two coins, equally often; which of them come once more is random, too.
    outcomes = (np.arange(count) + generator.integers(4)) % 4
    generator.shuffle(outcomes)
    values = (part.reshape(coins).astype(np.float32) for part in (outcomes % 2, outcomes // 2))
    z, zb = (np.ascontiguousarray(np.repeat(value, run, axis=1)[:, : shape[1]]) for value in values)
    return z, zb
