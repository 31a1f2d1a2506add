"""The rule table's rows of Bessel functions, elliptic and other integrals and their kin, by SciPy's names, and the
custom derivatives of the functions of several arguments, which are inlined.

Partials, and slopes with partials of their own, are as in `library` and in `curvatures`.
"""

# All partials have the same parameters; some need only a few of them.
# ruff: noqa: ARG005

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from dualbcast.arithmetic import sign
from dualbcast.rules.registration import alias, customise, rule
from dualbcast.special.classical import (
    bessel,
    carlson,
    divergences,
    elliptic,
    integrals,
    lambert,
    modified_bessel,
    orthogonal,
    power_transforms,
)
from dualbcast.special.exponentials import exp_over

NEAR = (-4.0, 4.0)
REAL = (-20.0, 20.0)
POSITIVE = (1e-3, 20.0)
BELOW_ONE = (-5.0, 0.99)
ORDER = (0.0, 5.0)


def _row(
    function: Callable[..., Any], partials: Callable[..., Any], *domain: tuple[float, float], **parts: Any
) -> None:
    """Add a row with SciPy's spelling, or others."""
    spellings = parts.pop("spellings", f"scipy.special.{function.__name__}").split()
    rule(function.__name__, partials, *spellings, function=function, domain=domain, **parts)


def _customs(*pairs: tuple[Callable[..., Any], Callable[..., Any]]) -> None:
    for function, partials in pairs:
        customise(function, partials, None, "partials")


# --- elementary functions ------------------------------------------------------------------------------------------

_row(power_transforms.exprel, lambda x, y: (power_transforms.exp_moment(1, x),), REAL)
_row(divergences.entr, lambda x, y: (-1.0 - math.log(x),), POSITIVE)
_row(lambert.wrightomega, lambda x, y: (lambert.omega_slope(y),), REAL)
_row(lambert.w_zero, lambda x, y: (lambert.w_slope(x, y),), (-0.36, 20.0), spellings="")
_row(lambert.w_minus_one, lambda x, y: (lambert.w_slope(x, y),), (-0.36, -1e-3), spellings="")

_customs(
    (power_transforms.exp_moment, lambda k, x, y: (0, power_transforms.exp_moment(k + 1, x))),
    (power_transforms.log1prel, lambda x, y: (power_transforms.log1prel_slope(x),)),
    (power_transforms.log1prel_slope, lambda x, y: (power_transforms.log1prel_curvature(x),)),
    (lambert.omega_slope, lambda w, y: (1.0 / (1.0 + w) * (1.0 / (1.0 + w)),)),
    (lambert.w_slope, lambda x, w, y: (lambert.w_curvature(x, w, y), 0)),
)

# --- Bessel functions ----------------------------------------------------------------------------------------------

_row(bessel.j0, lambda x, y: (-bessel.j1(x),), REAL)
_row(bessel.j1, lambda x, y: (bessel.j1_slope(x, y),), REAL)
_row(bessel.y0, lambda x, y: (-bessel.y1(x),), POSITIVE)
_row(bessel.y1, lambda x, y: (bessel.y1_slope(x, y),), POSITIVE)
_row(modified_bessel.i0, lambda x, y: (modified_bessel.i1(x),), REAL)
_row(modified_bessel.i1, lambda x, y: (modified_bessel.i1_slope(x, y),), REAL)
_row(
    modified_bessel.i0e,
    lambda x, y: (-sign(x) * modified_bessel.i_gap(x),),
    REAL,
    kinks=(((0.0,), (0.0,)),),
)
_row(modified_bessel.i1e, lambda x, y: (modified_bessel.i1e_slope(x, y),), REAL)
_row(modified_bessel.k0, lambda x, y: (-modified_bessel.k1(x),), POSITIVE)
_row(modified_bessel.k1, lambda x, y: (-modified_bessel.k0(x) - y / x,), POSITIVE)
_row(modified_bessel.k0e, lambda x, y: (-modified_bessel.k_gap(x),), POSITIVE)
_row(modified_bessel.k1e, lambda x, y: (modified_bessel.k1e_slope(x, y),), POSITIVE)
_row(
    bessel.jn,
    lambda n, x, y: (0, 0.5 * (bessel.jn(n - 1, x) - bessel.jn(n + 1, x))),
    ORDER,
    REAL,
    integer=(0,),
    spellings="scipy.special.jv scipy.special.jn",
)
_row(
    bessel.yn,
    lambda n, x, y: (0, bessel.yn_slope(n, x, y)),
    ORDER,
    (0.1, 20.0),
    integer=(0,),
    spellings="scipy.special.yn scipy.special.yv",
)
_row(
    modified_bessel.iv,
    lambda n, x, y: (0, 0.5 * modified_bessel.iv(n - 1, x) + 0.5 * modified_bessel.iv(n + 1, x)),
    ORDER,
    REAL,
    integer=(0,),
)
_row(
    modified_bessel.ive,
    lambda n, x, y: (0, modified_bessel.ive_slope(n, x, y)),
    ORDER,
    POSITIVE,
    integer=(0,),
)
_row(
    modified_bessel.kv,
    lambda n, x, y: (0, -0.5 * (modified_bessel.kv(n - 1, x) + modified_bessel.kv(n + 1, x))),
    ORDER,
    (0.1, 20.0),
    integer=(0,),
    spellings="scipy.special.kn scipy.special.kv",
)
_row(
    modified_bessel.kve,
    lambda n, x, y: (0, modified_bessel.kve_slope(n, x, y)),
    ORDER,
    (0.1, 20.0),
    integer=(0,),
)

_customs(
    (bessel.j1_slope, lambda x, y, s: (bessel.j2_over(x) - y, 0)),
    (bessel.y1_slope, lambda x, y, s: (bessel.y1_curvature(x, y), 0)),
    (modified_bessel.i1_slope, lambda x, y, s: (modified_bessel.i1_curvature(x, y), 0)),
    (modified_bessel.i1e_slope, lambda x, y, s: (modified_bessel.i1e_curvature(x, y, s), 0)),
    (modified_bessel.i_gap, lambda x, y: (modified_bessel.i_gap_slope(x),)),
    (modified_bessel.k_gap, lambda x, y: (modified_bessel.k_gap_slope(x, y),)),
    (modified_bessel.k1e_slope, lambda x, y, s: (modified_bessel.k1e_curvature(x, y, s), 0)),
)

# --- elliptic integrals and functions ------------------------------------------------------------------------------

_row(elliptic.ellipk, lambda m, y: (0.5 * elliptic.legendre_b(1.0 - m) / (1.0 - m),), BELOW_ONE)
_row(elliptic.ellipkm1, lambda p, y: (-0.5 * elliptic.legendre_b(p) / p,), POSITIVE)
_row(elliptic.ellipe, lambda m, y: (-0.5 * elliptic.legendre_d(1.0 - m),), BELOW_ONE)

_customs(
    (elliptic.legendre_b, lambda n, y: (elliptic.b_slope(n),)),
    (elliptic.legendre_d, lambda n, y: (elliptic.d_slope(n),)),
    (
        elliptic.ellipkinc,
        lambda phi, m, y: (1.0 / elliptic.delta_amplitude(phi, m), elliptic.ellipkinc_slope(phi, m)),
    ),
    (elliptic.ellipeinc, lambda phi, m, y: (elliptic.delta_amplitude(phi, m), elliptic.ellipeinc_slope(phi, m))),
    (
        elliptic.amplitude,
        lambda u, m, y: (
            elliptic.delta_amplitude(y, m),
            -elliptic.delta_amplitude(y, m) * elliptic.ellipkinc_slope(y, m),
        ),
    ),
)

# --- exponential, sine and other integrals -------------------------------------------------------------------------

customise(exp_over, lambda x, y: (y * ((x - 1.0) / x),), None, "partials")
_row(integrals.exp1, lambda x, y: (-math.exp(-x) / x,), POSITIVE)
_row(integrals.expi, lambda x, y: (exp_over(x),), REAL)
_row(integrals.expn, lambda n, x, y: (0, -integrals.expn(n - 1, x)), ORDER, (0.1, 20.0), integer=(0,))
_row(integrals.spence, lambda x, y: (integrals.spence_slope(x),), POSITIVE)
_row(integrals.si, lambda x, y: (integrals.sine_over(x),), REAL, spellings="")
_row(integrals.ci, lambda x, y: (math.cos(x) / x,), POSITIVE, spellings="")
_row(integrals.shi, lambda x, y: (integrals.sinh_over(x),), REAL, spellings="")
_row(integrals.chi, lambda x, y: (integrals.cosh_over(x),), POSITIVE, spellings="")
_row(integrals.fresnel_s, lambda x, y: (integrals.sine_of_square(x),), NEAR, spellings="")
_row(integrals.fresnel_c, lambda x, y: (integrals.cosine_of_square(x),), NEAR, spellings="")

_customs(
    (integrals.spence_slope, lambda x, y: (integrals.spence_curvature(x),)),
    (integrals.sine_over, lambda x, y: (integrals.sine_over_slope(x, y),)),
    (integrals.small_sinh_over, lambda x, y: (integrals.sinh_over_slope(x, y),)),
    (integrals.sine_of_square, lambda x, y: (math.pi * (x * integrals.cosine_of_square(x)),)),
    (integrals.cosine_of_square, lambda x, y: (-math.pi * (x * integrals.sine_of_square(x)),)),
)

# --- functions of several arguments, which are inlined ---------------------------------------------------------------

_customs(
    (
        power_transforms.boxcox,
        lambda x, p, y: (math.pow(x, p - 1.0), power_transforms.boxcox_slope(x, p)),
    ),
    (
        power_transforms.boxcox_slope,
        lambda x, p, y: (math.pow(x, p - 1.0) * math.log(x), power_transforms.cubed_moment(math.log(x), p)),
    ),
    (
        power_transforms.boxcox1p,
        lambda x, p, y: (power_transforms.power_of_next(x, p - 1.0), power_transforms.boxcox1p_slope(x, p)),
    ),
    (
        power_transforms.power_of_next,
        lambda x, p, y: (p * power_transforms.power_of_next(x, p - 1.0), y * math.log1p(x) if y != 0 else 0.0),
    ),
    (carlson.elliprg, lambda x, y, z, v: carlson.elliprg_slopes(x, y, z)),
    (
        power_transforms.boxcox1p_slope,
        lambda x, p, y: (math.pow(1.0 + x, p - 1.0) * math.log1p(x), power_transforms.cubed_moment(math.log1p(x), p)),
    ),
    (
        power_transforms.inv_boxcox,
        lambda y, p, x: (x / (1.0 + p * y), x * (y * y * power_transforms.log1prel_slope(p * y))),
    ),
    (
        power_transforms.inv_boxcox1p,
        lambda y, p, x: (
            (1.0 + x) / (1.0 + p * y),
            (1.0 + x) * (y * y * power_transforms.log1prel_slope(p * y)),
        ),
    ),
    (divergences.rel_entr, lambda x, y, v: (1.0 + divergences.log_ratio(x, y), -x / y)),
    (divergences.kl_div, lambda x, y, v: (divergences.log_ratio(x, y), divergences.share_gained(x, y))),
    (divergences.log_ratio, lambda x, y, v: (1.0 / x, -1.0 / y)),
    (divergences.share_gained, lambda x, y, v: (-1.0 / y, x / y / y)),
    (
        divergences.pseudo_huber,
        lambda d, r, y: (divergences.pseudo_huber_width_slope(d, r), divergences.pseudo_huber_slope(d, r)),
    ),
    (
        divergences.pseudo_huber_slope,
        lambda d, r, y: (divergences.pseudo_huber_curvatures(d, r)[1], divergences.pseudo_huber_curvatures(d, r)[2]),
    ),
    (
        divergences.pseudo_huber_width_slope,
        lambda d, r, y: (divergences.pseudo_huber_curvatures(d, r)[0], divergences.pseudo_huber_curvatures(d, r)[1]),
    ),
)

_INLINED: dict[Any, str] = {
    power_transforms: "boxcox boxcox1p inv_boxcox inv_boxcox1p powm1",
    divergences: "huber kl_div pseudo_huber rel_entr",
    elliptic: "agm ellipeinc ellipj ellipkinc",
    carlson: "elliprc elliprd elliprf elliprg elliprj",
    integrals: "fresnel shichi sici",
    orthogonal: "eval_chebyc eval_chebys eval_chebyt eval_chebyu eval_gegenbauer eval_genlaguerre eval_hermite "
    "eval_hermitenorm eval_jacobi eval_laguerre eval_legendre eval_sh_chebyt eval_sh_chebyu eval_sh_legendre",
}
for _module, _names in _INLINED.items():
    for _name in _names.split():
        alias(getattr(_module, _name), f"scipy.special.{_name}")
