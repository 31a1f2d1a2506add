"""CUDA kernels that sum, without a GPU: what their PTX computes, and their machine code."""

from __future__ import annotations

import functools
import itertools
import math
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from memory_model import Memory
from plans import finished
from suites import sampled
from sums import DTYPES, F4, F8, fsum, integers, patterns, reduced, shifted_products

from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda import kernel_shell
from dualbcast.counting import executor as ptx
from dualbcast.kernel_spec import KernelSource
from dualbcast.program.pipeline import kernel_source
from dualbcast.runtime.arguments import classify
from dualbcast.runtime.cuda import grid as cuda_grid
from dualbcast.runtime.cuda import kernel as cuda_kernel
from dualbcast.runtime.cuda import launch as cuda_launch
from dualbcast.runtime.iteration_space import Geometry, form_of, lay_out
from dualbcast.runtime.launch_plan import new_arrays, plan
from dualbcast.runtime.reduction_blocks import combine

HOPPER = (9, 0)
needs_gcc = pytest.mark.skipif(ptx.COMPILER is None, reason="to run PTX takes gcc")


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def geometry_of(arrays: tuple[Any, ...], shapes: list[Any]) -> Geometry:
    return lay_out(tuple(map(form_of, arrays)), (None,) * len(shapes), ("x", "y")[: len(arrays)], tuple(shapes), "cuda")


def source(geometry: Geometry, dtype: Any, count: int) -> KernelSource:
    compute = "float64" if dtype == F8 else "float32"
    return kernel_source(
        shifted_products(count), geometry.layout, compute, [dtype.name] * 2, [dtype.name] * count, "cuda"
    )


@functools.cache
def kernel_of(text: KernelSource, folder: Path) -> ptx.Kernel:
    image, _ = cuda_build.build(text, HOPPER, False, ptx=True)
    return ptx.Kernel(image.decode().rstrip("\0"), text.entry, folder)


def emulate(
    arrays: tuple[Any, ...], shapes: list[Any], folder: Any, wide: bool = False, values: tuple[int, ...] = ()
) -> list[Any]:
    """The outputs of the kernel, run as `cuda_device.launch` and `Plan.finish` would have it run."""
    dtype = arrays[0].dtype
    geometry = geometry_of(arrays, shapes)
    geometry = geometry._replace(layout=geometry.layout._replace(wide=wide, values=values))
    text = source(geometry, dtype, len(shapes))
    sums = geometry.split.sums
    (fresh,) = new_arrays(geometry, [dtype], np)
    targets = [np.empty_like(fresh) if s is None else np.full(s.copies * s.size + 2, np.nan) for s in sums]
    inside = [target if s is None else target[1:-1] for target, s in zip(targets, sums, strict=True)]
    how = cuda_grid.reduction_grid(geometry.sizes)
    size, stride = (np.int64, np.int64) if wide else (np.uint32, np.int32)
    numbers = [*map(size, (*geometry.sizes, how.span)), *map(stride, geometry.strides)]
    given = [each[()] if at in values else np.uint64(each.ctypes.data) for at, each in enumerate((*arrays, *inside))]
    blocks = [ptx.block_of(each) for each in (*arrays, *inside)]
    kernel_of(text, folder)(how.grid, how.block, [each.tobytes() for each in (*numbers, *given)], blocks)
    found = []
    for target, s, shape in zip(targets, sums, shapes, strict=True):
        if s is None:
            found.append(target if shape is None else target.reshape(shape))
            continue
        # All partial sums are written, and nothing beside them.
        assert np.isnan(target[[0, -1]]).all()
        with np.errstate(all="ignore"):
            found.append(combine(s, target[1:-1], None, dtype))
    return found


def check_exactly(arrays: tuple[Any, ...], shapes: list[Any], folder: Any, wide: bool = False) -> None:
    wanted = [None, *shapes, None]
    product = arrays[0].astype(np.int64) * arrays[1].astype(np.int64)
    for i, (result, shape) in enumerate(zip(emulate(arrays, wanted, folder, wide), wanted, strict=True)):
        expected = product + i if shape is None else reduced(product + i, shape)
        np.testing.assert_array_equal(result, expected, err_msg=f"{shape}")


@pytest.mark.cuda_compilers
@needs_gcc
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("shape", [(5,), (4, 3), (3, 4, 2), (2, 3, 2, 3)])
def test_every_pattern_in_one_kernel(shape, dtype, tmp_path):
    check_exactly((integers(shape, dtype), integers(shape[-1:], dtype, 1)), patterns(shape), tmp_path)


@pytest.mark.cuda_compilers
@needs_gcc
@pytest.mark.parametrize("pattern", [p for p in itertools.product(*([1, n] for n in (3, 4, 5))) if 1 in p])
def test_each_pattern_alone(pattern, tmp_path):
    check_exactly((integers((3, 4, 5), F4), integers((3, 4, 5), F4, 1)), [pattern], tmp_path)


@pytest.mark.cuda_compilers
@needs_gcc
@pytest.mark.parametrize(
    "shape",
    [(255,), (257,), (70_001,), (2, 257), (700, 3), (3, 600), (40, 31), (40, 33), (9, 128), (1000, 1), (130, 3, 70)],
)
def test_sizes(shape, tmp_path):
    check_exactly((integers(shape, F4), integers(shape[-1:], F4, 1)), patterns(shape), tmp_path)


@pytest.mark.cuda_compilers
@needs_gcc
@pytest.mark.parametrize("shape", [(300,), (4, 300), (2, 3, 2, 3)])
def test_indices_of_64_bits(shape, tmp_path):
    check_exactly((integers(shape, F4), integers(shape[-1:], F4, 1)), patterns(shape), tmp_path, wide=True)


@pytest.mark.cuda_compilers
@needs_gcc
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_a_number_for_an_argument(dtype, tmp_path):
    x, number = integers((40, 33), dtype), np.asarray(3, dtype)
    (total,) = emulate((x, number), [(1, 33)], tmp_path, values=(1,))
    np.testing.assert_array_equal(total, x.sum(0, keepdims=True) * 3)


@pytest.mark.cuda_compilers
@needs_gcc
def test_layouts_of_inputs(tmp_path):
    x = integers((3, 5, 4), F4)
    views = [x.transpose(2, 1, 0), x[::-1, :, ::-1], np.repeat(x, 2, 0)[::2], np.broadcast_to(x[:, :1], x.shape)]
    for number, view in enumerate(views):
        folder = tmp_path / str(number)
        folder.mkdir()
        check_exactly((view, integers(view.shape[1:], F4, 1)), patterns(view.shape), folder)


@pytest.mark.cuda_compilers
@needs_gcc
@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_real_terms(dtype, tmp_path):
    shape = (400, 70)
    x = np.random.default_rng(8).lognormal(0, 2, shape).astype(dtype)
    wanted = patterns(shape)
    for i, (result, pattern) in enumerate(
        zip(emulate((x, np.ones(shape, dtype)), wanted, tmp_path), wanted, strict=True)
    ):
        expected = fsum((x + dtype.type(i)).astype(np.float64), pattern)
        bound = 0.5001 if dtype == F4 else 8
        assert (abs(result.astype(np.float64) - expected) <= bound * np.spacing(expected.astype(dtype))).all()


@pytest.mark.cuda_compilers
@needs_gcc
def test_infinities_and_nan(tmp_path):
    x = np.ones((6, 4))
    x[1, 0], x[1, 1], x[4, 1], x[2, 2] = np.inf, np.inf, -np.inf, np.nan
    row, column, total = emulate((x, np.ones((6, 4))), [(4,), (6, 1), ()], tmp_path)
    np.testing.assert_array_equal(row, [np.inf, np.nan, np.nan, 6])
    np.testing.assert_array_equal(column[:, 0], [8, np.inf, np.nan, 8, -np.inf, 8])
    assert np.isnan(total)


@pytest.mark.cuda_compilers
@needs_gcc
def test_walks_of_float64_are_compensated(tmp_path):
    """10^16, ones and -10^16, one after another for the same thread."""
    x = np.ones((3 * 64, 3))
    x[0], x[128] = 1e16, -1e16
    how = cuda_grid.reduction_grid((192, 3))
    assert (how.chunks, how.block) == (1, (4, 64, 1))
    (row,) = emulate((x, np.ones((192, 1))), [(3,)], tmp_path)
    np.testing.assert_array_equal(row, [190.0] * 3)


# --- the launch ------------------------------------------------------------------------------------------------------


class DeviceArray(np.ndarray):
    """What the runtime uses of cupy.ndarray, over host memory."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data, device_id=0)


@pytest.mark.cuda_compilers
@needs_gcc
@pytest.mark.parametrize("shape", [(40, 70), (2, 30, 5), (3000,), (1, 1), (0, 3)])
def test_from_plan_to_result(shape, tmp_path, monkeypatch):
    """As a call goes, with an emulated GPU under it."""
    module = ModuleType("cupy")
    module.ndarray = DeviceArray
    module.cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0), alloc=Memory)
    for name in ("empty", "zeros"):
        create = getattr(np, name)
        setattr(module, name, lambda *arguments, create=create: create(*arguments).view(DeviceArray))
    monkeypatch.setitem(sys.modules, "cupy", module)
    arrays = integers(shape, F4).view(DeviceArray), integers(shape[-1:], F4, 1).view(DeviceArray)
    wanted = (None, *patterns(shape))
    call = plan(classify(arrays, ("x", "y")), [F4] * len(wanted), None, wanted)
    text = kernel_source(
        shifted_products(len(wanted)),
        call.geometry.layout,
        "float32",
        ["float32"] * 2,
        ["float32"] * len(wanted),
        "cuda",
    )

    def run(grid, block, arguments):
        blocks = [ptx.block_of(each) for each in (*arrays, *call.targets)]
        kernel_of(text, tmp_path)(grid, block, [each.tobytes() for each in arguments], blocks)

    monkeypatch.setattr(cuda_launch, "loaded", lambda _: run)
    kernel = cuda_kernel.CudaKernel(text, HOPPER, False, b"", 16, 0, 0, 0, 0)
    cuda_launch.launch(kernel, call.geometry.sizes, call.geometry.strides, call.pointers)
    product = np.asarray(arrays[0]).astype(np.int64) * np.asarray(arrays[1]).astype(np.int64)
    for i, (result, own) in enumerate(zip(finished(call), wanted, strict=True)):
        assert result.dtype == F4
        np.testing.assert_array_equal(np.asarray(result), product if own is None else reduced(product + i, own))


@pytest.mark.parametrize(
    "sizes", [(1,), (2,), (257,), (10**8,), (2**31 + 5,), (3, 3), (10**7, 3), (3, 10**7), (4096, 4096), (7, 9, 11, 13)]
)
def test_a_walk_covers_the_space(sizes):
    how = cuda_grid.reduction_grid(sizes)
    x, y, z = how.block
    assert (x * y, z) == (kernel_shell.THREADS_PER_BLOCK, 1)
    assert x & (x - 1) == 0
    assert how.span * how.chunks >= sizes[0] > how.span * (how.chunks - 1)
    assert how.span % (x if len(sizes) == 1 else y) == 0
    assert len(sizes) == 1 or how.columns * x >= sizes[-1] > (how.columns - 1) * x
    assert how.grid[1] * how.grid[2] >= how.chunks * math.prod(sizes[1:-1])
    assert max(how.grid[1:]) <= cuda_grid.MAX_GRID_YZ


def test_few_partial_sums():
    """The dimension that is walked is chosen so that nothing of the size of the result is written."""
    x = np.broadcast_to(np.float32(0), (50, 400, 300))
    for pattern in [(50, 1, 300), (1, 400, 300), (1, 1, 300), (50, 1, 1), (1, 400, 1), (50, 400, 1)]:
        (s,) = geometry_of((x,), [pattern]).split.sums
        assert s.size == math.prod(pattern)
        assert s.copies * s.size <= x.size / 8, pattern


# --- the machine code ------------------------------------------------------------------------------------------------


@pytest.mark.cuda_compilers
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", sampled([(50,), (40, 30), (3, 4, 5), (2, 3, 4, 5)], 2))
def test_kernels_compile(shape, dtype):
    wanted = [None, *patterns(shape)]
    geometry = geometry_of((np.ones(shape, dtype), np.ones(shape[-1:], dtype)), wanted)
    wide = geometry._replace(layout=geometry.layout._replace(wide=True))
    assert cuda_kernel.compile_kernel(source(wide, dtype, len(wanted)), HOPPER).spill_loads == 0
    kernel = cuda_kernel.compile_kernel(source(geometry, dtype, len(wanted)), HOPPER)
    assert (kernel.spill_loads, kernel.spill_stores, kernel.stack) == (0, 0, 0)
    assert kernel.registers <= 168  # of float64 with 23 sums, each with its rest
    code = kernel.ptx()
    assert "shfl.sync.down" in code
    assert code.count("st.global.b64") + code.count("st.global.f64") >= len(wanted) - 2
    assert "atom" not in code


def test_a_name_that_is_no_c_identifier_is_refused():
    layout = geometry_of((np.ones(3), np.ones(3)), [()]).layout
    with pytest.raises(ValueError, match="cannot name"):
        kernel_shell.cuda_shell(layout, "größe", ["float64"] * 2, ["float64"], "float64")
