"""Special functions, written in the language of scalar functions.

They take and return single numbers. In plain Python they work on floats, and raise exceptions where `math` does. In a
kernel they compute in the compute dtype and follow IEEE 754: they give infinities and NaNs, and raise no exceptions.
Comes in: numbers. Goes out: a number.
"""

from __future__ import annotations

from dualbcast.special.exponentials import (
    exp10,
    log_sigmoid,
    logaddexp,
    logaddexp2,
    logit,
    sigmoid,
    softplus,
    xlog1py,
    xlogy,
)
from dualbcast.special.gamma import digamma, polygamma
from dualbcast.special.normal import erfinv, ndtr, ndtri
from dualbcast.special.probability.beta_functions import beta, betaln, binom, gammasgn, loggamma, poch, rgamma
from dualbcast.special.probability.dawson import dawsn, erfi
from dualbcast.special.probability.error import erfcinv, erfcx
from dualbcast.special.probability.incomplete_beta import betainc, betaincc
from dualbcast.special.probability.incomplete_beta_inverses import betainccinv, betaincinv
from dualbcast.special.probability.incomplete_gamma import gammainc, gammaincc
from dualbcast.special.probability.incomplete_gamma_inverses import gammainccinv, gammaincinv
from dualbcast.special.probability.log_normal import log_ndtr, ndtri_exp
from dualbcast.special.probability.zeta import zeta, zetac
from dualbcast.special.trigonometric import sinc

__all__ = [
    "beta",
    "betainc",
    "betaincc",
    "betainccinv",
    "betaincinv",
    "betaln",
    "binom",
    "dawsn",
    "digamma",
    "erfcinv",
    "erfcx",
    "erfi",
    "erfinv",
    "exp10",
    "gammainc",
    "gammaincc",
    "gammainccinv",
    "gammaincinv",
    "gammasgn",
    "log_ndtr",
    "log_sigmoid",
    "logaddexp",
    "logaddexp2",
    "loggamma",
    "logit",
    "ndtr",
    "ndtri",
    "ndtri_exp",
    "poch",
    "polygamma",
    "rgamma",
    "sigmoid",
    "sinc",
    "softplus",
    "xlog1py",
    "xlogy",
    "zeta",
    "zetac",
]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__
