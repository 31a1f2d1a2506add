"""Operands and plans: checked by walking the memory that a plan describes, and against NumPy's own rules."""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_model import Memory
from numpy.lib.stride_tricks import as_strided
from plans import finished

from dualbcast.errors import ArgumentError, DTypeError, ShapeError
from dualbcast.runtime.arguments import Operands, classify
from dualbcast.runtime.iteration_space import form_of
from dualbcast.runtime.launch_plan import Plan, _extent, _is_nested, plan

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(name) for name in ("float16", "float32", "float64")]
INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
F4, F8 = np.dtype(np.float32), np.dtype(np.float64)


def named(*arrays: object) -> Operands:
    return classify(arrays, tuple("abcdefgh"[: len(arrays)]))


def walk(call: Plan, itemsizes: Sequence[int]) -> list[tuple[int, ...]]:
    """The addresses of all pointer arguments at each point of the iteration space, read from the layout alone."""
    layout, strides = call.geometry.layout, iter(call.geometry.strides)
    steps = [[int(m) if m in "01" else next(strides) for m in pattern] for pattern in layout.classes]
    assert next(strides, None) is None
    assert call.geometry.ints == call.geometry.sizes + call.geometry.strides
    assert layout.rank == len(call.geometry.sizes)
    assert np.prod([int(size) for size in call.geometry.sizes]) == call.geometry.total
    points = []
    for index in itertools.product(*map(range, call.geometry.sizes)):
        offsets = [sum(i * step for i, step in zip(index, row, strict=True)) for row in steps]
        points.append(
            tuple(
                pointer + offsets[which] * itemsize
                for pointer, which, itemsize in zip(call.pointers, layout.which, itemsizes, strict=True)
            )
        )
    return points


def copy_inputs(call: Plan, itemsizes: Sequence[int]) -> None:
    """Stands for a kernel: output i is input i."""
    count = len(itemsizes)
    for addresses in walk(call, [*itemsizes, *itemsizes]):
        # As in a kernel, a point's inputs are read before its outputs are written.
        values = [ctypes.string_at(a, size) for a, size in zip(addresses, itemsizes, strict=False)]
        for address, value in zip(addresses[count:], values, strict=True):
            ctypes.memmove(address, value, len(value))


def check_identity(arrays: Sequence[np.ndarray], out: Any = None) -> tuple[Any, ...]:
    """Run `copy_inputs` over a plan and compare with what NumPy broadcasts to."""
    expected = [np.array(x, x.dtype.newbyteorder("=")) for x in np.broadcast_arrays(*arrays)]
    operands = named(*arrays)
    call = plan(operands, [x.dtype for x in expected], out)
    copy_inputs(call, [x.itemsize for x in expected])
    results = finished(call)
    for result, wanted in zip(results, expected, strict=True):
        assert result.shape == wanted.shape
        assert result.dtype == wanted.dtype
        assert result.tobytes() == wanted.tobytes()
    return results


# ---- the memory that a plan describes --------------------------------------------------------------------------------


@st.composite
def memories(draw: st.DrawFn, shape: tuple[int, ...], dtype: np.dtype, broadcast: bool = True) -> np.ndarray:
    """An array of `shape` with any axis order and steps of either sign; maybe stride 0, misaligned, or byte-swapped."""
    rank = len(shape)
    order = draw(st.permutations(range(rank)))
    steps = draw(st.lists(st.sampled_from([1, 1, 1, 2, 3, -1, -2]), min_size=rank, max_size=rank))
    repeated = [broadcast and draw(st.integers(0, 5)) == 0 for _ in shape]
    lengths = [1 if repeated[axis] else shape[axis] * abs(steps[axis]) for axis in order]
    size = int(np.prod(lengths, dtype=int))
    if broadcast and draw(st.integers(0, 7)) == 0:
        flat = np.zeros(size * dtype.itemsize + 1, np.uint8)[1:].view(dtype)  # misaligned
    else:
        flat = np.zeros(size, dtype)
    flat[:] = np.arange(size) % 2 if dtype.kind == "b" else (np.arange(size) * 7 + draw(st.integers(0, 50))) % 101
    array = flat.reshape(lengths).transpose(np.argsort(order)) if rank else flat.reshape(())
    array = array[tuple(slice(None, None, 1 if r else step) for r, step in zip(repeated, steps, strict=True))]
    array = as_strided(array, shape, [0 if r else s for r, s in zip(repeated, array.strides, strict=True)])
    if broadcast and dtype != BF16 and draw(st.integers(0, 7)) == 0:
        array = array.view(dtype.newbyteorder())
    return array


@st.composite
def shapes(draw: st.DrawFn) -> tuple[int, ...]:
    lengths = st.sampled_from([1, 2, 2, 3, 3, 4, 0])
    return tuple(draw(st.lists(lengths, max_size=5)))


@st.composite
def calls(draw: st.DrawFn) -> tuple[list[np.ndarray], list[np.ndarray | None] | None]:
    """Inputs that broadcast together, and arrays for `out=`."""
    shape = draw(shapes())
    dtypes = draw(st.sampled_from([[*FLOATS, *INTEGERS, np.dtype(bool)], [BF16, F4, F8], [BF16, np.dtype(np.int8)]]))
    inputs = []
    for _ in range(draw(st.integers(1, 3))):
        own = [1 if draw(st.integers(0, 3)) == 0 else length for length in shape]
        own = own[draw(st.integers(0, len(own))) :] if draw(st.booleans()) else own
        inputs.append(draw(memories(tuple(own), draw(st.sampled_from(dtypes)))))
    if draw(st.booleans()):
        return inputs, None
    result = np.broadcast_shapes(*(x.shape for x in inputs))
    outs: list[np.ndarray | None] = []
    for x in inputs:
        native = x.dtype.newbyteorder("=")
        outs.append(draw(memories(result, native, broadcast=False)) if draw(st.integers(0, 2)) else None)
    return inputs, outs


@settings(max_examples=500, deadline=None)
@given(calls())
def test_walking_a_plan_reproduces_broadcasting(call: tuple[list[np.ndarray], list[np.ndarray | None] | None]) -> None:
    inputs, out = call
    results = check_identity(inputs, out)
    for result, given_out in zip(results, out or [], strict=False):
        assert given_out is None or result is given_out


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_fresh_outputs_have_numpys_memory_order(data: st.DataObject) -> None:
    shape = data.draw(shapes())
    inputs = []
    for _ in range(data.draw(st.integers(1, 3))):
        own = tuple(1 if data.draw(st.integers(0, 3)) == 0 else length for length in shape)
        inputs.append(np.abs(data.draw(memories(own, F8))).astype(F8, order="K"))
    expected = np.nditer([*inputs, None], ["zerosize_ok"], order="K").operands[-1]
    (result,) = plan(named(*inputs), [F8]).outputs
    assert result.shape == expected.shape
    if result.size > 1:
        long = [axis for axis, length in enumerate(result.shape) if length > 1]
        assert [result.strides[axis] for axis in long] == [expected.strides[axis] for axis in long]


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_facts_about_one_array(data: st.DataObject) -> None:
    array = data.draw(memories(data.draw(shapes()), F8))
    steps = [np.arange(length) * step for length, step in zip(array.shape, array.strides, strict=True)]
    starts = [sum(offsets) for offsets in itertools.product(*steps)]
    taken = [start + byte for start in starts for byte in range(8)]
    assert _extent(form_of(array)) == ((min(taken), max(taken) + 1) if taken else (0, 0))
    # Every one of these has steps of whole elements; those that repeat none of them are slices, whose dimensions nest.
    assert _is_nested(form_of(array)) is (len(set(taken)) == len(taken))


def test_steps_of_part_of_an_element_do_not_nest() -> None:
    assert not _is_nested(((2,), (12,), F8))
    assert _is_nested(((1,), (12,), F8))
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(6.0), 3)
    assert not _is_nested(form_of(windows))


def test_equal_strides_keep_c_order() -> None:
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(6.0), 3)
    expected = np.nditer([windows, None], order="K").operands[-1]
    assert plan(named(windows), [F8]).outputs[0].strides == expected.strides
    check_identity([windows])


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_arrays_in_one_order_coalesce_to_one_dimension(order: tuple[int, ...]) -> None:
    x = np.zeros((2, 3, 4)).transpose(order)
    call = plan(named(x, x.copy(order="K"), 1.0), [F8, F8])
    assert call.geometry.layout.classes == ("1", "0")
    assert call.geometry.layout.which == (0, 0, 1, 0, 0)
    assert (call.geometry.sizes, call.geometry.strides, call.geometry.total) == ((24,), (), 24)
    assert call.outputs[0].strides == x.strides


@pytest.mark.parametrize(
    ("arrays", "classes", "which", "sizes", "strides"),
    [
        pytest.param([np.zeros((3, 4)), np.zeros(4)], ("s1", "01"), (0, 1, 0), (3, 4), (4,), id="row"),
        pytest.param([np.zeros((3, 4)), np.zeros((3, 1))], ("s1", "s0"), (0, 1, 0), (3, 4), (4, 1), id="column"),
        pytest.param([np.zeros((5, 3, 4)), np.zeros((5, 1, 1))], ("s1", "s0"), (0, 1, 0), (5, 12), (12, 1), id="outer"),
        pytest.param([np.zeros((3, 8))[:, ::2]], ("s", "1"), (0, 1), (12,), (2,), id="every second"),
        pytest.param([np.zeros((3, 4))[:, ::-1]], ("ss", "s1"), (0, 1), (3, 4), (4, -1, 4), id="reversed columns"),
        pytest.param([np.zeros((3, 4))[::-1, ::-1]], ("s", "1"), (0, 1), (12,), (-1,), id="reversed"),
        pytest.param(
            [np.zeros((3, 4)), np.zeros((3, 6))[:, :4]], ("s1", "s1"), (0, 1, 0), (3, 4), (4, 6), id="same pattern"
        ),
        pytest.param([np.zeros((1, 1)), 2.0], ("1",), (0, 0, 0), (1,), (), id="one element"),
        pytest.param([np.zeros((0, 4)), np.zeros(4)], ("1",), (0, 0, 0), (0,), (), id="empty"),
        pytest.param([np.zeros((3, 1, 4)), np.zeros((1, 4))], ("s1", "01"), (0, 1, 0), (3, 4), (4,), id="length 1"),
    ],
)
def test_layout(
    arrays: list[object],
    classes: tuple[str, ...],
    which: tuple[int, ...],
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
) -> None:
    call = plan(named(*arrays), [F8])
    assert (call.geometry.layout.classes, call.geometry.layout.which) == (classes, which)
    assert (call.geometry.sizes, call.geometry.strides) == (sizes, strides)
    assert call.geometry.layout.rank == len(sizes)
    assert call.geometry.layout.stride_count == len(strides)
    assert not call.geometry.layout.wide


def test_layout_ignores_memory_order_where_nothing_is_to_be_walked() -> None:
    assert (
        plan(named(1.0, 2.0), [F8]).geometry.layout.classes
        == plan(named(np.zeros(7), np.zeros(7)), [F8]).geometry.layout.classes
    )


# ---- more than 2**31 elements: plans without memory ------------------------------------------------------------------


def test_huge_broadcast_is_planned_in_wide_integers() -> None:
    x = np.broadcast_to(np.float32(1), (2**17, 2**17))
    call = plan(named(x), [])
    assert (call.geometry.total, call.geometry.sizes, call.geometry.layout.classes, call.geometry.layout.wide) == (
        2**34,
        (2**34,),
        ("0",),
        True,
    )
    x, y = np.zeros((2**17, 1)), np.zeros(2**17)
    call = plan(named(x, y), [])
    assert (call.geometry.layout.classes, call.geometry.sizes, call.geometry.strides) == (
        ("s0", "01"),
        (2**17, 2**17),
        (1,),
    )
    assert call.geometry.layout.wide


@pytest.mark.parametrize(("length", "wide"), [(2**31 - 1, False), (2**31, True)])
def test_wide_begins_where_int32_ends(length: int, wide: bool) -> None:
    assert plan(named(np.broadcast_to(np.float32(1), length)), []).geometry.layout.wide is wide


@pytest.mark.parametrize("sign", [1, -1])
def test_few_elements_far_apart_are_wide(sign: int) -> None:
    for step, expected in [(2**31 - 1, False), (2**31, True)]:
        call = plan(named(as_strided(np.zeros(1, np.float32), (2,), (sign * 4 * step,))), [])
        wide, strides = call.geometry.layout.wide, call.geometry.strides
        del call  # a failing assertion would print the array, whose second element is not there
        assert (wide, strides) == (expected, (sign * step,))


# ---- pointers and ownership ------------------------------------------------------------------------------------------


def test_pointers_are_the_addresses_of_element_zero(tmp_path: Any) -> None:
    read_only = np.arange(5.0)
    read_only.flags.writeable = False
    mapped = np.memmap(tmp_path / "x", np.float64, "w+", shape=5)
    arrays = [read_only, np.arange(5.0)[::-1], np.zeros(5, BF16), mapped, np.zeros((9, 5))[4], np.array(3.0)]
    call = plan(named(*arrays), [F8])
    assert call.pointers == (*(x.ctypes.data for x in arrays), call.outputs[0].ctypes.data)
    assert all(mine is theirs for mine, theirs in zip(call.operands.arrays, arrays, strict=True))


def test_only_awkward_inputs_are_copied() -> None:
    regular = np.zeros((5, 3))[::-2]
    odd = np.zeros(41, np.uint8)[1:].view(np.float64)
    packed = np.zeros(5, np.dtype([("flag", "u1"), ("value", "<f4")]))["value"]
    padded = np.zeros(5, np.dtype([("value", "<f4"), ("flag", "u1")]))["value"]
    swapped = np.ones((3, 5), np.dtype(np.float32).newbyteorder()).T
    for awkward, storage in [(odd, "float64"), (packed, "float32"), (padded, "float32"), (swapped, "float32")]:
        operands = named(awkward, regular)
        copy = operands.arrays[0]
        assert not np.shares_memory(copy, awkward)
        assert copy.flags.aligned
        assert copy.dtype.isnative
        np.testing.assert_array_equal(copy, awkward)
        assert operands.arrays[1] is regular
        assert operands.signature.storages == (storage, "float64")
    assert copy.flags.f_contiguous  # the memory order of the last one, `swapped`


# ---- outputs ---------------------------------------------------------------------------------------------------------


def test_zero_dimensional_results_are_scalars_as_in_numpy() -> None:
    (result,) = check_identity([np.array(2.5)])
    assert type(result) is np.float64
    assert type(np.add(np.array(2.5), 1)) is np.float64
    out = np.array(0.0)
    (result,) = check_identity([np.array(2.5)], out)
    assert result is out
    assert out == 2.5


def test_a_single_array_or_a_sequence_serves_as_out() -> None:
    x, y = np.arange(3.0), np.zeros(3)
    for out in (y, [y], (y,)):
        assert plan(named(x), [F8], out).outputs[0] is y


def test_a_call_without_arrays_has_one_element() -> None:
    assert (plan(named(), [F8]).geometry.total, plan(named(), [F8]).geometry.layout.which) == (1, (0,))


@pytest.mark.parametrize("window", [slice(1, 7), slice(None, 6), slice(5, None, -1)])
def test_out_that_overlaps_an_input_is_written_after_the_kernel(window: slice) -> None:
    memory = np.arange(7.0)
    x, out = memory[:6], memory[window]
    before = memory.copy()
    expected = x.copy()
    call = plan(named(x), [F8], out)
    assert (call.geometry.layout.classes, call.geometry.layout.which) == (
        ("1",),
        (0, 0),
    )  # that of the array written, not of `out`
    copy_inputs(call, [8])
    np.testing.assert_array_equal(memory, before)  # a kernel that fails leaves `out=` as it was
    (result,) = finished(call)
    assert result is out
    np.testing.assert_array_equal(out, expected)


def test_out_that_interleaves_with_an_input_is_written_directly() -> None:
    memory = np.arange(10.0)
    x, out = memory[::2], memory[1::2]
    call = plan(named(x), [F8], out)
    assert call.pointers[1] == out.ctypes.data
    copy_inputs(call, [8])
    finished(call)
    np.testing.assert_array_equal(memory, np.repeat(np.arange(0.0, 10, 2), 2))


BUFFER = np.arange(16.0)  # one for all examples, so that the same forms meet at other addresses, and again at the same


@st.composite
def windows(draw: st.DrawFn) -> np.ndarray:
    """Three elements of `BUFFER`, one, two or three apart, in either direction."""
    step = draw(st.sampled_from([1, 1, 2, 3]))
    start = draw(st.integers(0, BUFFER.size - 2 * step - 1))
    return BUFFER[start : start + 2 * step + 1 : step][:: draw(st.sampled_from([1, -1]))]


@settings(max_examples=1000, deadline=None)
@given(st.lists(windows(), min_size=1, max_size=3), st.lists(st.none() | windows(), min_size=1, max_size=3))
def test_sharing_of_memory_is_found_exactly(inputs: list[np.ndarray], outs: list[np.ndarray | None]) -> None:
    given = [y for y in outs if y is not None]
    if any(np.shares_memory(y, z) for y, z in itertools.combinations(given, 2)):
        with pytest.raises(ArgumentError, match="share memory"):
            plan(named(*inputs), [F8] * len(outs), outs)
        return
    call = plan(named(*inputs), [F8] * len(outs), outs)
    for y, output, target in zip(outs, call.outputs, call.targets, strict=True):
        shared = y is not None and any(np.shares_memory(y, x) for x in inputs)
        assert (target is output) is not shared
        assert y is None or output is y
    assert call.pointers == tuple(x.ctypes.data for x in (*inputs, *call.targets))


def test_interleaved_outs_are_accepted() -> None:
    both = np.zeros((3, 4, 2))
    x, y = np.arange(12.0).reshape(3, 4), np.arange(4.0)
    check_identity([x, y], (both[..., 0], both[..., 1]))
    np.testing.assert_array_equal(both[..., 0], x)


def test_out_that_repeats_or_misaligns_its_elements_is_filled_as_by_assignment() -> None:
    x = np.arange(4.0)
    repeated = as_strided(np.zeros(1), (4,), (0,))
    odd = np.zeros(33, np.uint8)[1:].view(np.float64)
    for out in (repeated, odd):
        call = plan(named(x), [F8], out)
        assert call.pointers[1] != out.ctypes.data
        copy_inputs(call, [8])
        finished(call)
    assert repeated[0] == 3.0
    np.testing.assert_array_equal(odd, x)


def test_an_empty_out_inside_an_input_is_no_overlap() -> None:
    x = np.zeros((1, 4))
    out = as_strided(x[0, 1:], (0, 4), (32, 8))
    assert plan(named(x, np.zeros((0, 4))), [F8], out).targets[0] is out


def test_the_order_of_given_and_fresh_outputs_is_kept() -> None:
    memory = np.arange(8.0)
    x, y, z = memory[:4], np.arange(4.0, 8.0), np.arange(8.0, 12.0)
    overlapping, separate = memory[2:6], np.zeros(4)
    results = check_identity([x, y, z], (None, overlapping, separate))
    assert results[1] is overlapping
    assert results[2] is separate


OUT_ERRORS = [
    pytest.param(np.zeros(4), ShapeError, r"out has shape \(4,\).*\(3,\)", id="shape"),
    pytest.param(np.zeros((1, 3)), ShapeError, r"out has shape \(1, 3\)", id="extra axis"),
    pytest.param(np.zeros(3, np.float32), DTypeError, "out has dtype float32.*float64", id="dtype"),
    pytest.param(np.zeros(3, F8.newbyteorder()), DTypeError, "out has dtype >f8", id="byte order"),
    pytest.param([0.0, 0.0, 0.0], ArgumentError, "out= has 3 arrays.*1 outputs", id="list of numbers"),
    pytest.param([[0.0]], ArgumentError, "out is .*list.*NumPy array", id="list"),
    pytest.param(np.broadcast_to(0.0, 3), ArgumentError, "out is read-only", id="read-only"),
    pytest.param((np.zeros(3), np.zeros(3)), ArgumentError, "out= has 2 arrays", id="too many"),
]


@pytest.mark.parametrize(("out", "error", "words"), OUT_ERRORS)
def test_out_is_refused(out: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        plan(named(np.zeros(3)), [F8], out)


def test_outs_that_share_memory_are_refused() -> None:
    memory = np.zeros(5)
    for outs in [(memory[:3], memory[2:]), (memory[:3], memory[:3])]:
        with pytest.raises(ArgumentError, match="share memory"):
            plan(named(np.zeros(3)), [F8, F8], outs)
    with pytest.raises(DTypeError, match=r"out\[1\] has dtype float64.*bool"):
        plan(named(np.zeros(3)), [F8, np.dtype(bool)], (memory[:3], np.zeros(3)))


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(ShapeError) as caught:
        plan(classify((np.zeros((2, 3)), 1.0, np.zeros((4, 1))), ("weight", "scale", "bias")), [F8])
    assert "weight (2, 3), scale (), bias (4, 1)" in str(caught.value)
    assert "Axis -2 has lengths 2 and 4" in str(caught.value)
    # The geometry is remembered by shapes; the names in the error must not be.
    with pytest.raises(ShapeError, match=r"u \(2, 3\), v \(\), w \(4, 1\)"):
        plan(classify((np.zeros((2, 3)), 1.0, np.zeros((4, 1))), ("u", "v", "w")), [F8])


# ---- dtypes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), list(itertools.product([*FLOATS, *INTEGERS, np.dtype(bool)], repeat=2)))
def test_promotion_is_numpys(a: np.dtype, b: np.dtype) -> None:
    expected = np.result_type(a, b)
    if expected.kind in "biu":
        expected = F8
    for scalar in (False, True):
        operands = named(np.zeros(2, a), b.type(1) if scalar else np.zeros(2, b), 1e30, 3, True)
        assert operands.signature.result_dtype == expected
        assert operands.signature.compute == ("float64" if expected == F8 else "float32")
        assert operands.signature.storages == (a.name, b.name, operands.signature.compute, "int64", "bool")


@pytest.mark.parametrize(
    ("other", "expected"),
    [(BF16, BF16), (F4, F4), (F8, F8), ("int8", BF16), ("uint8", BF16), ("bool", BF16)],
)
def test_promotion_of_bfloat16(other: Any, expected: np.dtype) -> None:
    assert named(np.zeros(2, BF16), np.zeros(2, other), 2.5).signature.result_dtype == expected
    assert named(np.zeros(2, BF16), 2.5, 3).signature.compute == "float32"
    assert named(ml_dtypes.bfloat16(2), 2.5).signature.storages == ("bfloat16", "float32")


@pytest.mark.parametrize("other", ["float16", "int16", "int32", "int64", "uint16", "uint64"])
def test_no_common_dtype(other: str) -> None:
    with pytest.raises(DTypeError, match=f"no common dtype.*a is bfloat16, c is {other}"):
        named(np.zeros(2, BF16), 1.0, np.zeros(2, other))


@pytest.mark.parametrize("dtype", [*INTEGERS, np.dtype(bool)])
def test_integers_alone_are_computed_in_float64(dtype: np.dtype) -> None:
    operands = named(np.zeros(3, dtype))
    assert (operands.signature.result_dtype, operands.signature.compute) == (F8, "float64")
    kind = {"bool": "bool", "uint64": "float"}.get(dtype.name, "int")
    assert (operands.signature.kinds, operands.signature.storages) == ((kind,), (dtype.name,))


def test_python_scalars() -> None:
    operands = named(0.1, 2, True)
    assert (operands.signature.kinds, operands.signature.storages) == (
        ("float", "int", "bool"),
        ("float64", "int64", "bool"),
    )
    assert [x.shape for x in operands.arrays] == [()] * 3
    assert [x[()] for x in operands.arrays] == [0.1, 2, True]
    operands = named(np.zeros(2, np.float16), 0.1, -(2**63))
    assert operands.arrays[1] == np.float32(0.1)
    assert operands.arrays[2] == -(2**63)
    # np.float64 is a subclass of float, and yet not weak.
    assert named(np.zeros(2, np.float32), np.float64(1)).signature.result_dtype == F8


@pytest.mark.parametrize(
    "dtype", [np.dtype("longlong"), np.dtype("long"), np.dtype("intc"), np.dtype(">i8"), np.dtype("<i8")]
)
def test_aliases_of_integers(dtype: np.dtype) -> None:
    operands = named(np.arange(3, dtype=dtype))
    assert operands.signature.storages == (f"int{8 * dtype.itemsize}",)
    assert operands.arrays[0].tolist() == [0, 1, 2]


@pytest.mark.skipif(np.dtype(np.longdouble).itemsize == 8, reason="longdouble is float64 here")
def test_longdouble_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"x has dtype .*float.*astype"):
        classify((np.zeros(2, np.longdouble),), ("x",))


class Units(np.ndarray):
    """A subclass that stands for those with units or masks."""


ARGUMENT_ERRORS = [
    pytest.param([1.0], ArgumentError, r"x is a list.*np.asarray\(x\)", id="list"),
    pytest.param((1.0,), ArgumentError, r"x is a tuple.*np.asarray\(x\)", id="tuple"),
    pytest.param("1", ArgumentError, "x is a str.*a float, an int or a bool", id="str"),
    pytest.param(None, ArgumentError, "x is None, not an array or a number", id="None"),
    pytest.param(1j, DTypeError, "x is a complex.*x.real and x.imag", id="complex"),
    pytest.param(np.zeros(2).view(Units), ArgumentError, r"Units.*np.asarray\(x\)", id="subclass"),
    pytest.param(2**63, ArgumentError, r"x is 9223372036854775808.*float\(x\)", id="big int"),
    pytest.param(__import__("fractions").Fraction(1, 2), ArgumentError, r"Fraction.*float\(x\)", id="fraction"),
    pytest.param(np.zeros(2, complex), DTypeError, "complex128.*x.real", id="complex array"),
    pytest.param(np.zeros(2, object), DTypeError, r"x has dtype object.*astype", id="object"),
    pytest.param(np.array("s"), DTypeError, "x has dtype <U1", id="string array"),
    pytest.param(np.zeros(2, "M8[s]"), DTypeError, "datetime64.*timedelta64", id="datetime"),
    pytest.param(np.timedelta64(2, "s"), DTypeError, "timedelta64.*by a unit", id="timedelta"),
    pytest.param(np.zeros(2, [("u", "f4")]), DTypeError, r"fields.*x\['u'\]", id="structured"),
    pytest.param(np.zeros(2, "V2"), DTypeError, "V2", id="void"),
    pytest.param(np.zeros(2, ml_dtypes.float8_e4m3), DTypeError, "float8_e4m3.*astype", id="float8"),
]


@pytest.mark.parametrize(("value", "error", "words"), ARGUMENT_ERRORS)
def test_argument_is_refused(value: object, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        classify((np.zeros(2), value), ("first", "x"))


# ---- CuPy, played by NumPy -------------------------------------------------------------------------------------------


class DeviceArray:
    """What the runtime uses of cupy.ndarray, over host memory."""

    def __init__(
        self, host: Any, dtype: Any = None, memory: Any = None, strides: Any = None, *, device: int = 0
    ) -> None:
        if memory is not None:  # host is the shape
            host = np.ndarray(host, dtype, getattr(memory, "host", memory), strides=strides)
        self.host = host
        self.dtype, self.shape, self.strides, self.itemsize = host.dtype, host.shape, host.strides, host.itemsize
        self.data = SimpleNamespace(ptr=host.ctypes.data, device_id=device, host=host)

    def transpose(self, axes: Sequence[int]) -> DeviceArray:
        return DeviceArray(self.host.transpose(axes))

    def __setitem__(self, key: Any, value: DeviceArray) -> None:
        self.host[key] = value.host


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("cupy")
    module.ndarray = DeviceArray
    module.asarray = lambda x: DeviceArray(np.array(x))
    module.empty = lambda shape, dtype: DeviceArray(np.empty(shape, dtype))
    module.empty_like = lambda array: DeviceArray(np.empty_like(array.host))
    module.cuda = SimpleNamespace(runtime=SimpleNamespace(getDevice=lambda: 0), alloc=Memory)
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


@pytest.mark.usefixtures("cupy")
def test_device_arrays_are_walked_like_host_arrays() -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4).T, np.arange(3, dtype=np.float32)
    for out in (None, (DeviceArray(np.zeros((4, 6), np.float32)[:, ::2]), None, None, None)):
        operands = named(DeviceArray(x), DeviceArray(y), 2.5, np.float32(3))
        assert operands.module == "cupy"
        assert operands.signature.storages == ("float32",) * 4
        call = plan(operands, [F4] * 4, out)
        assert all(type(array) is DeviceArray for array in (*operands.arrays[:2], *call.outputs))
        # Numbers are for the kernel's arguments, and take no memory of the device.
        assert operands.numbers == (2, 3)
        assert all(type(array) is np.ndarray and array.shape == () for array in operands.arrays[2:])
        assert call.pointers[2:4] == (0, 0)
        places = [number.ctypes.data for number in operands.arrays[2:]]
        copy_inputs(call._replace(pointers=(*call.pointers[:2], *places, *call.pointers[4:])), [4] * 4)
        results = finished(call)
        for result, expected in zip(results, np.broadcast_arrays(x, y, np.float32(2.5), np.float32(3)), strict=True):
            np.testing.assert_array_equal(result.host, expected)
        if out is None:
            assert results[0].strides == x.strides
        else:
            assert results[0] is out[0]


@pytest.mark.usefixtures("cupy")
def test_device_out_that_overlaps_an_input_is_written_after_the_kernel() -> None:
    memory = np.arange(7.0)
    x, out = DeviceArray(memory[:6]), DeviceArray(memory[1:])
    call = plan(named(x), [F8], out)
    copy_inputs(call, [8])
    np.testing.assert_array_equal(memory, np.arange(7.0))
    assert finished(call) == (out,)
    np.testing.assert_array_equal(memory, [0, 0, 1, 2, 3, 4, 5])


@pytest.mark.usefixtures("cupy")
def test_device_scalars_and_misaligned_arrays() -> None:
    (result,) = finished(plan(named(DeviceArray(np.array(2.0))), [F8]))
    assert type(result) is DeviceArray  # reading a NumPy scalar from it would wait for the device
    odd = DeviceArray(np.zeros(17, np.uint8)[1:].view(np.float64))
    odd.host[...] = 1.0, 2.0
    (copy,) = named(odd).arrays
    assert copy.data.ptr % 8 == 0
    np.testing.assert_array_equal(copy.host, [1.0, 2.0])


@pytest.mark.usefixtures("cupy")
def test_mixed_kinds_and_devices_are_refused() -> None:
    device = DeviceArray(np.zeros(3))
    for host in (np.zeros(3), np.array(1.0)):
        with pytest.raises(ArgumentError, match=r"b is a NumPy array and a is a CuPy array.*cupy.asarray\(b\)"):
            named(device, host)
    with pytest.raises(ArgumentError, match="b is on GPU 1 and the current device is GPU 0"):
        named(device, DeviceArray(np.zeros(3), device=1))
    with pytest.raises(ArgumentError, match=r"out is .*numpy\.ndarray.*CuPy array"):
        plan(named(device), [F8], np.zeros(3))
    with pytest.raises(ArgumentError, match=r"out is .*DeviceArray.*NumPy array"):
        plan(named(np.zeros(3)), [F8], device)
    assert named(np.zeros(3), 1.0).module == "numpy"
    assert named(device, 1.0, np.float32(2)).signature.result_dtype == F8


@pytest.mark.gpu
def test_real_cupy_arrays() -> None:
    real = pytest.importorskip("cupy")
    x = real.arange(12, dtype=np.float32).reshape(3, 4).T
    y = real.arange(3, dtype=np.float32)[::-1]
    operands = named(x, y, 2.5)
    call = plan(operands, [F4])
    assert operands.module == "cupy"
    assert call.pointers == (x.data.ptr, y.data.ptr, 0, call.outputs[0].data.ptr)
    assert isinstance(call.outputs[0], real.ndarray)
    assert call.outputs[0].strides == x.strides
    call = plan(operands, [F4], x)
    assert call.pointers[-1] != x.data.ptr
    call.targets[0][...] = 7
    assert bool((x == real.arange(12, dtype=np.float32).reshape(3, 4).T).all())
    assert finished(call)[0] is x
    assert bool((x == 7).all())
