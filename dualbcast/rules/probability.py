"""The rule table's rows of error, gamma and beta functions and of distributions, with the partials of their slopes.

As in `library`, partials are functions of the arguments and then of the result `y`, in the scalar language.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dualbcast import special
from dualbcast.rules.curvatures import partials
from dualbcast.rules.registration import alias, rule
from dualbcast.special import distributions, error, log_normal

# All partials have the same parameters; some need only a few of them.
# ruff: noqa: ARG005

NEAR = (-4.0, 4.0)


def _rule(function: Callable[..., Any], of: Callable[..., Any], **parts: Any) -> None:
    """Add the row of a function that SciPy has under the same name."""
    rule(function.__name__, of, f"scipy.special.{function.__name__}", function=function, **parts)


# --- the error function and the normal distribution ----------------------------------------------------------------

_rule(special.erfcx, lambda x, y: (error.erfcx_slope(x),), domain=(NEAR,))
_rule(special.erfcinv, lambda x, y: (-error.erfinv_slope(y),), domain=((1e-2, 1.99),))
_rule(special.log_ndtr, lambda x, y: (log_normal.log_ndtr_slope(x),))
_rule(special.ndtri_exp, lambda p, y: (1.0 / log_normal.log_ndtr_slope(y),), domain=((-50.0, -1e-3),))

partials(lambda x, y: (error.erfcx_curvature(x),))(error.erfcx_slope)
partials(lambda x, y: (log_normal.log_ndtr_curvature(x, y),))(log_normal.log_ndtr_slope)

# --- distributions -------------------------------------------------------------------------------------------------

# Each function is named after the distribution and its method.
for _name in distributions.__all__:
    alias(getattr(distributions, _name), f"scipy.stats.{_name.replace('_', '.', 1)}")
