"""One step of many fits, as a kernel: take the last trial or leave it, test for convergence, and make the next trial.

A fit minimizes a cost C of its parameters x. The kernel is given half the gradient of C and half its second
derivatives, or what stands for these, as `gradient` and `matrix`. For least squares C is ∑ w r², and these are Jᵀ w r
and Jᵀ w J (Levenberg and Marquardt). For a likelihood L, C is -2 log L, and they are its derivatives (quadratic
hill-climbing: S. Goldfeld, R. Quandt and H. Trotter, Econometrica 34 (1966) 541).

- The step s solves (matrix + damping · diag(scale)) s = -gradient. `scale` has the largest diagonal elements of the
  matrix so far: J. Moré, *The Levenberg-Marquardt algorithm*, Lecture Notes in Mathematics 630 (1978) 105.
- The damping follows the ratio of the actual to the predicted reduction: H. B. Nielsen, *Damping parameter in
  Marquardt's method*, report IMM-REP-1999-05, Technical University of Denmark.
- Bounds are kept by projection. A parameter at a bound whose gradient points out of the box is held there, the step is
  solved for the others, and its end is projected on the box: D. Bertsekas, *Projected Newton methods for optimization
  problems with simple constraints*, SIAM J. Control and Optimization 20 (1982) 221.
- The tests for convergence are those of MINPACK's `lmder`, which do not depend on the units of the parameters. A fit
  that has passed one ends with the step that would come next.
"""

from __future__ import annotations

import enum
import math
from typing import Any, NamedTuple

from dualbcast.api.function import differentiable_broadcast


class Status(enum.IntEnum):
    """How a fit has ended: positive numbers mean that it has converged. From 0 on they are those of SciPy."""

    MAX_ITERATIONS = 0
    GTOL = 1
    FTOL = 2
    XTOL = 3
    NOT_FINITE = -1


# A fit that goes on; no status of a result.
RUNNING = -2
# What is left of a pivot that would be 0 without rounding, as a part of the matrix's diagonal.
_ROUNDING = 1e-15
# The damping of the first step, and the smallest, with which a positive semidefinite matrix still has its factors.
_FIRST_DAMPING, _LEAST_DAMPING = 1e-3, 1e-13
_MAX_ITERATIONS, _GTOL, _FTOL, _XTOL = 0.0, 1.0, 2.0, 3.0
_NOT_FINITE = -1.0
_RUNNING = float(RUNNING)


class State(NamedTuple):
    """Fits between two passes over the data: for each number of one fit an array with a place for each fit.

    Symmetric matrices are packed: the rows of their lower triangles, one after the other.
    """

    # Where the cost is least so far, with the cost and its derivatives there.
    parameters: tuple[Any, ...]
    cost: Any
    gradient: tuple[Any, ...]
    matrix: tuple[Any, ...]
    # The point to evaluate next, and by how much the cost is predicted to be less there.
    trial: tuple[Any, ...]
    predicted: Any
    scale: tuple[Any, ...]
    damping: Any
    growth: Any
    iterations: Any
    status: Any


def start(parameters: tuple[Any, ...], zero: Any) -> State:
    """Fits before the first pass; `zero` is an array of zeros with a place for each fit."""
    size = len(parameters)
    zeros, none = (zero,) * size, zero + math.inf
    matrix = (zero,) * (size * (size + 1) // 2)
    return State(parameters, none, zeros, matrix, parameters, zero, zeros, zero, zero, zero - 1.0, zero + _RUNNING)


def factors(matrix: Any, size: Any) -> Any:
    """L and D of matrix = L D Lᵀ, with a unit diagonal in L, and whether all of D is positive by more than rounding."""
    lower: Any = ()
    pivots: Any = ()
    definite: Any = True
    for i in range(size):
        scaled: Any = ()
        row: Any = ()
        pivot = matrix[i * (i + 1) // 2 + i]
        for j in range(i):
            entry = matrix[i * (i + 1) // 2 + j]
            for k in range(j):
                entry = entry - scaled[k] * lower[j][k]
            scaled, row = (*scaled, entry), (*row, entry / pivots[j])
            pivot = pivot - scaled[j] * row[j]
        definite = definite and pivot > _ROUNDING * matrix[i * (i + 1) // 2 + i]
        lower, pivots = (*lower, row), (*pivots, pivot)
    return lower, pivots, definite


def solution(lower: Any, pivots: Any, right: Any, size: Any) -> Any:
    """What solves L D Lᵀ x = right."""
    forward: Any = ()
    for i in range(size):
        entry = right[i]
        for k in range(i):
            entry = entry - lower[i][k] * forward[k]
        forward = (*forward, entry)
    backward: Any = ()
    for i in reversed(range(size)):
        entry = forward[i] / pivots[i]
        for k in range(i + 1, size):
            entry = entry - lower[k][i] * backward[k - i - 1]
        backward = (entry, *backward)
    return backward


def damped(matrix: Any, scale: Any, damping: Any, free: Any, size: Any) -> Any:
    """matrix + damping · diag(scale), with the rows and columns of the identity for parameters that are held."""
    entries: Any = ()
    for i in range(size):
        for j in range(i):
            entries = (*entries, matrix[i * (i + 1) // 2 + j] if free[i] and free[j] else 0.0)
        diagonal = matrix[i * (i + 1) // 2 + i] + damping * (scale[i] if scale[i] > 0 else 1.0)
        entries = (*entries, diagonal if free[i] else 1.0)
    return entries


def quadratic(matrix: Any, step: Any, size: Any) -> Any:
    """sᵀ matrix s of a step s."""
    total = 0.0
    for i in range(size):
        for j in range(i):
            total = total + 2 * matrix[i * (i + 1) // 2 + j] * step[i] * step[j]
        total = total + matrix[i * (i + 1) // 2 + i] * step[i] * step[i]
    return total


def is_stationary(state: Any, free: Any, gtol: Any, size: Any, curved: Any) -> Any:
    """Whether the gradient is small: the cosine between residuals and each column of J, or the score in units of its
    standard deviation."""
    # No products of squares, which for large and small weights would be infinite or 0.
    bound, small = gtol * (1.0 if curved else math.sqrt(state.cost)), True
    for i in range(size):
        length = math.sqrt(abs(state.matrix[i * (i + 1) // 2 + i]))
        small = small and (abs(state.gradient[i]) <= bound * length or not free[i])
    return small


def end(best: Any, trial: Any, step: Any, status: Any, moved: Any) -> Any:
    """The parameters, which for a fit that has converged are those of the next trial, if that is nearer than where the
    fit came from. No pass over the data is needed: the derivatives at the end have digits that the tests ignore."""
    is_taken = status > 0.0 and sum([d * s * s for d, s in zip(best.scale, step, strict=True)]) <= moved
    return tuple([new if is_taken else x for new, x in zip(trial, best.parameters, strict=True)])


@differentiable_broadcast(static=("size", "curved"))
def advance(*numbers: Any, size: Any, curved: Any) -> Any:
    """The state after a pass over the data.

    The arguments are those of a `State`, then the cost, the gradient and the matrix at the trial, the lower and the
    upper bounds, and at last ftol, xtol, gtol and the largest number of iterations. `curved` says that the matrix may
    have negative eigenvalues, as that of a likelihood.
    """
    q = size * (size + 1) // 2
    old, rest = unpacked(numbers, size), numbers[3 * size + size + q + 6 :]
    cost, gradient, matrix = rest[0], rest[1 : 1 + size], rest[1 + size : 1 + size + q]
    lower, upper = rest[1 + size + q : 1 + 2 * size + q], rest[1 + 2 * size + q : 1 + 3 * size + q]
    ftol, xtol, gtol, limit = rest[1 + 3 * size + q :]
    if old.status != _RUNNING:
        return old

    is_first, actual = old.cost == math.inf, old.cost - cost
    is_finite = math.isfinite(cost + sum(gradient) + sum(matrix))
    # Near the end the costs differ by rounding alone, and the gradient still says where to go.
    least = 1e-4 * max(old.predicted, 0.0) - _ROUNDING * abs(old.cost)
    is_better = is_finite and (is_first or actual >= least)
    if is_better:
        ratio = min(max(actual / old.predicted, 0.0), 1.0) if old.predicted > 0 else 0.0
        factor = max(1 / 3, 1 - (2 * ratio - 1) ** 3)
        damping, growth = (_FIRST_DAMPING if is_first else max(old.damping * factor, _LEAST_DAMPING)), 2.0
        scale = tuple([max(old.scale[i], abs(matrix[i * (i + 1) // 2 + i])) for i in range(size)])
        best = old._replace(parameters=old.trial, cost=cost, gradient=gradient, matrix=matrix, scale=scale)
    else:
        damping, growth, best = old.damping * old.growth, 2 * old.growth, old

    free = tuple(
        [
            not ((x <= low and slope > 0) or (x >= high and slope < 0))
            for x, slope, low, high in zip(best.parameters, best.gradient, lower, upper, strict=True)
        ]
    )
    moved = sum([d * (new - x) ** 2 for d, new, x in zip(old.scale, old.trial, old.parameters, strict=True)])
    length = sum([d * x * x for d, x in zip(old.scale, old.trial, strict=True)])
    unit = max(1.0, abs(old.cost)) if curved else old.cost
    status, iterations = _RUNNING, old.iterations + 1
    # Where a likelihood is not concave it has no maximum.
    may_end = not curved or factors(damped(best.matrix, best.scale, _LEAST_DAMPING, free, size), size)[2]
    if is_first and not is_finite:
        status = _NOT_FINITE
    elif may_end and is_stationary(best, free, gtol, size, curved):
        status = _GTOL
    elif may_end and is_finite and moved > 0:
        if max(abs(actual), old.predicted) <= ftol * unit and actual <= 2 * old.predicted:
            status = _FTOL
        elif moved <= xtol * xtol * length:
            status = _XTOL
    if status == _RUNNING and iterations >= limit:
        status = _MAX_ITERATIONS

    below, pivots, is_definite = factors(damped(best.matrix, best.scale, damping, free, size), size)
    if curved:
        while status == _RUNNING and not is_definite and damping < 1e30:
            damping = 4 * damping
            below, pivots, is_definite = factors(damped(best.matrix, best.scale, damping, free, size), size)
    right = tuple([-slope if is_free else 0.0 for slope, is_free in zip(best.gradient, free, strict=True)])
    step = solution(below, pivots, right, size)
    trial = tuple(
        [
            min(max(x + s, low), high) if is_definite else x
            for x, s, low, high in zip(best.parameters, step, lower, upper, strict=True)
        ]
    )
    step = tuple([new - x for new, x in zip(trial, best.parameters, strict=True)])
    is_lost = is_definite and sum([abs(s) for s in step]) == 0
    if status == _RUNNING and may_end and is_lost and is_finite and (is_first or moved > 0):
        status = _XTOL  # the step is less than the rounding of the parameters, and not after steps out of the domain
    predicted = -2 * sum([s * slope for s, slope in zip(step, best.gradient, strict=True)]) - quadratic(
        best.matrix, step, size
    )
    return best._replace(
        parameters=end(best, trial, step, status, moved),
        trial=trial,
        predicted=predicted,
        damping=damping,
        growth=growth,
        iterations=iterations,
        status=status,
    )


def unpacked(numbers: Any, size: Any) -> State:
    """The state of which a flat tuple has the numbers, before others."""
    begin = 0
    parts: Any = ()
    for length in (size, 0, size, size * (size + 1) // 2, size, 0, size, 0, 0, 0, 0):
        parts = (*parts, numbers[begin : begin + length] if length else numbers[begin])
        begin += length if length else 1
    return State(*parts)


@differentiable_broadcast(static=("size",))
def inverse(*matrix: Any, size: Any) -> Any:
    """The inverse of a symmetric matrix, packed as in a State; infinite where the matrix is not positive definite."""
    lower, pivots, definite = factors(matrix, size)
    entries: Any = ()
    for i, _ in enumerate(pivots):
        column = solution(lower, pivots, tuple([1.0 if k == i else 0.0 for k in range(size)]), size)
        for j in range(i + 1):
            entries = (*entries, column[j] if definite else math.inf)
    return entries
