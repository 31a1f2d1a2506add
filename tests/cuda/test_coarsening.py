"""CUDA threads that take several elements: the text, run as Python, against one element at a time; which kernels do."""

from __future__ import annotations

import dataclasses
import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import models
import numpy as np
import pytest
from corpus import CORPUS, Case
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.frontend.lower import INTEGER_FUNCTIONS, RANGE_STOP
from dualbcast.kernel_spec import Layout
from dualbcast.program.pipeline import elements_a_thread, kernel_source
from dualbcast.runtime import interpreter
from dualbcast.runtime.cuda import launch as cuda_launch

full = np.ones((4, 8), np.float32)
rows = np.ones((4, 1), np.float32)


def load(lanes: int) -> Callable[..., tuple[Any, ...]]:
    def aligned(p: Any, k: int) -> tuple[Any, ...]:
        assert k % lanes == 0
        return tuple(p[k : k + lanes])

    return aligned


def store(lanes: int) -> Callable[..., None]:
    def aligned(p: Any, k: int, *values: Any) -> None:
        assert k % lanes == 0 and len(values) == lanes
        p[k : k + lanes] = values

    return aligned


WIDE = {f"load_{n}": load(n) for n in (2, 4)} | {f"store_{n}": store(n) for n in (2, 4)}


# 16-bit storage is 16-bit patterns, as it is for Numba-CUDA.
def from_half(bits: Any) -> Any:
    return np.float32(np.uint16(bits).view(np.float16))


def to_half(value: Any) -> Any:
    return np.float16(value).view(np.uint16)


HALF = {
    "from_float16": from_half,
    "to_float16": to_half,
    "load_float16": lambda p, k: from_half(p[k]),
    "store_float16": lambda p, k, value: p.__setitem__(k, to_half(value)),
}

# Of NumPy's integers, which wrap around.
WHOLE: dict[str, Callable[..., Any]] = {
    function: getattr(operator, {"shl": "lshift", "shr": "rshift"}.get(name, name))
    for name, function in INTEGER_FUNCTIONS.items()
} | {RANGE_STOP: lambda _start, stop, _step: stop}


def run(call: Any, lanes: int, fastmath: bool = False, **free: Any) -> list[np.ndarray[Any, Any]]:
    """The outputs of a call, from the text of its CUDA kernel run as Python, thread by thread."""
    spec, planned = call.spec, call.plan
    layout = planned.geometry.layout._replace(lanes=lanes)
    dtypes = [dtype.name for dtype in spec.dtypes]
    source = kernel_source(
        spec.product.forward, layout, spec.signature.compute, spec.signature.storages, dtypes, "cuda", "", fastmath
    )
    namespace = interpreter.namespace(source.dtype) | WIDE | HALF | WHOLE | free
    exec(source.text, namespace)
    outputs = [np.zeros(planned.geometry.total, dtype) for dtype in spec.dtypes]
    memory = [array.reshape(-1) for array in (*call.plan.operands.arrays, *outputs)]
    memory = [array.view(np.uint16) if array.dtype == np.float16 else array for array in memory]
    steps, remaining = [], iter(planned.geometry.strides)
    for pattern in layout.classes:
        steps.append([1 if mark == "1" else 0 if mark == "0" else next(remaining) for mark in pattern])
    with np.errstate(all="ignore"):
        *rows, last = planned.geometry.sizes
        for place in itertools.product(*map(range, rows), range(0, last, lanes)):
            indices = [
                sum(map(math.prod, zip(place, steps[at], strict=True)))
                for at in layout.indexed(len(spec.signature.storages))
            ]
            namespace[source.element](*indices, *memory)
    return outputs


def tiled(case: Case, dtype: str, broadcast: bool) -> list[np.ndarray[Any, Any]]:
    """The points of a case, eight a row; of the last argument one a row where it is broadcast."""
    kinds = {float: dtype, int: np.int16, bool: np.bool_}
    columns = [np.array(column, kinds[type(column[0])]) for column in zip(*case.points, strict=True)]
    arrays = [np.resize(column, (len(column), 8)) for column in columns]
    if broadcast:
        arrays[-1] = np.ascontiguousarray(columns[-1][:, None])
    return arrays


@pytest.mark.parametrize("broadcast", [False, True], ids=["elements", "rows"])
@pytest.mark.parametrize(("dtype", "lanes"), [("float32", 1), ("float32", 2), ("float32", 4), ("float64", 2)])
@pytest.mark.parametrize("case", sampled(CORPUS, 4), ids=lambda case: case.name)
def test_the_corpus(case: Case, dtype: str, lanes: int, broadcast: bool) -> None:
    check_text(case, dtype, lanes, broadcast, "value_and_jacobian")


@pytest.mark.parametrize("product", ["value", "jvp", "vjp"])
@pytest.mark.parametrize("case", sampled(CORPUS, 3), ids=lambda case: case.name)
def test_the_corpus_in_other_products(case: Case, product: str) -> None:
    check_text(case, "float32", 4, False, product)


def check_text(case: Case, dtype: str, lanes: int, broadcast: bool, product: Any) -> None:
    """Hold what the text computes against what the `python` backend does."""
    arrays = tiled(case, dtype, broadcast)
    if broadcast and len(arrays) == 1:
        pytest.skip("nothing would span the innermost dimension")
    function = differentiable_broadcast(backend="python")(case.function)
    call = function._inspected(tuple(arrays), None, product)
    if lanes > 1 and lanes_of(call) == 1:
        pytest.skip("one element a thread")
    hold(call, lanes)


def hold(call: Any, lanes: int) -> None:
    """Hold a call's outputs from its CUDA text against those of the same IR, an element at a time, by `python`."""
    product = call.spec.product
    call.spec.product = dataclasses.replace(product, make=product.make_forward)
    expected = call.run()
    for found, wanted in zip(run(call, lanes), expected, strict=True):
        # The same operations in the same order: the same bits.
        np.testing.assert_array_equal(found.reshape(call.plan.geometry.sizes), wanted.reshape(call.plan.geometry.sizes))


# What reads in one side of a conditional expression: in the value, in its pushforward, in its pullback.
ONE_SIDED: dict[str, Any] = {
    "max": lambda x, y: max(x, y),
    "clip": lambda x: min(max(x, -1.0), 1.0),
    "and": lambda x, y, z: (x > 0 and y > 0) * z,
    "select": lambda x, y: np.where(x > 0, x * y, y),
}


@pytest.mark.parametrize("product", ["value", "value_and_jacobian", "jvp", "vjp"])
@pytest.mark.parametrize("name", ONE_SIDED)
def test_what_one_side_reads(name: str, product: str) -> None:
    function = differentiable_broadcast(backend="python")(ONE_SIDED[name])
    arrays = [np.linspace(-2, 2, 16, dtype=np.float32).reshape(2, 8)[:, :: (-1) ** at] for at in range(3)]
    arrays = [np.ascontiguousarray(array) for array in arrays[: ONE_SIDED[name].__code__.co_argcount]]
    call = function._inspected(tuple(arrays), None, product)
    hold(call, lanes_of(call))


def one_side(x, a, b):
    return a * x if x > 0 else b


def both_sides(x, a, b):
    if x > 0:
        return math.sin(a) * b
    return math.cos(a)


def nested(x, a, b):
    if x > 0:
        return math.exp(a)
    if a > 0:
        return math.exp(math.sin(b))
    return a


def uniform_around(x, a, b, n=1.0):
    if n > 0:
        return a * b if x > 0 else -a
    return x


def divides(x, a, b):
    return (1 / a if x > 0 else math.sqrt(b)) + x


def from_a_result(x, a, b):
    y = math.sin(a) if x > 0 else x
    return b if y > 0.5 else y


def after_long(x, a, b):
    return math.sin(a) * b if math.sin(math.tan(math.sin(math.tan(math.exp(x))))) > 0 else x


SHARED = [one_side, both_sides, nested, uniform_around, divides]


def every_choice(dtype: Any) -> list[np.ndarray[Any, Any]]:
    """Rows of four elements with every choice of sides by `x`, the second half of them with many by `a`."""
    choices = np.array(list(itertools.product((1, -1), repeat=4)), dtype)
    generator = np.random.default_rng(2)
    x = np.concatenate([choices, choices])
    a, b = (generator.uniform(0.25, 1.5, x.shape).astype(dtype) for _ in range(2))
    a[16:] *= np.concatenate([choices[::3], choices[1:11]])[:16]
    return [x, a, b]


@pytest.mark.parametrize("product", ["value", "value_and_jacobian", "jvp", "vjp", "hessian"])
@pytest.mark.parametrize(("dtype", "lanes"), [(np.float32, 4), (np.float32, 2), (np.float64, 2)])
@pytest.mark.parametrize("scalar", SHARED, ids=lambda each: each.__name__)
def test_every_choice_of_sides(scalar: Any, dtype: Any, lanes: int, product: Any) -> None:
    call = differentiable_broadcast(backend="python")(scalar)._inspected(tuple(every_choice(dtype)), None, product)
    assert lanes_of(call) > 1
    hold(call, lanes)


@pytest.mark.parametrize("scalar", [one_side, divides])
def test_what_an_element_does_not_need_may_be_nan(scalar: Any) -> None:
    x, a, b = every_choice(np.float32)

    def outputs() -> list[np.ndarray[Any, Any]]:
        call = differentiable_broadcast(backend="python")(scalar)._inspected((x, a, b), None, "value_and_jacobian")
        return run(call, 4)

    expected = outputs()
    a[x < 0], b[x > 0] = np.nan, np.nan
    for found, wanted in zip(outputs(), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_which_loads_are_shared() -> None:
    def text(scalar: Any) -> str:
        call = differentiable_broadcast(scalar)._inspected(tuple(every_choice(np.float32)), None, "value")
        layout = call.plan.geometry.layout._replace(lanes=lanes_of(call))
        return kernel_source(call.spec.product.forward, layout, "float32", ["float32"] * 3, ["float32"], "cuda").text

    # Read on both sides, and on one: a test only for the latter.
    assert [text(both_sides).count(part) for part in ("load_4(", "    if ", "else:\n")] == [3, 1, 1]
    # The test of the inner branch needs what is loaded under that of the outer one, or always.
    assert text(nested).index("load_4(a") < text(nested).index("load_4(b")
    # A test that depends on what a branch has computed.
    assert "load_4(" not in text(from_a_result)
    # One that takes long.
    assert "load_4(" not in text(after_long)


def inspected(*arrays: Any, wrt: Any = tuple("cfig"), product: Any = "value_and_jacobian", **options: Any) -> Any:
    return differentiable_broadcast(**options)(models.cell_update)._inspected(arrays, wrt, product)


def lanes_of(call: Any) -> int:
    return elements_a_thread(call.spec.product.forward, call.plan.geometry.layout, call.spec.signature.compute)


@pytest.mark.parametrize("lanes", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_cell_update(dtype: str, lanes: int) -> None:
    random = np.random.default_rng(5)
    gates = [random.standard_normal((12, 8)).astype(dtype) for _ in range(4)]
    controls = [np.array(list(itertools.product((0, 1), repeat=2)) * 3, dtype)[:, at : at + 1].copy() for at in (0, 1)]
    value, partials = models.cell_update_by_hand(*gates, *controls)
    found = run(inspected(*gates, *controls), lanes)
    eps = float(np.finfo(dtype).eps)
    for got, wanted in zip(found, (value, *partials.values()), strict=True):
        np.testing.assert_allclose(got.reshape(12, 8).astype(float), wanted, rtol=8 * eps, atol=8 * eps)


def test_a_load_is_in_the_branch_that_needs_it_and_with_the_others() -> None:
    call = inspected(full, full, full, full, rows, rows)
    layout = call.plan.geometry.layout._replace(lanes=4)
    text = kernel_source(
        call.spec.product.forward, layout, "float32", call.spec.signature.storages, ["float32"] * 5, "cuda"
    ).text
    body = text[text.index("def cell_update") :]
    flush, rest = body.split("    else:\n", 1)
    copy, update = rest.split("        else:\n", 1)
    counts = [part.count("load_4(") for part in (flush, copy, update)]
    assert counts == [2, 1, 4]
    # Nothing is computed between the loads of the branch that needs four.
    lines = [line.strip() for line in update.splitlines()]
    first = next(at for at, line in enumerate(lines) if "load_4(" in line)
    assert all("load_4(" in line for line in lines[first : first + 4])
    assert body.count("store_4(") == 5


def test_when_several_elements_pay() -> None:
    assert lanes_of(inspected(full, full, full, full, rows, rows)) == 4
    double = full.astype(np.float64), rows.astype(np.float64)
    assert lanes_of(inspected(*[double[0]] * 4, double[1], double[1])) == 2
    # Control by element: what one of a thread's elements needs is loaded for all of them.
    assert lanes_of(inspected(full, full, full, full, full, rows)) == 4
    # Along the innermost dimension an array is not contiguous.
    assert lanes_of(inspected(full, full, full, np.ones((4, 16), np.float32)[:, ::2], rows, rows)) == 1

    def product(arity: int, dtype: Any = np.float32) -> int:
        function = differentiable_broadcast(models.product_of_tanh)
        return lanes_of(function._inspected((full.astype(dtype),) * arity, None, "value_and_jacobian"))

    # 2 n + 1 arrays, of which a thread holds 58 registers' worth.
    assert [product(n) for n in (1, 2, 6, 7, 14, 15, 32)] == [4, 4, 4, 2, 2, 1, 1]
    assert [product(n, np.float64) for n in (2, 6, 7)] == [2, 2, 1]
    newton = differentiable_broadcast(models.eccentric_anomaly)
    assert lanes_of(newton._inspected((full, full), None, "value_and_jacobian")) == 1


@pytest.mark.parametrize(
    ("sizes", "strides", "pointers", "expected"),
    [
        ((64,), (), (256, 4096), True),
        ((62,), (), (256, 4096), False),
        ((64,), (), (256, 4104), False),
        ((4, 64), (64,), (256, 4096), True),
        ((4, 64), (66,), (256, 4096), False),
        ((4, 64), (-64,), (256, 4096), True),
    ],
)
def test_what_suits_wide_accesses(
    sizes: tuple[int, ...], strides: tuple[int, ...], pointers: tuple[int, ...], expected: bool
) -> None:
    layout = Layout(len(sizes), ("s" * (len(sizes) - 1) + "1",), (0, 0), lanes=4)
    assert cuda_launch.fits(layout, sizes, strides, pointers) is expected
    assert cuda_launch.fits(layout._replace(lanes=1), sizes, strides, pointers)


def test_a_stride_of_what_is_broadcast_along_rows_may_be_odd() -> None:
    layout = Layout(2, ("s1", "s0"), (0, 1, 0), lanes=4)
    assert cuda_launch.fits(layout, (5, 64), (64, 3), (256, 512, 1024))


# --- approximate mathematics -----------------------------------------------------------------------------------------


def approximate(function: Callable[..., Any], error: float) -> Callable[..., Any]:
    """A function of the hardware: off by so much of its result, up or down by a hash of the argument."""

    def off(*args: Any) -> Any:
        sign = 1 if hash(tuple(map(float, args))) % 2 else -1
        return np.float32(np.float64(function(*map(np.float64, args))) * (1 + sign * error))

    return off


# tanh.approx.f32, by the PTX manual; the others are good for two or three units in the last place.
HARDWARE = {
    "tanh": approximate(np.tanh, 2.0**-11),
    "exp": approximate(np.exp, 2.0**-21),
    "quotient": approximate(np.divide, 2.0**-22),
}


def only_tanh(x: float) -> float:
    return math.tanh(x)


def partial_of(scalar: Callable[..., float], points: np.ndarray[Any, Any], **free: Any) -> np.ndarray[Any, Any]:
    call = differentiable_broadcast(fastmath=True)(scalar)._inspected((points,), None, "value_and_jacobian")
    return run(call, 1, True, **free)[-1]


POINTS = np.concatenate([np.linspace(-40, 40, 161), [0.0, 1e-6, -1e-6, 3.9, 8.5]]).astype(np.float32)


def test_the_slope_of_an_approximate_tanh_keeps_its_digits() -> None:
    found = partial_of(only_tanh, POINTS, **HARDWARE).astype(float)
    exact = 1 / np.cosh(POINTS.astype(float)) ** 2
    np.testing.assert_allclose(found, exact, rtol=2.0**-18, atol=1e-37)
    # By 1 - t * t nothing of it would be left.
    naive = 1 - np.array([float(HARDWARE["tanh"](x)) for x in POINTS]) ** 2
    assert np.max(np.abs(naive / exact - 1)[np.abs(POINTS) > 4]) > 0.5


def test_so_it_does_in_what_is_made_of_it() -> None:
    def nested(x):
        y = math.tanh(x)
        if x > 0:
            return y * y - math.tanh(2 * x)
        return math.tanh(math.tanh(x) + 1)

    found = partial_of(nested, POINTS, **HARDWARE).astype(float)
    x = POINTS.astype(float)
    t, slope = np.tanh(x), 1 / np.cosh(x) ** 2
    positive = 2 * t * slope - 2 / np.cosh(2 * x) ** 2
    exact = np.where(x > 0, positive, slope / np.cosh(t + 1) ** 2)
    scale = np.where(x > 0, 2 * slope * np.abs(t) + 2 / np.cosh(2 * x) ** 2, exact)
    # The slope outside is taken at an approximate tanh: its error counts once, of an argument of the order of 1.
    assert np.all(np.abs(found - exact) <= 2.0**-9 * scale + 1e-37)


def test_what_a_loop_changes_is_not_mistaken_for_the_argument() -> None:
    def iterated(x):
        for _ in range(3):
            y = math.tanh(x)
            x = x + 0.5 * y
        return y

    found = partial_of(iterated, POINTS, **HARDWARE).astype(float)
    x, slope = POINTS.astype(float), np.ones_like(POINTS, float)
    for _ in range(3):
        y, dy = np.tanh(x), slope / np.cosh(x) ** 2
        x, slope = x + 0.5 * y, slope + 0.5 * dy
    np.testing.assert_allclose(found, dy, rtol=2.0**-6, atol=1e-37)


def test_only_divisions_by_small_numbers_are_approximate() -> None:
    """The hardware's quotient is 0 where the divisor is above 2**126."""

    def both(x, y):
        return 1 / (1 + math.exp(-abs(x))) + x / y + 1 / (1 + math.exp(-x)) + 1 / (2.0 + math.sin(x))

    call = differentiable_broadcast(fastmath=True)(both)._inspected((POINTS, POINTS), None, "value")
    function, layout = call.spec.product.forward, call.plan.geometry.layout

    def text(target: str, dtype: str, fastmath: bool) -> str:
        """Without comments, which quote the function."""
        found = kernel_source(function, layout, dtype, (dtype,) * 2, [dtype], target, "", fastmath).text
        return "\n".join(line.partition("#")[0] for line in found.splitlines())

    fast = text("cuda", "float32", True)
    assert (fast.count("quotient("), fast.count(" / ")) == (2, 2)
    for others in (("cuda", "float32", False), ("cuda", "float64", True), ("cpu", "float32", True)):
        assert text(*others).count(" / ") == 4


def test_the_processor_keeps_its_formula() -> None:
    """There tanh is good to the last digits, and the slope costs a multiplication."""
    function = differentiable_broadcast(fastmath=True)(lambda x: math.tanh(x))
    text = function.inspect_source(POINTS)
    assert "exp" not in text
