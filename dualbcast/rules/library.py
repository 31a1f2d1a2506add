"""The rule table's rows: all functions that kernels know, with their partials, and powers by products or roots.

The partials are functions of the arguments and then of the result `y`, in the scalar language. They are undefined
outside the function's domain, where its value is NaN. The derivatives of their texts must not lose digits; partials for
which they would are in `curvatures`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from dualbcast import arithmetic, complex_functions, special, tables
from dualbcast.rules import curvatures, table
from dualbcast.rules.registration import alias, customise, rule
from dualbcast.rules.table import REAL, Custom
from dualbcast.special.exponentials import gap
from dualbcast.special.normal import DENSITY_AT_ZERO, density
from dualbcast.special.trigonometric import RADIAN, sinc_slope

# Few programs call these functions, and their modules would take a third of the time that this package takes to import.
table.LATER["dualbcast.rules.probability"] = ("dualbcast.special.probability",)
table.LATER["dualbcast.rules.transcendental_functions"] = ("dualbcast.special.classical",)

# The rules for powers that roots compute faster, by exponent.
ROOTS = {0.5: "root", -0.5: "inverse_root", 1.5: "root_cubed", -1.5: "inverse_root_cubed"}

# The largest whole exponent, of either sign, whose power is a product.
LARGEST_PRODUCT = 8


def _inverse_power(count: int) -> Custom:
    """The derivative of x ** -count.

    The rules for products and quotients would square the result, which overflows or underflows where the derivative is
    an ordinary number. This form overflows or underflows only where the derivative does.
    """

    def power(x: float) -> float:
        return x**-count

    power.__name__ = f"inverse_power_{count}"
    return customise(power, lambda x, y: ((-count * y) * (1.0 / x),), ((0.1, 10.0),), "partials")


# By the exponent without its sign.
INVERSE_POWERS = {count: _inverse_power(count) for count in range(2, LARGEST_PRODUCT + 1)}


def _change(change: float) -> float:
    return change


# What a value is by itself, with a partial of 1 in a change of it, which is zero.
CHANGED = customise(_change, lambda change, y: (1.0,), None, "partials").name


def _analytic(name: str) -> None:
    """Give the parts of a complex function, and those of its slope, derivatives by the equations of Cauchy and Riemann.

    The rules for products and quotients would lose the digits of slopes and curvatures that are small.
    """
    parts = vars(complex_functions)
    slope, curvature = parts[f"{name}_slope"], parts[f"{name}_curvature"]

    def slope_real(x: float, y: float) -> Any:
        return slope(x, y).real

    def slope_imag(x: float, y: float) -> Any:
        return slope(x, y).imag

    slope_real.__name__, slope_imag.__name__ = f"{name}_slope_real", f"{name}_slope_imag"
    real, imag = parts[f"{name}_real"], parts[f"{name}_imag"]
    customise(real, lambda x, y, value: (slope_real(x, y), -slope_imag(x, y)), None, "partials")
    customise(imag, lambda x, y, value: (slope_imag(x, y), slope_real(x, y)), None, "partials")
    customise(slope_real, lambda x, y, value: (curvature(x, y).real, -curvature(x, y).imag), None, "partials")
    customise(slope_imag, lambda x, y, value: (curvature(x, y).imag, curvature(x, y).real), None, "partials")


_analytic("tanh")
_analytic("asinh")
_analytic("atanh")
_analytic("acos")
_analytic("acosh")


# All lambdas have the same parameters; some need only a few of them.
# ruff: noqa: ARG005


LN2 = math.log(2.0)
LN10 = math.log(10.0)
ERF_SLOPE = 2.0 / math.sqrt(math.pi)
NEAR = (-4.0, 4.0)
POSITIVE = (1e-3, 50.0)
ABOVE_MINUS_ONE = (-0.99, 50.0)
INSIDE_ONE = (-0.999, 0.999)
DIVISOR = (0.5, 4.0)

_SCALAR_FUNCTIONS = {
    name: vars(module)[name] for module in (arithmetic, special) for name in module.__all__ if name in vars(module)
}


def _rule(name: str, partials: Callable[..., Any], spellings: str = "", **parts: Any) -> None:
    """Add a row, with the function of the same name that is written in the scalar language, if there is one."""
    rule(name, partials, *spellings.split(), **{"function": _SCALAR_FUNCTIONS.get(name), **parts})


# --- powers, exponentials, logarithms ------------------------------------------------------------------------------

_rule("sqrt", lambda x, y: (0.5 / y,), "math.sqrt numpy.sqrt", domain=(POSITIVE,))
_rule("cbrt", lambda x, y: (curvatures.cbrt_slope(y),), "math.cbrt numpy.cbrt scipy.special.cbrt")
_rule("exp", lambda x, y: (y,), "math.exp numpy.exp")
_rule("exp2", lambda x, y: (y * LN2,), "math.exp2 numpy.exp2 scipy.special.exp2")
_rule("expm1", lambda x, y: (math.exp(x),), "math.expm1 numpy.expm1 scipy.special.expm1")
_rule("log", lambda x, y: (1.0 / x,), "math.log numpy.log", domain=(POSITIVE,))
_rule("log2", lambda x, y: (1.0 / LN2 / x,), "math.log2 numpy.log2", domain=(POSITIVE,))
_rule("log10", lambda x, y: (1.0 / LN10 / x,), "math.log10 numpy.log10", domain=(POSITIVE,))
_rule("log1p", lambda x, y: (1.0 / (1.0 + x),), "math.log1p numpy.log1p scipy.special.log1p", domain=(ABOVE_MINUS_ONE,))
_rule(
    "pow",
    # The derivative in p is 0 where the value is, also at x = 0; for negative x it does not exist: NaN.
    lambda x, p, y: (curvatures.power_slope(x, p, y), 0.0 if y == 0 else y * math.log(x)),
    "math.pow numpy.power numpy.float_power",
    domain=((1e-2, 10.0), NEAR),
    kinks=(((0.0, 0.0), (0.0, -math.inf)), ((0.0, 1.0), (1.0, 0.0)), ((0.0, 2.0), (0.0, 0.0))),
)
# x**(p - 1), given y = x**p, as a number of its own. (`curvatures.lower_power` has the derivatives of the power.)
_rule(
    "divided_power",
    lambda x, p, y, low: (-low / x, 0, 1.0 / x),
    function=curvatures.divided_power,
    domain=((1e-2, 10.0), NEAR, (0.1, 10.0)),
)
# Powers with a constant exponent for which roots are faster. (x + 0.0 is x, but turns -0.0 into 0.0.)
_rule("root", lambda x, y: (0.5 / y,), domain=(POSITIVE,))
_rule("inverse_root", lambda x, y: (-0.5 * y / (x + 0.0),), domain=(POSITIVE,))
_rule("root_cubed", lambda x, y: (1.5 * arithmetic.root(x),), domain=(POSITIVE,))
_rule("inverse_root_cubed", lambda x, y: (-1.5 * y / (x + 0.0),), domain=(POSITIVE,))
_rule(
    "hypot",
    lambda a, b, y: (0.0 if y == 0 else curvatures.cosine(a, b), 0.0 if y == 0 else curvatures.sine(a, b)),
    "math.hypot numpy.hypot",
    kinks=(((0.0, 0.0), (0.0, 0.0)),),
)
# What a length is divided by. `hypot` has the same square and root.
_rule(
    "cosine",
    lambda a, b, u: (
        curvatures.over_length(curvatures.sine(a, b), a, b) * curvatures.sine(a, b),
        -curvatures.over_length(u * curvatures.sine(a, b), a, b),
    ),
    function=curvatures.cosine,
)
_rule(
    "sine",
    lambda a, b, v: (
        -curvatures.over_length(v * curvatures.cosine(a, b), a, b),
        curvatures.over_length(curvatures.cosine(a, b), a, b) * curvatures.cosine(a, b),
    ),
    function=curvatures.sine,
)
_rule(
    "over_length",
    lambda t, a, b, y: (
        curvatures.over_length(1.0, a, b),
        -curvatures.over_length(y * curvatures.cosine(a, b), a, b),
        -curvatures.over_length(y * curvatures.sine(a, b), a, b),
    ),
    function=curvatures.over_length,
)
_rule(
    "logaddexp",
    lambda a, b, y: (curvatures.logistic(gap(a, b)), curvatures.logistic(gap(b, a))),
    "numpy.logaddexp",
    kinks=(((-math.inf, -math.inf), (0.5, 0.5)),),
)
_rule(
    "logaddexp2",
    lambda a, b, y: (curvatures.share_of_two(gap(a, b)), curvatures.share_of_two(gap(b, a))),
    "numpy.logaddexp2",
    kinks=(((-math.inf, -math.inf), (0.5, 0.5)),),
)
_rule(
    "xlogy",
    lambda a, b, y: (math.log(b), 0.0 if a == 0 and b == 0 else a / b),
    "scipy.special.xlogy",
    domain=(NEAR, POSITIVE),
    kinks=(((0.0, 0.0), (-math.inf, 0.0)),),
)
_rule(
    "xlog1py",
    lambda a, b, y: (math.log1p(b), 0.0 if a == 0 and b == -1 else a / (1.0 + b)),
    "scipy.special.xlog1py",
    domain=(NEAR, ABOVE_MINUS_ONE),
    kinks=(((0.0, -1.0), (-math.inf, 0.0)),),
)

# --- the logistic function and its kin -----------------------------------------------------------------------------

_rule("sigmoid", lambda x, y: (curvatures.sigmoid_slope(x, y),), "scipy.special.expit")
_rule("softplus", lambda x, y: (curvatures.logistic(x),), "scipy.special.softplus")
_rule("log_sigmoid", lambda x, y: (curvatures.logistic(-x),), "scipy.special.log_expit")
_rule("logit", lambda x, y: (curvatures.logit_slope(x),), "scipy.special.logit", domain=((1e-3, 0.999),))

# --- circular and hyperbolic functions -----------------------------------------------------------------------------

_rule("sin", lambda x, y: (math.cos(x),), "math.sin numpy.sin")
_rule("cos", lambda x, y: (-math.sin(x),), "math.cos numpy.cos")
_rule("tan", lambda x, y: (1.0 + y * y,), "math.tan numpy.tan", domain=((-1.5, 1.5),))
_rule("asin", lambda x, y: (curvatures.asin_slope(x),), "math.asin numpy.arcsin", domain=(INSIDE_ONE,))
_rule("acos", lambda x, y: (-curvatures.asin_slope(x),), "math.acos numpy.arccos", domain=(INSIDE_ONE,))
_rule("atan", lambda x, y: (curvatures.atan_slope(x),), "math.atan numpy.arctan")
_rule(
    "atan2",
    # At the origin the limit depends on the direction: NaN.
    lambda a, b, y: (curvatures.atan2_slope(a, b), -curvatures.atan2_descent(a, b)),
    "math.atan2 numpy.arctan2",
    kinks=(((0.0, 0.0), (math.nan, math.nan)),),
)
_rule("sinh", lambda x, y: (math.cosh(x),), "math.sinh numpy.sinh")
_rule("cosh", lambda x, y: (math.sinh(x),), "math.cosh numpy.cosh")
_rule("tanh", lambda x, y: (curvatures.tanh_slope(x, y),), "math.tanh numpy.tanh")
_rule("asinh", lambda x, y: (curvatures.asinh_slope(x),), "math.asinh numpy.arcsinh")
_rule("acosh", lambda x, y: (curvatures.acosh_slope(x),), "math.acosh numpy.arccosh", domain=((1.001, 50.0),))
_rule("atanh", lambda x, y: (curvatures.atanh_slope(x),), "math.atanh numpy.arctanh", domain=(INSIDE_ONE,))
_rule("sinc", lambda x, y: (sinc_slope(x, y),), "numpy.sinc", domain=(NEAR,), kinks=(((0.0,), (0.0,)),))
_rule("cosm1", lambda x, y: (-math.sin(x),), "scipy.special.cosm1")
_rule("sindg", lambda x, y: (RADIAN * special.cosdg(x),), "scipy.special.sindg", domain=((-400.0, 400.0),))
_rule("cosdg", lambda x, y: (-RADIAN * special.sindg(x),), "scipy.special.cosdg", domain=((-400.0, 400.0),))
_rule("tandg", lambda x, y: (RADIAN + RADIAN * y * y,), "scipy.special.tandg", domain=((-85.0, 85.0),))
_rule("cotdg", lambda x, y: (-RADIAN - RADIAN * y * y,), "scipy.special.cotdg", domain=((5.0, 175.0),))
# --- the error and gamma functions ---------------------------------------------------------------------------------

_rule("erf", lambda x, y: (ERF_SLOPE * curvatures.bell(x),), "math.erf scipy.special.erf", domain=(NEAR,))
_rule("erfc", lambda x, y: (-ERF_SLOPE * curvatures.bell(x),), "math.erfc scipy.special.erfc", domain=(NEAR,))
_rule("erfinv", lambda x, y: (math.exp(y * y) / ERF_SLOPE,), "scipy.special.erfinv", domain=(INSIDE_ONE,))
_rule("ndtr", lambda x, y: (density(x),), "scipy.special.ndtr", domain=(NEAR,))
_rule("ndtri", lambda p, y: (math.exp(0.5 * y * y) / DENSITY_AT_ZERO,), "scipy.special.ndtri", domain=((1e-2, 0.99),))
_rule("lgamma", lambda x, y: (special.digamma(x),), "math.lgamma scipy.special.gammaln", domain=((0.1, 30.0),))
_rule("tgamma", lambda x, y: (curvatures.tgamma_slope(x, y),), "math.gamma scipy.special.gamma", domain=((0.1, 15.0),))
_rule(
    "digamma", lambda x, y: (special.polygamma(1, x),), "scipy.special.digamma scipy.special.psi", domain=((0.1, 30.0),)
)
_rule(
    "polygamma",
    lambda n, x, y: (0, special.polygamma(n + 1, x)),
    "scipy.special.polygamma",
    domain=((0.0, 4.0), (0.1, 30.0)),
    integer=(0,),
)

# --- size, sign, rounding ------------------------------------------------------------------------------------------

_rule("fabs", lambda x, y: (arithmetic.sign(x),), "math.fabs numpy.fabs numpy.absolute", kinks=(((0.0,), (0.0,)),))
_rule(
    "copysign",
    lambda a, b, y: (arithmetic.sign(a) * math.copysign(1.0, b), 0),
    "math.copysign numpy.copysign",
    kinks=(((0.0, 1.0), (0.0, 0.0)), ((0.0, -1.0), (0.0, 0.0))),
)
# The next number is the same number, to within rounding.
_rule("nextafter", lambda a, b, y: (1.0, 0), "math.nextafter numpy.nextafter")
_rule("sign", lambda x, y: (0,), "numpy.sign", kinks=(((0.0,), (0.0,)),))
# math.floor, math.ceil, math.trunc and round give integers, as in Python; the front end makes them of these.
_rule("floor", lambda x, y: (0,), "numpy.floor", kinks=(((1.0,), (0.0,)),))
_rule("ceil", lambda x, y: (0,), "numpy.ceil", kinks=(((1.0,), (0.0,)),))
_rule("trunc", lambda x, y: (0,), "numpy.trunc numpy.fix", kinks=(((1.0,), (0.0,)),))
_rule("rint", lambda x, y: (0,), "numpy.rint scipy.special.round", kinks=(((0.5,), (0.0,)),))
_rule(
    "heaviside",
    lambda x, middle, y: (0, 1.0 if x == 0 else 0.0),
    "numpy.heaviside",
    domain=(REAL, NEAR),
    kinks=(((0.0, 0.5), (0.0, 1.0)),),
)
_rule(
    "ldexp", lambda x, n, y: (arithmetic.ldexp(1.0, n), 0), "math.ldexp numpy.ldexp", domain=(REAL, REAL), integer=(1,)
)

# --- division with remainder: the quotient is piecewise constant ---------------------------------------------------

_rule("fmod", lambda a, b, y: (1.0, -np.rint((a - y) / b)), "math.fmod numpy.fmod", domain=(REAL, DIVISOR))
_rule(
    "modulo",
    # The difference a - y may overflow.
    lambda a, b, y: (1.0, -np.rint(a / b - y / b)),
    "numpy.remainder numpy.mod",
    domain=(REAL, DIVISOR),
)
_rule("ieee_remainder", lambda a, b, y: (1.0, -np.rint(a / b - y / b)), "math.remainder", domain=(REAL, DIVISOR))
_rule("floor_divide", lambda a, b, y: (0, 0), "numpy.floor_divide", domain=(REAL, DIVISOR))

# --- functions that are inlined, and differentiated as user code is -------------------------------------------------

_INLINED = {
    "math": "degrees frexp isclose isfinite isinf isnan modf radians",
    "numpy": "clip degrees fmax fmin frexp isfinite isinf isnan maximum minimum modf nan_to_num radians reciprocal "
    "signbit square where",
    "scipy.special": "exp10 radian",
}
for _module, _names in _INLINED.items():
    for _name in _names.split():
        alias(_SCALAR_FUNCTIONS[_name], f"{_module}.{_name}")
alias(tables.interp, "numpy.interp")
alias(tables.searchsorted, "numpy.searchsorted")
alias(arithmetic.radians, "numpy.deg2rad")
alias(arithmetic.degrees, "numpy.rad2deg")

# --- functions that have no row ------------------------------------------------------------------------------------

_COUNTING = "counts with whole numbers of any size; loop over int64 values instead"
# Functions of `math` and ufuncs of NumPy that have no meaning in a kernel, by the reason (after "it").
_REASONS = {
    _COUNTING: "math.comb math.gcd math.isqrt math.lcm math.perm numpy.bitwise_count numpy.gcd numpy.lcm",
    f"{_COUNTING}; math.gamma(x + 1.0) is the differentiable factorial": "math.factorial",
    "promises a single rounding, which not every target gives; write x * y + z": "math.fma",
    "takes a sequence; write the sum or product out, or loop over a tuple": "math.fsum math.sumprod",
    "measures the floating-point format, not a number": "math.ulp numpy.spacing",
    "is about dates; arrays hold numbers here": "numpy.isnat",
    "multiplies along an axis, which is not an element-wise operation": "numpy.matmul numpy.matvec numpy.vecdot "
    "numpy.vecmat",
}
EXCLUDED = {name: reason for reason, names in _REASONS.items() for name in names.split()}
# What to write instead of functions of whole arrays and of distributions (after "Write instead: "), where it is short.
_ADVICE = {
    "a list or a tuple of numbers, such as [a, b]": "numpy.array numpy.asarray",
    "a list such as [0.0] * 3, and for each change a new one: [*items[:i], item, *items[i + 1:]]": "numpy.empty "
    "numpy.full numpy.ones numpy.zeros",
    "sum([a, b])": "numpy.sum math.fsum",
    "math.prod([a, b])": "numpy.prod",
    "sum([a, b]) / 2": "numpy.mean numpy.average",
    "sum([p * q for p, q in zip(a, b)])": "numpy.dot numpy.inner numpy.vdot math.sumprod",
    "math.hypot(a, b)": "numpy.linalg.norm",
    "Horner's rule, such as (a * x + b) * x + c": "numpy.polyval numpy.polynomial.polynomial.polyval",
    "if and elif, or numpy.where": "numpy.select numpy.piecewise numpy.choose",
}
ADVICE = {name: advice for advice, names in _ADVICE.items() for name in names.split()}
# The same for classes of Python's whose objects a kernel cannot have, by the name of the class or of its module.
_OF_CLASSES = {
    "filter": "a generator with a test: sum(x for x in items if x > 0)",
    "itertools": "for loops, or a generator with several: sum(a * b for a in first for b in second)",
    "operator": "a lambda, such as lambda item: item[0]",
}


def instead_of_class(name: str, module: str) -> str:
    """What to write instead of making an object of a class."""
    return _OF_CLASSES.get(name) or _OF_CLASSES.get(module, "a named tuple, a dataclass, or plain numbers")
