"""Whole calls on CuPy arrays, with NumPy's memory for a GPU's and launches written down: routes, devices, memory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import models
import numpy as np
import pytest
from memory_model import Memory

from dualbcast import ArgumentError, BackendError, derivative, differentiable_broadcast, graph
from dualbcast.program.element import Element
from dualbcast.runtime.cuda import kernel as cuda_kernel
from dualbcast.runtime.cuda import launch as cuda_launch

WRT = tuple("cfig")


class DriverError(Exception):
    pass


class DeviceArray(np.ndarray):
    """What the runtime uses of cupy.ndarray, over host memory."""

    def __array_finalize__(self, parent: Any) -> None:
        self._where = getattr(parent, "where", GPU.current)

    @property
    def where(self) -> int:
        """The device that the memory is on, which need not be the current one when the array is made."""
        memory: Any = self.base
        while isinstance(memory, np.ndarray):
            memory = memory.base
        return getattr(getattr(memory, "obj", memory), "device", self._where)

    @where.setter
    def where(self, device: int) -> None:
        self._where = device

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any) -> Any:
        """As CuPy does, refuse arrays that are not on the current device."""
        for each in (*inputs, *out):
            assert getattr(each, "where", GPU.current) == GPU.current, "an array of another device"
        plain = [np.asarray(each) if isinstance(each, DeviceArray) else each for each in inputs]
        if out:
            options["out"] = tuple(np.asarray(each) for each in out)
        result = getattr(ufunc, method)(*plain, **options)
        return out[0] if out else np.asarray(result).view(DeviceArray)

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Any:
        assert self.where == GPU.current, "an array of another device"
        return np.asarray(self).astype(dtype).view(DeviceArray)

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
        self.full = self.capturing = False
        gpu = self

        class Module:
            def load(self, image: bytes) -> None:
                if gpu.full:
                    raise DriverError("CUDA_ERROR_OUT_OF_MEMORY: out of memory")
                if gpu.capturing:
                    raise DriverError("CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: operation not permitted")
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
            memory = Memory(size)
            memory.device = GPU.current  # type: ignore[attr-defined]
            return memory

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
        self.module.asarray = lambda number, dtype: np.asarray(number, dtype).view(DeviceArray)
        self.module.broadcast_to = lambda array, shape: np.broadcast_to(array, shape, subok=True)
        self.module.empty = lambda shape, dtype=float: np.empty(shape, dtype).view(DeviceArray)
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
        cuda_kernel,
        "compile_program",
        lambda _, write, cc, fastmath: cuda_kernel.CudaKernel(
            source := write(), cc, fastmath, source.shell.encode(), 32, 0, 0, 0, 0
        ),
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
    """The addresses that a launch was given, as numbers, arrays or memory."""
    found = [a.ctypes.data if isinstance(a, DeviceArray) else a for a in launch[-1]]
    found = [np.frombuffer(a, np.uint8).ctypes.data if isinstance(a, Memory | memoryview) else a for a in found]
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


def test_arrays_of_partials_are_made_when_they_are_asked_for(gpu: GPU, monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(models.cell_update)
    function.value_and_jacobian(*arrays(), wrt=WRT)
    made: list[tuple[int, ...]] = []

    def make(cls: Any, shape: Any, *given: Any) -> Any:
        made.append(shape)
        return np.ndarray.__new__(cls, shape, *given)

    inputs = arrays()
    monkeypatch.setattr(DeviceArray, "__new__", make)
    value, jacobian = function.value_and_jacobian(*inputs, wrt=WRT)
    assert len(gpu.launches) == 2
    assert len(made) == 1
    assert jacobian["i"] is jacobian["i"]
    assert len(made) == 5
    assert len({each.ctypes.data for each in (value, *(jacobian[name] for name in WRT))}) == 5


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
        cuda_launch.loaded(kernel)  # type: ignore[arg-type]


def planned_again(*_: Any, **__: Any) -> None:
    pytest.fail("planned again")


def row(start: int = 0, device: int = 0, dtype: Any = np.float32, count: int = 32) -> DeviceArray:
    """A contiguous array, `start` elements behind an address that suits any access."""
    size = np.dtype(dtype).itemsize
    memory = np.zeros((start + count) * size + 512, np.uint8)
    first = -memory.ctypes.data % 512 + start * size
    array = memory[first : first + count * size].view(dtype).view(DeviceArray)
    array.where = device
    return array


def scaled(x: float, scale: float, n: int, flag: bool) -> float:
    return x * scale + n if flag else x


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_numbers_are_arguments_of_the_kernel(gpu: GPU, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    function = differentiable_broadcast(scaled)
    function(row(dtype=dtype), 0.5, 3, True)
    monkeypatch.setattr(Element, "prepare", planned_again)
    x = row(dtype=dtype)
    y = function(x, 0.25, 4, False)
    compute = np.float64 if name == "float64" else np.float32
    for launch, numbers in zip(gpu.launches, [(compute(0.5), 3, True), (compute(0.25), 4, False)], strict=True):
        given = launch[-1][2:5]
        assert given == numbers
        assert [type(number) for number in given] == [compute, np.int64, np.bool_]
    assert pointers(gpu.launches[1]) == [x.ctypes.data, y.ctypes.data]
    # Of the device's memory they take nothing, which a graph of launches would have to keep.
    assert gpu.blocks == [512, 512]
    (shell,) = [image.decode() for _, image in gpu.loads]
    kind = "double" if name == "float64" else "float"
    assert f"const {kind} in1, const signed long long in2, const unsigned char in3, " in shell


def test_numbers_of_numpy_keep_their_dtypes(gpu: GPU) -> None:
    function = differentiable_broadcast(lambda x, a, b: x * a + b)
    half = ml_dtypes.bfloat16
    function(row(dtype=half), half(1.5), np.uint8(7))
    number, other = gpu.launches[-1][-1][2:4]
    assert (type(number), number) == (np.uint16, half(1.5).view(np.uint16))
    assert (type(other), other) == (np.uint8, 7)
    function(row(dtype=np.float16), np.float16(1.5), np.int8(-7))
    assert [type(number) for number in gpu.launches[-1][-1][2:4]] == [np.float16, np.int8]


@pytest.mark.usefixtures("gpu")
def test_a_number_that_does_not_fit() -> None:
    function = differentiable_broadcast(scaled)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="n is 9223372036854775808, which int64 cannot hold"):
            function(row(), 0.5, 2**63, True)
        function(row(), 0.5, 3, True)


def test_a_warm_call_with_out_is_short_too(gpu: GPU, monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(lambda x, scale: x * scale)
    function(row(), 2.0, out=row())
    with monkeypatch.context() as patch:
        patch.setattr(Element, "prepare", planned_again)
        x, y = row(), row()
        assert function(x, 3.0, out=y) is y
    assert pointers(gpu.launches[-1]) == [x.ctypes.data, y.ctypes.data]
    assert gpu.blocks == []
    # In place, misaligned for wide accesses, or one behind the other: forms do not say that.
    assert function(x, 3.0, out=x) is x
    assert len(gpu.blocks) == 1
    assert pointers(gpu.launches[-1])[1] != x.ctypes.data
    odd = row(1)
    assert function(x, 3.0, out=odd) is odd
    assert pointers(gpu.launches[-1]) == [x.ctypes.data, odd.ctypes.data]
    assert numbers(gpu.launches[-2]) == [8]  # groups of four
    assert numbers(gpu.launches[-1]) == [32]
    both = row(count=48)
    function(both[:32], 3.0, out=both[16:])
    assert len(gpu.blocks) == 2


def test_a_jacobian_in_out(gpu: GPU, monkeypatch: pytest.MonkeyPatch) -> None:
    function = differentiable_broadcast(models.cell_update)
    out = function.value_and_jacobian(*arrays(), wrt=WRT)
    for _ in range(2):
        found = function.value_and_jacobian(*arrays(), wrt=WRT, out=out)
        monkeypatch.setattr(Element, "prepare", planned_again)
    written = [out[0], *(out[1][name] for name in WRT)]
    assert pointers(gpu.launches[-1])[6:] == [array.ctypes.data for array in written]
    assert found[0] is out[0]
    assert len(gpu.blocks) == 1


def test_out_on_another_device(gpu: GPU) -> None:
    function = differentiable_broadcast(lambda x: 2 * x)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="on GPUs 0 and 1"):
            function(row(), out=row(device=1))
        function(row(), out=row())
    function(row(device=1), out=row(device=1))
    assert [launch[0] for launch in gpu.launches] == [0, 0, 1]


def test_each_device_has_a_route(gpu: GPU, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever takes turns with devices, from whichever is current, plans once for each."""
    function = differentiable_broadcast(models.cell_update)
    for device in (0, 1):
        function(*arrays(device=device))
    monkeypatch.setattr(Element, "prepare", planned_again)
    for current, device in [(0, 1), (0, 0), (1, 1), (1, 0), (1, 1)]:
        monkeypatch.setattr(GPU, "current", current)
        value = function(*arrays(device=device))
        assert (gpu.launches[-1][0], value.where, GPU.current) == (device, device, current)
    assert [device for device, _ in gpu.loads] == [0, 1]


def test_derivatives_on_another_device(gpu: GPU) -> None:
    """What is made around a launch is made where the launch was."""
    device = 1

    def two(x: float, y: float) -> tuple[float, float]:
        return x * y * y, 3.0 * x

    function = differentiable_broadcast(two)
    x, y = row(device=device), row(device=device)
    value, jacobian = function.value_and_jacobian(x, y)
    blocks = [jacobian[output, name] for output in range(2) for name in "xy"]  # 3 and 0 are views of a number
    _, pullback = function.vjp(x, y)
    gradients = pullback(*value)
    _, same = function.value_and_vjp((x, y), (row(device=device, dtype=np.float64), value[1]))
    _, tangents = function.jvp((x, y), (row(device=device, dtype=np.float64), y))
    hessian = function.hessian(x, y)
    found = [*value, *blocks, *gradients, *same, *tangents, hessian[0, "x", "y"], hessian[1, "x", "x"]]
    found += [*jacobian.pullback(*value), *jacobian.pushforward(x, y)]
    found.append(derivative(lambda a, b: a * b * b, wrt=1)(x, y))
    assert [array.where for array in found] == [device] * len(found)
    assert {launch[0] for launch in gpu.launches} == {device}
    assert function.explain(x, y).shape == (32,)
    assert GPU.current == 0


@pytest.mark.cuda_compilers
@pytest.mark.usefixtures("gpu")
def test_text_for_the_capability_of_another_device() -> None:
    function = differentiable_broadcast(lambda x, y: x * y * y)
    assert ".target sm_90" in function.inspect_ptx(row(device=1), row(device=1))
    assert GPU.current == 0


@pytest.mark.parametrize("policy", ["cache", "recompute"])
def test_the_graph_on_another_device(gpu: GPU, policy: str) -> None:
    function = differentiable_broadcast(jacobian=policy)(lambda x, y: x * y * y)
    x, y = graph.Variable(np.zeros(32, np.float32)), graph.Variable(np.zeros(32, np.float32))
    x._value = y._value = row(device=1)  # a Variable takes no subclass of NumPy's array, which these pretend not to be
    z = function(x, y)
    assert z.value.where == 1
    assert {launch[0] for launch in gpu.launches} == {1}
    assert GPU.current == 0


def test_nothing_but_sums_or_constants(gpu: GPU) -> None:
    """Then there is no output to allocate beside the partial sums, or none at all."""
    function = differentiable_broadcast(lambda x, w: x * w)
    x = row(count=64).reshape(2, 32)
    for _ in range(2):
        (found,) = function.value_and_vjp((x, row()), x, wrt="w")[1]
        assert found.shape == (32,)
    (alone,) = function.vjp(x, row(), wrt="w")[1](x)
    assert alone.shape == (32,)
    assert len(gpu.launches) == 4  # two of both, and the value and the pullback
    hessian = function.hessian(row(), row())
    assert np.asarray(hessian["x", "w"]).tolist() == [1.0] * 32
    jacobian = differentiable_broadcast(lambda x: 3.0 * x).jacobian(row())
    assert np.asarray(jacobian["x"]).tolist() == [3.0] * 32
    assert len(gpu.launches) == 4


def test_a_capture_takes_calls_that_were_made_before(gpu: GPU) -> None:
    function = differentiable_broadcast(scaled)
    gpu.capturing = True
    with pytest.raises(BackendError, match="Make the call once before the capture"):
        function(row(), 0.5, 3, True)
    gpu.capturing = False
    function(row(), 0.5, 3, True)
    gpu.capturing = True
    function(row(), 0.25, 4, True)
    assert len(gpu.launches) == 2
