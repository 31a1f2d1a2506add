"""Sums made in the kernel: the pullback of tanh(x·w + b), with a row w and a column b, and the cost of other ways.

Beside the fused kernel stand the same kernel with its terms stored and summed by NumPy, and a copy of the arrays that
the fused one reads and writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import references
import systems

from dualbcast.frontend.lower import lower
from dualbcast.ir.simplification import simplify
from dualbcast.program.pipeline import kernel_program
from dualbcast.runtime.arguments import classify
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.launch_plan import plan

NAMES = ("x", "w", "b", "g")
F4 = np.dtype(np.float32)


def pullback(x: float, w: float, b: float, g: float) -> tuple[float, float, float]:
    """The terms of the cotangents of x, w and b for the cotangent g of tanh(x·w + b)."""
    t = math.tanh(x * w + b)
    slope = g * (1 - t * t)
    return slope * w, slope * x, slope


def product(x: float, w: float, b: float, g: float) -> float:
    """A term of a sum of everything."""
    return x * g + w * b


def inputs(rows: int, columns: int) -> tuple[np.ndarray, ...]:
    random = np.random.default_rng(1)
    shapes = (rows, columns), (columns,), (rows, 1), (rows, columns)
    return tuple(random.standard_normal(shape, np.float32) for shape in shapes)


def call(function: Callable[..., Any], arrays: tuple[np.ndarray, ...], shapes: tuple[Any, ...]) -> Callable[[], Any]:
    """A call of the kernel with its kernel looked up already: plan, launch, sums."""
    operands = classify(arrays, NAMES)
    body = simplify(lower(function, list(operands.signature.kinds)).function)
    dtypes = [F4] * len(shapes)
    layout = plan(operands, dtypes, None, shapes).geometry.layout
    program = kernel_program(body, layout, "float32", operands.signature.storages, [dtype.name for dtype in dtypes])
    kernel = cpu_kernel.compile_kernel(program, False)

    def run() -> tuple[Any, ...]:
        planned = plan(classify(arrays, NAMES, operands.signature), dtypes, None, shapes)
        parts = planned.geometry.packing, planned.geometry.split
        cpu_kernel.launch(kernel, planned.geometry.total, planned.geometry.ints, planned.pointers, None, *parts)
        return planned.written()

    return run


def check(found: tuple[Any, ...], arrays: tuple[np.ndarray, ...]) -> None:
    x, w, b, g = (array.astype(np.float64) for array in arrays)
    slope = g * (1 - np.tanh(x * w + b) ** 2)
    expected = slope * w, (slope * x).sum(0), slope.sum(1, keepdims=True)
    # 1 - t² has an error of some units in the last place of 1, and its factors are not far above 1.
    sizes = abs(g * w), abs(g * x).sum(0), abs(g).sum(1)
    for result, wanted, size in zip(found, expected, sizes, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-6 * np.max(size))


SIZES = pytest.mark.parametrize(
    "size",
    [(4, 4), (1024, 1024), (4096, 4096), (1 << 20, 16), (16, 1 << 20)],
    ids=lambda size: "x".join(map(str, size)),
)


def name(benchmark: Any, size: tuple[int, int], label: str) -> None:
    """The row's place in the table."""
    benchmark.group = f"three cotangents of tanh(x·w + b), {size[0]} by {size[1]}"
    benchmark.extra_info["label"] = label


@SIZES
def bench_fused(benchmark: Any, size: tuple[int, int]) -> None:
    """Three cotangents from one kernel."""
    name(benchmark, size, "dualbcast")
    arrays = inputs(*size)
    run = call(pullback, arrays, (None, (size[1],), (size[0], 1)))
    check(run(), arrays)
    benchmark(run)


@SIZES
def bench_terms_then_numpy(benchmark: Any, size: tuple[int, int]) -> None:
    """The terms from one kernel, and NumPy's sums of them."""
    name(benchmark, size, "dualbcast, terms stored and summed by NumPy")
    arrays = inputs(*size)
    terms = call(pullback, arrays, (None, None, None))

    def run() -> tuple[Any, ...]:
        along_x, along_w, along_b = terms()
        return along_x, along_w.sum(0), along_b.sum(1, keepdims=True)

    check(run(), arrays)
    benchmark(run)


@SIZES
def bench_copy(benchmark: Any, size: tuple[int, int]) -> None:
    """The traffic of the fused kernel at full size: two arrays read, one written, into fresh memory."""
    name(benchmark, size, "numpy.add of two such arrays: a floor")
    x, _, _, g = inputs(*size)
    benchmark(lambda: np.add(x, g))


@pytest.mark.benchmark(group="one sum of 10^7 terms")
def bench_fused_sum(benchmark: Any) -> None:
    """∑ x·g + w·b, nothing stored."""
    benchmark.extra_info["label"] = "dualbcast"
    arrays = inputs(2500, 4000)
    run = call(product, arrays, ((),))
    x, w, b, g = (array.astype(np.float64) for array in arrays)
    np.testing.assert_allclose(run()[0], (x * g + w * b).sum(), rtol=1e-5)
    benchmark(run)


@pytest.mark.benchmark(group="one sum of 10^7 terms")
def bench_numpy_sum(benchmark: Any) -> None:
    """The same in whole-array NumPy."""
    benchmark.extra_info["label"] = "numpy"
    x, w, b, g = inputs(2500, 4000)
    benchmark(lambda: (x * g + w * b).sum(dtype=np.float64))


@pytest.mark.benchmark(group="one sum of 10^7 terms")
def bench_read(benchmark: Any) -> None:
    """NumPy's sum of the two arrays: reading them."""
    benchmark.extra_info["label"] = "numpy.sum of both arrays: a floor"
    x, _, _, g = inputs(2500, 4000)
    benchmark(lambda: (x.sum(), g.sum()))


@systems.every_and_floor
@pytest.mark.parametrize("n", [1024, 4096])
def bench_layer(benchmark: Any, n: int, turn: int, system: str) -> None:
    """The value of tanh(x·w + b) and its pullback, in the form that each system offers its users."""
    host = references.layer_arguments(n, n)
    check = systems.checker(references.layer_expected, host, 1e-5, sums=True)
    group = f"tanh(x·w + b), value and pullback, n = {n}"
    systems.compare(benchmark, group, system, "layer", host, check, outputs=2, turn=turn)
