"""Linear algebra: as for all operations, and against JAX; singular and empty matrices, integers, compiled functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from differences import slopes
from operation_cases import Case, Check, check_against_jax, check_float32, to_second_order

from dualbcast import ArgumentError, ShapeError, graph

X = np.array([[2.0, -1.0, 0.5], [0.3, 1.5, -0.7], [-0.4, 0.8, 3.0]])
DIAGONAL = np.diag([3.0, 1.0, 5.0])

SAME: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("norm", lambda x: np.linalg.norm(x), ((5,),)),
    ("norm of all", lambda x: np.linalg.norm(x), ((2, 3, 2),)),
    ("norm over an axis", lambda x: np.linalg.norm(x, axis=1, keepdims=True), ((2, 3, 2),)),
    ("norm of order 1", lambda x: np.linalg.norm(x, 1, axis=0), ((3, 2),)),
    ("norm of order 3", lambda x: np.linalg.norm(x, 3), ((4,),)),
    ("norm of order -2", lambda x: np.linalg.norm(x, -2.0, axis=-1), ((2, 4),)),
    ("largest element", lambda x: np.linalg.norm(x, np.inf, axis=-1), ((2, 4),)),
    ("smallest element", lambda x: np.linalg.norm(x, -np.inf), ((4,),)),
    ("Frobenius norm", lambda x: np.linalg.norm(x, "fro", axis=(0, 2)), ((2, 3, 2),)),
    ("column sums", lambda x: np.linalg.norm(x, 1), ((3, 4),)),
    ("least column sum", lambda x: np.linalg.norm(x, -1, axis=(2, 0)), ((3, 2, 4),)),
    ("row sums", lambda x: np.linalg.norm(x, np.inf, axis=(1, 2), keepdims=True), ((2, 3, 4),)),
    ("least row sum", lambda x: np.linalg.norm(x, -np.inf), ((3, 4),)),
    ("spectral norm", lambda x: np.linalg.norm(x, 2), ((3, 4),)),
    ("smallest singular value", lambda x: np.linalg.norm(x, -2, axis=(0, 1)), ((3, 4, 2),)),
    ("nuclear norm", lambda x: np.linalg.norm(x, "nuc", axis=(-1, -2), keepdims=True), ((2, 3, 4),)),
    ("vector_norm", lambda x: np.linalg.vector_norm(x, axis=(0, 2), ord=2), ((2, 3, 2),)),
    ("matrix_norm", lambda x: np.linalg.matrix_norm(x), ((2, 3, 2),)),
    ("cond", lambda x: np.linalg.cond(x), ((2, 3, 4),)),
    ("cond by column sums", lambda x: np.linalg.cond(x + DIAGONAL, 1), ((2, 3, 3),)),
    ("inverse of cond", lambda x: np.linalg.cond(x, -2), ((3, 3),)),
    ("solve", lambda a, b: np.linalg.solve(a + DIAGONAL, b), ((3, 3), (3, 2))),
    ("solve for a vector", lambda a, b: np.linalg.solve(a + DIAGONAL, b), ((3, 3), (3,))),
    ("solve of batches", lambda a, b: np.linalg.solve(a + DIAGONAL, b), ((2, 1, 3, 3), (4, 3, 1))),
    ("solve of a batch for a vector", lambda a, b: np.linalg.solve(a + DIAGONAL, b), ((2, 3, 3), (3,))),
    ("solve of one number", lambda a, b: np.linalg.solve(a, b), ([[2.0]], [3.0])),
    ("inv", lambda a: np.linalg.inv(a + DIAGONAL), ((2, 3, 3),)),
    ("det", lambda a: np.linalg.det(a), ((3, 3),)),
    ("det of batches", lambda a: np.linalg.det(a), ((2, 2, 4, 4),)),
    ("det of one number", lambda a: np.linalg.det(a), ([[2.0]],)),
    ("slogdet", lambda a: np.linalg.slogdet(a)[1], ((2, 3, 3),)),
    ("slogdet with its sign", lambda a: np.linalg.slogdet(a).sign * np.linalg.slogdet(a).logabsdet, ((3, 3),)),
    ("matrix_power", lambda a: np.linalg.matrix_power(a, 5), ((2, 3, 3),)),
    ("matrix_power 1", lambda a: np.linalg.matrix_power(a, 1), ((2, 2),)),
    ("matrix_power below zero", lambda a: np.linalg.matrix_power(a + DIAGONAL, -3), ((3, 3),)),
    ("multi_dot", lambda a, b, c: np.linalg.multi_dot([a, b, c]), ((2, 5), (5, 3), (3, 4))),
    ("multi_dot of four", lambda a, b, c, d: np.linalg.multi_dot([a, b, c, d]), ((6,), (6, 2), (2, 5), (5,))),
    ("cholesky", lambda a: np.linalg.cholesky(a @ a.mT + DIAGONAL), ((3, 3),)),
    ("cholesky of batches", lambda a: np.linalg.cholesky(a @ a.mT + DIAGONAL), ((2, 2, 3, 3),)),
    ("qr", lambda a: np.linalg.qr(a).Q + np.linalg.qr(a).R, ((3, 3),)),
    ("Q of a tall matrix", lambda a: np.linalg.qr(a)[0], ((2, 4, 3),)),
    ("R of a tall matrix", lambda a: np.linalg.qr(a, mode="r"), ((2, 4, 3),)),
    ("eigenvalues", lambda a: np.linalg.eigvalsh(a + a.mT + DIAGONAL), ((2, 3, 3),)),
    ("eigenvalues of eigh", lambda a: np.linalg.eigh(a + a.mT + DIAGONAL)[0], ((3, 3),)),
    ("eigenvectors", lambda a: np.linalg.eigh(a + a.mT + DIAGONAL).eigenvectors, ((2, 3, 3),)),
    ("singular values", lambda a: np.linalg.svd(a + DIAGONAL, compute_uv=False), ((2, 3, 3),)),
    ("singular values of a tall matrix", lambda a: np.linalg.svdvals(a), ((2, 4, 3),)),
    ("left singular vectors", lambda a: np.linalg.svd(a, full_matrices=False)[0] ** 2, ((2, 4, 3),)),
    ("right singular vectors", lambda a: np.linalg.svd(a, full_matrices=False)[2], ((2, 3, 4),)),
    ("svd", lambda a: (lambda u, s, vh: u @ vh * s)(*np.linalg.svd(a + DIAGONAL)), ((3, 3),)),
    ("pinv of a tall matrix", lambda a: np.linalg.pinv(a), ((2, 4, 3),)),
    ("pinv of a broad matrix", lambda a: np.linalg.pinv(a), ((2, 3),)),
    ("lstsq", lambda a, b: np.linalg.lstsq(a, b)[0], ((5, 3), (5, 2))),
    ("lstsq of a vector", lambda a, b: np.linalg.lstsq(a, b)[0], ((5, 3), (5,))),
    ("lstsq of a broad matrix", lambda a, b: np.linalg.lstsq(a, b)[0], ((2, 3), (2,))),
    ("residuals of lstsq", lambda a, b: np.linalg.lstsq(a, b)[1], ((5, 3), (5, 2))),
    ("singular values of lstsq", lambda a, b: np.linalg.lstsq(a, b)[3] * np.sum(b), ((4, 3), (4,))),
    ("matmul of linalg", lambda a, b: np.linalg.matmul(a, b), ((2, 3), (3, 2))),
    ("outer of linalg", lambda a, b: np.linalg.outer(a, b), ((2,), (3,))),
    ("trace of linalg", lambda a: np.linalg.trace(a), ((2, 3, 3),)),
    ("diagonal of linalg", lambda a: np.linalg.diagonal(a), ((2, 3, 3),)),
    ("cross of linalg", lambda a, b: np.linalg.cross(a, b), ((2, 3), (3,))),
    ("matrix_transpose of linalg", lambda a: np.linalg.matrix_transpose(a), ((2, 3, 4),)),
]  # fmt: skip
# Of the singular values of the first, `rcond` cuts the least, 0.48, and it cuts the two least of the second.
CUT = [[3.0, 1.0, 0.0, 0.5], [0.0, 2.0, 1.0, -1.0], [0.2, 0.0, 0.4, 0.3]], [[3.0, 0.1], [0.2, 1.0], [0.5, -0.2]]
# JAX does not factor broad matrices, reads the other triangle, too, and refuses to differentiate eigenvectors. Its
# derivative of `pinv` is that without `rcond`.
NOT_IN_JAX = [
    ("pinv that cuts", lambda a: np.linalg.pinv(a, 0.3), CUT[:1]),
    ("pinv that cuts from a tall matrix", lambda a: np.linalg.pinv(np.stack([a, 2 * a]), rtol=0.5), CUT[1:]),
    ("pinv that cuts all", lambda a: np.linalg.pinv(a, 1.5) + np.sum(a), CUT[1:]),
    ("lstsq that cuts", lambda a, b: np.linalg.lstsq(a, b, 0.3)[0], (CUT[0], [1.0, -2.0, 0.5])),
    ("lstsq whose rcond is replaced", lambda a, b: np.linalg.lstsq(a, b, 1.5)[0], (CUT[1], [1.0, -2.0, 0.5])),
    ("R of a broad matrix", lambda a: np.linalg.qr(a, "r"), ((2, 2, 4),)),
    ("Q of a broad matrix", lambda a: np.linalg.qr(a).Q, ((2, 4),)),
    ("upper cholesky", lambda a: np.linalg.cholesky(a @ a.mT + DIAGONAL, upper=True), ((2, 3, 3),)),
    ("eigenvalues of all matrices", lambda a: np.linalg.eigvals(a).real ** 2 + np.linalg.eigvals(a).imag, ((2, 3, 3),)),
    ("eigenvectors of all matrices", lambda a: abs(np.linalg.eig(a)[1]) ** 3, ((2, 3, 3),)),
    ("upper triangle of eigh", lambda a: np.linalg.eigh(a + a.mT + DIAGONAL, "U")[0], ((3, 3),)),
]
CASES = [Case(name, function, function, shapes) for name, function, shapes in SAME]
ALL = CASES + [Case(name, function, function, shapes) for name, function, shapes in NOT_IN_JAX]
EACH = pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)


@to_second_order(ALL, 2)
def test_operation(case: Case, check: Check) -> None:
    check(case)


@EACH
def test_float32_stays_float32(case: Case) -> None:
    if "DIAGONAL" in case.function.__code__.co_names:
        pytest.skip("adds float64")
    check_float32(case)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_all_is_that_of_jax(case: Case) -> None:
    pytest.importorskip("jax")
    check_against_jax(case)


SINGULAR = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]])


@pytest.mark.parametrize("a", [SINGULAR, np.ones((3, 3)), np.zeros((2, 2)), np.zeros((1, 1)), np.diag([0.0, 2.0, 3.0])])
def test_the_derivative_of_det_is_right_for_singular_matrices(a: Any) -> None:
    np.testing.assert_allclose(graph.grad(graph.linalg.det)(a), slopes(np.linalg.det, [a])[0], atol=1e-10)
    with pytest.raises(np.linalg.LinAlgError, match="second derivatives of det"):
        graph.hessian(graph.linalg.det)(a)


@pytest.mark.parametrize("order", [None, 2, 1, 3, np.inf])
def test_the_derivative_of_a_vector_norm_at_zero_is_zero(order: Any) -> None:
    def total(x: Any) -> Any:
        return np.sum(np.linalg.norm(x, order, axis=1))

    found = graph.grad(total)(np.array([[0.0, 0.0], [3.0, 3.0]]))
    np.testing.assert_array_equal(found[0], 0.0)
    assert (found[1] > 0).all()


def test_repeated_eigenvalues_have_a_derivative_and_their_vectors_none() -> None:
    a = np.diag([1.0, 1.0, 2.0])
    np.testing.assert_allclose(graph.grad(lambda a: np.sum(np.linalg.eigvalsh(a) ** 2))(a), 2 * a, atol=1e-14)
    np.testing.assert_allclose(graph.grad(lambda a: np.linalg.norm(a, "nuc"))(a), np.eye(3), atol=1e-14)
    weights = np.array([1.0, 2.0, 4.0])
    with np.errstate(all="ignore"):
        for function in (lambda a: np.linalg.eigh(a)[1], lambda a: np.linalg.svd(a)[0]):
            slope = graph.grad(lambda a, f=function: np.sum(f(a + 0 * a.T) ** 3 * weights))(a)
            assert not np.isfinite(slope).all()


EMPTY = [
    (lambda a: np.linalg.inv(a), (0, 3, 3)),
    (lambda a: np.linalg.inv(a), (0, 0)),
    (lambda a: np.linalg.det(a), (2, 0, 0)),
    (lambda a: np.linalg.det(a), (0, 2, 2)),
    (lambda a: np.linalg.slogdet(a)[1], (0, 2, 2)),
    (lambda a: np.linalg.cholesky(a), (0, 2, 2)),
    (lambda a: np.linalg.qr(a)[1], (0, 3, 2)),
    (lambda a: np.linalg.qr(a)[0], (0, 2, 3)),
    (lambda a: np.linalg.eigh(a)[1], (0, 2, 2)),
    (lambda a: np.linalg.eig(a)[1].real, (0, 2, 2)),
    (lambda a: np.linalg.eig(a)[1].imag, (2, 0, 0)),
    (lambda a: np.linalg.svd(a, full_matrices=False)[2], (0, 2, 3)),
    (lambda a: np.linalg.svd(a, compute_uv=False), (0, 3)),
    (lambda a: np.linalg.pinv(a), (0, 2, 3)),
    (lambda a: np.linalg.solve(a, np.ones((2, 4))), (0, 2, 2)),
    (lambda a: np.linalg.matrix_power(a, -2), (0, 2, 2)),
    (lambda a: np.linalg.norm(a), (0, 2)),
    (lambda a: np.linalg.norm(a, axis=1), (3, 0)),
]


@pytest.mark.parametrize(("function", "shape"), EMPTY)
def test_empty_arrays(function: Callable[..., Any], shape: tuple[int, ...]) -> None:
    a = np.zeros(shape)
    assert function(graph.Variable(a)).shape == np.shape(function(a))
    assert graph.grad(lambda a: np.sum(function(a)))(a).shape == shape


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda a: np.linalg.solve(a * 0, a), np.linalg.LinAlgError, "solve of float64.*Singular"),
        (lambda a: np.linalg.inv(a[:2]), np.linalg.LinAlgError, "square"),
        (lambda a: np.linalg.det(a[0]), np.linalg.LinAlgError, "square"),
        (lambda a: np.linalg.cholesky(-a), np.linalg.LinAlgError, "positive definite"),
        (lambda a: np.linalg.svd(a[:2]), ArgumentError, "full_matrices=False"),
        (lambda a: np.linalg.qr(a, "complete"), ArgumentError, "reduced and r"),
        (lambda a: np.linalg.norm(a, 3), ArgumentError, "no order 3"),
        (lambda a: np.linalg.norm(a[0], "fro"), ArgumentError, "no derivative of the order"),
        (lambda a: np.linalg.norm(a[0], 0), ArgumentError, "no derivative of the order"),
        (lambda a: np.linalg.norm(a[None], 1), ShapeError, "needs axis="),
        (lambda a: np.linalg.eig(a[:2]), np.linalg.LinAlgError, "eig of float64"),
        (lambda a: np.linalg.tensorinv(a), ArgumentError, "np.linalg.tensorinv does not work"),
        (lambda a: np.linalg.lstsq(a[None], a), ShapeError, "lstsq"),
        (lambda a: np.linalg.multi_dot([a]), ArgumentError, "two arrays"),
        (lambda a: np.linalg.pinv(a, hermitian=True), ArgumentError, "hermitian"),
        (lambda a: np.linalg.inv(a.astype(np.float16)), TypeError, "float16"),
    ],
)
def test_errors(call: Callable[..., Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(graph.Variable(X))


def test_integers_become_floats_and_ranks_are_integers() -> None:
    whole = graph.Variable(np.array([[2, 1], [1, 1]]))
    for function in (np.linalg.inv, np.linalg.det, np.linalg.norm, np.linalg.cholesky, np.linalg.pinv):
        np.testing.assert_allclose(function(whole).value, function(whole.value), rtol=1e-14)
    assert np.linalg.matrix_power(whole, 0).dtype == np.linalg.matrix_power(whole.value, 0).dtype
    a = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])
    x, residuals, rank, s = np.linalg.lstsq(graph.Variable(a), np.ones(3))
    wanted = np.linalg.lstsq(a, np.ones(3))
    assert (rank, residuals.shape) == (wanted[2], wanted[1].shape)
    for rcond in (-1, 0, 2):
        assert np.linalg.lstsq(graph.Variable(a), np.ones(3), rcond)[2] == np.linalg.lstsq(a, np.ones(3), rcond)[2] == 1
    np.testing.assert_allclose(x.value, wanted[0], rtol=1e-12)
    np.testing.assert_allclose(s.value, wanted[3], atol=1e-14)


def test_compiled_functions_are_replayed() -> None:
    def loss(a: Any, b: Any) -> Any:
        spd = a @ a.mT + DIAGONAL
        factor, u = np.linalg.cholesky(spd), np.linalg.svd(a)[0]
        return (
            np.sum(np.linalg.solve(spd, b) * b)
            + np.linalg.slogdet(spd)[1]
            + np.linalg.norm(factor)
            + np.linalg.eigvalsh(spd)[0]
            + np.linalg.det(a)
            + np.sum(u**2 * b)
        )

    plain = graph.value_and_grad(loss, (0, 1))
    compiled = graph.compile(plain)
    random = np.random.default_rng(3)
    for _ in range(5):
        args = random.normal(size=(3, 3)), random.normal(size=(3, 2)) @ random.normal(size=(2, 3))
        for one, other in zip(compiled(*args)[1], plain(*args)[1], strict=True):
            np.testing.assert_array_equal(one, other)
    assert "replayed, 3 times" in compiled.explain()


def test_a_singular_matrix_is_noticed_on_replay() -> None:
    compiled = graph.compile(graph.grad(lambda a: np.sum(graph.grad(lambda a: np.linalg.det(a))(a) ** 2)))
    for _ in range(3):
        compiled(X)
    assert "replayed" in compiled.explain()
    with pytest.raises(np.linalg.LinAlgError):
        compiled(SINGULAR)
