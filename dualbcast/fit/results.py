"""What a fit returns: the parameters by name, how the fits have ended, and the covariance of the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.fit.iteration import Outcome
from dualbcast.fit.problem import Problem, by_parameter
from dualbcast.fit.step import Status, inverse
from dualbcast.program.core_results import CoreArgument
from dualbcast.program.outputs import Shape

_MEANINGS = {
    Status.GTOL: "converged by gtol",
    Status.FTOL: "converged by ftol",
    Status.XTOL: "converged by xtol",
    Status.MAX_ITERATIONS: "took max_iterations without converging",
    Status.NOT_FINITE: "could not begin: the function is not finite at the start values",
}


@dataclass(frozen=True, eq=False, repr=False)
class Fit:
    """The result of fits. Arrays have the shape of the start values; for one fit of numbers they are numbers.

    Attributes
    ----------
    parameters : dict
        The best values by name. `fit["rate"]` is `fit.parameters["rate"]`.
    status : array or Status
        How each fit has ended: an int8 for each, which is a number of `Status`. Those that have converged are positive.
    iterations : array
        The number of trials after the start values, each of which is one pass over the data.
    at_bound : dict
        By name, -1 where a parameter is at its lower bound, 1 at its upper one, and else 0.
    """

    parameters: Mapping[str, Any]
    status: Any
    iterations: Any
    at_bound: Mapping[str, Any]
    _shape: Shape
    _arguments: list[CoreArgument]
    _outcome: Outcome

    def __getitem__(self, name: str) -> Any:
        if name not in self.parameters:
            raise ArgumentError(f"{name!r} was not fitted; the parameters are {', '.join(self.parameters)}")
        return self.parameters[name]

    def __repr__(self) -> str:
        names = ", ".join(self.parameters)
        return f"<{type(self).__name__} of ({names}), shape {self._shape}: {self.message}>"

    @property
    def converged(self) -> Any:
        """Whether each fit has converged."""
        return self.status > 0

    @property
    def message(self) -> str:
        """How many fits have ended in which way."""
        found = [(int(np.count_nonzero(self._outcome.status == each)), text) for each, text in _MEANINGS.items()]
        return "; ".join([f"{count:,} {text}" for count, text in found if count]) or "no fits"

    @cached_property
    def covariance(self) -> Any:
        """The covariance matrices of the parameters, of shape `(*shape, p, p)`, in the order of `parameters`; a vector
        is in it with all of its elements.

        A parameter at a bound has NaN in its row and column, and the others are as if it were known. All is infinite
        where the data do not determine the parameters.
        """
        held = [at != 0 for at in self._outcome.at_bound]
        size = len(held)
        matrix, variance = list(self._outcome.matrix), self._variance()
        pairs = [(i, j) for i in range(size) for j in range(i + 1)]
        for place, (i, j) in enumerate(pairs):
            either = held[i] | held[j]
            if either.any():
                matrix[place] = np.where(either, 1.0 if i == j else 0.0, matrix[place])
        covariance = np.empty((self._outcome.cost.size, size, size))
        for (i, j), entries in zip(pairs, inverse(*matrix, size=size), strict=True):
            # The infinite ones stay so, even where the residuals, and so their variance, are 0.
            entries = np.multiply(entries, variance, where=np.isfinite(entries), out=entries.copy())
            entries[held[i] | held[j]] = np.nan
            covariance[:, i, j] = covariance[:, j, i] = entries
        return in_shape(covariance, self._shape)

    @property
    def standard_errors(self) -> dict[str, Any]:
        """The square roots of the parameters' variances, by name."""
        errors = np.moveaxis(np.sqrt(np.diagonal(self.covariance, axis1=-2, axis2=-1)), -1, 0)
        return {name: each[()] for name, each in by_parameter(self._arguments, [*errors]).items()}

    def _variance(self) -> Any:
        """What the inverse of the matrix is to be multiplied by."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class LeastSquaresFit(Fit):
    """The result of `least_squares`; see also `Fit`.

    Attributes
    ----------
    sum_of_squares : array
        ∑ w r² at the best values; NaN if the fit could not begin.
    degrees_of_freedom : array
        The number of residuals whose weight is not 0, less the number of parameters that are not at a bound.
    """

    sum_of_squares: Any
    degrees_of_freedom: Any

    @property
    def residual_variance(self) -> Any:
        """`sum_of_squares / degrees_of_freedom`, by which the covariance is scaled.

        It is infinite without a degree of freedom. If the weights are the inverse of known variances, divide the
        covariance by it.
        """
        return in_shape(self._variance(), self._shape)

    def _variance(self) -> Any:
        freedom = np.reshape(self.degrees_of_freedom, -1)
        return np.where(freedom > 0, self._outcome.cost / np.maximum(freedom, 1), np.inf)


@dataclass(frozen=True, eq=False, repr=False)
class LikelihoodFit(Fit):
    """The result of `maximum_likelihood`; see also `Fit`. The covariance is the inverse of the observed information.

    Attributes
    ----------
    log_likelihood : array
        Its largest value; NaN if the fit could not begin.
    """

    log_likelihood: Any

    def _variance(self) -> Any:
        return 1.0


def in_shape(numbers: Any, shape: Shape) -> Any:
    """Numbers of all fits in the shape of the start values: an array, or a number for one fit."""
    shaped = numbers.reshape((*shape, *numbers.shape[1:]))
    return shaped if shaped.shape else shaped[()]


def _in_shape_by_name(problem: Problem, elements: Sequence[Any]) -> dict[str, Any]:
    """Numbers of all fits for each element of the parameters, by parameter."""
    return {name: in_shape(each, problem.shape) for name, each in by_parameter(problem.parameters, elements).items()}


def shared(problem: Problem, outcome: Outcome) -> dict[str, Any]:
    """The arguments of a `Fit`."""
    shape = problem.shape
    status = in_shape(outcome.status, shape)
    return {
        "parameters": _in_shape_by_name(problem, outcome.parameters),
        "status": status if shape else Status(status),
        "iterations": in_shape(outcome.iterations, shape),
        "at_bound": _in_shape_by_name(problem, outcome.at_bound),
        "_shape": shape,
        "_arguments": problem.parameters,
        "_outcome": outcome,
    }
