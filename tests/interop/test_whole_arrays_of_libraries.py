"""Whole arrays among PyTorch's tensors and JAX's arrays: values, derivatives of any order, batches, what is refused."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest

from dualbcast import ArgumentError, DTypeError, NonFiniteError, ShapeError, differentiable_broadcast

X = np.array([[0.5, 1.25], [2.75, 0.125]])
TABLE = np.array([0.9, -0.4, 1.3, 0.25, -0.75])
SCALE = np.array([1.5, -0.5])


class Looked(NamedTuple):
    value: Any
    place: Any
    slope: Any


@differentiable_broadcast(whole=("table", "grid"))
def looked_up(x: float, table: Any, scale: float = 1.0, grid: Any = None) -> Looked:
    i = int(x)
    value = table[i] * math.exp(-scale * table[i + 1] * x)
    if grid is not None:
        value = value + grid[i, 1] * x
    return Looked(value, i, math.sin(scale * x))


@differentiable_broadcast(whole="c")
def polynomial(x: float, c: Any) -> float:
    total = 0.0
    for i in range(len(c)):
        total = total * x + c[i]
    return total


GRID = np.arange(10.0).reshape(5, 2) / 7


def by_numpy(xp: Any, x: Any, table: Any, scale: Any, grid: Any) -> Any:
    """The value and the slope by the functions of a library, which has derivatives of its own."""
    i = x.astype("int32") if hasattr(x, "astype") else x.long()
    return table[i] * xp.exp(-scale * table[i + 1] * x) + grid[i, 1] * x, xp.sin(scale * x)


def both(found: Looked) -> tuple[Any, Any]:
    return found.value, found.slope


# --- PyTorch ----------------------------------------------------------------------------------------------------------


def tensors(*arrays: Any) -> list[Any]:
    torch = pytest.importorskip("torch")
    return [torch.tensor(each, requires_grad=True) for each in arrays]


def test_values_are_tensors_in_the_structure() -> None:
    torch = pytest.importorskip("torch")
    found = looked_up(*tensors(X, TABLE, SCALE, GRID))
    expected = looked_up(X, TABLE, SCALE, GRID)
    assert isinstance(found, Looked)
    for got, wanted in zip(found, expected, strict=True):
        assert isinstance(got, torch.Tensor)
        np.testing.assert_array_equal(got.detach().numpy(), wanted)
    assert not found.place.requires_grad
    assert found.slope.requires_grad


def test_autograd_of_any_order() -> None:
    torch = pytest.importorskip("torch")
    own = tensors(X, TABLE, SCALE, GRID)
    for function in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert function(lambda *args: both(looked_up(*args)), own)
    assert torch.autograd.gradcheck(lambda *args: both(looked_up(*args)), own, check_forward_ad=True)
    y = both(looked_up(*own))
    z = by_numpy(torch, *own)
    ours, theirs = (torch.autograd.grad(v[0].sum() + (v[1] ** 2).sum(), own) for v in (y, z))
    for got, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(got, wanted, rtol=1e-13, atol=1e-14)


def test_transforms_of_torch() -> None:
    torch = pytest.importorskip("torch")
    x, table, scale, grid = tensors(X, TABLE, SCALE, GRID)

    def ours(table: Any) -> Any:
        return both(looked_up(x, table, scale, grid))[0].sum()

    def theirs(table: Any) -> Any:
        return by_numpy(torch, x, table, scale, grid)[0].sum()

    torch.testing.assert_close(torch.func.hessian(ours)(table), torch.func.hessian(theirs)(table))
    tables = torch.stack([table, table * 2, table + 1]).detach()
    torch.testing.assert_close(
        torch.func.vmap(torch.func.grad(ours))(tables), torch.func.vmap(torch.func.grad(theirs))(tables)
    )
    compiled = torch.compile(lambda table: ours(table) * 2, backend="eager")
    torch.testing.assert_close(compiled(table), ours(table) * 2)


def test_numpys_whole_arrays_beside_tensors_are_constants() -> None:
    torch = pytest.importorskip("torch")
    (x,) = tensors(X)
    (slope,) = torch.autograd.grad(both(looked_up(x, TABLE, scale=2.0, grid=GRID))[0].sum(), x)
    _, pullback = looked_up.vjp(X, TABLE, scale=2.0, grid=GRID, wrt="x")
    np.testing.assert_array_equal(slope.numpy(), pullback(np.ones_like(X), None, np.zeros_like(X))[0])


@pytest.mark.parametrize("pre_dispatch", [False, True])
def test_tracers_of_pytorch_refuse_them(pre_dispatch: bool) -> None:
    torch = pytest.importorskip("torch")
    from torch.fx.experimental.proxy_tensor import make_fx

    x, c = torch.tensor(X), torch.tensor(TABLE)
    with pytest.raises(ArgumentError, match="cannot be traced"):
        make_fx(polynomial, pre_dispatch=pre_dispatch)(x, c)
    with pytest.raises(ArgumentError, match="cannot be traced"):
        torch.func.linearize(polynomial, x, c)


def test_reads_in_loops_have_a_cotangent() -> None:
    torch = pytest.importorskip("torch")
    x, c = tensors(X, TABLE)
    slopes = torch.autograd.grad(polynomial(x, c).sum(), (x, c))
    powers = [float((X**at).sum()) for at in range(5)][::-1]
    np.testing.assert_allclose(slopes[1].numpy(), powers, rtol=1e-14)
    assert torch.autograd.gradcheck(polynomial, (x, c))


def test_integers_and_float32() -> None:
    torch = pytest.importorskip("torch")
    x = torch.tensor(X, dtype=torch.float32)
    found = looked_up(x, torch.tensor(TABLE, dtype=torch.float32))
    assert (found.value.dtype, found.place.dtype) == (torch.float32, torch.int64)
    whole = torch.arange(5)
    assert looked_up(x, whole).value.shape == (2, 2)


# --- JAX --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jnp() -> Any:
    jax = pytest.importorskip("jax")
    # Not the context manager, which is for one thread: XLA makes the calls in another.
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield jax.numpy
    jax.config.update("jax_enable_x64", before)


def test_values_in_jax(jnp: Any) -> None:
    import jax

    arguments = [jnp.asarray(each) for each in (X, TABLE, SCALE, GRID)]
    expected = looked_up(X, TABLE, SCALE, GRID)
    for call in (looked_up, jax.jit(looked_up)):
        found = call(*arguments)
        assert isinstance(found, Looked)
        for got, wanted in zip(found, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)
    shapes = jax.eval_shape(looked_up, *arguments)
    assert [each.shape for each in shapes] == [(2, 2)] * 3


@pytest.mark.parametrize("transform", ["grad", pytest.param("hessian", marks=pytest.mark.slow)])
def test_derivatives_in_jax(jnp: Any, transform: str) -> None:
    import jax
    from jax.test_util import check_grads

    arguments = tuple([jnp.asarray(each) for each in (X, TABLE, SCALE, GRID)])

    def ours(*args: Any) -> Any:
        y, z = both(looked_up(*args))
        return jnp.sum(y) + jnp.sum(z**2)

    def theirs(*args: Any) -> Any:
        y, z = by_numpy(jnp, *args)
        return jnp.sum(y) + jnp.sum(z**2)

    check_grads(ours, arguments, order=1 if transform == "grad" else 2, atol=1e-6, rtol=1e-6)
    which = (0, 1, 2, 3)
    of = getattr(jax, transform)
    for function in (of(ours, which), jax.jit(of(ours, which))):
        found, wanted = function(*arguments), of(theirs, which)(*arguments)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13), found, wanted)


def test_batches_in_jax(jnp: Any) -> None:
    import jax

    x, table = jnp.asarray(X), jnp.asarray(TABLE)
    tables = jnp.stack([table, table * 2])
    found = jax.jit(jax.vmap(lambda x, table: looked_up(x, table).value))(x, tables)
    np.testing.assert_array_equal(found, [looked_up(X[at], np.asarray(tables[at])).value for at in range(2)])
    slopes = jax.vmap(jax.grad(lambda x, table: looked_up(x, table).value, (0, 1)), (0, None))(x[0], table)
    assert [each.shape for each in slopes] == [(2,), (2, 5)]


def test_without_x64_results_are_float32() -> None:
    jax = pytest.importorskip("jax")
    x, table = jax.numpy.asarray(X), jax.numpy.asarray(TABLE)
    found = looked_up(x, table, 2.0)
    assert found.value.dtype == np.float32
    np.testing.assert_allclose(found.value, looked_up(X, TABLE, 2.0).value, rtol=1e-5)
    slope = jax.jit(jax.grad(lambda t: looked_up(x, t, 2.0).value.sum()))(jax.numpy.full(5, 0.5))
    assert slope.shape == (5,)
    # Numbers that JAX calls weakly typed, and NumPy's arrays for the whole one.
    np.testing.assert_allclose(looked_up(jax.numpy.asarray(0.5), TABLE).value, looked_up(0.5, TABLE).value, rtol=1e-6)


# --- what is refused --------------------------------------------------------------------------------------------------


def test_refusals() -> None:
    x, table = tensors(X, TABLE)
    with pytest.raises(
        ArgumentError, match=r"this method takes arrays of NumPy's .* differentiate its result with PyT"
    ):
        looked_up.value_and_jacobian(x, table)
    with pytest.raises(ArgumentError, match="out= takes arrays of NumPy's and CuPy's"):
        looked_up(x, table, out=np.empty(X.shape))
    dask = pytest.importorskip("dask.array")
    with pytest.raises(ArgumentError, match="table is of type Array, beside tensors"):
        looked_up(x, dask.from_array(TABLE))


def test_options_of_a_call_and_mismatched_shapes() -> None:
    torch = pytest.importorskip("torch")
    x, table = torch.tensor([0.5, 1.5]), torch.tensor(TABLE)
    below = differentiable_broadcast(whole="table")(lambda x, table: table[int(x)] * math.log(x - 1.0))
    with pytest.raises(NonFiniteError, match=r"at index \(0,\)"):
        below(x, table, check="nan")
    with pytest.raises(ShapeError, match="scale"):
        looked_up(x, table, torch.ones(3))
    with pytest.raises(DTypeError, match=r"x has dtype torch.complex64.*Pass x.real"):
        looked_up(x.to(torch.complex64), table)
    pair = differentiable_broadcast(signature="(2)->()", whole="table")(lambda v, table: table[int(v[0])] * v[1])
    with pytest.raises(ArgumentError, match="without signature="):
        pair(torch.ones(3, 2), table)


def test_places_out_of_range_name_the_element() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(Exception, match=r"table\[i \+ 1\]|out of range") as caught:
        looked_up(torch.tensor([0.5, 7.5]), torch.tensor(TABLE))
    assert "element" in str(caught.value)
