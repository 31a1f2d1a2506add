"""Variables of complex numbers: operations to second order against differences and JAX, gradients by PyTorch's
convention, containers, vmap, replays, and what is refused."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from operation_cases import (
    TO_SECOND_ORDER,
    Case,
    Check,
    check_against_jax,
    check_float32,
    check_gradient,
    check_jvp,
    check_second_derivatives,
    check_value,
    complex_case,
)
from suites import sampled

from dualbcast import ArgumentError, DTypeError, ShapeError, differentiable_broadcast, graph

# Functions of the real and imaginary parts, and the parts of their results, so that all that is asserted of functions
# of real arrays is asserted of them. C and E are constant arrays.
C = np.array([[0.5 + 1j, -1.0], [2j, 0.25 - 0.5j], [1 + 1j, 3.0]])
E = 3 * np.eye(2)
TEXTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "product": ("z * w + z * 2 - 1j * w", ((3, 2), (2,))),
    "product with a constant array": ("C * z", ((2,), (2,))),
    "product with real numbers": ("z * x", ((2, 2), (2, 2))),
    "quotient": ("z / (w + 3) + 1 / (z + 2j + 3)", ((3,), (3,))),
    "powers": ("z ** 2 + z ** 3 + (z + 3) ** 0.5 + (z + 3) ** w", ((3,), (3,))),
    "exp and log": ("np.exp(z) * np.log(w + 3)", ((3,), (3,))),
    "sin, cos, tanh": ("np.sin(z) * np.cos(w) + np.tanh(z)", ((3,), (3,))),
    "sqrt, square, reciprocal": ("np.sqrt(z + 2) * np.square(w) + np.reciprocal(z + 3)", ((3,), (3,))),
    "abs, angle, real, imag": ("abs(z) + np.angle(w + 2) + z.real * w.imag + np.real(z) * np.imag(w)", ((3,), (3,))),
    "conj": ("np.conj(z) * w - z * w.conj()", ((3,), (3,))),
    "where": ("np.where(z.real > 0, z, x)", ((2, 3), (3,))),
    "sum": ("np.sum(z, axis=1) + z.sum()", ((3, 2), (3, 2))),
    "mean, var, std": ("np.mean(z, axis=0) + np.var(z, axis=0) + z.std(axis=0)", ((3, 2), (3, 2))),
    "prod": ("np.prod(z, axis=0) * np.cumprod(w, axis=0)", ((3, 2), (3, 2))),
    "cumsum": ("np.cumsum(z * w, axis=1)", ((2, 4), (2, 4))),
    "shapes": ("np.transpose(np.reshape(z, (3, 2))) * w[None, :, ::-1][0] + z.T.reshape(2, 3)", ((2, 3), (2, 3))),
    "joined": ("np.concatenate([np.stack([z, w]), z[None], x[None]])", ((2, 3), (2, 3))),
    "repeated": ("np.roll(np.tile(z, 2), 1) * np.repeat(np.flip(w), 2)", ((3,), (3,))),
    "padded": ("np.pad(z, 2) * np.pad(w, 2, mode='edge')", ((3,), (3,))),
    "indexed": ("z[np.array([0, 2, 0])] * w[1]", ((3,), (3,))),
    "taken": ("np.take(z, np.array([2, 1]), axis=0) + np.diagonal(w)[:2]", ((3,), (3, 3))),
    "matmul": ("z @ w", ((2, 3), (3, 2))),
    "matmul with real numbers": ("z @ x + C.T @ x", ((2, 3), (3, 2))),
    "matrix and vector": ("(z @ w) @ z", ((2, 2), (2,))),
    "dot, outer, inner": ("np.dot(z, w) + np.outer(z, w) + np.inner(z, w)", ((3,), (3,))),
    "vdot, vecdot": ("np.vdot(z, w) * np.vecdot(z, w)", ((2, 3), (2, 3))),
    "einsum": ("np.einsum('ij,jk,i->k', z, w, z[:, 0])", ((2, 3), (3, 2))),
    "kron, trace": ("np.kron(z, w) * np.trace(z)", ((2, 2), (2, 2))),
    "convolve": ("np.convolve(z, w)", ((4,), (3,))),
    "correlate": ("np.correlate(z, w, 'full')", ((4,), (3,))),
    "diff": ("np.diff(z) * np.trapezoid(w)", ((5,), (5,))),
    "solve": ("np.linalg.solve(z + E, w)", ((2, 2), (2,))),
    "solve of matrices": ("np.linalg.solve(z + E, w[0]) @ np.linalg.inv(w[1] + 3)", ((2, 2), (2, 2, 2))),
    "solve with real numbers": ("np.linalg.solve(z, x) + np.linalg.solve(x + E, z)", ((2, 2), (2, 2))),
    "norm": ("np.linalg.norm(z) + np.linalg.norm(w, axis=1, ord=3) + np.linalg.norm(w, ord=1)", ((2, 2), (2, 2))),
    "fft": ("np.fft.fft(z) * np.fft.fft(x, axis=0)", ((3, 4), (3, 4))),
    "fft of another length": ("np.fft.fft(z, 6) * np.fft.ifft(w, n=6, norm='ortho')", ((2, 4), (2, 7))),
    "ifft": ("np.fft.ifft(z, axis=0) * np.fft.ifft(x, axis=0, norm='forward')", ((3, 2), (3, 2))),
    "fftn": ("np.fft.fftn(z) + np.fft.ifftn(w, axes=(0, 2))", ((2, 3, 2), (2, 3, 2))),
    "fft2": ("np.fft.fft2(z, s=(2, 4)) * np.fft.ifft2(w)", ((3, 3), (2, 4))),
    "rfft": ("np.fft.rfft(x) * np.fft.rfft(z.imag, n=4)", ((2, 4), (2, 5))),
    "rfft of an odd length": ("np.fft.rfft(x, norm='ortho') * np.fft.rfft(z.imag, 5, 0)[:, :3]", ((2, 5), (3, 5))),
    "rfftn": ("np.fft.rfftn(x) + np.fft.rfft2(z.imag, norm='forward')", ((3, 4), (3, 4))),
    "irfft": ("np.fft.irfft(z) * np.fft.irfft(w, 6, norm='forward')", ((2, 4), (2, 3))),
    "irfft of an odd length": ("np.fft.irfft(z, n=5) + np.fft.irfft(w, 5, axis=0).T", ((2, 3), (4, 2))),
    "irfft of real numbers": ("np.fft.irfft(x) * np.fft.irfftn(z)", ((4, 3), (4, 3))),
    "irfftn": ("np.fft.irfftn(z, norm='ortho') * np.fft.irfft2(w, s=(3, 4))", ((3, 3), (4, 3))),
    "hfft": ("np.fft.hfft(z, 5) * np.fft.hfft(w, norm='ortho')[0]", ((4,), (4,))),
    "ihfft": ("np.fft.ihfft(x) * np.fft.ihfft(z.imag, 5, norm='ortho')[0]", ((6,), (6,))),
    "fftshift": ("np.fft.fftshift(z) * np.fft.ifftshift(w, axes=1)", ((3, 5), (3, 5))),
}  # fmt: skip


def _case(name: str) -> Case:
    return complex_case(name, *TEXTS[name], C=C, E=E)


CASES = [_case(name) for name in TEXTS]


# Those of which all is asserted in every run; compiling second derivatives takes long.
FIRST = ("fft", "ifft", "rfft", "irfft", "product", "abs, angle, real, imag", "matmul", "solve")


@TO_SECOND_ORDER
@pytest.mark.parametrize("name", FIRST)
def test_operations(name: str, check: Check) -> None:
    check(_case(name))


@pytest.mark.parametrize("check", [check_value, check_gradient])
@pytest.mark.parametrize("name", sampled([name for name in TEXTS if name not in FIRST], 2))
def test_gradients_of_operations(name: str, check: Check) -> None:
    check(_case(name))


@pytest.mark.slow
@pytest.mark.parametrize("check", [check_second_derivatives, check_jvp])
@pytest.mark.parametrize("name", [name for name in TEXTS if name not in FIRST])
def test_second_derivatives_of_operations(name: str, check: Check) -> None:
    check(_case(name))


@pytest.mark.parametrize("name", sampled([name for name, (text, _) in TEXTS.items() if not {"C", "E"} & set(text)], 3))
def test_float32(name: str) -> None:
    check_float32(_case(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TEXTS if "fft" in name or name in ("quotient", "solve", "norm")])
def test_operations_against_jax(name: str) -> None:
    pytest.importorskip("jax")
    check_against_jax(_case(name))


# --- arguments and results --------------------------------------------------------------------------------------------

Z = np.array([[1 + 2j, -0.5j], [0.25 - 1j, 3.0 + 0j]])


def test_a_gradient_is_that_of_the_parts() -> None:
    """PyTorch's convention: the derivative by the real part, plus 1j times that by the imaginary part."""

    def loss(z: Any) -> Any:
        return np.sum(np.abs(z @ z) ** 3 + (z**2).imag)

    found = graph.grad(loss)(Z)
    by_real, by_imag = graph.grad(lambda x, y: loss(x + 1j * y), wrt=(0, 1))(Z.real, Z.imag)
    assert found.dtype == np.complex128
    np.testing.assert_allclose(found, by_real + 1j * by_imag, rtol=1e-14)
    # A step against it makes the loss smaller.
    assert loss(Z - 1e-4 * found) < loss(Z)


def test_holomorphic_functions_pull_back_the_conjugate_of_their_derivative() -> None:
    _, pullback = graph.vjp(lambda z: np.exp(z) * z, Z)
    c = Z[::-1] + 2
    np.testing.assert_allclose(pullback(c)[0], c * np.conj(np.exp(Z) * (Z + 1)), rtol=1e-14)


def test_jvp() -> None:
    tangent = 1j * Z + 1
    value, along = graph.jvp(lambda z: np.conj(z) * np.sin(z), (Z,), (tangent,))
    np.testing.assert_allclose(value, np.conj(Z) * np.sin(Z), rtol=1e-14)
    np.testing.assert_allclose(along, np.conj(tangent) * np.sin(Z) + np.conj(Z) * np.cos(Z) * tangent, rtol=1e-13)


def test_gradient_descent_finds_a_filter() -> None:
    signal, response = np.random.default_rng(1).normal(size=16), np.exp(1j * np.linspace(0, 3, 9))
    target = np.fft.irfft(np.fft.rfft(signal) * response)

    def loss(h: Any) -> Any:
        return np.sum((np.fft.irfft(np.fft.rfft(signal) * h) - target) ** 2)

    step, h = graph.compile(graph.grad(loss)), np.zeros(9, complex)
    scale = np.abs(np.fft.rfft(signal)) ** 2 / 4
    for _ in range(60):
        h = h - step(h) / scale
    inner = slice(1, -1)  # the first and the last are real
    np.testing.assert_allclose(h[inner], response[inner], atol=1e-9)
    assert abs(h[0].imag) < 1e-12


def test_containers_have_two_leaves_for_complex_numbers() -> None:
    parameters = {"a": Z, "b": [1.0 + 2j, np.float32(2)], "c": np.complex64(1j)}

    def loss(p: Any) -> Any:
        return np.sum(abs(p["a"]) ** 2) + abs(p["b"][0] * p["c"]) ** 2 * p["b"][1]

    found = graph.grad(loss)(parameters)
    np.testing.assert_allclose(found["a"], 2 * Z)
    assert type(found["b"][0]) is np.complex128
    np.testing.assert_allclose(found["b"][0], 4 + 8j)
    np.testing.assert_allclose([found["b"][1], found["c"]], [5.0, 20j])
    assert found["b"][1].dtype == np.float32
    assert found["c"].dtype == np.complex64


def test_variables_as_users_make_them() -> None:
    z = graph.Variable(Z)
    assert isinstance(z, graph.Variable)
    assert (z.shape, z.ndim, z.size, len(z), z.dtype, z.tracked) == ((2, 2), 2, 4, 2, np.complex128, True)
    assert graph.Variable([1j, 2]).dtype == np.complex128
    assert graph.Variable(Z.astype(np.complex64)).dtype == np.complex64
    assert not graph.Variable(Z, tracked=False).tracked
    assert repr(graph.Variable(1 + 2j)) == "Variable(1.+2.j)"
    assert repr(graph.Variable(np.complex64(1j))) == "Variable(0.+1.j, dtype=complex64)"
    assert graph.Variable(1 + 2j).item() == 1 + 2j
    np.testing.assert_array_equal(z.value, Z)
    np.testing.assert_array_equal([row.value for row in z], Z)
    np.testing.assert_array_equal(z.T.value, Z.T)
    np.testing.assert_array_equal(np.array([z[0], z[1]], like=z).value, Z)
    np.testing.assert_array_equal(np.allclose(z, Z), True)
    loss = np.sum(abs(z) ** 2)
    np.testing.assert_allclose(graph.grad(loss, z), 2 * Z)
    np.testing.assert_allclose(graph.grad(loss, {"z": z})["z"], 2 * Z)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(z)).value, Z)
    np.testing.assert_array_equal(copy.deepcopy(z).value, Z)
    np.testing.assert_array_equal(graph.stop_gradient(z).value, Z)
    assert not graph.stop_gradient(z * z).tracked
    assert not z[0].real.conj().imag.tracked


def test_variables_keep_the_value_that_an_array_had() -> None:
    for size in (3, 3000):
        array = np.full(size, 1 + 1j)
        z = graph.Variable(array)
        if size == 3:
            array[:] = 0
        assert z.value[0] == 1 + 1j
        swapped = graph.Variable(array.imag[::-1] * 2) * 1j + graph.Variable(array.real)
        np.testing.assert_array_equal(swapped.value, array.real + 2j * array.imag[::-1])


def test_views_of_one_complex_array_are_not_taken_for_its_parts() -> None:
    both = np.array([1 + 2j, 3 + 4j])
    spectrum = np.fft.ifft(np.fft.fft(graph.Variable(both)))
    swapped = graph.Variable(0.0) * 1j + spectrum.imag + 1j * spectrum.real
    np.testing.assert_allclose(swapped.value, [2 + 1j, 4 + 3j])
    turned = graph.stop_gradient(spectrum.real[::-1]) + 0 * 1j + 1j * spectrum.imag[::-1]
    np.testing.assert_allclose(turned.value, both[::-1])


def test_transforms_over_no_axes_and_lengths_that_axes_have() -> None:
    z = graph.Variable(Z)
    np.testing.assert_array_equal(np.fft.fftn(z, axes=()).value, np.fft.fftn(Z, axes=()))
    np.testing.assert_allclose(np.fft.fftn(z, s=(-1, 3), axes=(0, 1)).value, np.fft.fftn(Z, s=(-1, 3), axes=(0, 1)))
    np.testing.assert_allclose(np.fft.fftn(z, axes=(0, 0)).value, np.fft.fftn(Z, axes=(0, 0)))


def test_dtypes() -> None:
    single, whole = graph.Variable(np.ones(2, np.float32)), graph.Variable(np.arange(2))
    assert (single * 1j).dtype == np.complex64
    half = graph.Variable(np.ones(2, np.float16))
    assert [abs(each).dtype for each in (half * 1j, half.astype("complex64"), np.fft.fft(half))] == [np.float32] * 3
    assert graph.grad(lambda v: np.sum(abs(v * 1j)))(half.value).dtype == np.float16
    assert (1j * whole).dtype == np.complex128
    assert (np.arange(2) * graph.Variable(1j)).dtype == np.complex128
    assert (single * Z[0]).dtype == np.complex128
    assert (graph.Variable(Z[0].astype(np.complex64)) + 1).dtype == np.complex64
    assert single.astype(complex).dtype == np.complex128
    assert graph.Variable(Z).astype(np.complex64).dtype == np.complex64
    assert np.fft.fft(single).dtype == np.complex64
    np.testing.assert_array_equal((graph.Variable(Z) == Z).value, np.ones((2, 2), bool))
    np.testing.assert_array_equal(np.isfinite(graph.Variable([1j, np.inf])).value, [True, False])


@pytest.mark.parametrize(
    "choice",
    [
        lambda z: np.where([True, False], z, 0), lambda z: np.where([True, False], 0.0, z),
        lambda z: np.where([True, False], 2j, z.real), lambda z: np.where([True, False], z, [1, 2]),
        lambda z: np.select([z.real > 0], [z]), lambda z: np.tril(z * z[:, None]), lambda z: np.nansum(z),
    ],
)  # fmt: skip
def test_numbers_beside_complex_variables_do_not_widen_them(choice: Callable[..., Any]) -> None:
    z = np.array([1 + 2j, -3j], np.complex64)
    expected, found = choice(z), choice(graph.Variable(z))
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found.value, expected, rtol=1e-6)


def test_functions_with_complex_arguments_and_results() -> None:
    @differentiable_broadcast
    def reflected(z, angle):
        root = np.sqrt(z * z - math.sin(angle) ** 2)
        return (math.cos(angle) - root) / (math.cos(angle) + root)

    index, angles = np.array([1.5 + 0.1j, 2.0 - 0.5j]), np.array([0.3, 0.9])

    def loss(n: Any, a: Any) -> Any:
        return np.sum(abs(reflected(n, a)) ** 2)

    by_index, by_angle = graph.grad(loss, (0, 1))(index, angles)
    value, pullback = reflected.vjp(index, angles)
    found = pullback(2 * value)
    np.testing.assert_allclose(by_index, found[0], rtol=1e-12)
    np.testing.assert_allclose(by_angle, found[1], rtol=1e-12)


def test_vmap() -> None:
    batch = np.random.default_rng(2).normal(size=(3, 4)) + 1j

    def loss(z: Any, w: Any) -> Any:
        return np.sum(abs(np.fft.fft(z) * w) ** 2) + np.sum(np.fft.irfft(z[:3], 4) ** 2)

    single = graph.grad(loss)
    found = graph.vmap(single, in_axes=(0, None))(batch, Z[0, 0])
    np.testing.assert_allclose(found, [single(row, Z[0, 0]) for row in batch], rtol=1e-12)
    found = graph.vmap(lambda x, z: np.fft.rfft(x) * np.fft.ifft(z)[:3], in_axes=(1, 0))(batch.real.T, batch)
    np.testing.assert_allclose(found, np.fft.rfft(batch.real) * np.fft.ifft(batch)[:, :3], rtol=1e-12)
    shared = graph.vmap(lambda x: np.fft.fft(x + 1j * Z[0, :1].imag))(batch.real)
    np.testing.assert_allclose(shared, np.fft.fft(batch.real + 1j * Z[0, :1].imag), rtol=1e-12)


def test_replays_see_other_values() -> None:
    constant = Z[0].copy()

    def loss(p: Any, x: Any) -> Any:
        return np.sum(abs(np.fft.fft(p["z"] * x) * constant) ** 2)

    step = graph.compile(graph.value_and_grad(loss))
    for turn in range(5):
        p, x = {"z": Z[0] * (turn + 1)}, np.array([1.0, turn])
        constant[0] = turn
        value, found = step(p, x)
        expected, gradient = graph.value_and_grad(loss)(p, x)
        np.testing.assert_allclose(value, expected, rtol=1e-12)
        np.testing.assert_allclose(found["z"], gradient["z"], rtol=1e-12)
    of_numbers = graph.compile(graph.grad(lambda z, w: abs(z * w) ** 2))
    for turn in range(5):
        np.testing.assert_allclose(of_numbers(turn + 1j, 2j), 8 * (turn + 1j))


def test_a_step_with_transforms_is_replayed() -> None:
    step = graph.compile(graph.value_and_grad(lambda z: np.sum(abs(np.fft.fft(z) @ np.fft.rfft(z.real)[:2]) ** 2)))
    for _ in range(4):
        step(Z[0])
    (form,) = step._forms.values()
    assert not form.reason
    assert form.runs > 0


def test_checkpoint() -> None:
    layer = graph.checkpoint(lambda z, w: np.exp(1j * z) * w)

    def loss(z: Any, layer: Callable[..., Any]) -> Any:
        return np.sum(abs(layer(layer(z, Z), 1 - 1j)) ** 2)

    plain = graph.grad(lambda z: loss(z, layer.__wrapped__))(Z)  # type: ignore[attr-defined]
    np.testing.assert_allclose(graph.grad(lambda z: loss(z, layer))(Z), plain, rtol=1e-14)


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (
            lambda z: graph.grad(lambda z: np.sum(z))(z.value),
            DTypeError,
            r"no derivative; take its \.real, its \.imag or abs\(\)",
        ),
        (lambda z: graph.jacobian(np.sin)(z.value), DTypeError, "jacobian: there are complex numbers"),
        (lambda z: graph.hessian(lambda z: np.sum(abs(z)))(z.value), DTypeError, "hessian: there are complex numbers"),
        (lambda z: z < 1, ArgumentError, "np.less is of real numbers here"),
        (lambda z: np.maximum(z, 1), ArgumentError, "np.maximum is of real numbers here"),
        (lambda z: z // 2, ArgumentError, "np.floor_divide is of real numbers here"),
        (lambda z: np.logical_and(z, z), ArgumentError, "np.logical_and is of real numbers here"),
        (lambda z: np.max(z), ArgumentError, "max of complex Variables has no derivative here"),
        (lambda z: np.interp(z, z.real[0], z.real[0]), ArgumentError, "interp of complex Variables has no derivative"),
        (lambda z: z.astype(float), ArgumentError, "would lose its imaginary part"),
        (lambda z: np.fft.rfft(z), ArgumentError, "rfft is of real numbers, and these are complex"),
        (lambda z: np.fft.fft(z, norm="unit"), ArgumentError, "norm='unit' is none of backward, forward, ortho"),
        (lambda z: np.fft.fft(z, n=0), ArgumentError, "a length of 0 has no frequencies"),
        (lambda z: np.fft.irfft(z, n=0), ArgumentError, "a length of 0 has no frequencies"),
        (lambda z: np.fft.fft(z, n=-1), ArgumentError, "a length of -1 has no frequencies"),
        (lambda z: np.fft.irfft(z, n=-1), ArgumentError, "a length of -1 has no frequencies"),
        (lambda z: np.fft.irfftn(z, axes=()), ArgumentError, "the last axis becomes half of a spectrum"),
        (lambda z: np.fft.rfftn(z[0, 0].real), ArgumentError, "the last axis becomes half of a spectrum"),
        (lambda z: np.fft.fft(z[:0, 0]), ShapeError, "Invalid number of FFT data points"),
        (lambda z: np.fft.fft(z, axis=2), ShapeError, "there is no axis 2"),
        (lambda z: np.fft.fftn(z, s=(2,), axes=(0, 1)), ArgumentError, "s has 1 lengths for 2 axes"),
        (lambda z: np.asarray(z), ArgumentError, "would lose its derivative"),
        (lambda z: complex(z[0, 0]), ArgumentError, "would lose its derivative"),
        (lambda z: float(z[0, 0].real), ArgumentError, "would lose its derivative"),
        (lambda z: bool(z), ArgumentError, "is not one answer"),
        (lambda z: pickle.dumps(z * z), ArgumentError, "a Variable that was computed cannot be pickled"),
        (lambda z: graph.explain(z * z), ArgumentError, "explain its parts"),
        (lambda z: graph.vjp(lambda z: z * z, z.value)[1](np.ones((2, 2))), ArgumentError, "2 cotangents are needed"),
    ],
)
def test_errors(call: Callable[[Any], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(graph.Variable(Z))


MIXED = {
    "product": lambda a, b: a * b,
    "difference": lambda a, b: b - a / 2,
    "constant": lambda a, _: a * (1.0 + 2.0j),
    "shared": lambda a, _: a * Z[0, 0],
    "exponential": lambda a, _: np.exp(1j * a) * a,
    "part": lambda a, b: b.imag * b + a,
    "norm": lambda a, b: a * b / np.linalg.norm(b),
    "choice": lambda a, b: np.where(a > 0, b, a),
}


@pytest.mark.parametrize("name", MIXED)
def test_real_and_complex_variables_together_inside_vmap(name):
    function = MIXED[name]
    rng = np.random.default_rng(20)
    x, z = rng.normal(size=(3, 2)), rng.normal(size=(3, 2)) + 1j * rng.normal(size=(3, 2))

    def size(a, b):
        return np.sum(abs(function(a, b) + 0j) ** 2)

    found = graph.vmap(function)(x, z)
    np.testing.assert_allclose(found, [function(a, b) for a, b in zip(x, z, strict=True)], rtol=1e-14)
    slopes = graph.vmap(graph.grad(size, (0, 1)))(x, z)
    around = graph.grad(lambda a, b: np.sum(graph.vmap(size)(a, b)), (0, 1))(x, z)
    h = 1e-6
    for at in range(3):
        for k in range(2):
            e = h * np.eye(2)[k]
            by_x = (size(x[at] + e, z[at]) - size(x[at] - e, z[at])) / (2 * h)
            by_z = [(size(x[at], z[at] + d * e) - size(x[at], z[at] - d * e)) / (2 * h) for d in (1, 1j)]
            for first, second in (slopes, around):
                np.testing.assert_allclose(first[at, k], by_x, rtol=1e-7, atol=1e-8)
                np.testing.assert_allclose(second[at, k], by_z[0] + 1j * by_z[1], rtol=1e-7, atol=1e-8)
    nested = graph.vmap(lambda a: graph.vmap(lambda b: a[0] * b)(z))(x)
    np.testing.assert_allclose(nested, x[:, :1, None] * z, rtol=1e-15)


PLACES = np.array([[0, 2], [1, 1], [2, 0]])
AT_BATCHED_PLACES = {
    "own": (lambda i, z: z[i] * z[0], (0, 0)),
    "with a slice": (lambda i, z: z[None][:, i], (0, 0)),
    "along an axis": (lambda i, z: np.take_along_axis(z, i, 0), (0, 0)),
    "shared along an axis": (lambda i, z: np.take_along_axis(z, i, 0), (0, None)),
    "interp": (lambda i, z: np.interp(i * 0.5, [0.0, 0.5, 2.0], z), (0, None)),
}


@pytest.mark.parametrize("name", AT_BATCHED_PLACES)
def test_complex_variables_at_the_places_of_a_batch(name: str) -> None:
    function, axes = AT_BATCHED_PLACES[name]
    rng = np.random.default_rng(21)
    z = rng.normal(size=(3, 3)) + 1j * rng.normal(size=(3, 3))
    of_row = [z[at] if axes[1] == 0 else z[0] for at in range(3)]

    def size(i: Any, z: Any) -> Any:
        return np.sum(abs(function(i, z)) ** 2)

    given = z if axes[1] == 0 else z[0]
    found = graph.vmap(lambda i, z: function(i, z), axes)(PLACES, given)
    np.testing.assert_allclose(found, [function(i, own) for i, own in zip(PLACES, of_row, strict=True)], rtol=1e-14)
    slopes = graph.vmap(graph.grad(size, 1), axes)(PLACES, given)
    alone = [graph.grad(size, 1)(i, own) for i, own in zip(PLACES, of_row, strict=True)]
    np.testing.assert_allclose(slopes, alone, rtol=1e-13, atol=1e-14)
