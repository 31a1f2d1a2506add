"""The reader of PTX (`dualbcast/counting`): what instructions compute, by the manual, and what is refused."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualbcast.counting import executor as ptx

pytestmark = pytest.mark.skipif(ptx.COMPILER is None, reason="to run PTX takes gcc")

F4, F8, I2, I4, I8 = np.float32, np.float64, np.int16, np.int32, np.int64
U1, U2, U4, U8 = np.uint8, np.uint16, np.uint32, np.uint64
NAN, INF = math.nan, math.inf
NAMES = {F4: "f32", F8: "f64", I2: "s16", I4: "s32", I8: "s64", U1: "u8", U2: "u16", U4: "u32", U8: "u64"}

TEXT = """
.version 9.0
.target sm_90
.address_size 64
{before}
.visible .entry k(
    .param .u64 k_param_0,
    .param .u64 k_param_1
)
.maxntid 256, 1, 1
{{
    .reg .pred %p<4>;
    .reg .b16 %h<4>;
    .reg .b32 %r<8>;
    .reg .b64 %rd<12>;
    .reg .{kind} %x, %z;
    .reg .{result} %y;
    {variables}
    ld.param.u64 %rd1, [k_param_0];
    ld.param.u64 %rd2, [k_param_1];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, {size};  // of an element
    mul.wide.u32 %rd4, %r1, {result_size};
    add.s64 %rd5, %rd1, %rd3;
    add.s64 %rd6, %rd2, %rd4;
    ld.global.nc.{kind} %x, [%rd5];
    {body}
    st.global.{result} [%rd6], %y;
    ret;
}}
"""


def run(
    folder: Path,
    body: str,
    x: Any,
    result: Any,
    before: str = "",
    variables: str = "",
    room: int | None = None,
    may_end: bool = False,
) -> Any:
    """What a kernel writes, of which each thread turns one element, `%x`, into another, `%y`."""
    y = np.zeros(len(x), result)
    kind, size = NAMES[x.dtype.type], x.dtype.itemsize
    text = TEXT.format(
        before=before,
        variables=variables,
        body=body,
        kind=kind,
        result=NAMES[result],
        size=size,
        result_size=y.itemsize,
    )
    arguments = [np.uint64(each.ctypes.data).tobytes() for each in (x, y)]
    blocks = [ptx.block_of(x), (y.ctypes.data, y.nbytes if room is None else room)]
    ptx.Kernel(text, "k", folder, may_end)((1, 1, 1), (len(x), 1, 1), arguments, blocks)
    return y


TINY = 2.0**-149
CASES: dict[str, tuple[str, Any, list[Any], Any, list[Any]]] = {
    # Directions of rounding: 1 + 2⁻³⁰ lies between 1 and the next number.
    "nearest": ("add.rn.f32 %y, %x, 0f30800000;", F4, [1, -1], F4, [1, -1]),
    "to zero": ("add.rz.f32 %y, %x, 0fB0800000;", F4, [1, -1], F4, [1 - 2**-24, -1]),
    "up": ("add.rp.f32 %y, %x, 0f30800000;", F4, [1, -1], F4, [1 + 2**-23, -1 + 2**-24]),
    "down": ("add.rm.f64 %y, %x, 0dBC30000000000000;", F8, [1, -1], F8, [1 - 2**-53, -1 - 2**-52]),
    "one rounding": ("fma.rn.f32 %y, %x, %x, 0fBF800000;", F4, [1 + 2**-12], F4, [2**-11 + 2**-24]),
    "two roundings": ("mul.rn.f32 %z, %x, %x; sub.f32 %y, %z, 0f3F800000;", F4, [1 + 2**-12], F4, [2**-11]),
    "subnormal": ("mul.f32 %y, %x, 0f3F000000;", F4, [4 * TINY, -4 * TINY], F4, [2 * TINY, -2 * TINY]),
    "flushed": ("mul.ftz.f32 %y, %x, 0f40000000;", F4, [4 * TINY, -4 * TINY], F4, [0.0, -0.0]),
    "saturated": ("add.sat.f32 %y, %x, 0f3F000000;", F4, [-9, 0.25, 9, NAN], F4, [0, 0.75, 1, 0]),
    "least": ("min.f32 %y, %x, 0f00000000;", F4, [-1, 1, NAN, -0.0], F4, [-1, 0, 0, -0.0]),
    "greatest": ("max.f64 %y, %x, 0d8000000000000000;", F8, [-1, 1, NAN, 0.0], F8, [-0.0, 1, -0.0, 0.0]),
    "a sign from the first": ("copysign.f32 %y, %x, 0f40400000;", F4, [-1, 2, -0.0], F4, [-3, 3, -3]),
    "upper half": ("rcp.approx.ftz.f64 %y, %x;", F8, [4, -0.5, INF], F8, [0.25, -2, 0]),
    # Comparisons, of numbers and with NaN.
    "not equal": ("setp.ne.f32 %p1, %x, 0f3F800000; selp.u32 %y, 1, 0, %p1;", F4, [1, 2, NAN], U4, [0, 1, 0]),
    "or unordered": ("setp.neu.f32 %p1, %x, 0f3F800000; selp.u32 %y, 1, 0, %p1;", F4, [1, 2, NAN], U4, [0, 1, 1]),
    "less or unordered": ("setp.ltu.f64 %p1, %x, 0d0000000000000000; selp.u32 %y, 1, 0, %p1;",
                          F8, [-1, 1, NAN], U4, [1, 0, 1]),
    "with another": ("setp.gt.s32 %p1, %x, 0; setp.lt.and.s32 %p2|%p3, %x, 9, %p1; selp.u32 %r2, 1, 0, %p2;"
                     " selp.u32 %y, 2, %r2, %p3;", I4, [-1, 5, 9], U4, [0, 1, 2]),
    "unsigned": ("setp.lt.u32 %p1, %x, 5; selp.u32 %y, 1, 0, %p1;", I4, [-1, 4], U4, [0, 1]),
    "true": ("mov.pred %p1, -1; xor.pred %p2, %p1, %p1; not.pred %p3, %p2; and.pred %p1, %p1, %p3; "
             "selp.u32 %y, %x, 0, %p1;", U4, [7], U4, [7]),
    # Conversions.
    "to the nearest even": ("cvt.rni.s32.f32 %y, %x;", F4, [0.5, 1.5, -2.5, NAN, 1e20, -INF],
                            I4, [0, 2, -2, 0, 2**31 - 1, -(2**31)]),
    "cut off": ("cvt.rzi.s64.f64 %y, %x;", F8, [-1.9, 1e30, NAN], I8, [-1, 2**63 - 1, -(2**63)]),
    "no negative ones": ("cvt.rzi.u32.f32 %y, %x;", F4, [-5, 3.9, 1e10], U4, [0, 3, 2**32 - 1]),
    "whole numbers below": ("cvt.rmi.f64.f64 %y, %x;", F8, [-0.5, 2.5], F8, [-1, 2]),
    "a half": ("cvt.rn.f16.f32 %y, %x;", F4, [1, 1 + 2**-11, 1 + 3 * 2**-11, 65520], U2,
               [0x3C00, 0x3C00, 0x3C02, 0x7C00]),
    "of a half": ("cvt.f32.f16 %y, %x;", U2, [0x3C00, 0xC000, 1], F4, [1, -2, 2**-24]),
    "a bfloat16": ("cvt.rn.bf16.f32 %y, %x;", F4, [1, 1 + 2**-8, 1 + 3 * 2**-8], U2, [0x3F80, 0x3F80, 0x3F82]),
    "wider": ("cvt.s64.s32 %y, %x;", I4, [-2], I8, [-2]),
    "a byte with its sign": ("cvt.s32.s8 %y, %x;", I4, [0x80, 0x7F], I4, [-128, 127]),
    # Integers.
    "upper product": ("mul.hi.u32 %y, %x, %x;", U4, [2**31], U4, [2**30]),
    "wide product": ("mul.wide.s32 %y, %x, 3;", I4, [-(2**31)], I8, [-3 * 2**31]),
    "product and sum": ("mad.lo.s32 %y, %x, %x, -1;", I4, [65536, -3], I4, [-1, 8]),
    "carried": ("mov.b64 {%r2, %r3}, %x; add.cc.u32 %r4, %r2, %r2; addc.u32 %r5, %r3, %r3; mov.b64 %y, {%r4, %r5};",
                U8, [2**31, 2**40 + 2**31], U8, [2**32, 2**41 + 2**32]),
    "borrowed": ("mov.b64 {%r2, %r3}, %x; sub.cc.u32 %r4, 0, %r2; subc.u32 %r5, 0, %r3; mov.b64 %y, {%r4, %r5};",
                 I8, [5, 2**32, -1], I8, [-5, -(2**32), 1]),
    "carried products": ("mov.u32 %r2, -1; mad.lo.cc.u32 %r3, %r2, %r2, %x; madc.hi.u32 %y, %r2, %r2, 0;",
                         U4, [0, 2**32 - 1], U4, [2**32 - 2, 2**32 - 1]),
    "shifted out": ("shl.b32 %y, %x, 32;", U4, [1], U4, [0]),
    "shifted with the sign": ("shr.s32 %y, %x, 40;", I4, [-5, 5], I4, [-1, 0]),
    "shifted in": ("shf.l.wrap.b32 %y, %x, 1, 8;", U4, [0xAB000000], U4, [0x1AB]),
    "quotient": ("div.s32 %y, %x, -2;", I4, [7, -7], I4, [-3, 3]),
    "rest": ("rem.s64 %y, %x, 3;", I8, [-7], I8, [-1]),
    "inserted": ("bfi.b32 %y, %x, 0, 8, 4;", U4, [0x1F], U4, [0xF00]),
    "extracted": ("bfe.s32 %y, %x, 4, 4;", I4, [0xF0, 0x70], I4, [-1, 7]),
    "permuted": ("prmt.b32 %y, %x, 0, 291;", U4, [0xDDCCBBAA], U4, [0xAABBCCDD]),
    "any function": ("lop3.b32 %y, %x, 12, 10, 0x96;", U4, [15], U4, [15 ^ 12 ^ 10]),
    "leading zeros": ("clz.b64 %y, %x;", U8, [0, 1, 2**63], U4, [64, 63, 0]),
    "reversed": ("brev.b32 %y, %x;", U4, [1], U4, [2**31]),
    "counted": ("popc.b32 %y, %x;", U4, [0xFF0], U4, [8]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_an_instruction(name: str, tmp_path: Path) -> None:
    body, kind, given, result, expected = CASES[name]
    found = run(tmp_path, body, np.array(given, kind), result)
    wanted = np.array(expected, result)
    np.testing.assert_array_equal(found, wanted)
    if wanted.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(found), np.signbit(wanted))


def test_approximations_are_no_better_than_the_hardwares(tmp_path: Path) -> None:
    x = np.linspace(0.1, 3, 200, dtype=F4)
    error = abs(run(tmp_path, "tanh.approx.f32 %y, %x;", x, F4) / np.tanh(x.astype(F8)) - 1)
    assert 2**-13 < error.max() < 2**-11


def test_loops_and_conditions(tmp_path: Path) -> None:
    body = """
    mov.f32 %y, 0f00000000;
    mov.u32 %r2, 0;
$L__BB0_1:
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 bra $L__BB0_2;
    add.f32 %y, %y, %x;
    add.s32 %r2, %r2, 1;
    bra.uni $L__BB0_1;
$L__BB0_2:
    @!%p1 mov.f32 %y, 0f00000000;"""
    np.testing.assert_array_equal(run(tmp_path, body, np.ones(40, F4), F4), np.arange(40))


def test_parameters_that_say_what_they_point_to(tmp_path: Path) -> None:
    text = TEXT.format(before="", variables="", body="mov.f32 %y, %x;", kind="f32", result="f32", size=4, result_size=4)
    text = text.replace(".param .u64 k_param_0", ".param .u64 .ptr .global .align 16 k_param_0")
    text = text.replace(".param .u64 k_param_1", ".param .u64 .ptr .align 1 k_param_1")
    x, y = np.arange(8, dtype=F4), np.zeros(8, F4)
    arguments = [np.uint64(each.ctypes.data).tobytes() for each in (x, y)]
    ptx.Kernel(text, "k", tmp_path)((1, 1, 1), (8, 1, 1), arguments, [ptx.block_of(x), ptx.block_of(y)])
    np.testing.assert_array_equal(y, x)


def test_hints_for_caches_change_nothing(tmp_path: Path) -> None:
    body = """
    createpolicy.fractional.L2::evict_last.b64 %rd7, 1.0;
    mov.u32 %r2, 0x0;
    ld.global.L1::evict_last.L2::cache_hint.b32 { %r2 }, [ %rd5 + 0 ], %rd7;
    mov.b32 %y, %r2;"""
    x = np.arange(8, dtype=F4)
    np.testing.assert_array_equal(run(tmp_path, body, x, F4), x)


def test_functions_and_tables(tmp_path: Path) -> None:
    before = """
.global .align 8 .b8 table[16] = {1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0};
.func (.param .b64 func_retval0) twice(
    .param .b64 twice_param_0
);
.func (.param .b64 func_retval0) twice(
    .param .b64 twice_param_0
)
{
    .local .align 8 .b8 __local_depot0[16];
    .reg .b64 %SPL;
    .reg .f64 %fd<3>;
    mov.u64 %SPL, __local_depot0;
    ld.param.f64 %fd1, [twice_param_0];
    st.local.f64 [%SPL+8], %fd1;
    ld.local.f64 %fd2, [%SPL+8];
    add.f64 %fd2, %fd2, %fd1;
    st.param.f64 [func_retval0+0], %fd2;
    ret;
}"""
    body = """
    mov.u64 %rd7, table;
    ld.global.nc.u64 %rd8, [%rd7+8];
    cvt.rn.f64.s64 %z, %rd8;
    add.f64 %z, %x, %z;
    { // callseq 0, 0
    .param .b64 param0;
    .param .b64 retval0;
    st.param.f64 [param0+0], %z;
    call.uni (retval0), twice, (param0);
    ld.param.f64 %y, [retval0+0];
    }"""
    np.testing.assert_array_equal(run(tmp_path, body, np.arange(5.0), F8, before), 2 * (np.arange(5.0) + 2))


def test_threads_of_a_block(tmp_path: Path) -> None:
    """Each takes from shared memory what the last but so many has put there."""
    body = """
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, shared;
    add.s32 %r4, %r3, %r2;
    st.shared.f32 [%r4], %x;
    bar.sync 0;
    sub.s32 %r5, 792, %r2;
    add.s32 %r5, %r3, %r5;
    ld.shared.f32 %y, [%r5+4];"""
    x = np.random.default_rng(0).random(200).astype(F4)
    found = run(tmp_path, body, x[:199].copy(), F4, variables=".shared .align 4 .b8 shared[800];", room=796)
    np.testing.assert_array_equal(found[1:], x[1:199][::-1])
    assert np.isnan(found[0])  # of what nobody has written


SHUFFLES = {
    "down.b32 %y, %x, 1, 31": lambda lane: lane + 1 if lane < 31 else lane,
    "down.b32 %y, %x, 2, 6175": lambda lane: lane + 2 if lane % 8 < 6 else lane,  # in groups of 8
    "up.b32 %y, %x, 3, 0": lambda lane: lane - 3 if lane >= 3 else lane,
    "bfly.b32 %y, %x, 5, 31": lambda lane: lane ^ 5,
    "idx.b32 %y, %x, 7, 31": lambda lane: lane * 0 + 7,
}


@pytest.mark.parametrize("instruction", SHUFFLES)
def test_shuffles(instruction: str, tmp_path: Path) -> None:
    x = np.arange(64, dtype=U4) * 3
    lanes = [SHUFFLES[instruction](lane) for lane in range(32)]
    found = run(tmp_path, f"shfl.sync.{instruction}, -1;", x, U4)
    np.testing.assert_array_equal(found, [*(3 * lane for lane in lanes), *(3 * (lane + 32) for lane in lanes)])


def test_whether_a_shuffle_is_inside(tmp_path: Path) -> None:
    body = "shfl.sync.down.b32 %r2|%p1, %x, 1, 31, -1; selp.u32 %y, 1, 0, %p1;"
    np.testing.assert_array_equal(run(tmp_path, body, np.ones(32, U4), U4), [1] * 31 + [0])


# name: (body, variables, room for the result, what is said)
FAULTS = {
    "outside": ("mov.f32 %y, %x;", "", 12, r"thread \(3, 0, 0\) of block \(0, 0, 0\) touches memory that"),
    "misaligned": ("add.s64 %rd6, %rd6, 2; mov.f32 %y, %x;", "", None, "misaligned"),
    "beyond shared memory": ("st.shared.f32 [shared+8], %x; mov.f32 %y, %x;", ".shared .b8 shared[8];", None, "thread"),
    "a trap": ("trap; mov.f32 %y, %x;", "", None, "traps"),
    "a barrier that some leave out": (
        "setp.lt.u32 %p1, %r1, 2; @%p1 bra $L; bar.sync 0; $L: mov.f32 %y, %x;",
        "",
        None,
        "waits where others do not",
    ),
    "a barrier for some": (
        "setp.lt.u32 %p1, %r1, 2; @%p1 bra $L; shfl.sync.idx.b32 %r2, 0, 0, 31, -1; $L: mov.f32 %y, %x; bar.sync 0;",
        "",
        None,
        "waits where others do not",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_may_not_be_is_seen(name: str, tmp_path: Path) -> None:
    body, variables, room, message = FAULTS[name]
    with pytest.raises(ptx.PtxError, match=message):
        run(tmp_path, body, np.ones(4, F4), F4, variables=variables, room=room)


def test_threads_that_end_before_a_barrier_where_they_may(tmp_path: Path) -> None:
    body = FAULTS["a barrier that some leave out"][0]
    np.testing.assert_array_equal(run(tmp_path, body, np.arange(40.0, dtype=F4), F4, may_end=True), np.arange(40))


@pytest.mark.parametrize("body", ["foo.f32 %y, %x;", "add.f16 %h1, %h2, %h3;", "ex2.f32 %y, %x;", "bar.arrive 0, 32;"])
def test_what_is_not_known_is_an_error(body: str, tmp_path: Path) -> None:
    with pytest.raises(ptx.PtxError, match=body.split()[0]):
        run(tmp_path, body, np.ones(4, F4), F4)


def test_arguments_have_the_sizes_of_the_parameters(tmp_path: Path) -> None:
    text = TEXT.format(before="", variables="", body="mov.f32 %y, %x;", kind="f32", result="f32", size=4, result_size=4)
    with pytest.raises(ptx.PtxError, match="parameters of"):
        ptx.Kernel(text, "k", tmp_path)((1, 1, 1), (1, 1, 1), [b"\0" * 8, b"\0" * 4], [])
