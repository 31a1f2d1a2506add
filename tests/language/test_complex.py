"""Complex numbers in scalar functions: values against Python's, derivatives against PyTorch's and mpmath's."""

from __future__ import annotations

import cmath
import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from corpus_complex import COMPLEX, ComplexCase

from dualbcast import (
    ArgumentError,
    BlockKeyError,
    CompileError,
    DTypeError,
    complex_functions,
    complex_numbers,
    differentiable_broadcast,
    fit,
    graph,
)

EVERY = pytest.mark.parametrize("case", COMPLEX, ids=lambda case: case.name)
COUNT = 100
ON = [
    ("python", "float64"),
    ("cpu", "float64"),
    ("cpu", "float32"),
    pytest.param("python", "float32", marks=pytest.mark.slow),
]


def outputs_of(result: Any) -> list[Any]:
    return list(result) if isinstance(result, tuple) else [result]


def plain(case: ComplexCase, arguments: list[Any]) -> list[Any]:
    """The outputs by Python's own complex numbers."""
    rows = [outputs_of(case.function(*[x.item() for x in row])) for row in zip(*arguments, strict=True)]
    return [np.array(column) for column in zip(*rows, strict=True)]


def assert_near(got: Any, wanted: Any, tolerance: float) -> None:
    wanted = np.asarray(wanted)
    assert np.all(np.abs(np.asarray(got) - wanted) <= tolerance * (1 + np.abs(wanted)))


@EVERY
@pytest.mark.parametrize(("backend", "dtype"), ON)
def test_values(case: ComplexCase, backend: str, dtype: str) -> None:
    arguments = case.arguments(COUNT, dtype)
    found = outputs_of(differentiable_broadcast(backend=backend)(case.function)(*arguments))
    wide = [x.astype(complex if x.dtype.kind == "c" else float) for x in arguments]
    for got, wanted in zip(found, plain(case, wide), strict=True):
        assert got.dtype == np.result_type(dtype, np.complex64 if wanted.dtype.kind == "c" else dtype)
        assert_near(got, wanted, (2000 if case.name in ("newton", "iterated") else 200) * np.finfo(dtype).eps)


@EVERY
@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_derivatives(case: ComplexCase, backend: str) -> None:
    arguments, step = case.arguments(COUNT), 1e-6
    names = case.function.__code__.co_varnames
    _, jacobian = differentiable_broadcast(backend=backend)(case.function).value_and_jacobian(*arguments)
    for at, x in enumerate(arguments):
        directions = (
            {f"{names[at]}.real": step, f"{names[at]}.imag": step * 1j} if x.dtype.kind == "c" else {names[at]: step}
        )
        for name, change in directions.items():
            sides = [
                plain(case, [y + s * change if place == at else y for place, y in enumerate(arguments)])
                for s in (1, -1)
            ]
            blocks = outputs_of(jacobian[name])
            for block, above, below in zip(blocks, *sides, strict=True):
                wanted = (above - below) / (2 * step)
                near = np.abs(block - wanted) <= 1e-6 * (1 + np.abs(wanted))
                assert near.mean() > 0.97, name  # a step may cross a cut or a branch
        if case.is_holomorphic and x.dtype.kind == "c":
            for real, imag in zip(*[outputs_of(jacobian[name]) for name in directions], strict=True):
                assert_near(imag, 1j * real, 1e-10)


CIRCULAR, HYPERBOLIC = (
    ["sin", "cos", "tan", "asin", "acos", "atan"],
    ["sinh", "cosh", "tanh", "asinh", "acosh", "atanh"],
)
FUNCTIONS = ["exp", "log", "log10", "sqrt", *CIRCULAR, *HYPERBOLIC]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_and_slopes_to_a_few_units(name: str) -> None:
    """Also on the axes, and where slopes are small or large."""
    random = np.random.default_rng(0)
    parts = random.normal(size=(2, 200)) * np.array([1.0, 2.0, 0.1, 10.0]).repeat(50)
    z = parts[0] + 1j * parts[1]
    z[:20] = z[:20].real
    z[20:40] = 1j * z[20:40].imag
    if name in ("asin", "acos", "atanh", "acosh"):
        z[:20] = np.where(np.abs(z[:20]) < 1, z[:20], z[:20] / (2 * np.abs(z[:20])))  # not on the cuts
        z[:20] += 3.0 if name == "acosh" else 0.0
    if name in ("asinh", "atan"):
        z[20:40] = np.where(np.abs(z[20:40]) < 1, z[20:40], z[20:40] / (2 * np.abs(z[20:40])))
    if name in ("log", "log10", "sqrt"):
        z[:20] = np.abs(z[:20])
    own = getattr(cmath, name)
    value, jacobian = differentiable_broadcast(lambda z: own(z)).value_and_jacobian(z)
    with mp.workdps(40):
        exact = getattr(mp, name)
        for at, point in enumerate(z.tolist()):
            wanted, slope = complex(exact(mp.mpc(point))), complex(mp.diff(exact, mp.mpc(point)))
            assert abs(value[at] - wanted) <= 8 * 2.0**-52 * abs(wanted), point
            assert abs(jacobian["z.real"][at] - slope) <= 32 * 2.0**-52 * abs(slope), point
            assert abs(jacobian["z.imag"][at] - 1j * slope) <= 32 * 2.0**-52 * abs(slope), point


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_in_plain_python(name: str) -> None:
    random = np.random.default_rng(1)
    for z in (random.normal(size=50) + 1j * random.normal(size=50)).tolist():
        own, exact = getattr(complex_functions, name, None) or getattr(complex_numbers, name), getattr(cmath, name)(z)
        assert abs(own(z) - exact) < 1e-14 * (1 + abs(exact))


def test_powers_of_zero() -> None:
    function = differentiable_broadcast(lambda z, a: z**a)
    value, jacobian = function.value_and_jacobian(np.zeros(4, complex), np.array([0.0, 1.0, 2.0, 3.5]))
    np.testing.assert_array_equal(value, [1, 0, 0, 0])
    np.testing.assert_array_equal(jacobian["z.real"][1:], [1, 0, 0])
    np.testing.assert_array_equal(jacobian["z.imag"][1:], [1j, 0, 0])
    assert not np.isfinite(differentiable_broadcast(lambda z: cmath.sqrt(z)).jacobian(0j)["z.real"])


def test_cotangents_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    random = np.random.default_rng(0)
    z, w = (
        random.normal(size=50) + 1j * random.normal(size=50),
        random.normal(size=(3, 1)) + 1j * random.normal(size=(3, 1)),
    )
    bar = random.normal(size=(3, 50)) + 1j * random.normal(size=(3, 50))
    function = differentiable_broadcast(lambda z, w, a: cmath.exp(1j * z * a) / (w + 2) - 2 * z.conjugate() * abs(w))
    value, pullback = function.vjp(z, w, 0.5)
    tensors = [torch.tensor(x, requires_grad=True) for x in (z, w)] + [
        torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    ]
    tz, tw, ta = tensors
    out = torch.exp(1j * tz * ta) / (tw + 2) - 2 * tz.conj() * tw.abs()
    out.backward(torch.tensor(bar))
    assert_near(value, out.detach().numpy(), 1e-14)
    assert pullback.wrt == ("z", "w", "a")
    for got, tensor in zip(pullback(bar), tensors, strict=True):
        assert_near(got, tensor.grad.numpy(), 1e-13)
    _, (of_w,) = function.value_and_vjp((z, w, 0.5), bar, wrt="w")
    assert_near(of_w, tw.grad.numpy(), 1e-13)
    _, tangent = function.jvp((z, w, 0.5), (np.full(50, 2j), None, None))
    assert_near(tangent, 2 * function.jacobian(z, w, 0.5)["z.imag"], 1e-14)
    total = function.sum(z, w, 0.5)
    assert_near(total, value.sum(), 1e-13)


def test_arguments_of_every_kind() -> None:
    function = differentiable_broadcast(lambda z, a: z * z + a)
    expected = (1 + 2j) ** 2 + 0.5
    assert function(1 + 2j, 0.5) == expected
    assert isinstance(function(1 + 2j, 0.5), np.complex128)
    assert function(np.complex64(1 + 2j), np.float32(0.5)).dtype == np.complex64
    assert function([1 + 2j], 0.5)[0] == expected
    z = np.arange(12).reshape(3, 4) * (1 + 1j)
    for array in (z, z.T, z[::-1, ::2], np.asfortranarray(z), z.astype(">c16")):
        np.testing.assert_array_equal(function(array, 0.5), array * array + 0.5)
    out = np.empty((3, 4), complex)
    assert function(z, 0.5, out=out) is out
    np.testing.assert_array_equal(out, z * z + 0.5)
    function(z, 0.5, out=z)
    np.testing.assert_array_equal(z, out)
    assert function(np.zeros((0, 2), complex), 1.0).shape == (0, 2)
    with_constant = differentiable_broadcast(lambda x: x * CONSTANT)
    assert with_constant(2.0) == 2 * CONSTANT
    with_default = differentiable_broadcast(lambda x, w=1j: x * w)
    assert with_default(2.0) == 2j
    # The same function of real numbers has real results.
    assert function(2.0, 0.5) == 4.5
    assert function(np.ones(2), 0.5).dtype == np.float64


CONSTANT = 0.5 - 2j


def test_a_derivative_of_a_derivative() -> None:
    function = differentiable_broadcast(lambda z: cmath.exp(z) * z)
    z = np.array([0.3 + 0.2j, -1.0 + 2.0j])
    slope = function.partial("z.real")
    assert_near(slope(z), np.exp(z) * (z + 1), 1e-14)
    assert_near(slope.jacobian(z)["z.real"], np.exp(z) * (z + 2), 1e-14)
    hessian = differentiable_broadcast(lambda z: abs(z) ** 4).hessian(z)
    assert_near(hessian["z.real", "z.imag"], 8 * z.real * z.imag, 1e-13)


def test_errors() -> None:
    z = np.ones(2, complex)
    for function, message in (
        (lambda z: math.exp(z), "a number is needed here, and this is a complex number"),
        (lambda z: z < 1, "a number is needed here, and this is a complex number"),
        (lambda z: int(z), "a number is needed here, and this is a complex number"),
        (lambda z: z.flip, "a complex number has no flip"),
        (lambda z: abs(() * z), "a number is needed here, and this is a tuple of 0"),
        (lambda z: abs(z**None), "a number is needed here, and this is None"),
        (lambda z: abs(sum([z, ()])), "a number is needed here, and this is a tuple of 0"),
        (lambda z: abs(cmath.rect((), z.real)), "a number is needed here, and this is a tuple of 0"),
        (lambda z: abs(np.multiply(z, (1, 2))), "a number is needed here, and this is a tuple of 2"),
    ):
        with pytest.raises(CompileError, match=message) as caught:
            differentiable_broadcast(function)(z)
        assert caught.value.filename == __file__
    square = differentiable_broadcast(lambda z: z * z)
    with pytest.raises(BlockKeyError, match=r"z is complex, and z\.real has the complex derivative if"):
        square.jacobian(z)["z"]
    with pytest.raises(ArgumentError, match=r"names 2 arguments of this call, z\.real and z\.imag"):
        square.partial("z")(z)
    made = differentiable_broadcast(lambda x: complex(x, x))
    with pytest.raises(DTypeError, match=r"carries no derivative; take its \.real"):
        graph.grad(lambda x: np.sum(made(x)))(np.ones(3))


def test_what_looks_inside_takes_complex_arguments() -> None:
    """They were refused, with the advice to pass two arguments that the function does not have."""
    function = differentiable_broadcast(lambda z, a: abs(z * a) ** 2)
    z = np.array([1 + 2j, 3j])
    for a, b in ((z, 2.0), ("complex128", "float64"), (1j, 2.0), (z, "float64")):
        assert function.explain(a, b, product="jvp").dtype == "float64"
        assert "z_real" in function.inspect_ir(a, b)
    assert function.explain(z.astype("complex64"), "float32").dtype == "float32"
    assert function.explain(z, 2.0, product="sum_and_gradient", wrt="a").dtype == "float64"
    assert function.explain(z, 2.0, product="sum_gradient_and_hessian").dtype == "float64"


@pytest.mark.parametrize("backend", ["python", "cpu"])
@pytest.mark.parametrize("name", ["log", "log10", "tan", "tanh", "sqrt", "exp"])
def test_derivatives_on_the_axes_and_where_the_parts_are_equal(name: str, backend: Any) -> None:
    """The slope of log was wrong at 1 + 1j, and curvatures of log, tan and tanh on an axis were 0."""
    z = np.array([1 + 1j, -0.9 + 0.9j, -1 - 1j, 1.0, 1.2, 0.5, 1j, -0.9j, 2j, 0.25 - 0.25j])
    function = getattr(cmath, name)
    _, jacobian, hessian = differentiable_broadcast(lambda z: function(z), backend=backend).value_jacobian_and_hessian(
        z
    )
    wanted = (lambda z: mp.log(z) / mp.log(10)) if name == "log10" else getattr(mp, name)
    with mp.workdps(40):
        first, second = (np.array([complex(mp.diff(wanted, w, order)) for w in z]) for order in (1, 2))
    for block, expected in (
        (jacobian["z.real"], first),
        (jacobian["z.imag"], 1j * first),
        (hessian["z.real", "z.real"], second),
        (hessian["z.real", "z.imag"], 1j * second),
        (hessian["z.imag", "z.imag"], -second),
    ):
        assert_near(block, expected, 1e-12)


def test_a_default_that_is_complex_is_an_argument_if_wrt_names_it() -> None:
    function = differentiable_broadcast(lambda x, k=1j: x * k)
    x = np.array([2.0])
    assert function(x).tolist() == [2j]
    assert function(x, np.array([3j])).tolist() == [6j]
    assert function.jacobian(x, wrt="k")["k.imag"].tolist() == [2j]
    assert function.partial("k.real")(x).tolist() == [2.0]
    assert function.vjp(x, wrt="k")[1](np.array([1.0 + 0j]))[0] == 2.0


def test_a_weight_is_for_both_parts_of_a_complex_residual() -> None:
    """The imaginary part had the weight 0: a weight was taken as a complex number, whose imaginary part is 0."""
    x, weights = np.array([1.0, 2.0, 3.0]), np.array([1.0, 0.5, 3.0])
    data = np.exp(1j * x)
    whole = differentiable_broadcast(lambda x, y, a, b: complex(a * x, b * x * x) - y)
    apart = differentiable_broadcast(lambda x, re, im, a, b: (a * x - re, b * x * x - im))
    mixed = differentiable_broadcast(lambda x, y, a, b: (complex(a * x, b * x * x) - y, a * b * x))
    design = np.zeros((2, 3, 2))
    design[0, :, 0], design[1, :, 1] = x, x * x
    residuals = np.array([2.0 * x - data.real, 3.0 * x * x - data.imag])
    for w in (weights, 2.0):
        found = whole.normal_equations(x, data, 2.0, 3.0, weights=w)
        scaled = np.broadcast_to(w, (2, 3))
        np.testing.assert_allclose(found.sum_of_squares, np.sum(scaled * residuals**2), rtol=1e-14)
        gradient = np.einsum("on,on,onj->j", scaled, residuals, design)
        np.testing.assert_allclose(np.asarray(found.gradient), gradient, rtol=1e-14)
        matrix = np.einsum("on,oni,onj->ij", scaled, design, design)
        np.testing.assert_allclose(np.asarray(found.matrix), matrix, rtol=1e-14)
    found = mixed.normal_equations(x, data, 2.0, 3.0, weights=(weights, 2 * weights)).sum_of_squares
    wanted = np.sum(weights * residuals**2) + np.sum(2 * weights * (6.0 * x) ** 2)
    np.testing.assert_allclose(found, wanted, rtol=1e-14)
    fits = [
        fit.least_squares(whole, x, data, 1.0, 1.0, wrt=("a", "b"), weights=weights),
        fit.least_squares(apart, x, data.real, data.imag, 1.0, 1.0, wrt=("a", "b"), weights=weights),
    ]
    best = [np.sum(weights * x * data.real) / np.sum(weights * x**2)]
    best.append(np.sum(weights * x**2 * data.imag) / np.sum(weights * x**4))
    for each in fits:
        np.testing.assert_allclose(list(each.parameters.values()), best, rtol=1e-12)
        assert each.degrees_of_freedom == 4


def test_cotangents_of_several_outputs_of_which_one_is_complex() -> None:
    """One for each output was refused, because a complex one counted as two."""
    z, x = np.array([1 + 2j, -0.5j]), np.array([0.5, 2.0])
    function = differentiable_broadcast(lambda z, x: (z * z * x, abs(z) ** 2))
    (first, second), pullback = function.vjp(z, x)
    # By hand: of z² x the cotangent is 2 conj(z) x times that of the output, of |z|² it is 2 z times it.
    dz, dx = 2 * np.conj(z) * x * first + 2 * z * second, np.real(np.conj(z * z) * first)
    jacobian = function.jacobian(z, x)
    for found in (
        pullback(first, second),
        pullback((first, second)),
        pullback(first.real, first.imag, second),
        function.value_and_vjp((z, x), (first, second))[1],
    ):
        np.testing.assert_allclose(found[0], dz, rtol=1e-14)
        np.testing.assert_allclose(found[1], dx, rtol=1e-14)
    re, im, dx_too = jacobian.pullback(first, second)
    np.testing.assert_allclose(re + 1j * im, dz, rtol=1e-14)
    np.testing.assert_allclose(dx_too, dx, rtol=1e-14)
    with pytest.raises(ArgumentError, match="3 cotangents are needed"):
        pullback(first)


@pytest.mark.parametrize("kind", [int, float, complex])
def test_second_derivatives_of_powers_of_zero(kind: type) -> None:
    """Where z is 0 the power was that of a real number, and half of its second derivatives were 0."""
    z, n = np.zeros(5, complex), np.array([1, 2, 3, 4, 17]).astype(kind)
    hessian = differentiable_broadcast(lambda z, n: z**n).hessian(z, n, wrt="z")
    second = np.array([0.0, 2.0, 0.0, 0.0, 0.0])
    for first, then, factor in (("real", "real", 1), ("real", "imag", 1j), ("imag", "real", 1j), ("imag", "imag", -1)):
        found = hessian[0, f"z.{first}", f"z.{then}"] + 1j * hessian[1, f"z.{first}", f"z.{then}"]
        np.testing.assert_array_equal(found, factor * second)
    third = differentiable_broadcast(lambda z, n: z**n).partial("z.imag").hessian(z, n, wrt="z")
    np.testing.assert_array_equal(third[1, "z.imag", "z.imag"], [0.0, 0.0, -6.0, 0.0, 0.0])  # of (i y)³


def _from_zero(x: float, n: int) -> Any:
    total = 0
    for k in range(n):
        total += cmath.exp(-1j * k * x) / (k + 1)
    return abs(total) + total.real


def _ladder(x: float, n: int) -> Any:
    z = x
    while abs(z) < 3 + n:
        z = 1.1 * z + 0.5j * x
    return z.real * z.imag


def _on_one_path(x: float, n: int) -> Any:
    z = x * x
    if n > 2:
        z = z + 1j * x
    return z * (x if n == 1 else 2j)


def _returned(x: float, n: int) -> Any:
    if n > 2:
        return cmath.sqrt(-x) * x
    return x**3


def _summed(x: float, n: int) -> Any:
    total = sum(x ** (k + 1) * 1j**k for k in range(n))
    return total.real - 2 * total.imag


@pytest.mark.parametrize("program", [_from_zero, _ladder, _on_one_path, _returned, _summed], ids=lambda f: f.__name__)
def test_a_name_may_be_real_on_some_paths(program: Any) -> None:
    """It is complex where it is used after these paths have met, and its derivatives are those of Python's number."""
    x, n = np.array([0.3, 0.7, 1.3, 0.9]), np.array([1, 2, 3, 5])
    value, jacobian = differentiable_broadcast(program).value_and_jacobian(x, n)
    points = list(zip(x.tolist(), n.tolist(), strict=True))
    assert_near(value, [program(*point) for point in points], 1e-14)
    h = 1e-6
    assert_near(jacobian["x"], [(program(a + h, b) - program(a - h, b)) / (2 * h) for a, b in points], 1e-8)


def test_parts_of_real_numbers() -> None:
    """A number that is real has parts, too, so that code for complex numbers takes it."""
    power = differentiable_broadcast(lambda z: (z * z.conjugate()).real + z.imag)
    x = np.array([0.5, -2.0])
    value, jacobian = power.value_and_jacobian(x)
    np.testing.assert_array_equal(value, x * x)
    np.testing.assert_array_equal(jacobian["z"], 2 * x)
    counted = differentiable_broadcast(lambda n, x: (x > 0).real + n.real + n.imag)(np.array([3, 4]), x)
    np.testing.assert_array_equal(counted, [4, 4])
    assert counted.dtype == np.int64
