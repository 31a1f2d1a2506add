"""Sums in the kernel on a GPU: value and pullback of tanh(x·w + b) with a row w and a column b, checked and timed.

python bench/gpu_sums.py FILE.json
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dualbcast import differentiable_broadcast
from dualbcast.cli import report
from dualbcast.cli.measure import Device, Rotation, choose_device, copies
from dualbcast.cli.report import Column, Row

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


def measure(device: Device, rows: int, columns: int, bandwidth: float) -> Row:
    """Check one shape against float64, and time it."""
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
    return {"rows": rows, "columns": columns, "error": error} | report.timing_fields(
        timing, rows * columns, moved, bandwidth
    )


def main(path: str, shapes: tuple[tuple[int, int], ...] = SHAPES) -> None:
    """Measure, print, and write the JSON file."""
    device = choose_device("auto")
    bandwidth = device.copy_bandwidth(0.2)
    rows = [measure(device, *shape, bandwidth) for shape in shapes]
    title = "Value and pullback of tanh(x·w + b), a row w and a column b, float32"
    report.show(report.build_table(_COLUMNS, rows, title, report.machine_notes(device, bandwidth, rows)))
    extra = {"copy_bytes_per_second": bandwidth}
    report.write_json(Path(path), report.record("sums", device, {"shapes": shapes}, rows, **extra))


if __name__ == "__main__":
    main(sys.argv[1])
