"""The handler that launches CUDA kernels for XLA: with a driver that only notes what it is asked for; with CuPy's."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import pytest
from xla_frame import Frame

from dualbcast import differentiable_broadcast
from dualbcast.codegen.loops.xla_cuda import CUDA_LAUNCH
from dualbcast.interop import xla, xla_cuda

NAME = 987_654_321


class Driver:
    """In the place of cuLaunchKernel: it notes its arguments, and what the kernel's would be."""

    def __init__(self, numbers: int, pointers: int, status: int = 0) -> None:
        self.launches: list[tuple[Any, ...]] = []
        kinds = [ctypes.c_int64, *[ctypes.c_int64] * 8, ctypes.c_int64, ctypes.c_int64]

        @ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)
        def launch(*given: int) -> int:
            function, *shape, stream, places, extra = given
            assert extra == 0
            addresses = (ctypes.c_int64 * (numbers + pointers)).from_address(places)
            first = [ctypes.c_uint32.from_address(each).value for each in addresses[:numbers]]
            rest = [ctypes.c_int64.from_address(each).value for each in addresses[numbers:]]
            self.launches.append((function, tuple(shape), stream, first, rest))
            return status

        self.kept = launch
        self.handler = xla_cuda.handler_with(ctypes.cast(launch, ctypes.c_void_p).value or 0)


def launch_of(pointers: int, arguments: int, devices: list[int], mask: int = 0) -> int:
    """A launch of a kernel with two numbers, 7 and 9."""
    name = NAME + len(xla.table().launches)
    numbers = [xla.kept(np.array([each], np.uint32)) for each in (7, 9)]
    values = {
        "functions": xla.kept(np.array(devices, np.int64)),
        "devices": len(devices),
        **dict(zip(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z"), range(2, 8), strict=True)),
        "addresses": xla.kept(np.array(numbers, np.int64)),
        "numbers": 2,
        "pointers": pointers,
        "arguments": arguments,
        "mask": mask,
    }
    xla.table().add(name, [values[each] for each in CUDA_LAUNCH])
    return name


def test_a_kernel_is_launched_on_the_stream_that_xla_gives() -> None:
    driver = Driver(numbers=2, pointers=3)
    frame = Frame([1600, 3200], [4800], launch_of(3, 2, [111]), stream=55)
    assert frame.run(driver.handler) == 0
    assert driver.launches == [(111, (2, 3, 4, 5, 6, 7, 0), 55, [7, 9], [1600, 3200, 4800])]
    assert not frame.errors


def test_of_several_gpus_the_kernel_is_that_of_the_one_that_runs_the_program() -> None:
    driver = Driver(numbers=2, pointers=1)
    name = launch_of(1, 0, [111, 222, 333])
    assert Frame([], [16], name, device=2).run(driver.handler) == 0
    assert [launch[0] for launch in driver.launches] == [333]
    assert Frame([], [16], name, device=3).run(driver.handler) != 0
    assert len(driver.launches) == 1


def test_what_goes_wrong_is_an_error_of_xla() -> None:
    driver = Driver(numbers=2, pointers=2, status=700)
    name = launch_of(2, 1, [111], mask=15)
    frame = Frame([16], [24], name)
    assert frame.run(driver.handler) == 1001
    assert b"not aligned" in frame.errors[0][0]
    assert not driver.launches
    frame = Frame([16], [32], name)
    assert frame.run(driver.handler) == 1001
    assert frame.errors == [(b"a kernel of dualbcast failed", 13)]
    assert len(driver.launches) == 1
    # An error of the interface itself is handed on.
    assert Frame([16], [32], name, refuses=True).run(driver.handler) == 7
    unknown = Frame([], [], 1)
    assert unknown.run(driver.handler) == 1001
    assert b"not prepared" in unknown.errors[0][0]
    assert len(driver.launches) == 1


@differentiable_broadcast
def steered(x: float, y: float, n: int) -> tuple[float, float, int]:
    if x > 0:
        return x * math.sin(y), 3.0, n + 1
    return y * n, 3.0, n


@pytest.mark.gpu
@pytest.mark.parametrize(
    "shapes", [((4, 1), (3,), ()), ((70, 128), (128,), (70, 1)), ((5, 6, 7), (6, 1), (7,)), ((), (), ())]
)
def test_kernels_run_on_a_gpu(shapes: tuple[tuple[int, ...], ...]) -> None:
    """The frame has addresses of CuPy's memory, and CuPy's stream."""
    import cupy

    random = np.random.default_rng(2)
    x, y = (np.asarray(random.standard_normal(shape), np.float32) for shape in shapes[:2])
    n = np.asarray(random.integers(-3, 4, shapes[2]), np.int32)
    wanted = steered(x, y, n)
    element = steered._dispatch.find((x, y, n), {}, None)[0].element
    forms = tuple([(each.shape, each.dtype) for each in (x, y, n)])
    device = cupy.cuda.Device()
    cc = int(device.compute_capability[:-1]), int(device.compute_capability[-1])
    dtypes = (np.dtype(np.float32), np.dtype(np.float32), np.dtype(np.int32))
    prepared = xla_cuda.prepare(element, forms, dtypes, "float32", (device.id,), cc)
    assert prepared.launch is not None
    assert prepared.outputs[1][2] == 3.0
    arguments = [cupy.asarray(each) for each in (x, y, n)]
    results = [cupy.empty(each.shape, each.dtype) for each in prepared.launch.results]
    stream = cupy.cuda.Stream()
    with stream:
        addresses = [each.data.ptr for each in (*arguments, *results)]
        frame = Frame(addresses[:3], addresses[3:], prepared.launch.name, stream=stream.ptr, device=device.id)
        assert frame.run(xla_cuda.handler()) == 0
    stream.synchronize()
    for (shape, dtype, place), its in zip(prepared.outputs, wanted, strict=True):
        if isinstance(place, int):
            assert results[place].dtype == dtype
            np.testing.assert_allclose(results[place].get().reshape(shape), its, rtol=1e-5, atol=1e-6)


@pytest.mark.gpu
def test_jax_calls_kernels_on_a_gpu() -> None:
    """It needs JAX with CUDA, and a GPU that is none of the emulated driver's."""
    jax = pytest.importorskip("jax")
    try:
        devices = jax.devices("cuda")
    except RuntimeError as error:
        pytest.skip(f"JAX has no GPU: {error}")
    random = np.random.default_rng(4)
    x, y = random.standard_normal((300, 1), np.float32), random.standard_normal((500,), np.float32)
    on_gpu = [jax.device_put(each, devices[0]) for each in (x, y)]

    def loss(x: Any, y: Any) -> Any:
        return jax.numpy.sum(steered(x, y, 2)[0] ** 2)

    value, slopes = jax.jit(jax.value_and_grad(loss, (0, 1)))(*on_gpu)
    with jax.default_device(jax.devices("cpu")[0]):
        wanted, its = jax.jit(jax.value_and_grad(loss, (0, 1)))(x, y)
    np.testing.assert_allclose(value, wanted, rtol=1e-4)
    for mine, each in zip(slopes, its, strict=True):
        np.testing.assert_allclose(mine, each, rtol=1e-3, atol=1e-4)
