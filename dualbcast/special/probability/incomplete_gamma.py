"""The regularised incomplete gamma functions and their derivatives, in the language of scalar functions.

Comes in: the parameter a >= 0 and x >= 0. Goes out: the probability that a gamma-distributed number is at most x, or
greater, and the slopes. The sums are those of DLMF 8.7.1 and 8.7.3, the continued fraction is DLMF 8.9.2, and large
parameters have the uniform expansion 8.12 (N. M. Temme, "The asymptotic expansion of the incomplete gamma functions",
SIAM J. Math. Anal. 10 (1979) 757-766).
"""

from __future__ import annotations

import math

from dualbcast.special.polynomials import polynomial
from dualbcast.special.probability.error import erfcx
from dualbcast.special.probability.stirling import deviance_ratio, poisson_term

# Where the uniform expansion is used: from this parameter on, and as far from it, in units of the parameter.
LARGE, NEAR = 20.0, 0.4
# No sum or fraction needs more terms.
MOST = 500

# Polynomials in eta for the functions c_k of DLMF 8.12.10, from k = 10 down to 0, each from the highest power down;
# docs/generate_coefficients.py finds them.
# fmt: off
UNIFORM = (
    (
        0.000983756383255555, -0.0019024171402158717, 0.0013360212975431617,
    ),
    (
        -0.0006931267919073753, 0.0007183932328552592, -6.76264724310817e-05, -0.0005975670113491951,
    ),
    (
        -0.00014131245220816617, 0.00017577361187991167, 1.4882550416445943e-06, -0.00043881134422756615,
        0.0008394308837122936, -0.0006526193075487787,
    ),
    (
        3.7362348965856766e-05, -4.3784190721239286e-06, -0.00011151333466309684, 0.000281572941453005,
        -0.00033484835671411024, 5.171190397968057e-05, 0.00034436703137909343,
    ),
    (
        -1.635448202466608e-05, 5.604458817061956e-05, -8.183027408543606e-05, 7.990048338724999e-07,
        0.00027089103652123704, -0.0005921667226290513, 0.0005313078501652015,
    ),
    (
        -2.0259715224433523e-06, 8.018973232486309e-06, -1.3648901988110732e-05, 1.4123985397675147e-07,
        6.79820572685065e-05, -0.00019932566910826387, 0.00027727521268368203, -6.972813769097224e-05,
        -0.0003367985529000792,
    ),
    (
        1.006591384453888e-06, -1.7600469566313019e-06, -3.5212971710101495e-08, 1.1382163849128405e-05,
        -3.968001085911949e-05, 6.641471366285419e-05, -1.4639842439203943e-06, -0.00029907247600525203,
        0.0007840392231522023, -0.0008618882909300452,
    ),
    (
        -2.3345215548298644e-07, 2.2967556201357905e-08, 1.4433626400169024e-06, -5.677110138280212e-06,
        1.1080273832226954e-05, -2.3957544062889037e-07, -7.561790005570364e-05, 0.00026772063127186843,
        -0.00046918949642300585, 0.00022947209362353353, 0.0006494341563842663,
    ),
    (
        1.294822446828221e-07, -6.305975063657318e-07, 1.3756808323828247e-06, 3.447005082205083e-08,
        -1.2761016809647744e-05, 5.292342608102166e-05, -0.00010736651403204805, 2.0093886033410003e-06,
        0.0007716049379558168, -0.002681327160499662, 0.004133597883598774,
    ),
    (
        1.0769274970929093e-08, -5.764354386190901e-08, 1.3823739945529896e-07, 4.693940335827603e-09,
        -1.612142447975184e-06, 7.64915460111814e-06, -1.80985467285589e-05, -4.0187721394037486e-07,
        0.00020576131675541072, -0.0009902263374565352, 0.0026455026455040787, -0.0034722222222221748,
        -0.0018518518518518547,
    ),
    (
        -5.08132707525593e-09, 1.0544852444526516e-08, 7.007714325695537e-09, -1.766834994415886e-07,
        8.296208285922049e-07, -1.854062810712788e-06, -2.1854443966981313e-06, 3.919263195552186e-05,
        -0.00017875514419928614, 0.00035273368605982173, 0.0011574074074103438, -0.014814814814814725,
        0.08333333333333331, -0.3333333333333333,
    ),
)
# fmt: on
# The coefficients of log(gamma(1 + a)) / a in powers of a - 1/2.
# fmt: off
LOG_GAMMA = (
    -2.5114319634039343e-05, 3.8391007353601586e-05, -2.7435947358134683e-05, 4.4800105666887686e-05,
    -8.979318435131855e-05, 0.0001421497297879846, -0.00022114893558037097, 0.00035505384134361975,
    -0.0005737098446776358, 0.0009306032145679576, -0.0015201689557234426, 0.002505116912323953,
    -0.00417353250760481, 0.007052495183330178, -0.012148851359384235, 0.021509909847778855, -0.03970703681678783,
    0.07856564482515951, -0.1774155964515874, 0.5561088984981336, -0.24156447527049044,
)
# fmt: on


def gammainc(a: float, x: float) -> float:
    """The regularised lower incomplete gamma function: the integral of t**(a - 1) * exp(-t) / gamma(a) from 0 to x.

    Parameters
    ----------
    a, x : float
        Not negative; else the result is NaN.

    Returns
    -------
    float
        In [0, 1]. The relative error is some 20 units in the last place, and in small tails three times the
        logarithm of the result more.

    Examples
    --------
    >>> gammainc(1.0, 0.0), gammainc(2.0, math.inf)
    (0.0, 1.0)
    >>> round(gammainc(1.0, 2.0) + math.exp(-2.0), 12)
    1.0
    """
    if is_special(a, x):
        return special_value(a, x)
    if is_near(a, x):
        return uniform_tail(a, x, -1.0)
    if x < a or x < 1.1:
        return poisson_term(a, x) * power_series(a, x)
    return 1.0 - a * poisson_term(a, x) * fraction(a, x)


def gammaincc(a: float, x: float) -> float:
    """The regularised upper incomplete gamma function, 1 - gammainc(a, x), also where it is tiny.

    Parameters
    ----------
    a, x : float
        Not negative; else the result is NaN.

    Returns
    -------
    float
        In [0, 1], with errors as those of `gammainc`.

    Examples
    --------
    >>> gammaincc(1.0, 0.0), gammaincc(2.0, math.inf)
    (1.0, 0.0)
    >>> round(gammaincc(1.0, 300.0) * math.exp(300.0), 10)
    1.0
    """
    if is_special(a, x):
        return 1.0 - special_value(a, x)
    if is_near(a, x):
        return uniform_tail(a, x, 1.0)
    if a < 1 and x < 1.1:
        return small_upper(a, x)
    if x < a or x < 1.1:
        return 1.0 - poisson_term(a, x) * power_series(a, x)
    return a * poisson_term(a, x) * fraction(a, x)


def is_special(a: float, x: float) -> bool:
    """Whether the value is that of an end of the domain, or NaN."""
    return not (0 <= a < math.inf and 0 < x < math.inf) or a == 0


def special_value(a: float, x: float) -> float:
    """The value of `gammainc` at the ends of the domain, and NaN outside of it."""
    if a < 0 or x < 0 or a - x != a - x:
        return math.nan
    return 1.0 if a < x else 0.0 if a > x else math.nan


def is_near(a: float, x: float) -> bool:
    """Whether the uniform expansion is used."""
    return a >= LARGE and abs(x - a) <= NEAR * a


def power_series(a: float, x: float) -> float:
    """The sum of x**n / ((a + 1) … (a + n)) over n = 0, 1, …"""
    term, total, divisor, count = 1.0, 1.0, a, 0
    while abs((total + term) - total) > 0 and count < MOST:
        divisor = divisor + 1.0
        term = term * x / divisor
        total = total + term
        count = count + 1
    return total


def fraction(a: float, x: float) -> float:
    """The continued fraction for Q(a, x) * gamma(a) / (x**a * exp(-x)), by J. Steed's way from the front."""
    b = x + 1.0 - a
    d = 1.0 / b
    step, total, n, count = d, d, 0.0, 0
    while abs((total + step) - total) > 0 and count < MOST:
        n = n + 1.0
        b = b + 2.0
        d = 1.0 / (b + n * (a - n) * d)
        step = (b * d - 1.0) * step
        total = total + step
        count = count + 1
    return total


def small_upper(a: float, x: float) -> float:
    """`gammaincc` for a < 1 and x < 1.1, without the cancellation of 1 - P where both are small."""
    log_power = a * (math.log(x) - polynomial(a - 0.5, LOG_GAMMA))
    # The sum of -a * (-x)**n / ((a + n) * n!) over n = 1, 2, …
    term, total, n, count = -1.0, 0.0, 0.0, 0
    added = 1.0
    while abs((total + added) - total) > 0 and count < MOST:
        n = n + 1.0
        term = -term * x / n
        added = term / (a + n)
        total = total + added
        count = count + 1
    return math.exp(log_power) * a * total - math.expm1(log_power)


def uniform_tail(a: float, x: float, side: float) -> float:
    """`gammaincc` by the uniform expansion where `side` is 1, and `gammainc` where it is -1."""
    m = (x - a) / a
    ratio = deviance_ratio(m)
    eta = m * math.sqrt(2.0 * ratio)
    total = 0.0
    for row in UNIFORM:
        total = total / a + polynomial(eta, row)
    # The smaller tail is computed, and is the upper one where x is above a.
    upper = 1.0 if eta > 0 else -1.0
    scale = math.exp(-a * m * m * ratio)
    tail = scale * (0.5 * erfcx(abs(eta) * math.sqrt(0.5 * a)) + upper * total / math.sqrt(2.0 * math.pi * a))
    return tail if side == upper else 1.0 - tail
