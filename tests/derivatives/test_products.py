"""Every product beyond the Jacobian over the whole corpus, against dual numbers and second differences at 60 digits.

The points, their rounding to the dtype, and what is allowed are those of `test_corpus`.
"""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, Case
from corpus_calls import arrays, compiled, expected
from ir_invariants import verify_single_assignment
from oracles import is_smooth, numbers_of, second_differences
from suites import sampled

from dualbcast.frontend.lower import lower
from dualbcast.ir.simplification import simplify
from dualbcast.program.derived_functions import hessian_of, partial_of, pullback_of, pushforward_of

EVERY = pytest.mark.parametrize("case", CORPUS, ids=lambda case: case.name)
SOME = pytest.mark.parametrize("case", sampled(CORPUS, 6), ids=lambda case: case.name)
ON = [
    pytest.param(case, backend, dtype, id=f"{case.name}-{backend}-{dtype}", marks=[pytest.mark.slow] * slow)
    for at, case in enumerate(CORPUS)
    for backend, dtype, slow in (
        ("python", "float64", False),
        ("python", "float32", True),
        ("cpu", "float64", at % 12 > 0),
    )
]
ON_BOTH = pytest.mark.parametrize(("case", "backend", "dtype"), ON)


def directions(case: Case) -> np.ndarray[Any, Any]:
    """A tangent of each float argument at each point, exact in float32."""
    draw = np.random.default_rng(len(case.name))
    return draw.integers(-8, 9, (len(case.floats), len(case.points))) / 4


def assert_close(found: Any, wanted: Any, size: Any, allowance: float, dtype: str, what: str) -> None:
    """That an error is so many roundings of one more than the size of what was added up."""
    found, wanted, size = (np.asarray(each, float) for each in (found, wanted, size))
    error = np.abs(found - wanted) / (1 + size) / np.finfo(dtype).eps
    assert np.all(error <= allowance), f"{what}: {found} is not {wanted}; off by {error} roundings"


def slopes(case: Case, dtype: str) -> np.ndarray[Any, Any]:
    """The oracle's partials: by output, argument and point."""
    rows = [
        [[row[1][output][at] for at in case.floats] for output in range(len(row[0]))] for row in expected(case, dtype)
    ]
    return np.moveaxis(np.array(rows, float).reshape(len(rows), len(rows[0]), len(case.floats)), 0, -1)


def tangents_of(case: Case, dtype: str) -> dict[str, Any]:
    names = compiled(case, "python").jacobian(*arrays(case, dtype)).wrt
    return {name: row.astype(dtype) for name, row in zip(names, directions(case), strict=True)}


@ON_BOTH
def test_jvp_is_the_jacobian_times_the_tangents(case: Case, backend: str, dtype: str) -> None:
    function, args = compiled(case, backend), arrays(case, dtype)
    if not case.floats:
        pytest.skip("nothing to differentiate in")
    value, tangent = function.jvp(args, tangents_of(case, dtype))
    for found, plain in zip(numbers_of(value), numbers_of(function(*args)), strict=True):
        assert found.dtype == plain.dtype
        np.testing.assert_allclose(found, plain, rtol=4 * np.finfo(dtype).eps, atol=4 * np.finfo(dtype).eps)
    terms = slopes(case, dtype) * directions(case)
    for output, found in enumerate(numbers_of(tangent)):
        assert found.dtype == dtype
        assert_close(found, terms[output].sum(0), np.abs(terms[output]).sum(0), 2 * case.allowance, dtype, f"{output}")


@ON_BOTH
def test_vjp_is_the_cotangents_times_the_jacobian(case: Case, backend: str, dtype: str) -> None:
    function, args = compiled(case, backend), arrays(case, dtype)
    value, pullback = function.vjp(*args)
    leaves = numbers_of(value)
    draw = np.random.default_rng(len(leaves))
    cotangents = draw.integers(-8, 9, (len(leaves), len(case.points))) / 4
    given = [
        row.astype(dtype) if leaf.dtype.kind == "f" else None for row, leaf in zip(cotangents, leaves, strict=True)
    ]
    floats = np.array([leaf.dtype.kind == "f" for leaf in leaves])
    terms = slopes(case, dtype) * (cotangents * floats[:, None])[:, None]
    found = pullback(*given)
    assert len(found) == len(case.floats)
    for at, gradient in enumerate(found):
        assert gradient.dtype == dtype
        wanted, size = terms[:, at].sum(0), np.abs(terms[:, at]).sum(0)
        assert_close(gradient, wanted, size, 2 * case.allowance, dtype, pullback.wrt[at])


@EVERY
def test_a_partial_is_a_column_of_the_jacobian(case: Case) -> None:
    function, args = compiled(case, "python"), arrays(case, "float64")
    for at, name in enumerate(function.jacobian(*args).wrt):
        partial = numbers_of(function.partial(name)(*args))
        for output, found in enumerate(partial):
            assert found.dtype == np.float64
            wanted = slopes(case, "float64")[output, at]
            assert_close(found, wanted, np.abs(wanted), case.allowance, "float64", f"∂{output}/∂{name}")


@SOME
def test_derived_functions_are_sound(case: Case) -> None:
    """They keep the rules of the IR, and can be differentiated again."""
    kinds = {float: "float", int: "int", bool: "bool"}
    function = lower(case.function, [kinds[type(arg)] for arg in case.points[0]]).function
    for made in (
        pullback_of(function, case.floats),
        pushforward_of(function, case.floats),
        pushforward_of(function, case.floats, values=False),
        *(partial_of(function, at) for at in case.floats),
    ):
        verify_single_assignment(made)
        verify_single_assignment(simplify(made))
        verify_single_assignment(pullback_of(made, case.floats))
        verify_single_assignment(simplify(hessian_of(made, case.floats)[0].function))


# --- second order -----------------------------------------------------------------------------------------------------


@cache
def second(case: Case, dtype: str) -> tuple[list[int], dict[tuple[int, int], np.ndarray[Any, Any]]]:
    """The points at which there are second derivatives, and these: by (p, q), places of floats, of (output, point)."""
    rows = [
        tuple(float(np.dtype(dtype).type(arg)) if isinstance(arg, float) else arg for arg in point)
        for point in case.points
    ]
    good = [at for at, row in enumerate(rows) if at not in case.kinks and is_smooth(case.function, row, case.floats)]
    found = [second_differences(case.function, rows[at], case.floats) for at in good]
    pairs = {}
    for (i, p), (j, q) in itertools.combinations_with_replacement(enumerate(case.floats), 2):
        pairs[i, j] = pairs[j, i] = np.array([[output[p, q] for output in row] for row in found], float).T
    return good, pairs


def has_second(case: Case, dtype: str) -> None:
    if not case.floats or not second(case, dtype)[0]:
        pytest.skip("no point has a second derivative")


@ON_BOTH
def test_hessian(case: Case, backend: str, dtype: str) -> None:
    has_second(case, dtype)
    function, args = compiled(case, backend), arrays(case, dtype)
    value, jacobian, hessian = function.value_jacobian_and_hessian(*args)
    good, pairs = second(case, dtype)
    assert hessian.wrt == jacobian.wrt
    for (i, j), rows in pairs.items():
        for output, wanted in enumerate(rows):
            block = hessian[output, i, j]
            assert block.dtype == dtype
            assert block.shape == (len(case.points),)
            assert_close(block[good], wanted, np.abs(wanted), 8 * case.allowance, dtype, f"∂²{output}/∂{i}∂{j}")
    for output, found in enumerate(numbers_of(value)):
        column = [row[0][output] for row in expected(case, dtype)]
        assert_close(found, column, np.abs(np.array(column, float)), case.allowance, dtype, f"{output}")
    wanted = slopes(case, dtype)
    for output, at in itertools.product(range(jacobian.outputs), range(len(case.floats))):
        column = wanted[output, at]
        assert_close(jacobian[output, at], column, np.abs(column), case.allowance, dtype, f"∂{output}/∂{at}")


@SOME
def test_ways_to_second_derivatives_agree(case: Case) -> None:
    """Hessian, partials of partials, the Jacobian of partials, products with tangents: all against the differences."""
    has_second(case, "float64")
    function, args = compiled(case, "python"), arrays(case, "float64")
    good, pairs = second(case, "float64")
    hessian, names = function.hessian(*args), function.jacobian(*args).wrt
    tangents, given = directions(case)[:, good], tangents_of(case, "float64")
    product = function.hvp(args, given)
    assert product.wrt == names

    def check(found: Any, wanted: Any, what: str) -> None:
        assert_close(np.asarray(found)[good], wanted, np.abs(wanted), 8 * case.allowance, "float64", what)

    for i, p in enumerate(names):
        partial = function.partial(p)
        jacobian = partial.jacobian(*args)
        columns = numbers_of(partial.partial(names[-1])(*args))
        for output in range(len(columns)):
            check(columns[output], pairs[i, len(names) - 1][output], f"∂²{output}/∂{p}∂{names[-1]}")
            terms = np.array([pairs[i, j][output] * tangents[j] for j in range(len(names))])
            found, size = np.asarray(product[output, p])[good], np.abs(terms).sum(0)
            assert_close(found, terms.sum(0), size, 8 * case.allowance, "float64", f"product, {output}, {p}")
            for j, q in enumerate(names):
                check(jacobian[output, q], pairs[i, j][output], f"∂(∂{output}/∂{p})/∂{q}")
                check(hessian[output, p, q], pairs[i, j][output], f"∂²{output}/∂{p}∂{q}, alone")


def test_enough_points_have_second_derivatives() -> None:
    counts = [len(second(case, "float64")[0]) for case in CORPUS]
    assert sum(counts) > 300
    assert sum(count == 0 for count in counts) < 6
