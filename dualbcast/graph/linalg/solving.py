"""Square matrices: solve, inv, det, slogdet, matrix_power.

Comes in: Variables or arrays with matrices in their last two axes. Goes out: Variables of solutions, inverses and
determinants, as by `numpy.linalg`.
"""

from __future__ import annotations

import operator
from typing import Any, NamedTuple

import numpy as np

from dualbcast.graph import shapes
from dualbcast.graph.arrays import is_complex, is_inexact, namespace
from dualbcast.graph.elementwise import astype
from dualbcast.graph.linalg.products import adjoint, matmul
from dualbcast.graph.primitives import MatrixError, constant, output_of, run, run_several, zeros
from dualbcast.graph.recording import fresh_constant
from dualbcast.graph.tape import Cotangents, Node, Primitive, unary
from dualbcast.graph.variable import Variable


def _pullback_of_solve(node: Node, cotangents: Cotangents, wanted: tuple[bool, ...]) -> Cotangents:
    a, b = node.inputs
    pulled = solve(adjoint(a), cotangents[0])
    return (
        shapes.sum_to(-(pulled @ adjoint(output_of(node))), a.shape) if wanted[0] else None,
        shapes.sum_to(pulled, b.shape),
    )


_SOLVE = Primitive(
    "solve",
    lambda a, b: namespace(a, b).linalg.solve(a, b),
    _pullback_of_solve,
    saves_outputs=True,
    complex_outputs=(True,),
)


def solve(a: Any, b: Any) -> Variable:
    """The solution x of a @ x = b: `numpy.linalg.solve`.

    Parameters
    ----------
    a : Variable or array
        Of shape (..., n, n).
    b : Variable or array
        Of shape (n,), one vector; or (..., n, k), whose leading axes broadcast with those of `a`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> a = np.array([[2.0, 0.0], [0.0, 4.0]])
    >>> graph.grad(lambda a: np.sum(np.linalg.solve(a, np.array([1.0, 1.0]))))(a)
    array([[-0.25  , -0.125 ],
           [-0.125 , -0.0625]])
    """
    a, b = constant(a), constant(b)
    if b.ndim == 1:
        return shapes.squeeze(run(_SOLVE, (a, shapes.expand_dims(b, 1))), -1)
    return run(_SOLVE, (a, b))


def inv(a: Any) -> Variable:
    """The inverses of square matrices: `numpy.linalg.inv`."""
    a = _square(a, "inv")
    return solve(a, _identity(a))


def _identity(a: Variable) -> Variable:
    dtype = a.real.dtype if is_inexact(a.dtype) else np.dtype(np.float64)
    return Variable._of(fresh_constant(namespace(a).eye(a.shape[-1], dtype=dtype)), False)


def _square(a: Any, name: str) -> Variable:
    matrices = constant(a)
    if matrices.ndim < 2 or matrices.shape[-1] != matrices.shape[-2]:
        raise MatrixError(f"{name} is of square matrices; this has shape {matrices.shape}")
    return matrices


def matrix_power(a: Any, n: int) -> Variable:
    """The product of n factors, each the square matrix `a`; for n < 0 of its inverse: `numpy.linalg.matrix_power`."""
    a, power = _square(a, "matrix_power"), operator.index(n)
    base, power = (inv(a), -power) if power < 0 else (a, power)
    if power == 0:
        return shapes.broadcast_to(astype(_identity(a), a.dtype), a.shape)
    result = None
    while power:
        if power & 1:
            result = base if result is None else matmul(result, base)
        power >>= 1
        base = matmul(base, base) if power else base
    assert result is not None
    return result


# --- determinants -----------------------------------------------------------------------------------------------------


def _cofactors(array: Any) -> Any:
    """The derivatives of determinants; of singular matrices the products of all singular values but one."""
    xp = namespace(array)
    determinants = xp.linalg.det(array)
    if bool((determinants != 0).all()):
        with np.errstate(over="ignore", invalid="ignore"):
            found = determinants[..., None, None] * xp.swapaxes(xp.linalg.inv(array), -2, -1)
        if bool(xp.isfinite(found).all()) or not bool(xp.isfinite(determinants).all()):
            return found
    u, s, vh = xp.linalg.svd(array)
    one = xp.ones_like(s[..., :1])
    before = xp.cumprod(xp.concatenate([one, s[..., :-1]], axis=-1)[..., : s.shape[-1]], axis=-1)
    after = xp.cumprod(xp.concatenate([one, s[..., :0:-1]], axis=-1)[..., : s.shape[-1]], axis=-1)[..., ::-1]
    signs = xp.linalg.slogdet(u)[0] * xp.linalg.slogdet(vh)[0]
    return (u * (before * after * signs.conj()[..., None])[..., None, :] @ vh).conj()


def _require_regular(array: Any) -> Any:
    s = namespace(array).linalg.svdvals(array)
    if bool((s[..., -1:] <= s[..., :1] * (s.shape[-1] * float(np.finfo(s.dtype).eps))).any()):
        raise MatrixError("the second derivatives of det are of regular matrices only, and this one is singular")
    return array.copy()


_REGULAR = unary("det", _require_regular, lambda _node, cotangent: cotangent, complex_outputs=(True,))


def _pullback_of_cofactors(node: Node, cotangent: Variable) -> Variable:
    cofactors = output_of(node).conj()
    inverse = adjoint(inv(run(_REGULAR, (node.inputs[0],))))
    total = shapes.sum(cotangent * cofactors, axis=(-2, -1), keepdims=True)
    pulled: Variable = total * inverse - cofactors @ cotangent.mT @ inverse
    return pulled


_COFACTORS = unary("cofactors", _cofactors, _pullback_of_cofactors, saves_outputs=True, complex_outputs=(True,))
_DET = unary(
    "det",
    lambda array: namespace(array).linalg.det(array),
    lambda node, cotangent: cotangent[..., None, None] * run(_COFACTORS, (node.inputs[0],)).conj(),
    complex_outputs=(True,),
)


def det(a: Any) -> Variable:
    """The determinants of square matrices: `numpy.linalg.det`.

    The derivative is right for singular matrices, too; a second derivative there is an error.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(graph.linalg.det)(np.array([[1.0, 2.0], [2.0, 4.0]])).round(12)
    array([[ 4., -2.],
           [-2.,  1.]])
    """
    return run(_DET, (_square(a, "det"),))


class SlogdetResult(NamedTuple):
    """Signs and logarithms of determinants."""

    sign: Variable
    logabsdet: Variable


def _pullback_of_slogdet(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    (a,), (slope_sign, slope) = node.inputs, cotangents
    if is_complex(a) and slope_sign is not None:
        # The logarithm of the determinant has the angle of the sign for its imaginary part.
        turn = (output_of(node).conj() * slope_sign).imag
        slope = Variable.__join_complex__(zeros(turn) if slope is None else slope, turn)
    return (None if slope is None else slope[..., None, None] * adjoint(inv(a)),)


_SLOGDET = Primitive(
    "slogdet",
    lambda array: namespace(array).linalg.slogdet(array),
    _pullback_of_slogdet,
    saves_outputs=True,
    complex_outputs=(True, False),
)


def slogdet(a: Any) -> SlogdetResult:
    """The signs of determinants, and the logarithms of their absolute values: `numpy.linalg.slogdet`.

    The sign of a complex determinant is a number of size 1, and has a derivative.
    """
    return SlogdetResult(*run_several(_SLOGDET, (_square(a, "slogdet"),)))
