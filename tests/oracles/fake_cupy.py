"""A stand-in for CuPy where there is no GPU: arrays in host memory; kernels are loaded and launched, and do nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.paper import by_hand
from dualbcast.cli import measure
from dualbcast.runtime.cuda import kernel as cuda_kernel


class Memory:
    """A place in a block of memory, aligned as CuPy's blocks are."""

    def __init__(self, block: np.ndarray, at: int) -> None:
        self.block, self.at = block, at

    def __add__(self, offset: int) -> Memory:
        return Memory(self.block, self.at + offset)

    @staticmethod
    def alloc(size: int) -> Memory:
        block = np.zeros(size + 512, np.uint8)
        return Memory(block, -block.ctypes.data % 512)


class ndarray(np.ndarray):  # noqa: N801  # CuPy's name
    """A host array that passes for CuPy's."""

    def __new__(cls, shape: Any, dtype: Any = float, memory: Memory | None = None) -> ndarray:
        if memory is None:
            memory = Memory.alloc(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return super().__new__(cls, tuple(shape), dtype, buffer=memory.block.data, offset=memory.at)

    @property
    def data(self) -> Any:  # type: ignore[override]
        pointer = self.__array_interface__["data"][0]
        return SimpleNamespace(ptr=pointer, device_id=0, copy_from_device_async=lambda *_: None)

    def get(self) -> np.ndarray:
        return np.asarray(self)


class Event:
    """An event that has not come when it is asked for, as long as the host keeps ahead."""

    late = 0  # how many times the device is ahead of the host first
    asked = 0

    def record(self) -> None:
        pass

    def synchronize(self) -> None:
        pass

    @property
    def done(self) -> bool:
        Event.asked += 1
        return Event.asked <= Event.late


class FakeCuPy(ModuleType):
    """The module; `images` has every cubin that was loaded, `launches` the name and arguments of every launch."""

    def __init__(self) -> None:
        super().__init__("cupy")
        self.ndarray = ndarray
        self.images: list[bytes] = []
        self.launches: list[tuple[Any, ...]] = []
        fake = self

        class Module:
            def load(self, image: bytes) -> None:
                fake.images.append(image)

            def get_function(self, name: str) -> Any:
                def function(grid: Any, block: Any, args: Any, stream: Any = None) -> None:
                    fake.launches.append((name, grid, block, args, stream))

                return function

        self.cuda = SimpleNamespace(
            runtime=SimpleNamespace(
                getDevice=lambda: 0,
                getDeviceCount=lambda: 1,
                driverGetVersion=lambda: 13000,
                CUDARuntimeError=type("CUDARuntimeError", (Exception,), {}),
            ),
            driver=SimpleNamespace(CUDADriverError=type("CUDADriverError", (Exception,), {})),
            function=SimpleNamespace(Module=Module),
            Device=lambda *_: SimpleNamespace(compute_capability="90", id=0),
            Event=Event,
            alloc=Memory.alloc,
            get_elapsed_time=lambda *_: 0.5,
            get_current_stream=lambda: SimpleNamespace(synchronize=lambda: None, ptr=0),
        )

    def __getattr__(self, name: str) -> Any:
        function = getattr(np, name)
        if not callable(function) or isinstance(function, type):
            return function

        def wrapped(*arguments: Any, **options: Any) -> Any:
            result = function(*arguments, **options)
            return result.view(ndarray) if isinstance(result, np.ndarray) else result

        return wrapped

    @staticmethod
    def get_default_memory_pool() -> SimpleNamespace:
        return SimpleNamespace(free_all_blocks=lambda: None)

    @staticmethod
    def asnumpy(array: Any) -> np.ndarray:
        return np.asarray(array).view(np.ndarray)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuPy]:
    """The stand-in in CuPy's place, and a device for the command line to find."""
    fake = FakeCuPy()
    Event.late = Event.asked = 0
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setattr(measure, "gpus", lambda: (measure.Gpu("Pretended H1", "9.0", 4, 1 << 30, 1 << 20),))
    # What is loaded here must not be launched elsewhere.
    cuda_kernel._kernels.clear()
    by_hand._function.cache_clear()
    yield fake
    cuda_kernel._kernels.clear()
    by_hand._function.cache_clear()
