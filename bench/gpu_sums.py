"""Sums in the kernel on a GPU: value and pullback of tanh(x·w + b) with a row w and a column b, checked and timed.

python bench/gpu_sums.py FILE.json
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.paper.timing import Rotation
from dualbcast import differentiable_broadcast
from dualbcast.cli.measure import choose_device, copies
from dualbcast.cli.report import Column, Experiment, Row

SHAPES = ((256, 65536), (4096, 4096), (65536, 256))
_COLUMNS = [
    Column("rows", "rows"),
    Column("columns", "columns"),
    Column("error", "error", "{:.1e}"),
    Column("seconds", "time\nms", "{:.4f}", 1e3),
    Column("bytes", "moved\nMB", "{:.1f}", 1e-6),
    Column("copy_share", "of\ncopy", "{:.0%}"),
]


def layer(x: float, w: float, b: float) -> float:
    """tanh of a product and a bias."""
    return math.tanh(x * w + b)


def arguments(rows: int, columns: int) -> list[Any]:
    """x, w, b and the cotangent of the value."""
    random = np.random.default_rng(0)
    shapes = ((rows, columns), (columns,), (rows, 1), (rows, columns))
    return [random.standard_normal(shape, np.float32) for shape in shapes]


def own_kernels(cc: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """The CUDA kernels that are launched, each with a description; needs no GPU."""
    function: Any = differentiable_broadcast(layer)
    for rows, columns in SHAPES:
        kernel = function.explain(*arguments(rows, columns)[:3], product="value_and_vjp", cc=cc).cuda
        yield f"sums of {rows} by {columns}", kernel


@dataclass(kw_only=True)
class Sums(Experiment):
    """A run over the shapes."""

    command = "sums"
    shapes: tuple[tuple[int, int], ...]
    title: str = "Value and pullback of tanh(x·w + b), a row w and a column b, float32"

    def __post_init__(self) -> None:
        self.columns = _COLUMNS

    def parameters(self) -> dict[str, Any]:
        return {"shapes": self.shapes}


def measure(sums: Sums, rows: int, columns: int) -> Row:
    """Check one shape against float64, and time it."""
    device = sums.device
    function: Any = differentiable_broadcast(backend=device.backend)(layer)
    host = arguments(rows, columns)
    x, w, b, bar = (array.astype(np.float64) for array in host)
    slope = bar / np.cosh(x * w + b) ** 2
    expected = [np.tanh(x * w + b), slope * w, (slope * x).sum(0), slope.sum(1, keepdims=True)]
    scales = [1.0, np.abs(bar).max() * np.abs(w).max(), np.abs(slope * x).sum(0).max(), np.abs(slope).sum(1).max()]
    arrays = [device.array(array) for array in host]

    def prepared(arrays: Any) -> Callable[[], Any]:
        return lambda: function.value_and_vjp(tuple(arrays[:3]), arrays[3])

    sets = copies(device, arrays, 2 * host[0].nbytes)
    rotation = Rotation([prepared(each) for each in sets])
    error = 0.0
    for value, gradients in rotation.call_each():
        for result, exact, scale in zip((value, *gradients), expected, scales, strict=True):
            error = max(error, float(np.max(np.abs(device.host(result) - exact)) / scale))
    if not error < 1e-6:  # 8 ulp of float32; a sum is made in float64 of terms that are that good
        raise SystemExit(f"Wrong result: {rows} by {columns} is off by {error:.3g} of its scale.")
    timing = device.time(rotation, 5, 0.2)
    moved = 4 * (4 * rows * columns + 2 * (rows + columns))
    fields = sums.timing_fields(timing, rows * columns, moved)
    return {"rows": rows, "columns": columns, "error": error} | fields


def main(path: str, shapes: tuple[tuple[int, int], ...] = SHAPES) -> None:
    """Measure, print, and write the JSON file."""
    sums = Sums(device=choose_device("auto"), json_path=Path(path), shapes=shapes)
    with sums.running(len(shapes)):
        for shape in shapes:
            sums.add([measure(sums, *shape)], f"{shape}: checked")


if __name__ == "__main__":
    main(sys.argv[1])
