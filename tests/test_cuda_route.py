"""Whole calls on CuPy arrays, with NumPy's memory for a GPU's and launches written down: routes, devices, memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import models
import numpy as np
import pytest
from test_broadcast import Memory

from dualbcast import ArgumentError, BackendError, differentiable_broadcast
from dualbcast.element import Element
from dualbcast.runtime import cuda, cuda_device

WRT = tuple("cfig")


class DriverError(Exception):
    pass


class DeviceArray(np.ndarray):
    """What the runtime uses of cupy.ndarray, over host memory."""

    where = 0

    def __array_finalize__(self, parent: Any) -> None:
        self.where = getattr(parent, "where", GPU.current)

    @property
    def data(self) -> Any:
        return SimpleNamespace(ptr=self.ctypes.data, device_id=self.where)


class GPU:
    """What CuPy is told."""

    current = 0

    def __init__(self) -> None:
        self.launches: list[tuple[int, str, Any, Any, tuple[Any, ...]]] = []
        self.loads: list[tuple[int, bytes]] = []
        self.blocks: list[int] = []
        self.full = False
        gpu = self

        class Module:
            def load(self, image: bytes) -> None:
                if gpu.full:
                    raise DriverError("CUDA_ERROR_OUT_OF_MEMORY: out of memory")
                gpu.loads.append((GPU.current, image))

            def get_function(self, name: str) -> Any:
                def function(grid: Any, block: Any, args: tuple[Any, ...], stream: Any = None) -> None:
                    assert stream is None
                    gpu.launches.append((GPU.current, name, grid, block, args))

                return function

        @contextlib.contextmanager
        def device(number: int) -> Iterator[None]:
            before, GPU.current = GPU.current, number
            try:
                yield
            finally:
                GPU.current = before

        def alloc(size: int) -> Memory:
            if gpu.full:
                raise MemoryError(f"Out of memory allocating {size:,} bytes.")
            gpu.blocks.append(size)
            return Memory(size)

        class Device:
            compute_capability = "90"

            def __init__(self, number: int) -> None:
                self.context = device(number)

            def __enter__(self) -> None:
                self.context.__enter__()

            def __exit__(self, *error: Any) -> None:
                self.context.__exit__(*error)

        runtime = SimpleNamespace(
            getDevice=lambda: GPU.current, driverGetVersion=lambda: 13000, CUDARuntimeError=type("E", (Exception,), {})
        )
        self.module = ModuleType("cupy")
        self.module.ndarray = DeviceArray
        self.module.cuda = SimpleNamespace(
            alloc=alloc,
            runtime=runtime,
            Device=Device,
            driver=SimpleNamespace(CUDADriverError=DriverError),
            function=SimpleNamespace(Module=Module),
        )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> GPU:
    found = GPU()
    monkeypatch.setitem(sys.modules, "cupy", found.module)
    monkeypatch.setattr(GPU, "current", 0)
    monkeypatch.setattr(
        cuda,
        "compile_kernel",
        lambda source, cc, fastmath: cuda.CudaKernel(source, cc, fastmath, source.shell.encode(), 32, 0, 0, 0, 0),
    )
    return found


def arrays(shape: tuple[int, int] = (16, 32), device: int = 0) -> list[DeviceArray]:
    """Gates and controls, aligned to more than any access."""
    found = []
    for size in (shape,) * 4 + ((shape[0], 1),) * 2:
        memory = np.zeros(int(np.prod(size)) * 4 + 512, np.uint8)
        start = -memory.ctypes.data % 512
        array = memory[start : start + int(np.prod(size)) * 4].view(np.float32).reshape(size).view(DeviceArray)
        array.where = device
        found.append(array)
    return found


def pointers(launch: Any) -> list[int]:
    """The addresses that a launch was given, as numbers or as arrays."""
    found = [a.ctypes.data if isinstance(a, DeviceArray) else a for a in launch[-1]]
    return [int(a) for a in found if type(a) is np.uint64 or type(a) is int]


def numbers(launch: Any) -> list[int]:
    return [int(argument) for argument in launch[-1] if type(argument) in (np.uint32, np.int32)]


def test_a_warm_call_goes_straight_to_the_launch(gpu: GPU, monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(models.cell_update)
    first = arrays()
    function.value_and_jacobian(*first, wrt=WRT)
    monkeypatch.setattr(Element, "prepare", lambda *_, **__: pytest.fail("planned again"))
    second = arrays()
    value, jacobian = function.value_and_jacobian(*second, wrt=WRT)
    cold, warm = gpu.launches
    assert len(gpu.loads) == 1
    assert (warm[2:4], numbers(warm)) == (cold[2:4], numbers(cold))
    outputs = [value, *(jacobian[name] for name in WRT)]
    assert pointers(warm) == [array.ctypes.data for array in (*second, *outputs)]
    assert pointers(cold)[:6] == [array.ctypes.data for array in first]
    assert all(y.shape == (16, 32) and y.dtype == np.float32 and type(y) is DeviceArray for y in outputs)


def test_the_outputs_are_one_block_and_apart(gpu: GPU) -> None:
    value, jacobian = differentiable_broadcast(models.cell_update).value_and_jacobian(*arrays((16, 33)), wrt=WRT)
    places = sorted(array.ctypes.data for array in (value, *(jacobian[name] for name in WRT)))
    # 16 · 33 · 4 = 2112 bytes each, and whole units of 512.
    assert gpu.blocks == [5 * 2560]
    assert np.diff(places).tolist() == [2560] * 4


def test_four_elements_a_thread_where_the_arrays_suit_it(gpu: GPU) -> None:
    function = differentiable_broadcast(models.cell_update)
    function(*arrays())
    wide = gpu.launches[-1]
    assert numbers(wide) == [16, 8, 8, 1]  # rows, groups of a row, from row to row in groups, and of what is by rows
    assert wide[2][0] * wide[3][0] >= 8
    odd = [array[:, 1:31] if array.shape[1] > 1 else array for array in arrays()]
    function(*odd)
    assert numbers(gpu.launches[-1])[:3] == [16, 30, 32]
    assert len(gpu.loads) == 2
    # The same forms elsewhere in memory: the route of the first call does not serve it.
    shifted = arrays((16, 33))
    moved = [array.reshape(-1)[1 : 1 + 16 * 32].reshape(16, 32) if array.shape[1] > 1 else array for array in shifted]
    function(*moved)
    assert numbers(gpu.launches[-1])[:3] == [16, 32, 32]
    assert pointers(gpu.launches[-1])[:4] == [array.ctypes.data for array in moved[:4]]
    function(*arrays())
    assert numbers(gpu.launches[-1]) == numbers(wide)


def test_the_device_of_the_arrays_decides(gpu: GPU) -> None:
    function = differentiable_broadcast(models.cell_update)
    for device in (0, 1, 1, 0):
        value = function(*arrays(device=device))
        assert gpu.launches[-1][0] == device
        assert value.where == device
        assert GPU.current == 0
    assert [device for device, _ in gpu.loads] == [0, 1]


def test_arrays_on_two_devices_are_one_error(gpu: GPU) -> None:
    mixed = [*arrays()[:3], *arrays(device=1)[3:]]
    with pytest.raises(ArgumentError, match="on GPUs 0 and 1; copy them to one"):
        differentiable_broadcast(models.cell_update)(*mixed)
    assert gpu.launches == []


def test_memory_that_does_not_suffice(gpu: GPU) -> None:
    function = differentiable_broadcast(models.cell_update)
    gpu.full = True
    with pytest.raises(MemoryError, match="Out of memory allocating") as caught:
        function.value_and_jacobian(*arrays(), wrt=WRT)
    (note,) = caught.value.__notes__
    assert "take 10,240 bytes" in note
    assert "free_all_blocks()" in note
    kernel = SimpleNamespace(functions={}, cc=(9, 0), image=b"", entry="f")
    with pytest.raises(BackendError, match=r"no memory left for a kernel's code: CUDA_ERROR_OUT_OF_MEMORY"):
        cuda_device._loaded(kernel)  # type: ignore[arg-type]
