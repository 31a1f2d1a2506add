"""Machine code counted: against stored counts, against kernels written by hand, and no register in memory.

`pytest tests/cuda/test_machine_code.py --slow --update-golden` rewrites tests/cuda/sass/counts.txt; read the
difference first.
"""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import models
import numpy as np
import pytest
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda import sass
from dualbcast.codegen.cuda.occupancy import occupancy, roomier
from dualbcast.errors import BackendError
from dualbcast.kernel_spec import KernelSource
from dualbcast.program.pipeline import kernel_source
from dualbcast.runtime.cuda import kernel as cuda_kernel

COUNTS = Path(__file__).parent / "sass" / "counts.txt"
CAPABILITIES = ((7, 5), (8, 0), (9, 0), (10, 0))
COLUMNS = (
    *("kernel", "cc", "elements", "registers", "spilled", "instructions", "loads", "read_only", "stores"),
    *("transcendental", "float64"),
)
Capability = tuple[int, int]


# By default one; each of the others takes as long again.
@pytest.fixture(
    params=[pytest.param(each, marks=() if each == (9, 0) else pytest.mark.slow) for each in CAPABILITIES],
    ids="{0[0]}.{0[1]}".format,
)
def cc(request: pytest.FixtureRequest) -> Capability:
    from cuda.bindings import nvrtc

    major, minor = request.param
    _, known = nvrtc.nvrtcGetSupportedArchs()
    if 10 * major + minor not in known:
        pytest.skip(f"the installed NVRTC does not know compute capability {major}.{minor}, only {known}")
    return request.param


# --- the reader ------------------------------------------------------------------------------------------------------

TEXT = """
	.section	.text.first,"ax",@progbits
.text.first:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*0010*/                   ISETP.GE.U32.AND P0, PT, R0, UR4, PT ;
        /*0020*/               @P0 EXIT ;
        /*0030*/                   LDG.E.CONSTANT R4, desc[UR4][R2.64] ;
        /*0040*/                   LDG.E.128.CONSTANT R4, desc[UR4][R2.64] ;
        /*0050*/                   LDG.E.64 R4, desc[UR4][R2.64] ;
        /*0060*/                   LDG.E.U16.CONSTANT R4, desc[UR4][R2.64] ;
        /*0070*/              @!P1 BRA `(.L_x_0) ;
        /*0080*/                   MUFU.EX2 R5, R4 ;
        /*0090*/                   MUFU.RCP R5, R5 ;
        /*00a0*/                   MUFU.EX2 R6, R5 ;
        /*00b0*/                   BRA `(.L_x_1) ;
.L_x_0:
        /*00c0*/                   DADD R4, R4, R6 ;
        /*00d0*/                   DFMA R4, R4, R6, R8 ;
        /*00e0*/                   F2F.F32.F64 R4, R4 ;
        /*00f0*/                   STL [R1], R4 ;
        /*0100*/                   LDL R4, [R1] ;
.L_x_1:
        /*0110*/                   STG.E.128 desc[UR4][R2.64], R4 ;
        /*0120*/                   STG.E.U8 desc[UR4][R2.64], R4 ;
        /*0130*/                   EXIT ;
.L_x_2:
        /*0140*/                   BRA `(.L_x_2);
        /*0150*/                   NOP;
	.section	.text.second,"ax",@progbits
.text.second:
        /*0000*/                   STS [R1], R4 ;
        /*0010*/                   EXIT ;
"""


def test_counts_of_a_text_by_hand() -> None:
    found = sass.count(TEXT, "first")
    assert found.total == 20
    # 12 up to the unconditional branch, the exit with a condition among them; then two stores and the exit.
    assert found.straight == 15
    assert (found.loads, found.read_only) == ({16: 1, 32: 1, 64: 1, 128: 1}, 3)
    assert found.stores == {8: 1, 128: 1}
    assert found.transcendental == {"EX2": 2, "RCP": 1}
    assert (found.float64, found.local) == (3, 2)
    assert "20 instructions (15 where" in str(found)


def test_each_kernel_of_a_text_is_counted_for_itself() -> None:
    second = sass.count(TEXT, "second")
    assert (second.total, second.local) == (2, 0)
    with pytest.raises(ValueError, match="no machine code of third"):
        sass.count(TEXT, "third")
    with pytest.raises(ValueError, match="any kernel"):
        sass.count("")


# --- the kernels that are counted -------------------------------------------------------------------------------------

full = np.ones((8, 8), np.float32)
rows = np.ones((8, 1), np.float32)
half = full.astype(np.float16)
WRT = tuple("cfig")


def cell(*arrays: Any, product: Any = "value_and_jacobian", fastmath: bool = False) -> Callable[[Capability], Any]:
    function = differentiable_broadcast(models.cell_update, fastmath=fastmath)
    return lambda cc: function.explain(*arrays, wrt=WRT, product=product, cc=cc).cuda


def product(arity: int, array: Any = full, fastmath: bool = False) -> Callable[[Capability], Any]:
    function = differentiable_broadcast(models.product_of_tanh, fastmath=fastmath)
    return lambda cc: function.explain(*[array] * arity, cc=cc).cuda


def sums(*shapes: tuple[int, ...] | None, dtype: Any = np.float32) -> Callable[[Capability], Any]:
    """x·y + i at full size or summed to each of the shapes, from arrays of (64, 96) and (96,)."""
    from test_cuda_reductions import geometry_of, source

    x = np.ones((64, 96), dtype)
    geometry = geometry_of((x, x[0]), [None, *shapes])
    return lambda cc: cuda_kernel.compile_kernel(source(geometry, x.dtype, 1 + len(shapes)), cc)


GATES = (full,) * 4
KERNELS: dict[str, Callable[[Capability], Any]] = {
    "hm_lstm": cell(*GATES, rows, rows),
    "hm_lstm_fast": cell(*GATES, rows, rows, fastmath=True),
    "hm_lstm_pullback": cell(*GATES, rows, rows, product="vjp"),
    "hm_lstm_control_by_element": cell(*GATES, full, full),
    "hm_lstm_not_aligned": cell(*[full[:, 1:]] * 4, rows, rows),
    "hm_lstm_float16": cell(*[half] * 4, rows, rows),
    "product_2": product(2),
    "product_2_fast": product(2, fastmath=True),
    "product_8": product(8),
    "product_16": product(16),
    "product_32": product(32),
    "product_2_float64": product(2, full.astype(np.float64)),
    "product_32_float64": product(32, full.astype(np.float64)),
    "sum_of_rows": sums((64, 1)),
    "sum_of_columns": sums((96,)),
    "sums_all_ways": sums((64, 1), (96,), (1, 1)),
    "sums_all_ways_float64": sums((64, 1), (96,), (1, 1), dtype=np.float64),
}


def toolkit() -> str:
    """The versions that counts depend on."""
    parts = [part for part in cuda_build.toolchain().splitlines() if part.startswith(("numba-cuda==", "nvidia-"))]
    return " ".join(parts)


def row_of(name: str, cc: Capability) -> dict[str, str]:
    kernel = KERNELS[name](cc)
    found = kernel.instructions()

    def listed(counts: Any) -> str:
        return "+".join(f"{many}x{bits}" for bits, many in counts.items()) or "0"

    values = (
        name,
        f"{cc[0]}.{cc[1]}",
        kernel.source.layout.lanes,
        kernel.registers,
        kernel.spill_stores + kernel.spill_loads + found.local,
        found.total,
        listed(found.loads),
        found.read_only,
        listed(found.stores),
        sum(found.transcendental.values()),
        found.float64,
    )
    return dict(zip(COLUMNS, map(str, values), strict=True))


def stored() -> tuple[str, dict[tuple[str, str], dict[str, str]]]:
    """The versions that the stored counts are of, and the counts by kernel and compute capability."""
    if not COUNTS.exists():
        return "", {}
    head, *lines = COUNTS.read_text(encoding="utf-8").splitlines()
    rows = [dict(zip(COLUMNS, line.split(), strict=True)) for line in lines[1:]]
    return head.removeprefix("# "), {(row["kernel"], row["cc"]): row for row in rows}


def write(rows: dict[tuple[str, str], dict[str, str]]) -> None:
    order = [(name, f"{cc[0]}.{cc[1]}") for name in KERNELS for cc in CAPABILITIES]
    table = [COLUMNS, *([rows[key][column] for column in COLUMNS] for key in order if key in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(COLUMNS))]
    lines = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    COUNTS.parent.mkdir(exist_ok=True)
    COUNTS.write_text("\n".join([f"# {toolkit()}", *lines, ""]), encoding="utf-8")


@pytest.mark.cuda_compilers
@pytest.mark.parametrize("name", sampled(KERNELS, 2))
def test_the_counts_are_the_stored_ones(name: str, cc: Capability, update_golden: bool) -> None:
    row = row_of(name, cc)
    versions, rows = stored()
    key = row["kernel"], row["cc"]
    if update_golden:
        write({**rows, key: row})
        return
    if versions == toolkit():
        assert row == rows[key]
        return
    # Another toolkit moves registers and instructions a little, but not what memory is asked for.
    before = rows[key]
    same = ("elements", "spilled", "loads", "read_only", "stores")
    assert {column: row[column] for column in same} == {column: before[column] for column in same}
    assert int(row["registers"]) <= max(1.15 * int(before["registers"]), int(before["registers"]) + 8)
    for column in ("instructions", "transcendental", "float64"):
        assert int(row[column]) <= 1.15 * int(before[column]), column


def test_what_is_stored() -> None:
    """What the counts are to show, whatever they are of."""
    _, rows = stored()
    assert set(rows) == {(name, f"{cc[0]}.{cc[1]}") for name in KERNELS for cc in CAPABILITIES}
    for (name, _), row in rows.items():
        assert row["spilled"] == "0", name
        assert (int(row["float64"]) > 0) == ("float64" in name or name.startswith("sum")), name
        reads = sum(int(part.partition("x")[0]) for part in row["loads"].split("+"))
        assert int(row["read_only"]) == reads, name
    for version in ("7.5", "8.0", "9.0", "10.0"):
        # z; i, g | zb; c | f, i, g, c: of a thread's four elements one access each, in the branch that needs them.
        assert rows["hm_lstm", version]["loads"] == "2x32+7x128"
        assert rows["hm_lstm", version]["stores"] == "5x128"
        # c, f, i, g, z, zb, each once: those that some branches need, if one of a thread's elements does.
        assert rows["hm_lstm_control_by_element", version]["loads"] == "6x128"
        assert rows["hm_lstm_not_aligned", version]["loads"] == "9x32"
        assert rows["product_8", version]["loads"] == "8x64"
        assert rows["product_32", version]["stores"] == "33x32"


# --- by hand ---------------------------------------------------------------------------------------------------------


def _bench() -> Any:
    path = Path(__file__).parents[2] / "bench" / "reference_kernels.py"
    spec = importlib.util.spec_from_file_location("reference_kernels", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


BENCH = _bench()
CASES = list(BENCH.cases())


@pytest.mark.cuda_compilers
@pytest.mark.parametrize("case", sampled(CASES, 2), ids=lambda case: f"{case.title}{' fast' if case.fastmath else ''}")
def test_no_more_than_by_hand(case: Any, cc: Capability) -> None:
    ours, theirs = case.compile(cc), case.by_hand(cc)
    found, wanted = ours.instructions(), theirs.instructions
    assert wanted.total > 50
    assert (found.loads, found.stores, found.read_only) == (wanted.loads, wanted.stores, wanted.read_only)
    assert sum(found.transcendental.values()) <= sum(wanted.transcendental.values())
    assert found.total <= 1.05 * wanted.total
    # A warp is allotted eight registers a thread at a time.
    allotted, by_hand = (8 * math.ceil(each / 8) for each in (ours.registers, theirs.registers))
    assert ours.registers <= 1.05 * theirs.registers or allotted <= by_hand


def test_every_kernel_of_the_file_is_compared() -> None:
    text = BENCH.SOURCE.read_text(encoding="utf-8")
    assert {case.name for case in CASES} | {"product_prefix"} == {
        line.partition("(")[0] for line in text.splitlines() if line.startswith(("hm_", "product_"))
    }


@pytest.mark.cuda_compilers
def test_kernels_by_lanes() -> None:
    function = differentiable_broadcast(models.cell_update)
    call = function._inspected((*GATES, rows, rows), WRT, "value_and_jacobian")
    kernels = BENCH.by_lanes(call, (9, 0))
    assert {lanes: max(kernel.instructions().loads) for lanes, kernel in kernels.items()} == {1: 32, 2: 64, 4: 128}
    alone = function._inspected((*GATES, full, full), WRT, "value_and_jacobian")
    assert list(BENCH.by_lanes(alone, (9, 0))) == [1, 2, 4]


@pytest.mark.cuda_compilers
def test_an_explanation_says_what_a_thread_does() -> None:
    text = str(differentiable_broadcast(models.product_of_tanh).explain(full, full, cc=(9, 0)))
    assert "4 elements a thread: " in text
    assert "loads 2 of 128 bits; stores 3 of 128 bits" in text
    assert "one element a thread: " in str(differentiable_broadcast(models.fold).explain(full[:, 1:], cc=(9, 0)))


@pytest.mark.cuda_compilers
def test_an_explanation_needs_no_disassembler_that_knows_the_gpu(monkeypatch):
    """nvdisasm of CUDA 13.5 refuses code for 7.0, which CUDA 12 compiles."""

    def refused(_: Any) -> str:
        raise BackendError("nvdisasm cannot read the compiled kernel")

    monkeypatch.setattr(cuda_kernel.CudaKernel, "sass", refused)
    array = np.ones(8, np.float32)
    text = str(differentiable_broadcast(models.product_of_tanh).explain(array, array, cc=(9, 0)))
    assert "4 elements a thread\n" in text + "\n"


@pytest.mark.cuda_compilers
@pytest.mark.parametrize(
    ("name", "shape"), [("float16", (64, 64)), ("bfloat16", (64, 63)), ("float32", (64, 64)), ("float64", (1, 1))]
)
def test_a_number_is_not_read_from_memory(name: str, shape: tuple[int, ...]) -> None:
    """It is where the kernel's arguments are, of which no thread makes a copy in its memory."""
    dtype = np.dtype(getattr(ml_dtypes, name, None) or name)
    function = differentiable_broadcast(lambda x, scale, n, flag: x * scale if flag else x * n)
    x = np.zeros((64, 64), dtype)[: shape[0], : shape[1]]
    for scale in (0.5, dtype.type(0.5)):
        kernel = function.explain(x, scale, 3, True, wrt="x", cc=(9, 0)).cuda
        found = kernel.instructions()
        assert sum(found.loads.values()) == 1
        assert (kernel.stack, found.local) == (0, 0)
    with_sums = function.explain(x, 0.5, 3, True, wrt="scale", product="value_and_vjp", cc=(9, 0)).cuda
    assert (with_sums.stack, with_sums.instructions().local) == (0, 0)


# --- registers and occupancy -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cc", "registers", "blocks"),
    [((9, 0), 33, 8), ((9, 0), 40, 8), ((9, 0), 32, None), ((9, 0), 41, 6), ((9, 0), 60, None), ((7, 5), 48, None)],
)
def test_where_fewer_registers_make_room(cc: Capability, registers: int, blocks: int | None) -> None:
    assert roomier(cc, registers) == blocks
    if blocks is not None:
        assert occupancy(cc, registers // 8 * 8 if registers % 8 else registers - 8, 256) > occupancy(
            cc, registers, 256
        )


@pytest.mark.cuda_compilers
def test_a_kernel_that_would_spill_takes_fewer_elements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where registers do not suffice for a thread's elements, the call gets a kernel with fewer of them."""
    function = differentiable_broadcast(models.product_of_tanh)
    call = function._inspected((full,) * 8, None, "value_and_jacobian")
    spec, layout = call.spec, call.plan.geometry.layout
    four = kernel_source(
        spec.product.forward, layout._replace(lanes=4), "float32", spec.signature.storages, ["float32"] * 9, "cuda"
    )
    cramped = four._replace(shell=four.shell.replace("__launch_bounds__(256)", "__launch_bounds__(256, 8)"))
    assert cuda_kernel.compile_kernel(cramped, (9, 0)).stack > 0
    compile_program = cuda_kernel.compile_program

    def with_few_registers(key: str, write: Callable[[], KernelSource], *options: Any) -> Any:
        source = write()
        return compile_program(f"{key} cramped", lambda: cramped if source.layout.lanes == 4 else source, *options)

    monkeypatch.setattr(cuda_kernel, "compile_program", with_few_registers)
    spec.lanes[layout] = 4  # as if four were fastest
    kernel = call.cuda_kernel((9, 0))
    assert (kernel.source.layout.lanes, kernel.stack) == (2, 0)
