"""`explain(counted=True)`: counts by line that are known by hand; what is counted is what is shipped; the errors."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench.paper import counted_cell, models
from dualbcast import differentiable_broadcast, special
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.cuda.line_information import code_with_lines, line_of, linkable
from dualbcast.codegen.text_places import Place, Store
from dualbcast.counting import count as count_module
from dualbcast.counting import executor
from dualbcast.counting.counter import ALIGNMENT, Counts, Executed
from dualbcast.counting.launch import launch_of, placed, planned_for_gpu, ptx_of
from dualbcast.counting.lines import CountedLine, instructions_of, lines_of
from dualbcast.errors import ArgumentError, BackendError, Location, MissingDependencyError

HOPPER = (9, 0)
compiles = [
    pytest.mark.cuda_compilers,
    pytest.mark.skipif(executor.COMPILER is None, reason="to run PTX takes gcc"),
]


def compiling(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that needs the CUDA compilers, and gcc."""
    for mark in compiles:
        test = mark(test)
    return test


@differentiable_broadcast
def sides(x, a, b):
    if x > 0:
        return math.tanh(a)
    return math.exp(math.tanh(b))


@differentiable_broadcast
def short(x, y):
    return math.tanh(x) * y


@differentiable_broadcast(whole="table")
def looked_up(i, x, table):
    return table[i] * x


@differentiable_broadcast
def shrinking(x, n):
    for _ in range(n):
        x = x / (x + 1)
    return x


@differentiable_broadcast
def lines_and_rules(x, y):
    product = x * y
    if product > 0.5:
        return math.log(product), special.digamma(product)
    return math.exp(product), x


def bounded(a):
    if a > 1:
        return math.tanh(a)
    return a


@differentiable_broadcast
def with_helper(x, y):
    total = 0.0
    for _ in range(4):
        total = total * y + bounded(x)
    return total


def counted(function: Any, *arrays: Any, **options: Any) -> Any:
    return function.explain(*arrays, cc=HOPPER, counted=True, **options).counted


def named(found: Any, start: str) -> CountedLine:
    """The line that begins with a text."""
    (line,) = [each for each in found.lines if each.text.startswith(start)]
    return line


def numbers(shape: Any, dtype: Any = np.float32, seed: int = 0) -> Any:
    return np.random.default_rng(seed).uniform(0.1, 1.5, shape).astype(dtype)


@compiling
def test_a_branch_of_which_a_quarter_of_each_warp_takes_one_side() -> None:
    # 1023 elements, one a thread: 31 warps, and one of 31 lanes. Lanes 0 to 7 take the first side and read 32 bytes of
    # `a`; the others read 96 of `b`, or 92.
    at = np.arange(1023) % 32
    x, a, b = np.where(at < 8, 1, -1).astype(np.float32), numbers(1023), numbers(1023)
    found = counted(sides, x, a, b, product="value")
    assert (found.elements, found.warps, found.launches) == (1023, 32, 1)
    condition, first, second = (named(found, text) for text in ("if x > 0", "return math.tanh(a)", "return math.exp"))
    assert (condition.sectors, first.sectors, second.sectors) == (4 * 32, 32, 3 * 32)
    assert (found.sectors_read, found.sectors_written, found.repeated) == (8 * 32, 4 * 32, 0)
    assert found.dram_bytes == 32 * (8 * 32 + 4 * 32)
    assert condition.divergent == 32
    assert first.lane_share == 8 / 32
    assert second.lane_share == (24 * 31 + 23) / 32**2
    # The quotient of the shares is that of the lanes, for the load at least; all lines together are everything.
    assert sum(each.issued for each in found.lines) == found.issued
    assert sum(each.lanes for each in found.lines) == found.lanes
    assert sum(each.divergent for each in found.lines) == found.divergent
    assert sum(each.sectors for each in found.lines) == found.sectors
    assert math.isclose(sum(each.instruction_share for each in found.lines), 1)
    assert math.isclose(sum(each.sector_share for each in found.lines), 1)
    assert named(found, "stores").sector_share == 1 / 3
    numbered = [each for each in found.lines if each.line]
    assert [each.line for each in numbered] == sorted(each.line for each in numbered)
    assert {each.filename for each in numbered} == {__file__}


@compiling
@pytest.mark.parametrize("sign", [1, -1])
def test_a_side_that_no_lane_takes_has_no_line(sign: int) -> None:
    # 1023 elements, one a thread.
    found = counted(sides, np.full(1023, sign, np.float32), numbers(1023), numbers(1023), product="value")
    texts = [each.text for each in found.lines]
    assert ("return math.tanh(a)" in texts) == (sign > 0)
    assert ("return math.exp(math.tanh(b))" in texts) == (sign < 0)
    # The last lane has no element.
    assert found.divergent == 1
    assert not any(each.divergent for each in found.lines if each.line)
    # Both arrays of a lane's side, and the results.
    assert found.dram_bytes == 3 * 4 * 1024


@compiling
@pytest.mark.parametrize(("run", "read"), [(128, 2), (8, 2), (4, 3), (1, 3)])
def test_four_elements_of_a_thread_read_what_one_of_them_needs(run: int, read: int) -> None:
    """A sector has eight elements: where they agree, that of the other side is left alone."""
    x = np.where(np.arange(1024) // run % 2, 1, -1).astype(np.float32)
    found = counted(sides, x, numbers(1024), numbers(1024), product="value")
    assert (found.elements, found.warps) == (1024, 8)
    assert (found.sectors_read, found.sectors_written, found.repeated) == (read * 128, 128, 0)
    assert found.dram_bytes == (read + 1) * 4 * 1024


@compiling
def test_rows_that_make_more_iterations_take_as_many_more_instructions() -> None:
    # Whole warps make n iterations each, so that no lanes part; the loop's instructions are those of one times n.
    def loop(count: int) -> int:
        found = counted(shrinking, numbers((8, 32)), np.full((8, 1), count, np.int8), product="value")
        assert (found.lane_share, found.divergent) == (1, 0)
        return named(found, "x = x / (x + 1)").issued

    # However the compilers unroll it.
    assert loop(24) - loop(16) == loop(16) - loop(8) >= 8 * 8 * 2
    varying = counted(shrinking, numbers((8, 32)), np.arange(32, dtype=np.int8) % 4 + 1, product="value")
    assert named(varying, "x = x / (x + 1)").lane_share < 1
    assert varying.divergent > 0


@compiling
@pytest.mark.parametrize("mode", ["derivatives", "value and pullback"])
@pytest.mark.parametrize("control", ["rows", "elements"])
def test_the_counts_of_the_cell_are_those_of_the_papers_experiments(mode: Any, control: str) -> None:
    arrays = counted_cell.arrays_of(64, control, "random", 1)
    arrays[6][...] = 1
    cell = differentiable_broadcast(models.cell_update)
    product = "jacobian" if mode == "derivatives" else "value_and_vjp"
    # Copies, where NumPy has them.
    found = counted(cell, *[each.copy() for each in arrays[:6]], product=product, wrt=("c", "f", "i", "g"))
    launch = counted_cell.fused("ours", models.cell_update, arrays, mode, HOPPER)
    expected = launch.count()
    assert (found.grid, found.block) == (launch.grid, launch.block)
    for name in ("issued", "lanes", "divergent", "branches", "sectors_read", "sectors_written", "repeated", "warps"):
        assert getattr(found, name) == getattr(expected, name), name
    assert (found.dram_read, found.dram_written) == (expected.dram_read, expected.dram_written)
    assert not found.notes
    assert named(found, "if z == 1").issued > 0


SHIPPED = [
    ("value", np.float32, (64, 64), False),
    ("value_and_jacobian", np.float32, (63, 65), False),
    ("value_and_jacobian", np.float16, (64, 64), False),
    ("hessian", np.float64, (33,), False),
    ("value_and_vjp", np.float32, (64, 64), True),
    ("jvp", np.float32, (64, 64), False),
]


@compiling
@pytest.mark.parametrize("function", [sides, lines_and_rules, with_helper], ids=lambda each: each.__name__)
@pytest.mark.parametrize(("product", "dtype", "shape", "has_sums"), SHIPPED)
def test_the_text_with_lines_has_the_instructions_that_are_shipped(
    function: Any, product: Any, dtype: Any, shape: Any, has_sums: bool
) -> None:
    # With a row there are sums in the pullback.
    arrays = [numbers(shape, dtype), numbers(shape[-1:] if has_sums else shape, dtype), numbers(shape, dtype)]
    arrays = arrays[: 3 if function is sides else 2]
    found = counted(function, *arrays, product=product)
    # A note would say that other instructions had been made; the launch's own text has been counted then.
    assert [note.partition(":")[0] for note in found.notes] == ["sums"] * has_sums
    numbered = [each for each in found.lines if each.line]
    assert {each.filename for each in numbered} == {__file__}
    assert sum(each.instruction_share for each in numbered) > 0.1


@compiling
def test_the_two_texts_differ_in_their_lines_only() -> None:
    source = lines_and_rules.explain(numbers(99), numbers(99), cc=HOPPER).cuda.source
    plain, _ = cuda_build.build(source, HOPPER, False, ptx=True)
    lined, _ = cuda_build.build(source, HOPPER, False, ptx=True, lines=True)
    texts = [each.decode().rstrip("\0") for each in (plain, lined)]
    assert ("\t.loc\t" in texts[0], texts[1].count("\t.loc\t") > 3) == (False, True)
    assert instructions_of(texts[0]) == instructions_of(texts[1])


@compiling
def test_fast_mathematics_and_functions_of_the_library() -> None:
    fast = differentiable_broadcast(fastmath=True)(sides.__wrapped__)
    found = counted(fast, -numbers(1024), numbers(1024), numbers(1024))
    assert found.issued < counted(sides, -numbers(1024), numbers(1024), numbers(1024)).issued
    found = counted(lines_and_rules, numbers(1024), numbers(1024))
    assert named(found, "inside digamma").lanes > 0
    assert named(counted(with_helper, numbers(64), numbers(64)), "return math.tanh(a)").issued > 0


def views() -> dict[str, tuple[Any, ...]]:
    large, other = numbers((40, 66)), numbers((40, 66), seed=1)
    return {
        "two views of one array": (large[1:, :-1], large[:-1, 1:]),
        "the same array twice": (large, large),
        "every other column": (large[:, ::2], other[:, 1::2]),
        "transposed": (large.T, other.T),
        "one transposed": (large[:40, :40], other[:40, :40].T),
        "backwards": (large[::-1, ::-1], other[::-1, ::-1]),
        "broadcast": (large, np.broadcast_to(other[:1], large.shape)),
        "a column and a row": (large[:, :1], other[0]),
        "a number": (large, 0.75),
        "a number of NumPy's": (np.float32(0.5), other),
        "integers": (large, np.arange(66, dtype=np.int16) % 5),
        "flags": (large, other > 0.7),
        "a Fortran array": (np.asfortranarray(large), np.asfortranarray(other)),
        "short rows": (numbers((500, 3)), numbers(3)),
        "one element": (numbers(1), numbers(1)),
    }


@compiling
@pytest.mark.parametrize("name", views())
def test_what_is_counted_computes_what_a_call_computes(name: str) -> None:
    arguments = views()[name]
    for product in ("value", "value_and_jacobian"):
        call = with_helper._inspected(arguments, None, product)
        call.plan = planned_for_gpu(call.plan)
        kernel = call.cuda_kernel(HOPPER)
        launch = launch_of(name, kernel, call.plan, ptx_of(kernel))
        counts = launch.count()
        outputs = call.plan.written()
        np.testing.assert_allclose(outputs[0], with_helper(*arguments), rtol=1e-5)
        assert counts.dram_written * 32 >= sum(each.nbytes for each in outputs)
        for array, old in zip(call.plan.operands.arrays, arguments, strict=True):
            np.testing.assert_array_equal(array, old)


def test_counts_do_not_depend_on_addresses_of_this_machine() -> None:
    room = np.zeros(4096, np.uint8)
    for start in (16, 48, 256):
        base = room[start : start + 1024].view(np.float32)
        base = np.array(base)  # owns its memory
        first, second, alone = placed((base[3:], base[10:200:2], np.zeros(7)))
        begin = first.ctypes.data - 12
        assert begin % ALIGNMENT == 0
        assert second.ctypes.data == begin + 40
        assert (second.strides, second.shape) == ((8,), (95,))
        assert alone.ctypes.data % ALIGNMENT == 0
        assert [each.ctypes.data for each in placed((first, alone))] == [first.ctypes.data, alone.ctypes.data]


@compiling
def test_the_text_the_table_and_the_picture(tmp_path: Path) -> None:
    x = numbers((64, 64))
    explanation = lines_and_rules.explain(x, x, cc=HOPPER, counted=True)
    text = str(explanation)
    assert "  counted     4,096 elements in " in text
    assert "not measured" in text
    assert "least time by published rates, not measured: V100 " in text
    heads, rows = explanation.counted.table()
    assert heads[-1] == "line"
    assert len(rows) == len(explanation.counted.lines)
    assert all(row[-1] in text for row in rows)
    page = explanation._repr_html_()
    assert page.count("<table>") == 2
    assert "product &gt; 0.5" in page
    figure = explanation.counted.plot(tmp_path / "lines.svg")
    assert (tmp_path / "lines.svg").stat().st_size > 1000
    (axes,) = figure.axes
    assert len(axes.patches) == 2 * len(rows)
    assert explanation.counted.least_times["H100"].seconds > 0
    assert lines_and_rules.explain(x, x, cc=HOPPER).counted is None


@compiling
def test_a_picture_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    found = counted(sides, numbers(64), numbers(64), numbers(64))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r'pip install "dualbcast\[plot\]"'):
        found.plot()


@compiling
def test_what_a_store_computes_is_no_store() -> None:
    found = counted(short, numbers(1023), numbers(1023), product="value")
    line, store = named(found, "return math.tanh(x) * y"), named(found, "stores")
    assert (line.sectors, store.sectors) == (256, 128)
    assert line.instruction_share > 0.5 > 0.1 > store.instruction_share


@compiling
@pytest.mark.parametrize("shape", [1023, 1024])
def test_numbers_of_16_bits(shape: int) -> None:
    found = counted(short, numbers(shape, np.float16), numbers(shape, np.float16), product="value")
    assert {each.line for each in found.lines} == {0, short.__wrapped__.__code__.co_firstlineno + 2}
    assert named(found, "return math.tanh(x) * y").instruction_share > 0.5
    assert named(found, "stores").sectors == found.sectors_written == 64


@compiling
@pytest.mark.parametrize("step", [1, 2])
def test_whole_arrays(step: int) -> None:
    table = numbers(400)[8::step]
    places = np.arange(1023) % 8
    found = counted(looked_up, places, numbers(1023, np.float64), table, product="value")
    # 8 numbers of 4 bytes, from the 8th on; and for each element 8 bytes of two arrays and of the result, and one that
    # says whether an index was out of range.
    assert found.dram_bytes == 32 + (3 * 8 + 1) * 1024
    assert found.sectors_read > 512


@compiling
def test_sums_say_what_is_not_counted() -> None:
    found = counted(with_helper, numbers((64, 64)), numbers(64), product="sum_and_gradient", wrt=())
    assert [note.partition(":")[0] for note in found.notes] == ["sums"]


@compiling
@pytest.mark.parametrize("way", ["does not link", "makes other instructions"])
def test_without_lines_the_launch_is_counted_all_the_same(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = numbers(96), numbers(96), numbers(96)
    expected = counted(sides, *arrays)
    build = cuda_build.build

    def other(*given: Any, lines: bool = False, **options: Any) -> tuple[bytes, str]:
        if lines and way == "does not link":
            raise BackendError("The CUDA kernel does not link\nand more")
        text, log = build(*given, **options)
        return (text.replace(b"ret;", b"ret; ret;") if lines else text), log

    monkeypatch.setattr(cuda_build, "build", other)
    monkeypatch.setattr(count_module.disk_cache, "fetch", lambda _, make: make())
    found = counted(sides, *arrays)
    assert (found.issued, found.sectors) == (expected.issued, expected.sectors)
    (line,) = found.lines
    assert line.issued == found.issued
    (note,) = found.notes
    assert note.startswith("without lines: ")


def test_line_information_needs_a_compiler_that_is_known() -> None:
    with pytest.raises(BackendError, match="another way"), linkable(SimpleNamespace()):
        pass
    seen = []
    nvvm = SimpleNamespace(compile_ir=lambda texts, **_: seen.extend(texts))
    with linkable(nvvm):
        nvvm.compile_ir(
            '!0 = !{ i32 2, !"Debug Info Version", i32 3 }\n  call void @"llvm.dbg.declare"(metadata !1)\nret'
        )
    assert seen == ['!0 = !{ i32 1, !"Debug Info Version", i32 3 }\nret']
    nvvm.compile_ir(["i32 2"])
    assert seen[-1] == "i32 2"


# Errors


def test_a_capability_is_needed() -> None:
    with pytest.raises(ArgumentError, match=r"say for which one, as in cc=\(9, 0\)"):
        sides.explain(numbers(8), numbers(8), numbers(8), counted=True)


@pytest.mark.parametrize("dtype", ["float32", np.float32, np.dtype("float32")])
def test_dtypes_have_no_elements(dtype: Any) -> None:
    with pytest.raises(ArgumentError, match=r"dtype given for a has no elements; give an array, such as numpy.ones"):
        counted(sides, numbers(8), dtype, numbers(8))


def test_arrays_of_other_libraries_are_refused() -> None:
    with pytest.raises(ArgumentError, match="convert the others first"):
        counted(sides, np.ma.masked_array(numbers(8)), numbers(8), numbers(8))


def test_what_launches_nothing_is_refused() -> None:
    with pytest.raises(ArgumentError, match="nothing to count"):
        counted(sides, numbers(0), numbers(0), numbers(0))


def test_too_many_elements_are_refused() -> None:
    long = np.broadcast_to(np.float32(1), (1 << 13, 1 << 14))
    with pytest.raises(ArgumentError, match=r"134,217,728 elements are too many .* at most, such as a part"):
        counted(sides, long, 1.0, 1.0, product="value")


def test_a_c_compiler_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "COMPILER", None)
    with pytest.raises(MissingDependencyError, match=r"needs a C compiler .*\nInstall it with: sudo apt install gcc"):
        counted(sides, numbers(8), numbers(8), numbers(8))


@compiling
def test_what_cannot_be_translated_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a text without a kernel"
    monkeypatch.setattr(count_module, "_text_with_lines", lambda *_: (text, []))
    with pytest.raises(BackendError, match=r"what the kernel of sides does cannot be counted: there is no kernel"):
        counted(sides, numbers(8), numbers(8), numbers(8))


def test_the_counter_is_imported_by_nothing_else() -> None:
    code = """if True:
        import sys, math
        import numpy as np
        import dualbcast
        f = dualbcast.from_source("def f(x):\\n    return x * x\\n")
        f.explain(np.ones(3)), f(np.ones(3)), str(f.explain("float32"))
        print([name for name in sys.modules if name.startswith("dualbcast.counting")])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.strip() == "[]"


# Parts


def test_lines_of_texts() -> None:
    text = "def helper(x):\n    return x\n\n\ndef element(k, x, out):\n    out[k] = helper(x[k])\n"
    text += "    store_2(out, k, x, x)\n"
    code = code_with_lines(text, "kernel.py", "element")
    helper, element = [each for each in code.co_consts if hasattr(each, "co_firstlineno")]
    assert (helper.co_firstlineno, element.co_firstlineno) == (8, 5)  # beyond the seven lines of the text
    lines = {number for _, _, number in element.co_lines()}
    assert lines >= {6, 14 + 6, 7, 14 + 7}
    assert line_of(8, 7) == (1, False)
    assert line_of(14 + 6, 7) == (6, True)


def test_the_places_of_a_kernels_text() -> None:
    arrays = numbers(64), numbers(64)
    call = lines_and_rules._inspected(arrays, None, "value_and_jacobian")
    places: list[Place] = []
    text = call.spec.source(call.plan.geometry.layout, "cuda", None, places).text
    lines = text.splitlines()
    assert len(places[: len(lines)]) == len(lines)
    first = lines_and_rules.__wrapped__.__code__.co_firstlineno
    for line, place in zip(lines, places, strict=False):
        if " = x[" in line or " = y[" in line:  # a load is where its number is needed first
            assert isinstance(place, Location)
            assert place.line == first + 2
        if line.startswith("    out") and "[" in line:
            assert isinstance(place, Store)
    assert "digamma" in places
    assert text == call.spec.source(call.plan.geometry.layout, "cuda").text


def test_counts_by_line() -> None:
    def executed(number: int, issued: int, sectors: int = 0) -> Executed:
        space = "global" if sectors else ""
        return Executed("add", ("/tmp/kernel.py", number), issued, 16 * issued, 0, space, False, sectors, 0, 0)

    here, elsewhere = Location("here.py", 3, 0, 3, 1), Location("other.py", 1, 0, 1, 1)
    places: list[Place] = [None, here, elsewhere, "digamma", Store(here)]
    counts = Counts(tuple(executed(at, 2, 3 * (at == 15)) for at in (1, 2, 7, 3, 4, 15, 5, 0)), 1, 1, 3, 0)
    found = lines_of(counts, "kernel.py", places, "here.py")
    assert [(each.filename, each.line, each.issued, each.sectors) for each in found] == [
        ("here.py", 3, 6, 0),
        ("other.py", 1, 2, 0),
        ("", 0, 2, 0),
        ("", 0, 2, 3),
        ("", 0, 4, 0),
    ]
    assert [each.text for each in found[2:]] == ["inside digamma", "stores of results", "indices, and what has no line"]
    assert found[0].lane_share == 0.5
    (whole,) = lines_of(counts, "", [], "here.py")
    assert (whole.issued, whole.sector_share) == (16, 1)
