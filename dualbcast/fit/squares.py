"""`least_squares`: Levenberg and Marquardt's method, for one fit or for millions side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast.api.binding import Wrt
from dualbcast.errors import ArgumentError, entry_point
from dualbcast.fit.iteration import Tests, parts_of, run
from dualbcast.fit.problem import Bounds, Data, Problem
from dualbcast.fit.results import LeastSquaresFit, in_shape, shared
from dualbcast.interop.parameters import broadcast_function


@entry_point
def least_squares(
    f: Callable[..., Any],
    *arrays: Any,
    wrt: Wrt = None,
    bounds: Bounds = None,
    weights: Any = None,
    ftol: float = 1e-8,
    xtol: float = 1e-8,
    gtol: float = 1e-8,
    max_iterations: int = 200,
    progress: bool = False,
    **named: Any,
) -> LeastSquaresFit:
    """Minimize ∑ w r² in parameters of a function that returns residuals r.

    The start values of the parameters are arguments like the data. Numbers stand for one fit of all data. Arrays of
    shape (fits, 1) beside data of shape (fits, points) or (points,) stand for one fit for each row, independent of all
    others: it gets the same bits as without them.

    Parameters
    ----------
    f : BroadcastFunction, or function
        A scalar function that returns a residual, or a structure of residuals.
    *arrays, **named
        Its arguments, by position or by name: NumPy arrays and numbers.
    wrt : str, int, or sequence of them, optional
        The parameters to fit, whose start values broadcast together; by default those of the decorator's `wrt`, or else
        all arguments that are float numbers. A default of `f` that is named is the start value. A parameter of a
        function with a signature may be a vector or a matrix; results for it have its core dimensions last.
    bounds : mapping of str to (lower, upper), optional
        The bounds of parameters, by name: numbers, arrays that broadcast to the start values, or None for no bound.
    weights : array, or structure of arrays, optional
        The weight w of each residual, as for `f.normal_equations`: 1 / variance, or 0 for a residual that is
        not to count.
    ftol : float
        A fit ends when the sum of squares becomes less, and was predicted to become less, by at most this part of it.
    xtol : float
        A fit ends when a step is at most this part of the parameters, each in the units of the scale that the largest
        column of J for it gives.
    gtol : float
        A fit ends when the cosine of the angle between the residuals and each column of J is at most this.
    max_iterations : int
        How many points a fit may try after its start values.
    progress : bool
        Whether to show a bar that counts the fits that have ended.

    Returns
    -------
    LeastSquaresFit
        `parameters`, `sum_of_squares`, `covariance`, `status` and more, in float64.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        The arguments, bounds or weights do not fit; nothing has run. Fits that fail raise nothing: see `status`.

    Notes
    -----
    Each iteration is one launch of `f.normal_equations`, which reads the data once, and one of a kernel that solves for
    the steps. The scale of a step is that of J. Moré (Lecture Notes in Mathematics 630 (1978) 105), its damping that of
    H. B. Nielsen (report IMM-REP-1999-05, Technical University of Denmark). Bounds are kept by projection on the box
    with an active set (D. Bertsekas, SIAM J. Control and Optimization 20 (1982) 221). The tests for convergence are
    those of MINPACK's `lmder`. A fit that has passed one goes on by the step that the derivatives there give, if that
    is shorter than the one before: the parameters gain two digits, and `sum_of_squares` and `covariance` are those
    without it. The normal equations square the condition number of J. If digits of the parameters are
    lost by that, rescale or recentre the data, or use `scipy.optimize.least_squares` with
    `dualbcast.interop.scipy.Residuals`.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast, fit
    >>> @differentiable_broadcast
    ... def misfit(t, y, amplitude, rate):
    ...     return amplitude * math.exp(-rate * t) - y
    >>> t = np.linspace(0, 3, 50)
    >>> one = fit.least_squares(misfit, t, 2 * np.exp(-0.5 * t), 1.0, 1.0, wrt=("amplitude", "rate"))
    >>> one["amplitude"].round(6), one["rate"].round(6), one.converged
    (np.float64(2.0), np.float64(0.5), True)
    >>> rates = np.array([[0.5], [1.0], [1.5]])
    >>> many = fit.least_squares(misfit, t, 2 * np.exp(-rates * t), 1.0, np.ones((3, 1)), wrt=("amplitude", "rate"))
    >>> many["rate"].round(6).tolist(), many.converged.all()
    ([[0.5], [1.0], [1.5]], np.True_)
    """
    tests = Tests(ftol, xtol, gtol, max_iterations).checked()
    problem = Problem(broadcast_function(f), arrays, named, wrt)
    if not problem.returns_floats:
        raise ArgumentError(f"residuals are floats, and {problem.label} returns an integer or a bool; return float(…)")
    if weights is not None:
        problem.add_weights(weights)

    def evaluate(parameters: tuple[Any, ...], data: Data) -> tuple[Any, list[Any], list[Any]]:
        arguments, weights = problem.call(parameters, data), data.weights
        given: Any = weights if len(weights) > 1 else (*weights, None)[0]
        _, sums = problem.function._equations(*arguments, problem.wrt, given, flat=True)
        return parts_of(*sums)

    outcome = run(problem, evaluate, bounds, tests, is_curved=False, progress=progress)
    held = np.sum([at != 0 for at in outcome.at_bound], axis=0)
    freedom = problem.residuals() - len(problem.names) + held
    return LeastSquaresFit(
        **shared(problem, outcome),
        sum_of_squares=in_shape(outcome.cost, problem.shape),
        degrees_of_freedom=in_shape(freedom, problem.shape),
    )
