"""`maximum_likelihood`: Newton's method with damping, for one fit or for many side by side."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dualbcast.api.binding import Wrt
from dualbcast.errors import ArgumentError, entry_point
from dualbcast.fit.iteration import Tests, parts_of, run
from dualbcast.fit.problem import Bounds, Data, Problem
from dualbcast.fit.results import LikelihoodFit, in_shape, shared
from dualbcast.interop.parameters import broadcast_function
from dualbcast.ir.nodes import NUMBER


@entry_point
def maximum_likelihood(
    f: Callable[..., Any],
    *arrays: Any,
    wrt: Wrt = None,
    bounds: Bounds = None,
    ftol: float = 1e-10,
    xtol: float = 1e-8,
    gtol: float = 1e-8,
    max_iterations: int = 200,
    progress: bool = False,
    **named: Any,
) -> LikelihoodFit:
    """Maximize the sum of a function that returns the log-likelihood of one observation.

    The start values of the parameters are arguments like the data, for one fit or for one in each row, as for
    `least_squares`.

    Parameters
    ----------
    f : BroadcastFunction, or function
        A scalar function that returns the logarithm of the probability or of the density of an observation. Terms that
        no parameter has may be left out.
    *arrays, **named, wrt, bounds, max_iterations, progress
        As for `least_squares`.
    ftol : float
        A fit ends when the deviance -2 log L becomes less, and was predicted to become less, by at most this part of
        it, or by at most this if the deviance is below 1.
    xtol : float
        A fit ends when a step is at most this part of the parameters, each in units of its standard deviation.
    gtol : float
        A fit ends when the derivative in each parameter is at most this, in units of that derivative's standard
        deviation, and the log-likelihood is concave there.

    Returns
    -------
    LikelihoodFit
        `parameters`, `log_likelihood`, `covariance`, `status` and more, in float64.

    Raises
    ------
    ArgumentError, ShapeError, DTypeError
        The arguments or bounds do not fit; nothing has run. Fits that fail raise nothing: see `status`.

    Notes
    -----
    Each iteration is one launch of `f.sum(order=2)`, and one of a kernel that solves for the steps. Where the
    log-likelihood is not concave, the Hessian is damped until it is negative definite. How much it is damped else
    follows from how well the last step was predicted. This is a trust region with a multiplier in place of a radius:
    S. Goldfeld, R. Quandt and H. Trotter, *Maximization by quadratic hill-climbing*, Econometrica 34 (1966) 541. A
    last step ends a fit, as for `least_squares`.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast, fit
    >>> @differentiable_broadcast
    ... def log_density(x, mu, log_sigma):
    ...     z = (x - mu) * math.exp(-log_sigma)
    ...     return -0.5 * z * z - log_sigma
    >>> x = np.array([1.0, 2.0, 3.0, 6.0])
    >>> best = fit.maximum_likelihood(log_density, x, 0.0, 0.0, wrt=("mu", "log_sigma"))
    >>> best["mu"].round(6), np.exp(2 * best["log_sigma"]).round(6), best.converged   # the mean, and the variance
    (np.float64(3.0), np.float64(3.5), True)
    >>> np.diag(best.covariance).round(6)              # variance / n, and 1 / (2 n)
    array([0.875, 0.125])
    """
    tests = Tests(ftol, xtol, gtol, max_iterations).checked()
    problem = Problem(broadcast_function(f), arrays, named, wrt)
    if problem.returned != NUMBER or not problem.returns_floats:
        raise ArgumentError(f"{problem.label} must return one float, the log-likelihood of an observation")

    def evaluate(parameters: tuple[Any, ...], data: Data) -> tuple[Any, list[Any], list[Any]]:
        _, sums = problem.function._sums(*problem.call(parameters, data), problem.wrt, 2)
        value, slopes, curvatures = parts_of(*sums)
        return -2 * value, [-each for each in slopes], [-each for each in curvatures]

    outcome = run(problem, evaluate, bounds, tests, is_curved=True, progress=progress)
    return LikelihoodFit(**shared(problem, outcome), log_likelihood=in_shape(-0.5 * outcome.cost, problem.shape))
