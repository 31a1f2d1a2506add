"""CUDA kernels run on a GPU, against NumPy in float64: values, every operation, half precision, strides, streams."""

from __future__ import annotations

import itertools
import math

import ml_dtypes
import mpmath
import numpy as np
import pytest
from accuracy import units_off
from cuda_texts import CONSTANTS, HM_LSTM

from dualbcast import differentiable_broadcast
from dualbcast.codegen.cuda.kernel_shell import cuda_shell
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.runtime.cuda import kernel as cuda_kernel
from dualbcast.runtime.cuda import launch as cuda_launch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not cuda_launch.available(), reason=cuda_launch.why_not() or "a GPU is there"),
]


def make(text, functions, layout, inputs, outputs, dtype="float32"):
    entry = f"{functions[-1]}_kernel"
    code = cuda_shell(layout, entry, inputs, outputs)
    return KernelSource(text, tuple(functions), entry, dtype, tuple(inputs), tuple(outputs), layout, code)


def run(source, sizes, strides, arrays, fastmath=False):
    """Launch on CuPy arrays; the address of each is that of its first element, also where strides are negative."""
    kernel = cuda_kernel.compile_kernel(source, cuda_launch.current_cc(), fastmath)
    cuda_launch.launch(kernel, sizes, strides, [a.data.ptr for a in arrays])


def elementwise(expression, inputs, output, dtype="float32"):
    names = [f"x{i}" for i in range(len(inputs))]
    text = f"{CONSTANTS}def element(k, {', '.join([*names, 'y'])}):\n    {expression}\n"
    return make(text, ["element"], Layout(1, ("1",), (0,) * (len(names) + 1)), inputs, [output], dtype)


def hm_lstm_reference(c, f, i, g, z, zb):
    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    c, f, i, g = (x.astype(np.float64) for x in (c, f, i, g))
    a, s, t = sigmoid(f), sigmoid(i), np.tanh(g)
    flush, copy = z == 1, (z != 1) & (zb == 0)

    def choose(if_flush, if_copy, otherwise):
        return np.where(flush, if_flush, np.where(copy, if_copy, otherwise))

    di, dg = s * (1 - s) * t, s * (1 - t * t)
    return [
        choose(s * t, c, a * c + s * t),
        choose(0, 1, a),
        choose(0, 0, a * (1 - a) * c),
        choose(di, 0, di),
        choose(dg, 0, dg),
    ]


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(("fastmath", "tolerance"), [(False, 2e-6), (True, 4e-3)])
@pytest.mark.parametrize("shape", [(1, 1), (3, 257), (512, 512), (70_000, 3), (600_000, 33)])
def test_hm_lstm(shape, fastmath, tolerance, wide):
    import cupy

    random = np.random.default_rng(0)
    gates = [random.standard_normal(shape, np.float32) for _ in range(4)]
    controls = [random.integers(0, 2, (shape[0], 1)).astype(np.float32) for _ in range(2)]
    inputs = [cupy.asarray(x) for x in (*gates, *controls)]
    outputs = [cupy.full(shape, cupy.nan, cupy.float32) for _ in range(5)]
    layout = Layout(2, ("s1", "s0"), (0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0), wide)
    source = make(CONSTANTS + HM_LSTM, ["sigmoid", "hm_lstm"], layout, ["float32"] * 6, ["float32"] * 5)
    run(source, shape, (shape[1], 1), [*inputs, *outputs], fastmath)
    for found, expected in zip(outputs, hm_lstm_reference(*gates, *controls), strict=True):
        np.testing.assert_allclose(found.get(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("reverse", list(itertools.product([1, -1], repeat=3)))
def test_strides_of_either_sign_in_three_dimensions(reverse, wide):
    import cupy

    base = cupy.arange(6 * 10 * 70, dtype=cupy.float32).reshape(6, 10, 70)
    a = base[:: reverse[0], ::2, :: 2 * reverse[1]]
    b = base[0, 3, : a.shape[2]][:: reverse[2]]
    out = cupy.zeros(a.shape, cupy.float32)
    text = "def element(k, k_b, k_out, a, b, out):\n    out[k_out] = a[k] - b[k_b]\n"
    layout = Layout(3, ("sss", "00s", "ss1"), (0, 1, 2), wide)
    source = make(text, ["element"], layout, ["float32"] * 2, ["float32"])
    strides = [*(s // 4 for s in a.strides), b.strides[0] // 4, *(s // 4 for s in out.strides[:2])]
    run(source, a.shape, strides, [a, b, out])
    np.testing.assert_array_equal(out.get(), a.get() - b.get())


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_every_half_pattern_is_read_and_written_exactly(half):
    import cupy

    dtype = np.dtype(np.float16 if half == "float16" else ml_dtypes.bfloat16)
    patterns = np.arange(2**16, dtype=np.uint16)
    x, y = cupy.asarray(patterns), cupy.zeros(2**16, cupy.uint16)
    run(elementwise(f"store_{half}(y, k, load_{half}(x0, k))", [half], half), (2**16,), (), [x, y])
    values, found = patterns.view(dtype).astype(np.float32), y.get()
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(found[numbers], patterns[numbers])
    assert np.isnan(found[~numbers].view(dtype).astype(np.float32)).all()


@pytest.mark.parametrize("half", ["float16", "bfloat16"])
def test_stores_of_halves_round_to_nearest_even(half):
    import cupy

    dtype = np.dtype(np.float16 if half == "float16" else ml_dtypes.bfloat16)
    bits = np.random.default_rng(1).integers(0, 2**32, 200_000, np.uint32)
    bits[::2] &= 0xFFFFF000  # many ties
    values = bits.view(np.float32)
    values = values[~np.isnan(values)]
    out = cupy.zeros(len(values), cupy.uint16)
    source = elementwise(f"store_{half}(y, k, x0[k])", ["float32"], half)
    run(source, values.shape, (), [cupy.asarray(values), out])
    with np.errstate(over="ignore", under="ignore"):
        expected = values.astype(dtype).view(np.uint16)
    np.testing.assert_array_equal(out.get(), expected)


# name: (reference in float64, domain, error allowed in units of the last place)
OPERATIONS = {
    "sqrt": (np.sqrt, (0, 1e6), 1),
    "cbrt": (np.cbrt, (-1e6, 1e6), 2),
    "exp": (np.exp, (-80, 80), 3),
    "exp2": (np.exp2, (-120, 120), 3),
    "expm1": (np.expm1, (-10, 80), 3),
    "log": (np.log, (1e-30, 1e30), 3),
    "log2": (np.log2, (1e-30, 1e30), 3),
    "log10": (np.log10, (1e-30, 1e30), 4),
    "log1p": (np.log1p, (-0.99, 1e6), 3),
    "sin": (np.sin, (-3, 3), 3),
    "cos": (np.cos, (-1.5, 1.5), 3),
    "tan": (np.tan, (-1.5, 1.5), 5),
    "asin": (np.arcsin, (-1, 1), 5),
    "acos": (np.arccos, (-1, 0.99), 4),
    "atan": (np.arctan, (-1e3, 1e3), 4),
    "sinh": (np.sinh, (-80, 80), 4),
    "cosh": (np.cosh, (-80, 80), 4),
    "tanh": (np.tanh, (-10, 10), 4),
    "asinh": (np.arcsinh, (-1e3, 1e3), 5),
    "acosh": (np.arccosh, (1.01, 1e3), 5),
    "atanh": (np.arctanh, (-0.999, 0.999), 5),
    "floor": (np.floor, (-1e3, 1e3), 0),
    "ceil": (np.ceil, (-1e3, 1e3), 0),
    "trunc": (np.trunc, (-1e3, 1e3), 0),
    "rint": (np.rint, (-1e3, 1e3), 0),
    "fabs": (np.fabs, (-1e3, 1e3), 0),
    "erf": (np.vectorize(math.erf), (-4, 4), 4),
    "erfc": (np.vectorize(math.erfc), (-4, 4), 8),
    "lgamma": (np.vectorize(math.lgamma), (3, 1e3), 8),
    "tgamma": (np.vectorize(math.gamma), (0.5, 30), 12),
    "atan2": (np.arctan2, (-1e3, 1e3), 5),
    "hypot": (np.hypot, (-1e3, 1e3), 4),
    "pow": (np.power, (0.01, 10), 12),
    "fmod": (np.fmod, (-1e3, 1e3), 0),
    "copysign": (np.copysign, (-1e3, 1e3), 0),
}
BINARY = ("atan2", "hypot", "pow", "fmod", "copysign")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_native_operations(name, dtype):
    import cupy

    reference, (low, high), ulps = OPERATIONS[name]
    random = np.random.default_rng(2)
    x, y = (random.uniform(low, high, 10_000).astype(dtype) for _ in range(2))
    arguments = [x, y] if name in BINARY else [x]
    call = f"{name}({', '.join(f'x{i}[k]' for i in range(len(arguments)))})"
    out = cupy.zeros(len(x), dtype)
    run(
        elementwise(f"y[k] = {call}", [dtype] * len(arguments), dtype, dtype),
        x.shape,
        (),
        [*map(cupy.asarray, arguments), out],
    )
    expected = np.asarray(reference(*(a.astype(np.float64) for a in arguments)), np.float64)
    # NumPy's own float64 functions are off by some units, too.
    unit = np.spacing(np.abs(expected).astype(dtype)).astype(np.float64)
    worst = np.max(np.abs(out.get().astype(np.float64) - expected) / unit)
    assert worst <= (ulps if dtype == "float32" or ulps == 0 else ulps + 4)


@pytest.mark.parametrize("fastmath", [False, True])
def test_nan_infinity_and_division_by_zero(fastmath):
    import cupy

    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0], np.float32)
    for expression, reference in (
        ("f32_1 / x0[k]", lambda v: 1 / v),
        ("tanh(x0[k])", np.tanh),
        ("exp(x0[k])", np.exp),
        ("log(x0[k])", np.log),
        ("sqrt(x0[k])", np.sqrt),
        ("x0[k] - x0[k]", lambda v: v - v),
        ("f32_1 if x0[k] != x0[k] else f32_0", lambda v: np.isnan(v) * 1.0),
    ):
        out = cupy.zeros(len(x), cupy.float32)
        source = elementwise(f"y[k] = {expression}", ["float32"], "float32")
        run(source, x.shape, (), [cupy.asarray(x), out], fastmath)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(out.get(), reference(x), rtol=1e-3, err_msg=expression)


def test_nextafter():
    import cupy

    x = np.array([0.0, 1.0, -1.0, np.inf, 1e-45], np.float32)
    y = np.array([1.0, 2.0, -np.inf, 0.0, 0.0], np.float32)
    out = cupy.zeros(5, cupy.float32)
    source = elementwise("y[k] = nextafter(x0[k], x1[k])", ["float32"] * 2, "float32")
    run(source, (5,), (), [cupy.asarray(x), cupy.asarray(y), out])
    np.testing.assert_array_equal(out.get(), np.nextafter(x, y))


def test_launches_follow_one_another_on_the_current_stream():
    import cupy

    x = cupy.ones(1 << 24, cupy.float32)
    source = elementwise("y[k] = x0[k] + f32_1", ["float32"], "float32")
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(50):  # each step reads what the one before wrote
            run(source, x.shape, (), [x, x])
    stream.synchronize()
    assert float(x.min()) == float(x.max()) == 51.0


def test_an_explicit_stream():
    import cupy

    x, out = cupy.arange(1000, dtype=cupy.float32), cupy.zeros(1000, cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        run(elementwise("y[k] = -x0[k]", ["float32"], "float32"), x.shape, (), [x, out])
    stream.synchronize()
    np.testing.assert_array_equal(out.get(), -np.arange(1000, dtype=np.float32))


def test_occupancy_agrees_with_the_driver():
    import cupy

    source = elementwise("y[k] = tanh(x0[k])", ["float32"], "float32")
    kernel = cuda_kernel.compile_kernel(source, cuda_launch.current_cc())
    module = cupy.cuda.function.Module()
    module.load(kernel.image)
    function = module.get_function(kernel.source.entry)
    threads = cupy.cuda.Device().attributes["MaxThreadsPerMultiProcessor"]
    for block in (32, 64, 96, 256):
        blocks = cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(function.ptr, block, 0)
        assert kernel.occupancy(block) == blocks * block / threads


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("base", [10.0, 0.5, 1.04, 0.9, 7.0, 1e-5, 1e30])
def test_powers_of_constants(base, dtype):
    import cupy

    power = differentiable_broadcast(lambda x: base**x)
    rounded, info = float(dtype(base)), np.finfo(dtype)
    top = math.log(float(info.max)) / abs(math.log(rounded))
    random = np.random.default_rng(41)
    x = np.concatenate([random.uniform(-top, top, 500), random.uniform(-1, 1, 200), np.arange(-9, 10)]).astype(dtype)
    value, jacobian = power.value_and_jacobian(cupy.asarray(x))
    with mpmath.workprec(200):
        exact = [mpmath.mpf(rounded) ** mpmath.mpf(float(number)) for number in x]
        errors = [
            units_off(found, true)
            for found, true in zip(value.get(), exact, strict=True)
            if float(info.tiny) <= true <= float(info.max)
        ]
        slopes = np.array([float(true * mpmath.log(base)) for true in exact])
    # NVIDIA's manual gives 4 for pow in float32, and 2 in float64.
    assert max(errors) <= 3
    normal = np.abs(slopes) > float(info.tiny)
    with np.errstate(over="ignore"):
        np.testing.assert_allclose(jacobian[0].get()[normal], slopes[normal].astype(dtype), rtol=8 * float(info.eps))
    special = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1.1 * top, -1.1 * top, 1e30, -1e30, 2, 3], dtype)
    with np.errstate(all="ignore"):
        expected = np.power(dtype(base), special)
    np.testing.assert_allclose(power(cupy.asarray(special)).get(), expected, rtol=8 * float(info.eps))
