"""Derivatives of calls with JAX's arrays: by JAX's own checker over the corpus, and against functions of JAX's."""

# ruff: noqa: E402 (imports follow `importorskip`)

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp
from jax import lax
from jax.test_util import check_grads
from jax_calls import CASES, Case, cell, compiled, float_outputs, kepler, smooth_arrays
from suites import sampled

from dualbcast import differentiable_broadcast

RANDOM = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def in_float64() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


# --- the corpus -------------------------------------------------------------------------------------------------------

BY_NAME = {case.name: case for case in CASES}
# With branches and loops.
STEERED = [BY_NAME[name] for name in ("huber", "break_and_continue", "nested_loops", "early_returns", "state_machine")]


@pytest.mark.parametrize("case", sampled(CASES, 15), ids=lambda case: case.name)
def test_jax_finds_no_wrong_derivative(case: Case) -> None:
    arrays = smooth_arrays(case)
    floats = [arrays[at] for at in case.floats]
    check_grads(float_outputs(case, arrays), floats, order=2, modes=("fwd", "rev"), atol=2e-5, rtol=2e-5, eps=1e-5)


@pytest.mark.parametrize(
    "case", [*STEERED, *sampled([case for case in CASES if case not in STEERED], 30)], ids=lambda case: case.name
)
def test_compiled_gradients_of_points_are_those_of_eager_calls_and_of_numpy(case: Case) -> None:
    arrays = smooth_arrays(case)
    function = compiled(case)
    inputs = [np.asarray(array) for array in arrays]
    floats = [at for at, kind in enumerate(_kinds(function(*inputs))) if kind == "f"]
    jacobian = function.value_and_jacobian(*inputs)[1]

    def point(*values: Any) -> Any:
        leaves = jax.tree.leaves(function(*values))
        return sum(leaves[at] for at in floats)

    gradient = jax.grad(point, argnums=case.floats)
    eager = [gradient(*row) for row in zip(*arrays, strict=True)]
    fused = jax.jit(jax.vmap(gradient))(*arrays)
    for number, name in enumerate(jacobian.wrt):
        wanted = np.sum([jacobian[at, name] for at in floats], axis=0)
        np.testing.assert_allclose(fused[number], wanted, rtol=1e-12, atol=1e-14)
        np.testing.assert_allclose(fused[number], [row[number] for row in eager], rtol=1e-12, atol=1e-14)


def _kinds(result: Any) -> list[str]:
    return [np.asarray(leaf).dtype.kind for leaf in jax.tree.leaves(result)]


# --- every transformation, against the same function in JAX -----------------------------------------------------------


@differentiable_broadcast
def ours(x: float, y: float) -> float:
    if x > 0.1:
        return x * x * y + y**3
    return x * y * y - 2 * x


def theirs(x: Any, y: Any) -> Any:
    return jnp.where(x > 0.1, x * x * y + y**3, x * y * y - 2 * x)


X, Y, V = RANDOM.standard_normal((4, 1)), RANDOM.standard_normal(3), RANDOM.standard_normal((4, 3))


def loss(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: jnp.sum(jnp.sin(f(x, y)) * V)


def scanned(f: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any) -> Any:
        start = jnp.broadcast_to(x, (4, 3))
        return lax.scan(lambda carry, each: (f(carry, each), carry), start, jnp.stack([y, 2 * y, y - 1]))

    return run


def looped(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, y: lax.while_loop(
        lambda s: s[0] < 3, lambda s: (s[0] + 1, 0.5 * f(s[1], y)), (0, jnp.broadcast_to(x, (4, 3)))
    )


# These take seconds, and differentiate as others do.
LONG = ("jacrev of jacrev", "jacfwd of jacrev of jacfwd", "reverse over forward")
TRANSFORMED: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "value": lambda f: f,
    "jit": lambda f: jax.jit(f),
    "grad": lambda f: jax.grad(loss(f), (0, 1)),
    "value_and_grad": lambda f: jax.jit(jax.value_and_grad(loss(f), 1)),
    "jvp": lambda f: lambda x, y: jax.jvp(f, (x, y), (jnp.cos(x), jnp.sin(y))),
    "vjp": lambda f: lambda x, y: jax.vjp(f, x, y)[1](V),
    "jacfwd": lambda f: jax.jacfwd(f, (0, 1)),
    "jacrev": lambda f: jax.jit(jax.jacrev(f, (0, 1))),
    "hessian": lambda f: jax.hessian(loss(f), (0, 1)),
    "jacrev of jacrev": lambda f: jax.jacrev(jax.jacrev(loss(f), (0, 1)), (0, 1)),
    "jacfwd of jacrev of jacfwd": lambda f: jax.jit(jax.jacfwd(jax.jacrev(jax.jacfwd(loss(f), 1), 0), 1)),
    "reverse over forward": lambda f: jax.grad(lambda x, y: jax.jvp(loss(f), (x, y), (x, y))[1], (0, 1)),
    "third order": lambda f: (
        lambda x, y: jax.grad(lambda y: jnp.sum(jax.grad(lambda y: jnp.sum(jax.grad(loss(f), 1)(x, y) ** 2))(y) ** 3))(
            y
        )
    ),
    "vmap of both": lambda f: lambda x, y: jax.vmap(f)(x, jnp.stack([y, y, -y, y])),
    "vmap of one": lambda f: jax.vmap(f, (0, None)),
    "vmap along the last axis": lambda f: lambda x, y: jax.vmap(f, (None, 1), 1)(x, (y * V).T),
    "vmap of vmap": lambda f: lambda x, y: jax.vmap(jax.vmap(f, (None, 0)), (0, None))(x[:, 0], y),
    "vmap of grad": lambda f: jax.jit(jax.vmap(jax.grad(lambda x, y: jnp.sum(f(x, y) ** 2), (0, 1)), (0, None))),
    "grad of vmap": lambda f: jax.grad(lambda x, y: jnp.sum(jnp.sin(jax.vmap(f, (0, None))(x, y))), (0, 1)),
    "scan": scanned,
    "grad of scan": lambda f: jax.jit(jax.grad(lambda x, y: jnp.sum(scanned(f)(x, y)[1]))),
    "while_loop": looped,
    "jvp of while_loop": lambda f: lambda x, y: jax.jvp(lambda y: looped(f)(x, y)[1], (y,), (y,)),
    "cond": lambda f: jax.grad(
        lambda x, y: jnp.sum(lax.cond(jnp.sum(y) > 0, lambda: f(x, y), lambda: 2 * f(x, -y))), (0, 1)
    ),
    "checkpoint": lambda f: jax.jit(jax.grad(jax.checkpoint(loss(f)), (0, 1))),
    "linearize": lambda f: lambda x, y: jax.linearize(f, x, y)[1](x, y),
    "linear_transpose": lambda f: lambda x, y: jax.linear_transpose(jax.linearize(f, x, y)[1], x, y)(V),
    "transpose of vjp": lambda f: lambda x, y: jax.linear_transpose(lambda c: jax.vjp(f, x, y)[1](c), V)((x, y)),
    "twice transposed": lambda f: (
        lambda x, y: jax.jvp(
            lambda c: jax.linear_transpose(lambda b: jax.vjp(f, x, y)[1](b), V)((c * x, c * y)), (2.0,), (1.0,)
        )
    ),
    "one argument twice": lambda f: jax.grad(lambda x, y: jnp.sum(f(x, x) * f(y, 2.0)[0]), (0, 1)),
    "a number": lambda f: lambda x, y: jax.grad(f)(x[0, 0], y[0]),
    "one output of none": lambda f: jax.grad(lambda x, y: jnp.sum(x + 0 * lax.stop_gradient(f(x, y))), (0, 1)),
}


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[pytest.mark.slow] * (each in LONG)) for each in TRANSFORMED]
)
def test_transformations_give_what_they_give_for_jax(name: str) -> None:
    transform = TRANSFORMED[name]
    found, wanted = transform(ours)(jnp.asarray(X), jnp.asarray(Y)), transform(theirs)(jnp.asarray(X), jnp.asarray(Y))
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    for mine, its in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert mine.dtype == its.dtype
        assert mine.shape == its.shape
        np.testing.assert_allclose(mine, its, rtol=1e-11, atol=1e-12)
    assert any(np.any(np.asarray(leaf) != 0) for leaf in jax.tree.leaves(found))


def test_a_loop_in_an_element_is_differentiated_to_second_order() -> None:
    mean, eccentricity = jnp.linspace(0.1, 3, 5)[:, None], jnp.array([0.1, 0.5, 0.7])
    check_grads(kepler, (mean, eccentricity), order=2, modes=("fwd", "rev"), atol=1e-4, rtol=1e-4)


def test_a_branch_that_is_not_taken_gives_no_nan() -> None:
    @differentiable_broadcast
    def root(x: float) -> float:
        return x**0.5 if x > 0 else 0.0

    np.testing.assert_array_equal(jax.jit(jax.vmap(jax.grad(root)))(jnp.array([-1.0, 0.0, 4.0])), [0, 0, 0.25])


def test_gradients_of_integers_are_of_no_size() -> None:
    """As with JAX's own functions: float0 in `vjp`, an error in `grad`."""
    n = jnp.arange(3)
    slopes = jax.vjp(lambda x, n: ours(x, n), jnp.ones(3), n)[1](jnp.ones(3))
    assert slopes[1].dtype == jax.dtypes.float0
    np.testing.assert_allclose(slopes[0], jax.vjp(theirs, jnp.ones(3), n)[1](jnp.ones(3))[0])
    with pytest.raises(TypeError, match="real- or complex-valued inputs"):
        jax.grad(lambda n: jnp.sum(ours(1.0, n)))(n)


def test_integer_outputs_have_no_tangent() -> None:
    @differentiable_broadcast
    def both(x: float) -> tuple[float, int, bool, float]:
        return x * x, int(x), x > 1, 2.0

    (value, whole, flag, two), tangents = jax.jvp(both, (jnp.array([0.5, 2.5]),), (jnp.ones(2),))
    assert (whole.dtype, flag.dtype) == (np.int64, np.bool_)
    assert [each.dtype for each in tangents] == [np.float64, jax.dtypes.float0, jax.dtypes.float0, np.float64]
    np.testing.assert_array_equal(tangents[0], [1, 5])
    np.testing.assert_array_equal(tangents[3], [0, 0])
    np.testing.assert_array_equal(value, [0.25, 6.25])
    np.testing.assert_array_equal(two, [2, 2])
    np.testing.assert_array_equal(jax.jit(jax.grad(lambda x: jnp.sum(both(x)[0])))(jnp.array([0.5, 2.5])), [1, 5])


def test_methods_give_jax_arrays_that_jax_differentiates() -> None:
    x, y = jnp.asarray(X), jnp.asarray(Y)
    value, jacobian = ours.value_and_jacobian(x, y)
    np.testing.assert_allclose(value, theirs(x, y))
    ones = jnp.ones((4, 3))
    wanted = jax.jvp(lambda x: theirs(x, y), (x,), (jnp.ones((4, 1)),))[1]
    np.testing.assert_allclose(jacobian["x"], wanted)
    np.testing.assert_allclose(jacobian.pullback(ones)[1], jax.vjp(theirs, x, y)[1](ones)[1])
    assert jacobian.stacked().shape == (4, 3, 2)
    assert isinstance(jacobian.stacked(), jax.Array)
    hessian = jax.jit(lambda x, y: ours.hessian(x, y)["x", "y"])(x, y)
    np.testing.assert_allclose(hessian, jnp.where(x > 0.1, 2 * x + 0 * y, 2 * y))
    # The Jacobian's block is a function that JAX differentiates: its slope in y is the block of the Hessian.
    along = jax.jvp(lambda y: ours.jacobian(x, y)["x"], (y,), (jnp.ones(3),))[1]
    np.testing.assert_allclose(along, hessian)
    pulled = jax.jit(lambda c: ours.vjp(x, y)[1](c))(V)
    for mine, its in zip(pulled, jax.vjp(theirs, x, y)[1](V), strict=True):
        np.testing.assert_allclose(mine, its)
    value, slopes = ours.value_and_vjp((x, y), V)
    np.testing.assert_allclose(slopes[0], pulled[0])
    np.testing.assert_allclose(ours.partial("y")(x, y), jax.jvp(lambda y: theirs(x, y), (y,), (jnp.ones(3),))[1])
    np.testing.assert_allclose(ours.jvp((x, y), (x, None))[1], jax.jvp(lambda x: theirs(x, y), (x,), (x,))[1])


def test_a_model_trains() -> None:
    """A step of a recurrent cell under jit, vmap and scan lowers the loss, by the same gradients as JAX's."""

    def where(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
        fresh = jax.nn.sigmoid(i) * jnp.tanh(g)
        return jnp.where(z == 1, fresh, jnp.where(zb == 0, c, jax.nn.sigmoid(f) * c + fresh))

    inputs = jnp.asarray(RANDOM.standard_normal((7, 5, 4)))
    weights = jnp.asarray(RANDOM.standard_normal((3, 4, 4)))

    def run(step: Callable[..., Any], weights: Any) -> Any:
        def turn(c: Any, x: Any) -> Any:
            f, i, g = (jnp.tanh(c @ w) + x for w in weights)
            z, zb = jnp.where(x[:, :1] > 0.5, 1.0, 0.0), jnp.where(x[:, 1:2] > 0, 1.0, 0.0)
            c = step(c, f, i, g, z, zb)
            return c, c

        return jnp.mean(lax.scan(turn, jnp.zeros((5, 4)), inputs)[1] ** 2)

    value, slope = jax.jit(jax.value_and_grad(lambda w: run(cell, w)))(weights)
    its_value, its_slope = jax.jit(jax.value_and_grad(lambda w: run(where, w)))(weights)
    np.testing.assert_allclose(value, its_value, rtol=1e-12)
    np.testing.assert_allclose(slope, its_slope, rtol=1e-9, atol=1e-12)
    assert run(cell, weights - 0.1 * slope) < value


# --- kept Jacobians ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sampled(TRANSFORMED, 2))
def test_a_kept_jacobian_gives_the_same(name: str) -> None:
    keeping = differentiable_broadcast(jacobian="cache")(ours._function)
    transform = TRANSFORMED[name]
    found, wanted = (
        transform(keeping)(jnp.asarray(X), jnp.asarray(Y)),
        transform(theirs)(jnp.asarray(X), jnp.asarray(Y)),
    )
    for mine, its in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert mine.dtype == its.dtype
        np.testing.assert_allclose(mine, its, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("case", sampled(CASES[::2], 40), ids=lambda case: case.name)
def test_jax_finds_no_wrong_derivative_by_a_kept_jacobian(case: Case) -> None:
    arrays = smooth_arrays(case)
    floats = [arrays[at] for at in case.floats]
    call = float_outputs(case, arrays, differentiable_broadcast(jacobian="cache"))
    check_grads(call, floats, order=2, modes=("fwd", "rev"), atol=2e-5, rtol=2e-5, eps=1e-5)


@pytest.mark.parametrize("mode", ["cache", "recompute"])
def test_a_jacobian_of_numbers_has_the_shape_of_all_arguments(mode: Any) -> None:
    doubled = differentiable_broadcast(lambda x, n: 2 * x + n, jacobian=mode)
    x, n = jnp.ones((2, 1)), jnp.arange(3)
    value, tangent = jax.jvp(lambda x: doubled(x, n), (x,), (x,))
    np.testing.assert_array_equal(tangent, np.full((2, 3), 2.0))
    assert value.shape == (2, 3)
    np.testing.assert_array_equal(jax.grad(lambda x: jnp.sum(doubled(x, n)))(x), [[6.0], [6.0]])


def test_the_jacobian_of_a_long_loop_is_kept_and_that_of_a_short_function_is_not() -> None:
    def kernels(f: Callable[..., Any], *arguments: Any) -> list[str]:
        jaxpr = jax.make_jaxpr(jax.grad(lambda *each: jnp.sum(f(*each))))(*arguments)
        return [str(eqn.params["application"]) for eqn in jaxpr.eqns if eqn.primitive.name == "dualbcast"]

    x = jnp.asarray(X)
    assert kernels(ours, x, x) == ["<ours>", "<ours: pullback in x>"]
    first, second = kernels(kepler, x, x)
    assert first == "<kepler: value and Jacobian>"
    assert "contraction" in second


def test_a_transpose_in_one_of_two_tangents() -> None:
    """The other tangent is an array of zeros, which is known when the function is transposed."""
    f = differentiable_broadcast(lambda x, y: x * x * y)
    x, y = jnp.array([2.0, 3.0]), jnp.array([5.0, 7.0])

    def along_y(tangent: Any) -> Any:
        return jax.jvp(f, (x, y), (jnp.zeros_like(x), tangent))[1]

    (found,) = jax.linear_transpose(along_y, y)(jnp.ones(2))
    np.testing.assert_array_equal(found, x * x)
