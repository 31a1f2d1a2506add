"""Least squares and maximum likelihood, for one fit or for millions of independent ones side by side.

Comes in: a function that returns residuals or log-likelihoods, with data and start values. Goes out: the best
parameters of each fit, their covariance, and how the fit has ended.
"""

from dualbcast.fit.likelihood import maximum_likelihood
from dualbcast.fit.results import Fit, LeastSquaresFit, LikelihoodFit
from dualbcast.fit.squares import least_squares
from dualbcast.fit.step import Status

__all__ = ["Fit", "LeastSquaresFit", "LikelihoodFit", "Status", "least_squares", "maximum_likelihood"]


def __dir__() -> list[str]:
    """The public names; without this the files of the folder would be among them."""
    return __all__
