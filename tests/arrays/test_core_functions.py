"""Functions with core dimensions that call others, and the errors of signatures, shapes and functions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dualbcast import (
    ArgumentError,
    CompileError,
    FailedAssertion,
    NonFiniteError,
    ShapeError,
    differentiable_broadcast,
)


@differentiable_broadcast(signature="(3),(3,2),()->(2),()")
def both(v, M, s):  # noqa: N803
    return s * (v @ M), np.sin(v[0]) * s


# --- functions that call others ---------------------------------------------------------------------------------------


@differentiable_broadcast
def softened(x, width):
    return x * x / (x + width) if x > 0 else 0.0


@differentiable_broadcast(signature="(n),(n)->(),(n)")
def length_and_direction(v, w):
    length = np.linalg.norm(v - w)
    return length, (v - w) / length


@differentiable_broadcast(signature="(2,3),(3)->(2,3),(2,3),(2)")
def of_rows(points, origin):
    lengths, directions = length_and_direction(points, origin)
    return softened(points, 0.5), directions, lengths


def test_a_decorated_function_broadcasts_in_a_function_of_arrays_too():
    random = np.random.default_rng(4)
    points, origin = random.standard_normal((5, 2, 3)), random.standard_normal((5, 3))
    (soft, directions, lengths), jacobian = of_rows.value_and_jacobian(points, origin)
    np.testing.assert_allclose(soft, softened(points, 0.5))
    away = points - origin[:, None]
    np.testing.assert_allclose(lengths, np.linalg.norm(away, axis=-1))
    np.testing.assert_allclose(directions, away / lengths[..., None])
    np.testing.assert_allclose(jacobian[2, "origin"], -directions, rtol=1e-12)


def test_a_called_function_with_cores_of_other_shapes():
    wrong = differentiable_broadcast(signature="(2,3),(2)->(2)")(lambda p, q: length_and_direction(p, q)[0])
    with pytest.raises(CompileError, match=r"an array of shape \(2,\) is given here for \(n\)"):
        wrong(np.ones((2, 3)), np.ones(2))


def test_checks_assertions_and_traces_name_elements():
    @differentiable_broadcast(signature="(3)->(3)")
    def unit(v):
        assert v[0] >= 0, "to the left"
        return v / np.linalg.norm(v)

    with pytest.raises(NonFiniteError, match=r"(?s)for the element at index \(1,\).*v\[2\] = 0"):
        unit(np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), check="nan")
    with pytest.raises(FailedAssertion, match="to the left"):
        unit(np.array([-1.0, 0.0, 0.0]))
    assert "return[2]" in str(unit.trace(np.array([3.0, 0.0, 4.0])))


REDUCTIONS: list[Any] = [
    lambda a: np.sum(a, axis=1, keepdims=True),
    lambda a: np.sum(a, axis=(0, -1)),
    lambda a: np.prod(a, axis=(1, 2)),
    lambda a: np.max(a, axis=(-1, 0), keepdims=True),
    lambda a: a.min(axis=-2),
    lambda a: np.mean(a, axis=(0, 2)),
    lambda a: a - a.mean(axis=-1, keepdims=True),
    lambda a: np.all(a > -0.5, axis=1, keepdims=True) | np.any(a > 1, axis=(1, 2), keepdims=True),
    lambda a: np.var(a, axis=0, ddof=1),
    lambda a: np.std(a, axis=(0, 2), keepdims=True),
    lambda a: a.var() + a.std(),
    lambda a: np.cumsum(a),
    lambda a: np.cumsum(a, axis=1),
    lambda a: np.cumsum(a > 0, axis=-1),
    lambda a: a.cumprod(axis=0),
    lambda a: np.cumprod(a, axis=-2),
    lambda a: np.diff(a),
    lambda a: np.diff(a, n=2, axis=1),
    lambda a: np.diff(a, n=0, axis=0),
]


@pytest.mark.parametrize("function", REDUCTIONS)
@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_reductions_are_numpys(function: Any, backend: str):
    arrays = np.random.default_rng(5).normal(size=(4, 2, 3, 4))
    wanted = np.array([function(array) for array in arrays])
    signature = f"(2,3,4)->({','.join(map(str, wanted.shape[1:]))})"
    found = differentiable_broadcast(signature=signature, backend=backend)(function)(arrays)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-13)


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda a: np.sum(a, axis=3), "axis 3 is out of bounds"),
        (lambda a: np.sum(a, axis=(0, 0)), "repeated axis"),
        (lambda a: np.cumsum(a, axis=3), "out of bounds"),
        (lambda a: np.diff(a, axis=3), "out of bounds"),
        (lambda a: np.sum(a, axis=a[0, 0]), "the axis must be known"),
        (lambda a: np.sum(a, keepdims=a[0, 0] > 0), "keepdims must be known"),
        (lambda a: np.max(a[:0], axis=0), "neither a smallest nor a largest"),
    ],
)
def test_axes_that_are_refused(function: Any, message: str):
    with pytest.raises(CompileError, match=message):
        differentiable_broadcast(signature="(2,3)->(n)")(function)(np.ones((2, 3)))


NOT_SIGNATURES = ["(3)", "(3)->", "3->()", "(3),,(2)->()", "(3)->()()", "(3)(2)->()", "(a b)->()", "(3?)->()", 3]


@pytest.mark.parametrize("signature", NOT_SIGNATURES)
def test_what_is_no_signature(signature: Any):
    with pytest.raises(ArgumentError, match="write it as NumPy does"):
        differentiable_broadcast(signature=signature)(lambda v: v[0])


def test_a_signature_for_other_arguments():
    with pytest.raises(ArgumentError, match=r"is for 2 arguments, and this call of <lambda>\(v\) has 1"):
        differentiable_broadcast(signature="(),()->()")(lambda v: v)(1.0)


MISFITS = [
    ((2, 3), (4, 3, 2), r"axes before the cores do not broadcast together: v \(2, 3\) with core \(3,\)"),
    (
        (4,),
        (3, 2),
        r"v is \(3\) in signature='\(3\),\(3,2\),\(\)->\(2\),\(\)', and has shape \(4,\): the signature says 3",
    ),
    ((3,), (2,), r"M is \(3,2\) .* and has shape \(2,\): its last axes are its core"),
    ((), (3, 2), r"v is \(3\) .* has shape \(\)"),
]


@pytest.mark.parametrize(("v", "M", "message"), MISFITS)
def test_arrays_of_other_shapes(v: Any, M: Any, message: str):  # noqa: N803
    with pytest.raises(ShapeError, match=message):
        both(np.zeros(v), np.zeros(M), 1.0)


def test_lengths_that_disagree():
    dot = differentiable_broadcast(signature="(n),(n)->()")(lambda a, b: a @ b)
    with pytest.raises(ShapeError, match=r"b is \(n\) .* has shape \(4,\): a has n = 3, and here it is 4"):
        dot(np.zeros(3), np.zeros(4))
    with pytest.raises(ArgumentError, match="a has core dimensions, and is a float"):
        dot(1.0, np.zeros(4))


WRONG_FUNCTIONS = [
    ("(2)->(3)", lambda v: v, "has shape (2,), and by the signature it has shape (3,)"),
    ("(2)->()", lambda v: v, "has shape (2,), and by the signature it is a number"),
    ("(2)->(2)", lambda v: v[0], "is a number, and by the signature it has shape (2,)"),
    ("(2)->(),()", lambda v: v[0], "has 2 outputs, and this returns a number"),
    ("(2)->()", lambda v: v[2], "does not fit an array of shape (2,)"),
    ("(2)->()", lambda v: 1.0 if v > 0 else 0.0, "is neither true nor false"),
    ("(2)->(2)", lambda v: np.linspace(0.0, v[0], 2), "an argument of linspace() must be known when"),
    ("(2)->()", lambda v: v[int(v[0])], "known when the kernel is compiled"),
    ("(2),(3)->(2)", lambda v, w: v + w, "shapes (2,) and (3,) do not broadcast"),
    ("(2),(3)->()", lambda v, w: v @ w, "cannot be multiplied by @"),
    ("(2)->()", lambda v: math.sin(v), "a number is needed here, and this is an array of shape (2,)"),
    ("(2)->()", lambda v: v.norm, "has no norm in a kernel"),
    ("(2),(2)->()", lambda v, w: 1.0 if v == w else 0.0, "is neither true nor false"),
]


@pytest.mark.parametrize(("signature", "function", "message"), WRONG_FUNCTIONS)
def test_functions_that_do_not_fit(signature: str, function: Any, message: str):
    shapes = [int(each) for each in signature.split("->")[0] if each.isdigit()]
    with pytest.raises(CompileError) as caught:
        differentiable_broadcast(signature=signature)(function)(*[np.ones(length) for length in shapes])
    assert message in str(caught.value)
    assert caught.value.filename == __file__


def test_an_index_without_a_signature_says_what_to_write():
    with pytest.raises(
        CompileError,
        match=r"""Write instead: whole="p" in the decorator, or signature="\(n\)->\(\)" for vectors""",
    ):
        differentiable_broadcast(lambda p, x: p[0] * x)(np.ones(3), 2.0)
    with pytest.raises(CompileError, match="Write instead: a tuple; or a signature"):
        differentiable_broadcast(lambda p, x: np.array([p, x]))(np.ones(3), 2.0)


def test_cotangents_are_named_by_their_outputs_and_integers_need_none() -> None:
    """Messages counted the elements of cores, and None was refused for an array of integers."""
    f = differentiable_broadcast(signature="(n),()->(n),(),(n)")(lambda v, s: (v > 0, s * v[0], v * s))
    v, s = np.arange(12.0).reshape(4, 3), np.arange(4.0)
    _, pullback = f.vjp(v, s)
    ones = np.ones((4, 3))
    wanted = pullback((ones, np.ones(4), ones))
    for gradients in (pullback(None, np.ones(4), ones), f.value_and_vjp((v, s), (None, np.ones(4), ones))[1]):
        for found, array in zip(gradients, wanted, strict=True):
            np.testing.assert_array_equal(found, array)
    for cotangents, error, message in (
        ((None, None, ones), ArgumentError, "the cotangent of output 1 is None"),
        ((None, np.ones(4), None), ArgumentError, "the cotangent of output 2 is None"),
        ((None, np.ones(4), np.ones(2)), ShapeError, r"output 2 has shape \(2,\), and its last axes must be \(3,\)"),
        ((None, np.ones(4), ones[:1]), ShapeError, r"output 2 has shape \(1,\) before its core dimensions"),
    ):
        with pytest.raises(error, match=message):
            pullback(cotangents)


@pytest.mark.parametrize("name", ["max", "min"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_extrema_with_a_nan_are_nan(name: str, place: int) -> None:
    """One that was not the first element was passed over, as Python's max and min do."""
    v = np.array([1.0, -3.0, 2.0])
    v[place] = np.nan
    function = getattr(np, name)
    reduced = differentiable_broadcast(lambda v: function(v), signature="(3)->()")
    assert np.isnan(reduced(v))
    rows = differentiable_broadcast(lambda v: function(np.outer(v, v), axis=1), signature="(3)->(3)")
    assert np.isnan(rows(v)).all()
    np.testing.assert_array_equal(reduced.jacobian(v)["v"], np.eye(3)[place])


@pytest.mark.parametrize(
    "function",
    [
        lambda v: ~(v > 0),
        lambda v: np.invert(v > 0),
        lambda v: np.where(~(v > 0), v, 0.5 * v),
        lambda v: (v > 0) + (v < 2),
        lambda v: np.add(v > 0, v < 2),
        lambda v: (v > 0) * (v < 2),
        lambda v: np.multiply(v > 0, v < 2) + 1,
        lambda v: (v > 0) + 1,
    ],
)
def test_operators_on_truth_values_are_numpys(function: Any) -> None:
    """`~` of an array of truth values was -2 or -1, as Python has it for single ones, and so it was always true."""
    v = np.array([-1.0, 1.0, 3.0])
    value = differentiable_broadcast(function, signature="(3)->(3)")(v)
    wanted = function(v)
    assert value.dtype == wanted.dtype
    np.testing.assert_array_equal(value, wanted)


# --- changes in place -------------------------------------------------------------------------------------------------


def _doubled(u: Any) -> Any:
    u *= 2
    return u


def _of_two_names(v: Any) -> Any:
    start = np.zeros(3)
    total = start
    for n in range(3):
        total += n * v
    return start


def _of_a_slice(v: Any) -> Any:
    part = v[:2]
    part += 1
    return v


def _of_a_transpose(v: Any) -> Any:
    turned = v.T
    turned += 1
    return v


def _of_an_item(v: Any) -> Any:
    pair = (v, 1)
    v *= 2
    return pair[0]


def _of_rows(v: Any) -> Any:
    rows = np.outer(v, v)
    for row in rows:
        row /= 2
    return rows[0]


def _of_an_argument(v: Any) -> Any:
    w = _doubled(v)
    return w * v


@pytest.mark.parametrize(
    "function", [_of_two_names, _of_a_slice, _of_a_transpose, _of_an_item, _of_rows, _of_an_argument]
)
def test_a_change_in_place_that_another_name_would_see_is_refused(function: Any) -> None:
    with pytest.raises(CompileError, match=r"shares its elements with (\w+, which line \d+ changes|what the loop)"):
        differentiable_broadcast(function, signature="(3)->(3)")(np.ones(3))


def _of_one_name(v: Any) -> Any:
    total, start = np.zeros(3), v.copy()
    start += 1
    for n in range(3):
        total += n * v + start
    chosen = v[[0, 1, 0]]
    chosen -= v
    return total * start + chosen + _doubled(v - 1)


def _of_a_name_that_is_read_no_more(v: Any) -> Any:
    x = v
    for _ in range(3):
        x += 0.1 * x
    return x


@pytest.mark.parametrize("function", [_of_one_name, _of_a_name_that_is_read_no_more])
def test_other_changes_in_place_are_numpys(function: Any) -> None:
    v = np.array([0.5, -1.5, 2.0])
    np.testing.assert_allclose(
        differentiable_broadcast(function, signature="(3)->(3)")(v), function(v.copy()), rtol=1e-14
    )
