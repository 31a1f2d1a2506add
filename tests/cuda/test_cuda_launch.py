"""How CUDA kernels are launched, tested without a GPU: which thread computes what, occupancy, and what CuPy is told."""

from __future__ import annotations

import itertools
import math
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from dualbcast.codegen.cuda import kernel_shell, occupancy
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.runtime.cuda import grid as cuda_grid
from dualbcast.runtime.cuda import kernel as cuda_kernel
from dualbcast.runtime.cuda import launch as cuda_launch

HOPPER = (9, 0)


# The shell, executed: its lines are simple enough to be Python, too.


def element_indices(layout, sizes, strides, block=256):
    """What each thread of the launch passes to the element function as indices, by running the shell's text."""
    code = kernel_shell.cuda_shell(layout, "kernel", ["float32"] * len(layout.classes), ["float32"])
    parameters = re.search(r"^kernel\((.*)\)$", code, re.MULTILINE).group(1)
    names = [p.split()[-1] for p in parameters.split(", ")]
    integers = [name for name in names if not name.startswith(("in", "out"))]
    assert len(integers) == len(sizes) + len(strides)
    body = re.search(r"\{\n(.*)\}", code, re.DOTALL).group(1)
    body = re.sub(r"\((?:int|long long)\)|const (?:unsigned int|long long) |;", "", body).replace("/", "//")
    body = re.sub(r"if \((.*)\) return", r"if \1: raise StopIteration", body.replace("||", "or"))
    program = compile(re.sub(r"^    ", "", body, flags=re.MULTILINE), "shell", "exec")
    kernel = SimpleNamespace(source=SimpleNamespace(layout=layout, summed=()), block=block)
    (gx, gy, gz), (bx, by, bz), told = cuda_launch.prepared.__wrapped__(kernel, tuple(sizes), tuple(strides))
    assert bx * by * bz <= kernel_shell.THREADS_PER_BLOCK
    found = []
    scope = dict(zip(integers, map(int, told), strict=True))
    scope |= {name: name for name in names if name not in integers}
    scope |= {"kernel_element": lambda *arguments: found.append(arguments[: -len(layout.classes) - 1])}
    scope |= {"gridDim": SimpleNamespace(x=gx, y=gy, z=gz), "blockDim": SimpleNamespace(x=bx, y=by, z=bz)}
    for x, y, z in itertools.product(range(gx), range(gy), range(gz)):
        for tx, ty in itertools.product(range(bx), range(by)):
            threads = {"blockIdx": SimpleNamespace(x=x, y=y, z=z), "threadIdx": SimpleNamespace(x=tx, y=ty, z=0)}
            try:
                exec(program, scope | threads)
            except StopIteration:
                continue
    return found


@pytest.mark.parametrize("lanes", [2, 4])
@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("classes", "sizes", "strides"),
    [
        (("1", "0"), (2800,), ()),
        (("s1", "s0", "01", "00"), (5, 36), (40, 3)),
        (("s1", "s1", "s0"), (200, 4), (4, -8, 1)),
        (("ss1", "s00", "0s1", "s00"), (3, 4, 8), (32, 8, 7, -12, 5)),
    ],
)
def test_a_thread_of_several_elements_begins_with_the_first_of_them(classes, sizes, strides, wide, lanes):
    layout = Layout(len(sizes), classes, (*range(len(classes)), 0), wide, lanes)
    remaining = iter(strides)
    starts = [range(size) for size in sizes[:-1]] + [range(0, sizes[-1], lanes)]
    steps = [[{"1": 1, "0": 0}.get(kind) or (next(remaining) if kind == "s" else 0) for kind in p] for p in classes]
    expected = [
        tuple(sum(map(math.prod, zip(place, row, strict=True))) for row in steps if any(row))
        for place in itertools.product(*starts)
    ]
    assert sorted(element_indices(layout, sizes, strides)) == sorted(expected)


@pytest.mark.parametrize(("wide", "block"), [(False, 256), (True, 256), (False, 128)])
@pytest.mark.parametrize(
    ("classes", "sizes", "strides"),
    [
        (("1",), (700,), ()),
        (("1", "s", "0"), (33,), (-2,)),
        (("s1", "s0", "01", "ss"), (5, 37), (40, 3, -80, -1)),
        (("s1", "s0"), (200, 3), (3, 1)),
        (("ss1", "s00", "0s1", "s0s", "000"), (3, 4, 5), (20, 5, 7, 5, -9, 2)),
        (("sss1", "0s0s", "s000"), (2, 3, 4, 70), (900, 300, 75, 11, -6, 1)),
        (("ssss1", "0s0s0"), (2, 3, 2, 2, 3), (36, 12, 6, 3, 5, -7)),
    ],
)
def test_every_element_is_computed_once_with_its_own_indices(classes, sizes, strides, wide, block):
    layout = Layout(len(sizes), classes, (*range(len(classes)), 0), wide)
    remaining = iter(strides)
    grids = np.indices(sizes)
    expected = []
    for pattern in classes:
        steps = [1 if kind == "1" else 0 if kind == "0" else next(remaining) for kind in pattern]
        if any(kind != "0" for kind in pattern):
            expected.append(sum(step * grid for step, grid in zip(steps, grids, strict=True)).ravel())
    assert next(remaining, None) is None
    found = element_indices(layout, sizes, strides, block)
    assert len(found) == math.prod(sizes)
    assert sorted(found) == sorted(zip(*(column.tolist() for column in expected), strict=True))


def test_the_wide_shell_multiplies_in_64_bits():
    code = kernel_shell.cuda_shell(Layout(2, ("s1",), (0,), wide=True), "kernel", [], ["float32"])
    assert "(long long)blockIdx.x * blockDim.x" in code
    assert "((long long)blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y" in code
    assert "kernel(long long n0, long long n1, long long s0_0, float* __restrict__ out0)" in code


@pytest.mark.parametrize("entry", ["", "2x", "a b", "größe", "x;y"])
def test_a_name_that_is_no_c_identifier_is_refused(entry):
    with pytest.raises(ValueError, match="cannot name"):
        kernel_shell.cuda_shell(Layout(1, ("1",), (0,)), entry, [], ["float32"])


# Occupancy, by hand from the published limits.


@pytest.mark.parametrize(
    ("cc", "registers", "block", "shared", "expected"),
    [
        ((9, 0), 32, 256, 0, 1.0),  # 1024 a warp: 16 warps in each of 4 partitions = 64 of 64
        ((9, 0), 33, 256, 0, 0.75),  # 1280 a warp (1056 rounded up): 12 in each = 48 = 6 blocks
        ((9, 0), 64, 256, 0, 0.5),
        ((9, 0), 72, 256, 0, 0.375),  # 2304 a warp: 7 in each = 28 warps = 3 blocks of 8
        ((9, 0), 255, 256, 0, 0.125),  # 8192 a warp: 2 in each = 8 warps
        ((9, 0), 16, 32, 0, 0.5),  # 32 blocks at most, of one warp
        ((9, 0), 16, 1024, 0, 1.0),
        ((9, 0), 65, 1024, 0, 0.0),  # 32 warps of 2304 do not fit in 65536
        ((9, 0), 16, 256, 48 * 1024, 0.5),  # 233472 // (49152 + 1024) = 4 blocks
        ((7, 0), 32, 256, 0, 1.0),
        ((7, 0), 16, 256, 32 * 1024, 0.375),  # three blocks of 8 warps share 96 KiB
        ((7, 5), 32, 256, 0, 1.0),  # 32 warps
        ((7, 5), 16, 32, 0, 0.5),  # 16 blocks
        ((7, 5), 16, 256, 32 * 1024, 0.5),  # two blocks of 8 warps share 64 KiB
        ((8, 0), 40, 256, 0, 0.75),
        ((8, 6), 40, 256, 0, 1.0),  # 48 of 48 warps
        ((8, 6), 16, 32, 0, 1 / 3),  # 16 of 48
        ((8, 9), 16, 32, 0, 0.5),  # 24 of 48
        ((8, 9), 16, 512, 0, 1.0),
        ((8, 9), 16, 1024, 0, 2 / 3),  # one block of 32 warps of 48
        ((10, 0), 48, 256, 0, 0.625),  # 1536 a warp: 10 in each = 40 of 64
        ((12, 0), 56, 256, 0, 2 / 3),  # 1792 a warp: 9 in each = 36 warps = 4 blocks = 32 of 48
        ((12, 0), 16, 32, 0, 0.5),  # 24 of 48
        ((9, 0), 16, 100, 0, 1.0),  # 4 warps a block
        ((9, 0), 16, 2048, 0, 0.0),
    ],
)
def test_occupancy(cc, registers, block, shared, expected):
    assert occupancy.occupancy(cc, registers, block, shared) == pytest.approx(expected, abs=0)


def test_occupancy_of_an_unknown_device():
    with pytest.raises(BackendError, match=r"compute capability 6\.1"):
        occupancy.occupancy((6, 1), 16, 256)


# The launch, with a module in CuPy's place that records what it is asked to do.


class DriverError(Exception):
    pass


class RuntimeApiError(Exception):
    pass


class FakeCuPy:
    def __init__(self, digits="90", devices=1, refuse=False):
        self.launches, self.loads = [], []
        self.device = 0
        fake = self

        class Module:
            def load(self, image):
                if refuse:
                    raise DriverError("CUDA_ERROR_INVALID_IMAGE")
                fake.loads.append(image)

            def get_function(self, name):
                def function(grid, block, args):
                    fake.launches.append((name, grid, block, args))

                return function

        def get_device():
            if devices is None:
                raise RuntimeApiError("cudaErrorInsufficientDriver")
            return fake.device

        def get_device_count():
            get_device()
            return devices

        runtime = SimpleNamespace(
            getDevice=get_device,
            getDeviceCount=get_device_count,
            driverGetVersion=lambda: 12080,
            CUDARuntimeError=RuntimeApiError,
        )
        self.cuda = SimpleNamespace(
            runtime=runtime,
            driver=SimpleNamespace(CUDADriverError=DriverError),
            function=SimpleNamespace(Module=Module),
            Device=lambda _: SimpleNamespace(compute_capability=digits),
        )


@pytest.fixture
def install(monkeypatch):
    def put(**options):
        fake = FakeCuPy(**options)
        monkeypatch.setitem(sys.modules, "cupy", fake)
        return fake

    return put


def kernel_of(layout, cc=HOPPER):
    source = KernelSource("", ("element",), "element_kernel", "float32", ("float32",), ("float32",), layout)
    return cuda_kernel.CudaKernel(source, cc, False, b"cubin", 16, 0, 0, 0, 0)


def test_a_launch_passes_typed_scalars_in_order(install):
    fake = install()
    kernel = kernel_of(Layout(2, ("s1", "ss"), (0, 1)))
    cuda_launch.launch(kernel, (200, 3), (3, -7, 1), (2**40, 2**63 + 8))
    cuda_launch.launch(kernel, (200, 3), (3, -7, 1), (2**40, 2**63 + 8))
    (name, grid, block, arguments), _ = fake.launches
    assert (name, grid, block) == ("element_kernel", (1, 3, 1), (3, 85, 1))
    assert list(arguments) == [200, 3, 3, -7, 1, 2**40, 2**63 + 8]
    assert [type(a) for a in arguments] == [np.uint32] * 2 + [np.int32] * 3 + [np.uint64] * 2
    assert fake.loads == [b"cubin"]  # once for both launches


def test_a_wide_launch_passes_64_bits(install):
    fake = install()
    cuda_launch.launch(kernel_of(Layout(1, ("s",), (0, 0), wide=True)), (2**32,), (-1,), (8, 16))
    (_, grid, block, arguments) = fake.launches[0]
    assert grid[0] * block[0] == 2**32
    assert [type(a) for a in arguments] == [np.int64, np.int64, np.uint64, np.uint64]


def test_each_device_loads_the_kernel_once(install):
    fake = install()
    kernel = kernel_of(Layout(1, ("1",), (0, 0)))
    for device in (0, 1, 0, 1):
        fake.device = device
        cuda_launch.launch(kernel, (10,), (), (8, 16))
    assert len(fake.loads) == 2
    assert len(fake.launches) == 4


def test_nothing_is_launched_for_no_elements(install):
    fake = install(devices=None)
    cuda_launch.launch(kernel_of(Layout(2, ("s1",), (0, 0))), (0, 5), (5,), (0, 0))
    assert fake.launches == []


def test_a_space_too_large_for_32_bits_is_refused(install):
    install()
    with pytest.raises(BackendError, match="32-bit"):
        cuda_launch.launch(kernel_of(Layout(1, ("1",), (0, 0))), (2**31,), (), (8, 16))


@pytest.mark.parametrize(("digits", "fits"), [("90", True), ("120", False), ("89", False), ("80", False)])
def test_a_kernel_for_another_device_is_refused(install, digits, fits):
    install(digits=digits)
    kernel = kernel_of(Layout(1, ("1",), (0, 0)))
    if fits:
        return cuda_launch.launch(kernel, (1,), (), (8, 16))
    with pytest.raises(BackendError, match=r"compute capability 9\.0, this GPU has"):
        cuda_launch.launch(kernel, (1,), (), (8, 16))
    return None


def test_a_kernel_runs_on_later_minor_revisions(install):
    fake = install(digits="89")
    cuda_launch.launch(kernel_of(Layout(1, ("1",), (0, 0)), cc=(8, 6)), (1,), (), (8, 16))
    assert len(fake.launches) == 1
    assert cuda_launch.current_cc() == (8, 9)


def test_a_driver_that_refuses_the_kernel(install):
    install(refuse=True)
    with pytest.raises(BackendError, match=r"\(for CUDA 12\.8\) refuses .*INVALID_IMAGE.*\n.*Update the driver"):
        cuda_launch.launch(kernel_of(Layout(1, ("1",), (0, 0))), (1,), (), (8, 16))


def test_why_kernels_cannot_run(install, monkeypatch):
    install()
    assert cuda_launch.available()
    assert cuda_launch.why_not() == ""
    install(devices=0)
    assert "finds no GPU" in cuda_launch.why_not()
    install(devices=None)
    assert "driver does not answer (cudaErrorInsufficientDriver)" in cuda_launch.why_not()
    with pytest.raises(BackendError, match="driver does not answer"):
        cuda_launch.current_cc()
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "CuPy" in cuda_launch.why_not()
    assert not cuda_launch.available()
    with pytest.raises(MissingDependencyError, match="cuda13"):
        cuda_launch.current_cc()


@pytest.mark.parametrize(
    "sizes", [(1,), (31,), (257,), (2**31 - 1,), (1, 1), (70000, 100), (10**7, 2), (3, 5, 7), (10**6, 2, 300)]
)
def test_a_grid_covers_the_space_within_the_hardwares_limits(sizes):
    (gx, gy, gz), (bx, by, bz) = cuda_grid.launch_shape(sizes)
    outer = math.prod(sizes[:-1])
    assert gx * bx >= sizes[-1] > (gx - 1) * bx
    assert gy * gz * by >= outer
    assert (gy * gz - gz) * by <= outer  # less than one row of blocks for each z is idle
    assert max(gy, gz) <= 65535
    assert gx <= 2**31 - 1
    assert 1 <= bx * by * bz <= 256
    assert bx <= 1024
    assert gy * gz * by < 2**32  # the outer index is made in 32 bits


@pytest.mark.parametrize("cc", [(7, 5), (8, 0), (8, 6), (9, 0), (12, 0)])
def test_blocks_are_halved_where_more_warps_fit_so(cc):
    for registers in range(16, 256):
        chosen = occupancy.block_size(cc, registers)
        # 64 K registers in four partitions; a warp's are allotted in units of 256. Half a block is four warps.
        warps = 65536 // 4 // (-(-registers * 32 // 256) * 256) * 4
        warps = min(warps, {(7, 5): 32, (8, 6): 48, (12, 0): 48}.get(cc, 64))
        assert chosen == (256 if warps // 8 * 8 == warps // 4 * 4 else 128)
    assert occupancy.block_size((99, 0), 72) == 256


@pytest.mark.parametrize("sizes", [(1,), (257,), (70000, 100), (10**7, 2), (3, 5, 7), (1000, 3)])
def test_smaller_blocks_cover_the_space_too(sizes):
    (gx, gy, gz), (bx, by, bz) = cuda_grid.launch_shape(sizes, 128)
    assert gx * bx >= sizes[-1] > (gx - 1) * bx
    assert gy * gz * by >= math.prod(sizes[:-1])
    assert bx * by * bz <= 128


def test_small_inner_dimensions_waste_few_lanes():
    for inner in range(1, 600):
        (gx, _, _), (bx, by, _) = cuda_grid.launch_shape((4096, inner))
        lanes = gx * (-(-bx * by // 32) * 32) / by
        assert inner / lanes > 0.74, (inner, bx, by)
