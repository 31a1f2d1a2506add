"""Functions of vectors and matrices on each backend, against NumPy, JAX and finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from core_corpus import CORE_CORPUS, CoreCase

from dualbcast import differentiable_broadcast

EVERY = pytest.mark.parametrize("case", CORE_CORPUS, ids=lambda case: case.name)
# Their products, second derivatives and code for a GPU take seconds to compile.
LARGE = ("exponential", "solved", "neo_hookean", "eigenvalues", "rotated", "radial_return")


def parted(cases: Sequence[CoreCase], every: int = 1) -> pytest.MarkDecorator:
    """Of some cases the large ones in slow tests, and of the others all but one of `every`."""
    small = [case.name for case in cases if case.name not in LARGE][::every]
    marks = {case.name: [] if case.name in small else [pytest.mark.slow] for case in cases}
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.name, marks=marks[case.name]) for case in cases])


@cache
def compiled(case: CoreCase, backend: str = "cpu") -> Any:
    return differentiable_broadcast(signature=case.signature, backend=backend)(case.function)


def names_of(case: CoreCase) -> tuple[str, ...]:
    return case.function.__code__.co_varnames[: case.function.__code__.co_argcount]


def outputs_of(value: Any) -> list[Any]:
    """The outputs of a function that has several, or one."""
    return list(value) if isinstance(value, tuple) else [value]


def plain(case: CoreCase, arguments: list[Any]) -> list[Any]:
    """The outputs in NumPy, element by element before the cores."""
    batch = arguments[0].shape[: arguments[0].ndim - len(case.shapes[0])]
    count = case.signature.split("->")[1].count("(")
    rows = []
    for index in np.ndindex(*batch):
        value = case.function(*[a[index] if a[index].ndim else float(a[index]) for a in arguments])
        rows.append([np.asarray(each) for each in (value if count > 1 else [value])])
    return [np.array(column).reshape((*batch, *column[0].shape)) for column in zip(*rows, strict=True)]


def differences(case: CoreCase, arguments: list[Any]) -> list[list[Any]]:
    """For each output its derivative in each argument, by central differences of sixth order."""
    table: list[list[Any]] = []
    for at, argument in enumerate(arguments):
        core, step = case.shapes[at], 1e-3
        columns: list[list[Any]] = []
        for index in np.ndindex(*core):
            terms = []
            for offset, weight in ((1, 45.0), (2, -9.0), (3, 1.0)):
                for sign in (1, -1):
                    moved = argument.copy()
                    moved[(..., *index)] += sign * offset * step
                    values = plain(case, [*arguments[:at], moved, *arguments[at + 1 :]])
                    terms.append([sign * weight / (60 * step) * value for value in values])
            columns.append([sum(column) for column in zip(*terms, strict=True)])
        blocks = [np.stack(column, axis=-1) for column in zip(*columns, strict=True)]
        table.append([block.reshape((*block.shape[:-1], *core)) for block in blocks])
    return [list(row) for row in zip(*table, strict=True)]


@cache
def in_jax(case: CoreCase) -> Any:
    """Its outputs and derivatives by JAX's vmap and jacfwd."""
    import jax
    import jax_derivatives

    function = jax_derivatives.in_jax(case.function)

    def packed(*given: Any) -> tuple[Any, ...]:
        value = function(*given)
        many = case.signature.split("->")[1].count("(") > 1
        return tuple(jax.numpy.asarray(each) for each in (value if many else (value,)))

    jacobian = jax.jacfwd(packed, argnums=tuple(range(len(case.shapes))))
    return jax_derivatives.compiled(jax.vmap(lambda *given: (packed(*given), jacobian(*given))))


def under_jax(case: CoreCase, arguments: list[Any]) -> tuple[list[Any], list[list[Any]]]:
    """The outputs and the derivatives, by JAX."""
    pytest.importorskip("jax")
    values, slopes = in_jax(case)(*arguments)
    return [np.asarray(value) for value in values], [[np.asarray(block) for block in row] for row in slopes]


def assert_close(found: Any, wanted: Any, roundings: float, dtype: str, what: str) -> None:
    assert found.shape == wanted.shape, what
    assert np.all(np.isfinite(wanted)), what
    scale = 1 + np.max(np.abs(wanted), initial=0.0)
    error = np.max(np.abs(np.asarray(found, float) - wanted), initial=0.0) / scale / np.finfo(dtype).eps
    assert error <= roundings, f"{what} is off by {error} roundings"


def test_corpus_is_named_apart():
    assert len(CORE_CORPUS) >= 20
    assert len({case.name for case in CORE_CORPUS}) == len(CORE_CORPUS)


@EVERY
def test_oracles_agree(case: CoreCase):
    arguments = case.arguments((3,))  # for which JAX compiles below too
    wanted, slopes = plain(case, arguments), differences(case, arguments)
    if not case.traceable:
        return
    values, exact = under_jax(case, arguments)
    for found, other in zip(values, wanted, strict=True):
        assert_close(found, other, 1000.0, "float64", "value")
    for row, other_row in zip(exact, slopes, strict=True):
        for found, other in zip(row, other_row, strict=True):
            np.testing.assert_allclose(found, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("backend", ["python", "cpu"])
@EVERY
def test_value_and_jacobian(case: CoreCase, backend: str, dtype: str):
    arguments = case.arguments((3,), dtype)
    value, jacobian = compiled(case, backend).value_and_jacobian(*arguments)
    exactly = [argument.astype("float64") for argument in arguments]
    wanted = plain(case, exactly)
    assert jacobian.wrt == names_of(case)
    for output, (found, other) in enumerate(zip(outputs_of(value), wanted, strict=True)):
        assert_close(found, other, case.allowance, dtype, f"output {output}")
    slopes = under_jax(case, exactly)[1] if case.traceable else differences(case, exactly)
    roundings = case.allowance if case.traceable else max(case.allowance, 1e-8 / np.finfo(dtype).eps)
    for output, row in enumerate(slopes):
        for name, block in zip(jacobian.wrt, row, strict=True):
            assert_close(jacobian[output, name], block, 4 * roundings, dtype, f"∂output {output}/∂{name}")


@parted(CORE_CORPUS, every=2)
def test_products_agree(case: CoreCase):
    """The value alone, the Jacobian alone, products with tangents and cotangents, and written into arrays."""
    function, arguments = compiled(case), case.arguments((3,))
    value, jacobian = function.value_and_jacobian(*arguments)
    for found, other in zip(outputs_of(function(*arguments)), outputs_of(value), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-13, atol=1e-13)
    alone = function.jacobian(*arguments)
    tangents = case.arguments((3,), seed=1)
    _, tangent = function.jvp(arguments, tangents)
    cotangents = [np.cos(np.arange(each.size)).reshape(each.shape) for each in outputs_of(value)]
    _, pullback = function.vjp(*arguments)
    pulled = pullback(*cotangents)
    _, also_pulled = function.value_and_vjp(arguments, tuple(cotangents) if len(cotangents) > 1 else cotangents[0])
    close = {"rtol": 1e-10, "atol": 1e-10}
    for output, each in enumerate(outputs_of(tangent)):
        total: Any = 0.0
        for name, given, core in zip(jacobian.wrt, tangents, case.shapes, strict=True):
            np.testing.assert_allclose(alone[output, name], jacobian[output, name], **close)
            block = jacobian[output, name].reshape((*each.shape, -1))
            total = total + np.einsum("i...k,ik->i...", block, given.reshape(3, -1) if core else given[:, None])
        np.testing.assert_allclose(each, total, **close)
    for name, found, other, core in zip(jacobian.wrt, pulled, also_pulled, case.shapes, strict=True):
        total = 0.0
        for output, given in enumerate(cotangents):
            block = jacobian[output, name].reshape((3, given[0].size, -1))
            total = total + np.einsum("iok,io->ik", block, given.reshape(3, -1))
        np.testing.assert_allclose(found, total.reshape((3, *core)), **close)
        np.testing.assert_allclose(other, found, **close)
    written, into = function.value_and_jacobian(*arguments, out=(value, jacobian))
    for found, other in zip(outputs_of(written), outputs_of(value), strict=True):
        assert found is other
    for output in range(jacobian.outputs):
        for name in jacobian.wrt:
            np.testing.assert_array_equal(into[output, name], jacobian[output, name])


@parted(CORE_CORPUS)
def test_hessian_by_differences_of_the_jacobian(case: CoreCase):
    function, arguments = compiled(case), case.arguments((2,))
    hessian, step = function.hessian(*arguments), 1e-5
    name, core = names_of(case)[0], case.shapes[0]
    for index in np.ndindex(*core):
        ends = []
        for sign in (1, -1):
            moved = arguments[0].copy()
            moved[(..., *index)] += sign * step
            ends.append(function.jacobian(moved, *arguments[1:]))
        for output in range(hessian.outputs):
            for other in names_of(case):
                wanted = (ends[0][output, other] - ends[1][output, other]) / (2 * step)
                found = hessian[output, other, name][(..., *index)]
                np.testing.assert_allclose(
                    found, wanted, rtol=2e-6, atol=2e-6 * (1 + np.max(np.abs(wanted), initial=0))
                )


@pytest.mark.cuda_compilers
@parted(CORE_CORPUS[::4])
def test_compiles_for_cuda(case: CoreCase):
    kernel = compiled(case, "cuda").explain(*case.arguments((3,), "float32"), cc=(9, 0)).cuda
    assert kernel.image
