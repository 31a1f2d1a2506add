"""What is counted of kernels whose counts are known by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualbcast.counting import executor
from dualbcast.counting.control_flow import END, joins
from dualbcast.counting.counter import CountedKernel, Counts, Memory, total

pytestmark = pytest.mark.skipif(executor.COMPILER is None, reason="to run PTX takes gcc")

TEXT = """
.version 9.0
.target sm_90
.address_size 64
{before}
.visible .entry k(.param .u64 k_param_0, .param .u64 k_param_1)
{{
    .reg .pred %p<4>;
    .reg .b32 %r<20>;
    .reg .f32 %f<8>;
    .reg .b64 %rd<20>;
    {variables}
    {body}
}}
"""
# Six instructions: %r1 is the thread, %rd4 and %rd5 are the addresses of its number in the two arrays.
START = """
    ld.param.u64 %rd1, [k_param_0];
    ld.param.u64 %rd2, [k_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
"""


def count(
    folder: Path,
    body: str,
    threads: int = 32,
    blocks: int = 1,
    before: str = "",
    variables: str = "",
    memory: Memory | None = None,
    arrays: list[Any] | None = None,
) -> Counts:
    """The counts of a kernel on two arrays of 4,096 numbers."""
    arrays = arrays or two_arrays()
    kernel = CountedKernel(TEXT.format(body=body, before=before, variables=variables), "k", folder)
    arguments = [np.uint64(each.ctypes.data).tobytes() for each in arrays]
    return kernel.count((blocks, 1, 1), (threads, 1, 1), arguments, memory or Memory(arrays))


def two_arrays() -> list[Any]:
    return [Memory.aligned(np.arange(4096, dtype=np.float32)) for _ in range(2)]


def test_a_straight_line(tmp_path: Path) -> None:
    # 40 threads are two warps, of 32 and 8 lanes: 2 · 10 instructions, 40 · 10 of threads. The first warp asks for 128
    # bytes, which are 4 sectors, the second for 32, which are 1.
    body = START + "ld.global.f32 %f1, [%rd4]; mul.f32 %f1, %f1, %f1; st.global.f32 [%rd5], %f1; ret;"
    arrays = two_arrays()
    found = count(tmp_path, body, threads=40, arrays=arrays)
    assert (found.issued, found.lanes, found.warps, found.launches) == (20, 400, 2, 1)
    assert (found.sectors_read, found.sectors_written, found.repeated) == (5, 5, 0)
    assert (found.dram_read, found.dram_written, found.dram_bytes) == (5, 5, 320)
    assert (found.branches, found.divergent, found.bank_conflicts) == (0, 0, 0)
    assert found.by_opcode() == {"ld.param.u64": 4, "add.s64": 4} | dict.fromkeys(
        ("mov.u32", "mul.wide.u32", "ld.global.f32", "mul.f32", "st.global.f32", "ret"), 2
    )
    np.testing.assert_array_equal(arrays[1][:40], np.arange(40) ** 2)  # it also ran
    assert not (arrays[1][40:] - np.arange(40, 4096)).any()


LOOP = """
    mov.u32 %r2, 0;
$L_head:
    add.u32 %r2, %r2, 1;
    setp.lt.u32 %p1, %r2, {limit};
    @%p1 bra $L_head;
    ret;"""


def test_a_loop(tmp_path: Path) -> None:
    # One instruction, 1,000 iterations of three, and the return: a warp's lanes stay together.
    found = count(tmp_path, LOOP.format(limit=1000))
    assert (found.issued, found.lanes) == (3002, 3002 * 32)
    assert (found.branches, found.divergent) == (1000, 0)


def test_a_loop_that_lanes_leave_one_by_one(tmp_path: Path) -> None:
    # Lane k makes max(1, k) iterations, the warp 31, with 32, 31 (twice: lanes 0 and 1 leave together), 30, … 1 lanes:
    # 32 + (30 + … + 1) = 32 + 465. All but the last iteration part the warp.
    found = count(tmp_path, "mov.u32 %r1, %tid.x;" + LOOP.format(limit="%r1"))
    assert found.issued == 2 + 3 * 31 + 1
    assert found.lanes == 3 * 32 + 3 * (32 + sum(range(1, 31)))
    assert (found.branches, found.divergent) == (31, 30)
    assert found.lane_share == found.lanes / (32 * 96)


def test_nested_loops_whose_lanes_meet_after_each_inner_one(tmp_path: Path) -> None:
    # Lanes of even number make 2 and then 3 inner iterations, the others 3 and then 2. The warp makes 3 each time, and
    # not 5 in all: 3 instructions before, twice (3 before, 3 iterations of 3, 4 after), and the return.
    body = """
    mov.u32 %r1, %tid.x;
    and.b32 %r1, %r1, 1;
    mov.u32 %r2, 0;
$L_outer:
    xor.b32 %r3, %r1, %r2;
    add.u32 %r3, %r3, 2;
    mov.u32 %r4, 0;
$L_inner:
    add.u32 %r4, %r4, 1;
    setp.lt.u32 %p1, %r4, %r3;
    @%p1 bra $L_inner;
    add.u32 %r2, %r2, 1;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p2, %r2, 2;
    @%p2 bra $L_outer;
    ret;"""
    found = count(tmp_path, body)
    assert found.issued == 3 + 2 * (3 + 3 * 3 + 4) + 1
    assert found.lanes == 32 * (3 + 2 * (3 + 3 * 2 + 4) + 1) + 16 * 2 * 3
    assert found.divergent == 2


DIVERGENT = (
    START
    + """
    setp.lt.u32 %p1, %r1, {limit};
    @%p1 bra $L_less;
    ld.global.f32 %f1, [%rd4];
    st.global.f32 [%rd5], %f1;
    bra.uni $L_end;
$L_less:
    mov.f32 %f1, 0f00000000;
    st.global.f32 [%rd5], %f1;
$L_end:
    ret;"""
)


@pytest.mark.parametrize("limit", [0, 8, 32])
def test_a_branch(limit: int, tmp_path: Path) -> None:
    # 8 instructions before, 3 on one side, 2 on the other, and the return. Sides that no lane takes are not executed.
    found = count(tmp_path, DIVERGENT.format(limit=limit))
    other, less = 3 * (limit < 32), 2 * (limit > 0)
    assert found.issued == 9 + other + less
    assert found.lanes == 32 * 9 + 3 * (32 - limit) + 2 * limit
    assert found.divergent == (limit == 8)
    # Only what the lanes of a side want is read: 24 lanes want 3 sectors.
    assert (found.sectors_read, found.sectors_written) == ((32 - limit) // 8, 4)
    assert (found.dram_read, found.dram_written) == ((32 - limit) // 8, 4)


def test_lanes_that_end_early_and_lanes_under_a_predicate(tmp_path: Path) -> None:
    # 6 + 2 instructions for 32 lanes; then 3 for the 20 that go on, of which the store is for 10.
    body = (
        START
        + """
    setp.ge.u32 %p1, %r1, 20;
    @%p1 ret;
    setp.lt.u32 %p2, %r1, 10;
    @%p2 st.global.u32 [%rd5], %r1;
    ret;"""
    )
    found = count(tmp_path, body)
    assert (found.issued, found.lanes) == (11, 32 * 8 + 20 * 2 + 10)
    assert (found.sectors_written, found.dram_written) == (2, 2)  # 40 bytes
    assert count(tmp_path, body.replace("10;", "0;")).issued == 11  # also where no lane has it


# For addresses of four bytes a lane: what the shift, or another operation, makes of the thread's number; the sectors
# that a warp asks for.
ACCESSES = {
    "neighbours": ("shl.b32 %r2, %r1, 2;", "ld.global.f32 %f1", 4),
    "every other": ("shl.b32 %r2, %r1, 3;", "ld.global.f32 %f1", 8),
    "one a sector": ("shl.b32 %r2, %r1, 5;", "ld.global.f32 %f1", 32),
    "far apart": ("shl.b32 %r2, %r1, 8;", "ld.global.f32 %f1", 32),
    "the same for all": ("mov.u32 %r2, 64;", "ld.global.f32 %f1", 1),
    "in turn from two sectors": ("and.b32 %r2, %r1, 1; shl.b32 %r2, %r2, 5;", "ld.global.f32 %f1", 2),
    "shifted by one": ("shl.b32 %r2, %r1, 2; add.u32 %r2, %r2, 4;", "ld.global.f32 %f1", 5),
    "four each": ("shl.b32 %r2, %r1, 4;", "ld.global.v4.f32 {%f1, %f2, %f3, %f4}", 16),
}


@pytest.mark.parametrize("name", ACCESSES)
def test_sectors(name: str, tmp_path: Path) -> None:
    offset, load, sectors = ACCESSES[name]
    body = f"{START} {offset} cvt.u64.u32 %rd6, %r2; add.s64 %rd7, %rd1, %rd6; {load}, [%rd7]; ret;"
    found = count(tmp_path, body)
    assert (found.sectors_read, found.repeated, found.dram_read) == (sectors, 0, sectors)


def test_loads_that_a_warp_repeats_are_told_apart(tmp_path: Path) -> None:
    # Each lane reads four neighbours, one after the other: each time the warp asks for all 16 sectors. Two blocks read
    # the same, which is one way to memory, and for each warp a first time.
    loads = " ".join(f"ld.global.f32 %f1, [%rd7+{4 * k}];" for k in range(4))
    body = f"{START} mul.wide.u32 %rd6, %r1, 16; add.s64 %rd7, %rd1, %rd6; {loads} ret;"
    found = count(tmp_path, body, blocks=2)
    assert (found.sectors_read, found.repeated, found.dram_read) == (128, 96, 16)


def test_what_a_kernel_has_written_itself_need_not_come_from_memory(tmp_path: Path) -> None:
    body = START + "st.global.f32 [%rd4], %f1; ld.global.f32 %f1, [%rd4]; st.global.f32 [%rd5], %f1; ret;"
    found = count(tmp_path, body)
    assert (found.sectors_read, found.dram_read, found.dram_written) == (4, 0, 8)


def test_several_launches(tmp_path: Path) -> None:
    # The first writes what the second reads: alone it comes from memory, together it need not.
    arrays = two_arrays()
    memory = Memory(arrays)
    first = count(tmp_path, START + "st.global.f32 [%rd5], %f1; ret;", memory=memory, arrays=arrays)
    second = count(tmp_path, START + "ld.global.f32 %f1, [%rd5]; ret;", memory=memory, arrays=arrays)
    both = total([first, second])
    assert (both.dram_read, both.dram_written, both.launches, both.warps) == (4, 4, 2, 2)
    assert both.issued == first.issued + second.issued == 16
    assert memory.union() == (0, 4)


# For words of shared memory: the thread's place, the access, and the passes that conflicts of banks add.
BANKS = {
    "neighbours": ("shl.b32 %r2, %r1, 2;", "ld.shared.f32 %f1", 0),
    "every other word": ("shl.b32 %r2, %r1, 3;", "ld.shared.f32 %f1", 1),
    "every third word": ("mul.lo.u32 %r2, %r1, 12;", "ld.shared.f32 %f1", 0),
    "all in one bank": ("shl.b32 %r2, %r1, 7;", "ld.shared.f32 %f1", 31),
    "one word for all": ("mov.u32 %r2, 8;", "ld.shared.f32 %f1", 0),
    "bytes of one word": ("mov.u32 %r2, %r1;", "ld.shared.u8 %r3", 0),
    "pairs": ("shl.b32 %r2, %r1, 3;", "ld.shared.v2.f32 {%f1, %f2}", 0),
    "every other pair": ("shl.b32 %r2, %r1, 4;", "ld.shared.v2.f32 {%f1, %f2}", 2),  # in both halves of the warp
    "fours": ("shl.b32 %r2, %r1, 4;", "ld.shared.v4.f32 {%f1, %f2, %f3, %f4}", 0),
}


@pytest.mark.parametrize("name", BANKS)
def test_bank_conflicts(name: str, tmp_path: Path) -> None:
    offset, load, conflicts = BANKS[name]
    body = f"{START} {offset} mov.u32 %r4, shared; add.u32 %r5, %r4, %r2; {load}, [%r5]; ret;"
    found = count(tmp_path, body, variables=".shared .align 16 .b8 shared[4096];")
    assert found.bank_conflicts == conflicts
    assert (found.sectors, found.dram_sectors) == (0, 0)


def test_threads_that_wait_for_one_another(tmp_path: Path) -> None:
    # 9 instructions of two whole warps, and 2 of 16 lanes each.
    body = (
        START
        + """
    setp.ge.u32 %p1, %r1, 0;
    shfl.sync.bfly.b32 %r2, %r1, 16, 31, -1;
    bar.sync 0;
    and.b32 %r3, %r1, 16;
    setp.eq.u32 %p2, %r3, 0;
    @%p2 bra $L_end;
    st.global.u32 [%rd5], %r2;
$L_end:
    ret;"""
    )
    arrays = two_arrays()
    found = count(tmp_path, body, threads=64, arrays=arrays)
    assert (found.issued, found.lanes, found.divergent) == (2 * 14, 64 * 13 + 32, 2)
    np.testing.assert_array_equal(arrays[1].view(np.uint32)[16:32], np.arange(16))


def test_functions(tmp_path: Path) -> None:
    # In one half of the warp: a call, the two instructions of the function, of which a quarter takes one more.
    before = """
.func twice(.param .b64 twice_param_0)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [twice_param_0];
    setp.lt.u64 %p1, %rd1, 8;
    @%p1 bra $L_less;
    add.u64 %rd1, %rd1, 1;
$L_less:
    ret;
}"""
    body = """
    mov.u32 %r1, %tid.x;
    cvt.u64.u32 %rd1, %r1;
    setp.ge.u32 %p1, %r1, 16;
    @%p1 bra $L_end;
    {
    .param .b64 param0;
    st.param.b64 [param0+0], %rd1;
    call.uni twice, (param0);
    }
    mov.u32 %r2, %r1;
$L_end:
    ret;"""
    found = count(tmp_path, body, before=before)
    assert found.issued == 4 + 2 + 5 + 1 + 1
    assert found.lanes == 32 * 4 + 16 * 2 + 16 * 4 + 8 + 16 + 32
    assert found.divergent == 2


def test_lines(tmp_path: Path) -> None:
    body = """
    .loc 1 7 5
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %r1;
    .loc 1 9 1, function_name $L__info_string0, inlined_at 1 7 5
    mov.u32 %r3, 0;
    ret;"""
    found = count(tmp_path, body, before='.file 1 "cell.py"')
    assert found.by_line() == {("cell.py", 7): 2, ("cell.py", 9): 2}
    assert found.issued == 4  # no instruction after a position is lost
    assert count(tmp_path, LOOP.format(limit=1)).by_line() == {None: 5}


def test_local_memory_is_interleaved(tmp_path: Path) -> None:
    # 32 lanes of 8 bytes are 256, whatever the address; 9 lanes of 4 bytes have two sectors.
    body = """
    mov.u32 %r1, %tid.x;
    st.local.u64 [depot], %rd1;
    setp.lt.u32 %p1, %r1, 9;
    @%p1 st.local.u32 [depot], %r1;
    ret;"""
    found = count(tmp_path, body, variables=".local .align 8 .b8 depot[16];")
    assert (found.local_sectors, found.sectors) == (8 + 2, 0)


def test_a_launch_that_fails_leaves_nothing_to_the_next(tmp_path: Path) -> None:
    arrays = two_arrays()
    kernel = CountedKernel(
        TEXT.format(body=f"{START} ld.global.f32 %f1, [%rd4]; ret;", before="", variables=""), "k", tmp_path
    )
    arguments = [np.uint64(each.ctypes.data).tobytes() for each in arrays]
    with pytest.raises(executor.PtxError, match=r"thread \(32, 0, 0\).*memory that it was not given"):
        kernel.count((1, 1, 1), (64, 1, 1), arguments, Memory([arrays[0][:32], arrays[1]]))
    assert kernel.count((1, 1, 1), (64, 1, 1), arguments, Memory(arrays)).issued == 16


def test_calls_under_a_predicate_are_refused(tmp_path: Path) -> None:
    with pytest.raises(executor.PtxError, match="calls under a predicate"):
        count(tmp_path, "@%p1 call.uni twice, (param0); ret;")


def test_where_lanes_meet_again() -> None:
    # 0 goes to 1 or 4; 1 to 2 or 3; both to 4, from where an endless loop, 5, can be entered, or the end.
    assert joins([[1, 4], [2, 3], [4], [4], [5, END], [5]]) == [4, 4, 4, 4, END, END]
