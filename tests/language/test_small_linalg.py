"""Linear algebra of small matrices: the edges of its formulas, against mpmath, NumPy and known derivatives."""

from __future__ import annotations

import math
from itertools import permutations, product
from typing import Any

import mpmath
import numpy as np
import pytest

from dualbcast import CompileError, ShapeError, differentiable_broadcast, linalg


@differentiable_broadcast(signature="(n,n)->(n)")
def eigenvalues(a):
    return linalg.eigvalsh(a)


@differentiable_broadcast(signature="(n,n)->(n),(n,n)")
def system(a):
    return linalg.eigh(a)


@differentiable_broadcast(signature="(n)->()")
def norm(v):
    return np.linalg.norm(v)


@differentiable_broadcast(signature="(n,n),(n)->(n)")
def solved(a, b):
    return np.linalg.solve(a, b)


@differentiable_broadcast(signature="(n,n)->()")
def determinant(a):
    return np.linalg.det(a)


@differentiable_broadcast(signature="(n,n)->(n,n)")
def inverse(a):
    return np.linalg.inv(a)


def turned(values: Any, seed: int) -> Any:
    """Symmetric matrices with these eigenvalues, and their eigenvectors, the columns."""
    random = np.random.default_rng(seed)
    vectors = np.linalg.qr(random.standard_normal((len(values), len(values))))[0]
    return vectors @ np.diag(values) @ vectors.T, vectors


def lower(slope: Any) -> Any:
    """The derivative in the lower triangle, which is read for both, of one in a symmetric matrix."""
    return np.tril(slope + np.swapaxes(slope, -1, -2)) - slope * np.eye(slope.shape[-1])


# --- eigenvalues -----------------------------------------------------------------------------------------------------

SPECTRA = [
    (1.0, 2.0),
    (1.0, 1.0 + 1e-9),
    (-1.0, 2.0, 7.0),
    (1.0, 1.0 + 1e-7, 2.0),
    (1.0, 1.0 + 1e-12, 1.0 + 2e-12),
    (1e-8, 1.0, 1e8),
    (-3e150, 1.0, 3e150),
    (0.0, 0.0, 5.0),
]


@pytest.mark.parametrize("values", SPECTRA)
def test_eigenvalues_are_as_exact_as_numpys(values: tuple[float, ...]):
    for seed in range(5):
        matrix, _ = turned(values, seed)
        found = eigenvalues(matrix)
        with mpmath.workdps(60):
            symmetric = np.tril(matrix) + np.tril(matrix, -1).T
            exact = sorted(float(each) for each in mpmath.eigsy(mpmath.matrix(symmetric.tolist()), eigvals_only=True))
        assert np.max(np.abs(found - exact)) <= 16 * np.finfo(float).eps * np.max(np.abs(exact))


@pytest.mark.parametrize("values", [spectrum for spectrum in SPECTRA if np.min(np.diff(spectrum)) > 0])
def test_derivatives_of_close_eigenvalues_lose_no_digits(values: tuple[float, ...]):
    """That of an eigenvalue is v vᵀ, with the vector of the matrix as it is in floating point."""
    matrix, _ = turned(values, 3)
    symmetric = np.tril(matrix) + np.tril(matrix, -1).T
    with mpmath.workdps(60):
        exact, vectors = mpmath.eigsy(mpmath.matrix(symmetric.tolist()))
        order = sorted(range(len(values)), key=lambda at: exact[at])
        columns = np.array([[float(vectors[i, at]) for i in range(len(values))] for at in order])
    gap, size = np.min(np.diff(values)), np.max(np.abs(values))
    slope = eigenvalues.jacobian(matrix)["a"]
    wanted = lower(np.einsum("ki,kj->kij", columns, columns))
    # Roundings of the matrix turn its vectors by their size over the gap, in any algorithm.
    assert np.max(np.abs(slope - wanted)) <= 64 * np.finfo(float).eps * max(1.0, size / gap)
    np.testing.assert_allclose(slope.sum(0), np.eye(len(values)), atol=1e-14)  # the trace's


@pytest.mark.parametrize("size", [2, 3])
def test_equal_eigenvalues(size: int):
    """Each derivative is finite, and their sum is right; vectors have none, and say so."""
    for matrix in (np.eye(size), np.zeros((size, size)), np.diag([1.0] * (size - 1) + [4.0])):
        slope = eigenvalues.jacobian(matrix)["a"]
        assert np.all(np.isfinite(slope))
        np.testing.assert_allclose(slope.sum(0), np.eye(size), atol=1e-15)
        np.testing.assert_allclose(np.trace(slope, axis1=-2, axis2=-1), np.ones(size), atol=1e-15)
    (values, vectors), jacobian = system.value_and_jacobian(np.eye(size))
    np.testing.assert_array_equal(values, np.ones(size))
    np.testing.assert_array_equal(vectors @ vectors.T, np.eye(size))
    assert np.all(np.isfinite(jacobian[0, "a"]))
    assert np.any(np.isnan(jacobian[1, "a"]))


def test_systems_turn_the_matrix_to_its_diagonal():
    random = np.random.default_rng(0)
    for size in (2, 3, 4):
        a = random.standard_normal((50, size, size))
        a = a + np.swapaxes(a, -1, -2)
        values, vectors = system(a)
        assert np.all(np.diff(values) >= 0)
        np.testing.assert_allclose(vectors @ (values[..., None] * np.swapaxes(vectors, -1, -2)), a, atol=1e-13)
        np.testing.assert_allclose(
            np.swapaxes(vectors, -1, -2) @ vectors, np.tile(np.eye(size), (50, 1, 1)), atol=1e-14
        )
        np.testing.assert_allclose(values, np.linalg.eigvalsh(a), atol=1e-13)


def test_third_derivatives_of_eigenvalues():
    """Along a line through a diagonal matrix, against the series of perturbation theory."""

    @differentiable_broadcast(signature="()->(2)")
    def along(t):
        return linalg.eigvalsh(((1.0, t), (t, 2.0 + t)))

    third = along.partial("t").partial("t").partial("t")(0.1)
    with mpmath.workdps(40):
        root = [lambda t, s=sign: (3 + t + s * mpmath.sqrt((1 + t) ** 2 + 4 * t * t)) / 2 for sign in (-1, 1)]
        wanted = [float(mpmath.diff(each, mpmath.mpf("0.1"), 3)) for each in root]
    np.testing.assert_allclose(third, wanted, rtol=1e-12)


def test_high_derivatives_of_eigenvalues_and_vectors():
    """The fifth of an eigenvalue, and the third of the direction of a vector."""

    @differentiable_broadcast
    def value(t):
        return linalg.eigvalsh(((1.0, t), (t, 2.0)))[1]

    @differentiable_broadcast
    def slope(t):
        vectors = linalg.eigh(((1.0, t), (t, 2.0)))[1]
        return vectors[1, 1] / vectors[0, 1]

    fifth, third = value, slope
    for _ in range(5):
        fifth = fifth.partial("t")
    for _ in range(3):
        third = third.partial("t")
    with mpmath.workdps(60):
        at = mpmath.mpf("0.3")
        exact = mpmath.diff(lambda t: (3 + mpmath.sqrt(1 + 4 * t * t)) / 2, at, 5)
        exact_slope = mpmath.diff(lambda t: (1 + mpmath.sqrt(1 + 4 * t * t)) / (2 * t), at, 3)
    assert fifth(0.3) == pytest.approx(float(exact), rel=1e-11)
    assert third(0.3) == pytest.approx(float(exact_slope), rel=1e-11)


def test_the_derivative_of_a_vector_beside_equal_eigenvalues():
    """The vectors of the equal ones have none, and the third one has that of a projection."""
    jacobian = system.jacobian(np.diag([1.0, 1.0, 4.0]))[1, "a"]
    assert np.any(np.isnan(jacobian[:, :2]))
    wanted = np.zeros((3, 3, 3))
    wanted[0, 2, 0] = wanted[1, 2, 1] = 1 / 3
    np.testing.assert_allclose(jacobian[:, 2], wanted, atol=1e-15)


# --- norms, determinants and systems of equations --------------------------------------------------------------------


def test_the_norm_at_zero():
    value, jacobian = norm.value_and_jacobian(np.zeros((2, 3)))
    np.testing.assert_array_equal(value, [0.0, 0.0])
    np.testing.assert_array_equal(jacobian["v"], np.zeros((2, 3)))
    assert np.isnan(norm(np.array([np.nan, 1.0])))
    np.testing.assert_allclose(norm.jacobian(np.array([3.0, 4.0]))["v"], [0.6, 0.8], rtol=1e-15)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_determinants_by_permutations(size: int):
    a = np.random.default_rng(size).standard_normal((20, size, size))
    wanted = np.zeros(20)
    for order in permutations(range(size)):
        sign = np.linalg.det(np.eye(size)[list(order)])
        wanted += sign * np.prod(a[:, range(size), list(order)], axis=1)
    value, jacobian = determinant.value_and_jacobian(a)
    np.testing.assert_allclose(value, wanted, rtol=1e-11, atol=1e-12)
    inverses = np.linalg.inv(a)
    np.testing.assert_allclose(
        jacobian["a"], wanted[:, None, None] * np.swapaxes(inverses, -1, -2), rtol=1e-8, atol=1e-9
    )


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_systems_that_need_pivots(size: int):
    """A zero first pivot, in every order of the rows."""
    a = np.eye(size)[::-1] + np.diag([0.0] + [0.5] * (size - 1))
    random = np.random.default_rng(size)
    matrices = np.stack([a[random.permutation(size)] for _ in range(12)])
    right = random.standard_normal((12, size))
    value, jacobian = solved.value_and_jacobian(matrices, right)
    inverses = np.linalg.inv(matrices)
    wanted = np.einsum("kij,kj->ki", inverses, right)
    np.testing.assert_allclose(value, wanted, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(jacobian["b"], inverses, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(jacobian["a"], -np.einsum("kij,kl->kijl", inverses, wanted), rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(inverse(matrices), inverses, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_third_derivatives_of_solutions(size: int):
    """Along a line through matrices, against derivatives of mpmath's solutions."""

    @differentiable_broadcast(signature="(),(n,n),(n)->(n),(n)")
    def along(t, a, b):
        matrix = a + t * t * np.outer(b, a[0]) + np.sin(t) * np.eye(len(b))
        return np.linalg.solve(matrix, b * (1 + t)), np.linalg.inv(matrix)[:, -1]

    random = np.random.default_rng(size)
    a, b = random.standard_normal((size, size)) + 3 * np.eye(size), random.standard_normal(size)
    third = along.partial("t").partial("t").partial("t")(0.3, a, b)
    with mpmath.workdps(60):
        first, right = mpmath.matrix(a.tolist()), mpmath.matrix(b.tolist())

        def matrix(t: Any) -> Any:
            return first + t * t * right * first[0, :] + mpmath.sin(t) * mpmath.eye(size)

        for at in range(size):
            solved = mpmath.diff(lambda t, at=at: mpmath.lu_solve(matrix(t), right * (1 + t))[at], mpmath.mpf(0.3), 3)
            inverse = mpmath.diff(lambda t, at=at: mpmath.inverse(matrix(t))[at, size - 1], mpmath.mpf(0.3), 3)
            assert third[0][at] == pytest.approx(float(solved), rel=1e-12, abs=1e-12)
            assert third[1][at] == pytest.approx(float(inverse), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_logarithms_of_determinants(size: int):
    """Their derivative is the transposed inverse, and that of the sign is zero."""

    @differentiable_broadcast(signature="(n,n)->(),()")
    def parts(a):
        found = np.linalg.slogdet(a)
        return found.sign, found.logabsdet

    random = np.random.default_rng(size)
    a = random.standard_normal((8, size, size))
    value, jacobian = parts.value_and_jacobian(a)
    wanted = np.linalg.slogdet(a)
    np.testing.assert_array_equal(value[0], wanted.sign)
    np.testing.assert_allclose(value[1], wanted.logabsdet, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(jacobian[1, "a"], np.swapaxes(np.linalg.inv(a), -1, -2), rtol=1e-9, atol=1e-10)
    assert np.all(jacobian[0, "a"] == 0)
    z = a + 1j * random.standard_normal(a.shape)
    for found, expected in zip(parts(z), np.linalg.slogdet(z), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)
    assert parts(np.zeros((size, size))) == (0.0, -np.inf)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_cholesky_factors(size: int):
    """L @ L.T is the matrix; a derivative of L is L times the lower half of L⁻¹ dA L⁻ᵀ."""
    factor = differentiable_broadcast(lambda a: np.linalg.cholesky(a), signature="(n,n)->(n,n)")
    random = np.random.default_rng(size)
    root = random.standard_normal((6, size, size))
    a = root @ np.swapaxes(root, -1, -2) + np.eye(size)
    value, jacobian = factor.value_and_jacobian(a)
    np.testing.assert_allclose(value, np.linalg.cholesky(a), rtol=1e-13, atol=1e-14)
    change = random.standard_normal((size, size))
    symmetric = np.tril(change) + np.tril(change, -1).T
    inverse = np.linalg.inv(np.linalg.cholesky(a))
    inner = inverse @ symmetric @ np.swapaxes(inverse, -1, -2)
    half = np.tril(inner) - 0.5 * inner * np.eye(size)
    np.testing.assert_allclose(
        np.einsum("kijlm,lm->kij", jacobian["a"], change), np.linalg.cholesky(a) @ half, rtol=1e-11, atol=1e-12
    )
    z = root + 1j * random.standard_normal(root.shape)
    hermitian = z @ np.swapaxes(z, -1, -2).conj() + np.eye(size)
    np.testing.assert_allclose(factor(hermitian), np.linalg.cholesky(hermitian), rtol=1e-13, atol=1e-14)
    assert np.any(np.isnan(factor(-np.eye(size))))


def test_derivatives_of_solutions_do_not_contain_the_elimination():
    """They are those of the inverse, which is found beside the solution."""
    text = str(solved.inspect_ir(np.eye(4), np.ones(4)))
    assert text.count(": float = ") < 700, "1,415 with the derivatives of each step"


def test_a_singular_matrix_has_no_finite_inverse():
    assert not np.any(np.isfinite(inverse(np.ones((2, 2)))))


# --- in plain Python -------------------------------------------------------------------------------------------------


def test_the_functions_run_in_plain_python():
    random = np.random.default_rng(2)
    a, b = random.standard_normal((2, 3, 3))
    symmetric = a + a.T
    np.testing.assert_allclose(linalg.inv(a), np.linalg.inv(a), rtol=1e-12)
    np.testing.assert_allclose(linalg.solve(a, b), np.linalg.solve(a, b), rtol=1e-11)
    four = random.standard_normal((4, 4))
    np.testing.assert_allclose(linalg.solve(four, four[0]), np.linalg.solve(four, four[0]), rtol=1e-11)
    assert linalg.det(four) == pytest.approx(np.linalg.det(four))
    np.testing.assert_allclose(linalg.eigvalsh(symmetric), np.linalg.eigvalsh(symmetric), rtol=1e-12)
    values, vectors = linalg.eigh(symmetric)
    np.testing.assert_allclose(symmetric @ vectors, vectors * values, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(linalg.cross(a[0], a[1]), np.cross(a[0], a[1]))
    np.testing.assert_allclose(linalg.normalize(a[0]), a[0] / np.linalg.norm(a[0]))
    assert linalg.norm(a) == pytest.approx(np.linalg.norm(a))


# --- NumPy's functions on small arrays -------------------------------------------------------------------------------

# ruff: noqa: ARG005
EXPRESSIONS: list[Any] = [
    lambda a, v: a[0] + a[:, 1] * v - a[::-1, -1],
    lambda a, v: a @ v @ a,
    lambda a, v: np.array([a.trace(), np.sum(a), a.max()]),
    lambda a, v: np.sum(a, axis=0) + np.prod(a, axis=1) - a.mean(axis=0),
    lambda a, v: np.einsum("ij,kj,k->i", a, a, v),
    lambda a, v: np.einsum("ii", a) * v,
    lambda a, v: np.stack([v, v * 2])[1] + np.concatenate([v[:1], v[1:]]),
    lambda a, v: np.diag(np.diag(v)) + np.diag(a) + np.triu(a)[0] + np.tril(a, -1)[2],
    lambda a, v: np.where(a > 0, a, 2 * a)[1] + np.minimum(v, 0.5) + abs(v),
    lambda a, v: v.dot(a) + np.inner(a, v) + np.outer(v, v)[0] + np.vdot(v, v),
    lambda a, v: np.full(3, v[0]) + np.zeros(3) + np.ones_like(v) + np.arange(3),
    lambda a, v: np.roll(v, 1) + np.flip(v) + a.reshape(9)[3:6] + a.ravel()[:3] + np.swapaxes(a, 0, 1)[0],
    lambda a, v: a.reshape(1, 9)[0, :3] + a.reshape((9, 1))[3:6, 0] + a.transpose(1, 0)[0] + a.transpose((1, 0))[1],
    lambda a, v: v**2 / (1 + v**2) - -v + (v if np.any(a > 1) else +v),
    lambda a, v: np.array([x for x in v if True]) + np.array(sorted(v)) + len(a) + a.shape[0] + a.ndim + a.size,
    lambda a, v: v[None, :][0] + a[..., 0] + a[[0, 2, 1], 0] + np.hypot(v, 1.0) + np.exp(v) * np.eye(3)[1],
    lambda a, v: np.cross(a[0], v) + np.linalg.norm(a) + np.vstack([v, v])[0] + np.moveaxis(a, 0, 1)[1],
]


@pytest.mark.parametrize("place", range(len(EXPRESSIONS)))
def test_expressions_mean_what_they_do_in_numpy(place: int):
    function = EXPRESSIONS[place]
    random = np.random.default_rng(place)
    a, v = random.standard_normal((5, 3, 3)), random.standard_normal((5, 3))
    found, jacobian = differentiable_broadcast(signature="(3,3),(3)->(3)")(function).value_and_jacobian(a, v)
    np.testing.assert_allclose(found, [function(*each) for each in zip(a, v, strict=True)], rtol=1e-13, atol=1e-13)
    for index in product(range(3), range(3)):
        step = np.zeros((3, 3))
        step[index] = 1e-6
        ends = [np.array([function(x + s * step, y) for x, y in zip(a, v, strict=True)]) for s in (1, -1)]
        np.testing.assert_allclose(jacobian["a"][(..., *index)], (ends[0] - ends[1]) / 2e-6, rtol=1e-7, atol=1e-7)


def test_loops_that_need_their_numbers_are_written_out():
    """A loop whose index is computed, and one whose bounds depend on another's."""

    @differentiable_broadcast(signature="(4)->()")
    def folded(v):
        total, at = 0.0, 0
        for i in range(3):
            for j in range(i + 1, 4):
                k = (i + j) % 4
                total += v[k] * v[at]
            at += 1  # noqa: SIM113
        return total

    v = np.random.default_rng(0).standard_normal(4)
    wanted = sum(v[(i + j) % 4] * v[i] for i in range(3) for j in range(i + 1, 4))
    assert folded(v) == pytest.approx(wanted, rel=1e-14)
    assert math.isfinite(wanted)


SINGULAR = {
    "zeros": np.zeros((4, 4)),
    "a column of zeros": np.diag([1.0, 0.0, 2.0, 3.0]) + np.eye(4, k=1) + np.eye(4, k=3),
    "rank 2": np.diag([1.0, 2.0, 0.0, 0.0]),
    "ones": np.ones((4, 4)),
    "nilpotent": np.triu(np.ones((4, 4)), 1),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_the_determinant_of_a_singular_matrix_is_zero(name: str) -> None:
    """Its elimination divided 0 by 0. First derivatives are cofactors, second ones of smaller minors; or NaN."""
    a = SINGULAR[name]
    size = len(a)
    function = differentiable_broadcast(lambda a: np.linalg.det(a), signature="(n,n)->()")
    value, jacobian = function.value_and_jacobian(a)
    assert value == 0.0

    def cofactor(i: int, j: int, of: Any) -> float:
        return (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(of, i, 0), j, 1))

    wanted = np.array([[cofactor(i, j, a) for j in range(size)] for i in range(size)])
    known = np.isfinite(jacobian["a"])
    assert known.any()
    np.testing.assert_allclose(jacobian["a"][known], wanted[known], atol=1e-13)
    hessian = function.hessian(a)["a", "a"]
    for i, j in np.ndindex(size, size):
        rest = np.delete(np.delete(a, i, 0), j, 1)
        second = np.zeros((size, size))
        for k, m in np.ndindex(size - 1, size - 1):
            second[k + (k >= i), m + (m >= j)] = (-1) ** (i + j) * cofactor(k, m, rest)
        finite = np.isfinite(hessian[i, j])
        np.testing.assert_allclose(hessian[i, j][finite], second[finite], atol=1e-13)
    assert np.isnan(function(np.where(a == a[0, 1], np.nan, a)))
    batch = np.stack([a, np.eye(size), a])
    np.testing.assert_array_equal(function(batch), [0.0, 1.0, 0.0])


@pytest.mark.parametrize("shape", [(2, 3), (3, 2), (3, 4), (4, 3), (3,)])
@pytest.mark.parametrize("name", ["det", "inv", "eigvalsh", "eigh", "solve"])
def test_a_matrix_that_is_not_square_is_refused(name: str, shape: tuple[int, ...]) -> None:
    """The determinant of the first two columns of a 2 by 3 matrix was given for its own."""
    function = {"solve": lambda a: np.linalg.solve(a, np.ones(len(a)))}.get(name, getattr(linalg, name))
    core = ",".join(map(str, shape))
    a = np.arange(math.prod(shape)).reshape(shape) + 1.0
    with pytest.raises(CompileError, match="a square matrix is needed, and this has shape"):
        differentiable_broadcast(lambda a: np.sum(function(a)[0]), signature=f"({core})->()")(a)
    if name != "solve":
        with pytest.raises(ShapeError, match="a square matrix is needed"):
            function(a)


@pytest.mark.parametrize("length", [3, 5])
def test_equations_without_as_many_right_sides_are_refused(length: int) -> None:
    """Of five right sides of four equations the last was left out."""
    function = differentiable_broadcast(lambda a, b: np.linalg.solve(a, b), signature=f"(4,4),({length})->(n)")
    with pytest.raises(CompileError, match=f"of 4 and {length} items"):
        function(np.eye(4), np.ones(length))
