"""Linear algebra of complex matrices, and eigenvalues of all square ones: to second order against differences and JAX;
phases, singular matrices, precision, batches and replays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differences import along
from operation_cases import (
    TO_SECOND_ORDER,
    Case,
    Check,
    check_against_jax,
    check_gradient,
    check_jvp,
    check_second_derivatives,
    check_value,
    complex_case,
)
from suites import sampled

from dualbcast import ArgumentError, graph

E = 3 * np.eye(3)
SQUARE = ((3, 3), (3, 3))
# h is Hermitian, and p positive definite. Of vectors, whose phases are arbitrary, products are taken that have none.
H, P = "(h := z + z.mT.conj())", "(p := z @ z.mT.conj() + E)"
OUTER = "(v := {})[..., :, None, :] * v.conj()[..., None, :, :]"
TEXTS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "det": ("np.linalg.det(z) * np.linalg.det(w)", ((3, 3), (2, 4, 4))),
    "slogdet": ("np.linalg.slogdet(z)[0] * w[0, 0] + np.linalg.slogdet(z).logabsdet", ((2, 3, 3), (1, 1))),
    "sign of slogdet": ("np.linalg.slogdet(z).sign", SQUARE),
    "solve": ("np.linalg.solve(z + E, w) + np.linalg.solve(x + E, z)", ((2, 3, 3), (3, 3))),
    "inv": ("np.linalg.inv(z + E) * np.linalg.cond(w + E, 1)", ((2, 3, 3), (3, 3))),
    "matrix_power": ("np.linalg.matrix_power(z + E, -2) + np.linalg.matrix_power(w, 3)", SQUARE),
    "multi_dot": ("np.linalg.multi_dot([z, w, z.mT.conj()])", ((2, 3), (3, 3))),
    "cholesky": (f"np.linalg.cholesky({P})", ((2, 3, 3), (1,))),
    "upper cholesky": (f"np.linalg.cholesky({P}, upper=True)", SQUARE),
    "qr": ("(q := np.linalg.qr(z)).Q @ w + q.R @ w", ((2, 3, 3), (3, 3))),
    "qr of two tall matrices": ("np.linalg.qr(z)[0] @ np.linalg.qr(w, mode='r')", ((4, 3), (2, 4, 3))),
    "qr of a broad matrix": ("np.linalg.qr(z)[1] + np.linalg.qr(w)[0] @ z", ((2, 3), (2, 4))),
    "eigvalsh": (f"np.linalg.eigvalsh({H} + E)", ((2, 3, 3), (1,))),
    "eigh": (f"np.linalg.eigh({H} + E)[0] * {OUTER.format('np.linalg.eigh(h + E)[1]')}", SQUARE),
    "eigenvectors": (OUTER.format(f"np.linalg.eigh({H} + E * x)[1]"), ((2, 3, 3), (1,))),
    "upper triangle of eigh": (OUTER.format(f"np.linalg.eigh({H}, 'U')[1]"), SQUARE),
    "eig": ("(e := np.linalg.eig(z))[0][..., None, :] + e[1]", ((2, 3, 3), (1,))),
    "eig of real matrices": ("(e := np.linalg.eig(x)).eigenvectors * w + e.eigenvalues", SQUARE),
    "eigenvalues": ("np.sum(np.linalg.eigvals(z) ** 3) + np.linalg.trace(w)", SQUARE),
    "eigenvalues of real matrices": ("np.sum(np.exp(np.linalg.eigvals(x)), -1) * w[0, 0, 0]", ((1,), (2, 3, 3))),
    "svdvals": ("np.linalg.svdvals(z) * np.linalg.svd(w, compute_uv=False)", ((3, 4), (2, 3, 3))),
    "left singular vectors": (OUTER.format("np.linalg.svd(z, full_matrices=False)[0]"), ((2, 4, 3), (1,))),
    "right singular vectors": (OUTER.format("np.linalg.svd(z, full_matrices=False)[2].mT"), ((3, 4), (1,))),
    "svd": ("(s := np.linalg.svd(z + E))[0] * s[1] ** 2 @ s[2] * w", SQUARE),
    "pinv": ("np.linalg.pinv(z) @ np.linalg.pinv(w)", ((2, 4, 3), (3, 4))),
    "lstsq": ("np.linalg.lstsq(z, w)[0]", ((5, 3), (5, 2))),
    "lstsq of a broad matrix": ("np.linalg.lstsq(z, w)[0] + np.linalg.lstsq(z.real, w)[0]", ((2, 3), (2,))),
    "residuals of lstsq": ("np.linalg.lstsq(z, w)[1] * np.linalg.lstsq(z, w)[3][:2]", ((5, 3), (5, 2))),
    "norms": ("np.linalg.norm(z, 2) + np.linalg.norm(z, 'nuc') * np.linalg.norm(w, -2)", ((3, 4), (3, 2))),
    "sums of columns": ("np.linalg.norm(z, 1) + np.linalg.norm(w, -np.inf) * np.linalg.cond(z)", SQUARE),
    "cross, kron, trace": ("np.linalg.cross(z, w) * np.linalg.trace(z) + np.kron(z, w[:1, :1])", SQUARE),
}  # fmt: skip
# JAX does not factor broad matrices, and has second derivatives of `eig` on demand only: they are below.
NOT_IN_JAX = {"qr of a broad matrix", "upper triangle of eigh", "lstsq of a broad matrix"}
NOT_IN_JAX |= {"eig", "eig of real matrices", "eigenvalues", "eigenvalues of real matrices"}


def _case(name: str) -> Case:
    return complex_case(name, *TEXTS[name], E=E)


FIRST = ("det", "eig")


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


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in TEXTS if name not in NOT_IN_JAX])
def test_operations_against_jax(name: str) -> None:
    pytest.importorskip("jax")
    check_against_jax(_case(name))


def _random(*shape: int, seed: int = 3) -> Any:
    random = np.random.default_rng(seed)
    return random.normal(size=shape) + 1j * random.normal(size=shape)


@pytest.mark.slow
@pytest.mark.parametrize("is_real", [False, True])
def test_eigenvectors_against_jax(is_real: bool) -> None:
    """JAX's gradients are the conjugates of those here."""
    jax = pytest.importorskip("jax")
    a, tangent, weights = _random(4, 4), _random(4, 4, seed=5), _random(4, 4, seed=4)
    a, tangent = (a.real, tangent.real) if is_real else (a, tangent)

    def size(values: Any, vectors: Any) -> Any:
        return (weights * vectors**2).real.sum() + (values**2 * weights[0]).imag.sum()

    def peer(a: Any) -> Any:
        return size(*jax.lax.linalg.eig(a, compute_left_eigenvectors=False, enable_eigvec_derivs=True))

    def ours(a: Any) -> Any:
        return size(*np.linalg.eig(a))

    with jax.enable_x64():
        gradient, product = jax.jvp(jax.grad(peer), (a,), (tangent,))
    np.testing.assert_allclose(graph.grad(ours)(a), np.conj(gradient), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(graph.hvp(ours, (a,), (tangent,))[0], np.conj(product), rtol=1e-9, atol=1e-9)


# Of PyTorch's functions or of NumPy's, without a dependence on phases, which PyTorch refuses.
IN_TORCH: dict[str, Callable[[Any, Any], Any]] = {
    "det": lambda linalg, z: (linalg.det(z) ** 2).imag,
    "slogdet": lambda linalg, z: (linalg.slogdet(z)[0] * linalg.slogdet(z)[1]).imag,
    "solve": lambda linalg, z: abs(linalg.solve(z, z.conj())).sum(),
    "cholesky": lambda linalg, z: abs(linalg.cholesky(z @ z.mT.conj())).sum(),
    "qr": lambda linalg, z: (linalg.qr(z)[0] ** 2 + linalg.qr(z)[1]).imag.sum(),
    "eigh": lambda linalg, z: (abs(linalg.eigh(z + z.mT.conj())[1]) ** 3 * linalg.eigvalsh(z + z.mT.conj())).sum(),
    "eig": lambda linalg, z: (abs(linalg.eig(z)[1]) ** 3 * linalg.eig(z)[0].imag).sum(),
    "svd": lambda linalg, z: (abs(linalg.svd(z)[0]) ** 3 * linalg.svd(z)[1] + abs(linalg.svd(z)[2]) ** 3).sum(),
    "both of svd": lambda linalg, z: (lambda u, _, vh: (u @ vh).imag.sum())(*linalg.svd(z)),
    "pinv": lambda linalg, z: abs(linalg.pinv(z[:2])).sum() + linalg.norm(z, "nuc"),
    "lstsq": lambda linalg, z: abs(linalg.lstsq(z[:, :2], z[:, 2:])[0]).sum(),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_TORCH)
def test_gradients_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    peer = torch.tensor(_random(3, 3), requires_grad=True)
    IN_TORCH[name](torch.linalg, peer).backward()
    found = graph.grad(lambda z: IN_TORCH[name](np.linalg, z))(_random(3, 3))
    np.testing.assert_allclose(found, peer.grad, rtol=1e-9, atol=1e-9)


# --- what has no phase, and what has one ------------------------------------------------------------------------------


def test_tangents_of_eigenvectors_keep_their_length_and_phase() -> None:
    a, tangent = _random(4, 4), _random(4, 4, seed=5)
    found = graph.jvp(lambda a: np.linalg.eig(a)[1], (a,), (tangent,))[1]
    np.testing.assert_allclose(found, along(lambda a: np.linalg.eig(a)[1], [a], [tangent]), rtol=1e-9, atol=1e-9)
    vectors = np.linalg.eigh(a + a.conj().T)[1]
    turning = graph.jvp(lambda a: np.linalg.eigh(a + a.conj().T)[1], (a,), (tangent,))[1]
    np.testing.assert_allclose(np.sum(vectors.conj() * turning, axis=0), 0.0, atol=1e-14)
    u, s, vh = np.linalg.svd(a)
    u_turning, _, vh_turning = graph.jvp(lambda a: tuple(np.linalg.svd(a)), (a,), (tangent,))[1]
    np.testing.assert_allclose(np.sum(vh.conj() * vh_turning, axis=1), 0.0, atol=1e-14)
    # A = u s vh whichever the phases are.
    ds = np.diagonal(u.conj().T @ tangent @ vh.conj().T).real
    np.testing.assert_allclose((u_turning * s + u * ds) @ vh + u * s @ vh_turning, tangent, atol=1e-13)


def test_eigenvectors_of_which_two_components_are_as_large() -> None:
    """LAPACK makes one of them real, which roundings decide."""
    turn = np.array([[0.0, -2.0], [2.0, 0.0]])
    tangent = np.array([[0.0, 1.0], [0.0, 0.0]])  # it makes the one that is real the largest, or the smallest
    vectors, found = graph.jvp(lambda a: np.linalg.eig(a)[1], (turn,), (tangent,))
    assert (found.imag[vectors.imag == 0] == 0).all()
    np.testing.assert_allclose(np.sum(vectors.conj() * found, axis=0).real, 0.0, atol=1e-15)


def test_real_matrices_have_complex_eigenvalues_in_any_case() -> None:
    symmetric = np.array([[2.0, 1.0], [1.0, 3.0]], np.float32)
    found = np.linalg.eig(graph.Variable(symmetric))
    assert [each.dtype for each in found] == [np.complex64, np.complex64]
    for one, other in zip(found, np.linalg.eig(symmetric), strict=True):
        np.testing.assert_array_equal(one.value, other)
    gradient = graph.grad(lambda a: np.linalg.eigvals(a)[1].real)(symmetric)
    assert gradient.dtype == np.float32
    np.testing.assert_allclose(gradient, graph.grad(lambda a: np.linalg.eigvalsh(a)[1])(symmetric), rtol=1e-6)


# --- singular and defective matrices ----------------------------------------------------------------------------------


def _gradient_by_differences(function: Callable[..., Any], z: Any) -> Any:
    """PyTorch's convention: the slope along the real part, plus 1j times that along the imaginary part."""
    slope = np.zeros_like(z)
    for place in np.ndindex(z.shape):
        for unit in (1.0, 1.0j):
            tangent = np.zeros_like(z)
            tangent[place] = unit
            slope[place] += unit * along(function, [z], [tangent])
    return slope


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_derivative_of_det_is_right_for_singular_matrices(rank: int) -> None:
    a = _random(3, rank) @ _random(rank, 3, seed=4)
    expected = _gradient_by_differences(lambda a: (np.linalg.det(a) * (1 + 2j)).real, a)
    found = graph.grad(lambda a: (np.linalg.det(a) * (1 + 2j)).real)
    np.testing.assert_allclose(found(a), expected, atol=1e-9)
    with pytest.raises(np.linalg.LinAlgError, match="second derivatives of det"):
        graph.hvp(lambda a: (np.linalg.det(a) * (1 + 2j)).real, (a,), (a + 1,))


def test_singular_vectors_of_a_singular_matrix() -> None:
    """Nothing sets the phase between vectors of a singular value of zero, and functions without phases do not mind."""
    a = _random(3, 2) @ _random(2, 3, seed=4)

    def function(a: Any) -> Any:
        u, s, vh = np.linalg.svd(a)
        return np.sum(abs(u[:, 2]) ** 2 * np.arange(3.0)) + (u[0, 0] * vh[0, 1]).real + abs(vh[2, 1]) ** 2 + s[0]

    expected = _gradient_by_differences(function, a)
    np.testing.assert_allclose(graph.grad(function)(a), expected, rtol=1e-9, atol=1e-9)
    a[2] = 0.0
    a[:, 2] = 0.0
    assert np.isfinite(graph.grad(function)(a)).all()


def test_the_phase_between_vectors_of_a_singular_value_of_zero_has_no_slope() -> None:
    a = _random(3, 2) @ _random(2, 3, seed=4)
    with np.errstate(all="ignore"):
        found = graph.grad(lambda a: (lambda u, _, vh: (u @ vh)[0, 0].imag)(*np.linalg.svd(a)))(a)
    assert not np.isfinite(found).all() or abs(found).max() > 1e12


def test_repeated_eigenvalues_have_a_derivative_and_their_vectors_none() -> None:
    a = np.diag([1.0, 1.0, 2.0]) + 0j
    np.testing.assert_allclose(graph.grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 2))(a), 2 * a, atol=1e-14)
    np.testing.assert_allclose(graph.grad(lambda a: np.sum(np.linalg.eigvals(a) ** 2).real)(a), 2 * a, atol=1e-14)
    with np.errstate(all="ignore"):
        for function in (np.linalg.eigh, np.linalg.eig, np.linalg.svd):
            slope = graph.grad(lambda a, f=function: np.sum(abs(f(a + 0 * a.T)[-1] + a) ** 3))(a)
            assert not np.isfinite(slope).all()


def test_defective_matrices_have_no_finite_derivative_of_eigenvalues() -> None:
    a = np.array([[1.0, 1.0], [0.0, 1.0]])
    gradient = graph.grad(lambda a: abs(np.linalg.eigvals(a)[0]))
    try:
        with np.errstate(all="ignore"):
            found = gradient(a)
    except np.linalg.LinAlgError:
        return
    assert not np.isfinite(found).all() or abs(found).max() > 1e12


# --- precision, batches, replays --------------------------------------------------------------------------------------


def _hermitian(z: Any) -> Any:
    return z @ z.mT.conj() + np.eye(3, dtype=z.real.dtype)


# Numbers that do not depend on phases, of a matrix of 3 rows and 3 columns and of a right side.
NUMBERS: dict[str, Callable[[Any, Any], Any]] = {
    "det": lambda z, b: abs(np.linalg.det(z)) * b[0].real,
    "slogdet": lambda z, b: np.linalg.slogdet(z)[1] + (np.linalg.slogdet(z)[0] * b[0]).imag,
    "solve": lambda z, b: np.sum(abs(np.linalg.solve(z, b))),
    "inv": lambda z, b: np.sum(abs(np.linalg.inv(z) @ b)),
    "cholesky": lambda z, b: np.sum(abs(np.linalg.cholesky(_hermitian(z)) @ b)),
    "qr": lambda z, b: np.sum(abs(np.linalg.qr(z)[0] + np.linalg.qr(z)[1]) @ b.real),
    "eigh": lambda z, b: np.sum(abs(b @ np.linalg.eigh(_hermitian(z))[1]) * np.linalg.eigvalsh(_hermitian(z))),
    "eig": lambda z, b: np.sum((np.linalg.eig(z)[1] @ b + np.linalg.eigvals(z)).real),
    "svd": lambda z, b: np.sum(abs(np.linalg.svd(z)[0] ** 2 @ b.real)) + np.linalg.norm(z, "nuc"),
    "pinv": lambda z, b: np.sum(abs(np.linalg.pinv(z[:2]) @ b[:2])) + np.linalg.cond(z),
}
Z, B = _random(5, 3, 3, seed=8), _random(5, 3, seed=9)
EACH_NUMBER = pytest.mark.parametrize("name", NUMBERS)


@EACH_NUMBER
def test_single_precision(name: str) -> None:
    """Errors are some hundred roundings, as the condition numbers of these matrices are below a hundred."""
    gradient = graph.value_and_grad(NUMBERS[name], (0, 1))
    value, slopes = gradient(Z[0], B[0])
    single, single_slopes = gradient(Z[0].astype(np.complex64), B[0].astype(np.complex64))
    assert (single.dtype, *[each.dtype for each in single_slopes]) == (np.float32, np.complex64, np.complex64)
    for one, other in zip((single, *single_slopes), (value, *slopes), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=500 * np.finfo(np.float32).eps * (1 + abs(other).max()))


@EACH_NUMBER
def test_batches_are_the_examples_one_by_one(name: str) -> None:
    single = graph.value_and_grad(NUMBERS[name], (0, 1))
    examples = [single(*each) for each in zip(Z, B, strict=True)]
    values, (by_z, by_b) = graph.vmap(single)(Z, B)
    for at, (value, slopes) in enumerate(examples):
        np.testing.assert_allclose(values[at], value, rtol=1e-12)
        np.testing.assert_allclose(by_z[at], slopes[0], rtol=1e-10, atol=1e-11)
        np.testing.assert_allclose(by_b[at], slopes[1], rtol=1e-10, atol=1e-11)


@EACH_NUMBER
def test_matrices_whose_real_parts_alone_are_batched(name: str) -> None:
    def number(x: Any, y: Any) -> Any:
        return NUMBERS[name](graph.Variable.__join_complex__(x, y), B[0])

    x, y = Z.real, Z[0].imag
    slopes = [graph.grad(number, (0, 1))(row, y) for row in x]
    found = graph.grad(lambda x, y: np.sum(graph.vmap(number, (0, None))(x, y)), (0, 1))(x, y)
    np.testing.assert_allclose(found[0], [by_x for by_x, _ in slopes], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(found[1], sum(by_y for _, by_y in slopes), rtol=1e-10, atol=1e-11)


@EACH_NUMBER
def test_steps_are_replayed(name: str) -> None:
    plain = graph.value_and_grad(NUMBERS[name], (0, 1))
    step = graph.compile(plain)
    for z, b in zip(Z, B, strict=True):
        (value, slopes), (expected, others) = step(z, b), plain(z, b)
        for one, other in zip((value, *slopes), (expected, *others), strict=True):
            np.testing.assert_array_equal(one, other)
    assert "replayed, 3 times" in step.explain()


@pytest.mark.parametrize("name", ["eig", "svd", "slogdet"])
def test_second_derivatives_of_batches_are_replayed(name: str) -> None:
    def product(z: Any, b: Any) -> Any:
        return graph.hvp(lambda z: NUMBERS[name](z, b), (z,), (z * z + 1,))[0]

    batch, expected = graph.vmap(product), [product(*each) for each in zip(Z, B, strict=True)]
    np.testing.assert_allclose(batch(Z, B), expected, rtol=1e-9, atol=1e-9)
    step = graph.compile(batch)
    for _ in range(3):
        np.testing.assert_array_equal(step(Z, B), batch(Z, B))
    assert "replayed, 1 time" in step.explain()


def test_ranks_and_empty_matrices() -> None:
    z = graph.Variable(Z[0])
    assert np.linalg.matrix_rank(z) == 3
    found, expected = np.linalg.lstsq(z[:, :2], B[0]), np.linalg.lstsq(Z[0, :, :2], B[0])
    assert (found[2], found[1].dtype, found[3].dtype) == (2, expected[1].dtype, expected[3].dtype)
    np.testing.assert_allclose(found[1].value, expected[1], rtol=1e-12)
    for function in (np.linalg.det, np.linalg.eigvals, np.linalg.eigvalsh, np.linalg.svdvals, np.linalg.pinv):
        empty = np.zeros((0, 2, 2), complex)
        assert function(graph.Variable(empty)).shape == function(empty).shape
        assert graph.grad(lambda z, f=function: np.sum(abs(f(z))))(empty).shape == empty.shape


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda z: np.linalg.eig(z[:2]), np.linalg.LinAlgError, r"eig of float64\[2, 3\]"),
        (lambda z: np.linalg.eigvals(z * np.nan), np.linalg.LinAlgError, "eig of"),
        (lambda z: np.linalg.solve(z * 0, z), np.linalg.LinAlgError, "solve of float64.*Singular"),
        (lambda z: np.linalg.det(z[0]), np.linalg.LinAlgError, "square"),
        (lambda z: np.linalg.cholesky(-_hermitian(z)), np.linalg.LinAlgError, "positive definite"),
        (lambda z: np.linalg.svd(z[:2]), ArgumentError, "full_matrices=False"),
        (lambda z: np.linalg.qr(z, "complete"), ArgumentError, "reduced and r"),
    ],
)
def test_errors(call: Callable[[Any], Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(graph.Variable(Z[0]))
