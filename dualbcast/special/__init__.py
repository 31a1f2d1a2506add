"""Special functions, written in the language of scalar functions.

They take and return single numbers. In plain Python they work on floats, and raise exceptions where `math` does. In a
kernel they compute in the compute dtype and follow IEEE 754: they give infinities and NaNs, and raise no exceptions.
Comes in: numbers. Goes out: a number.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from dualbcast.special.trigonometric import cosdg, cosm1, cotdg, radian, sinc, sindg, tandg

if TYPE_CHECKING:
    from dualbcast.special.classical.bessel import j0, j1, jn, y0, y1, yn
    from dualbcast.special.classical.carlson import elliprc, elliprd, elliprf, elliprg, elliprj
    from dualbcast.special.classical.divergences import entr, huber, kl_div, pseudo_huber, rel_entr
    from dualbcast.special.classical.elliptic import (
        agm,
        amplitude,
        ellipe,
        ellipeinc,
        ellipj,
        ellipk,
        ellipkinc,
        ellipkm1,
    )
    from dualbcast.special.classical.integrals import (
        chi,
        ci,
        exp1,
        expi,
        expn,
        fresnel,
        fresnel_c,
        fresnel_s,
        shi,
        shichi,
        si,
        sici,
        spence,
    )
    from dualbcast.special.classical.lambert import lambertw, wrightomega
    from dualbcast.special.classical.modified_bessel import i0, i0e, i1, i1e, iv, ive, k0, k0e, k1, k1e, kv, kve
    from dualbcast.special.classical.orthogonal import (
        eval_chebyc,
        eval_chebys,
        eval_chebyt,
        eval_chebyu,
        eval_gegenbauer,
        eval_genlaguerre,
        eval_hermite,
        eval_hermitenorm,
        eval_jacobi,
        eval_laguerre,
        eval_legendre,
        eval_sh_chebyt,
        eval_sh_chebyu,
        eval_sh_legendre,
    )
    from dualbcast.special.classical.power_transforms import boxcox, boxcox1p, exprel, inv_boxcox, inv_boxcox1p, powm1
    from dualbcast.special.probability.beta_functions import beta, betaln, binom, gammasgn, loggamma, poch, rgamma
    from dualbcast.special.probability.dawson import dawsn, erfi
    from dualbcast.special.probability.error import erfcinv, erfcx
    from dualbcast.special.probability.incomplete_beta import betainc, betaincc
    from dualbcast.special.probability.incomplete_beta_inverses import betainccinv, betaincinv
    from dualbcast.special.probability.incomplete_gamma import gammainc, gammaincc
    from dualbcast.special.probability.incomplete_gamma_inverses import gammainccinv, gammaincinv
    from dualbcast.special.probability.log_normal import log_ndtr, ndtri_exp
    from dualbcast.special.probability.zeta import zeta, zetac

# The modules of the families of functions that few programs call; one is imported when a name of them is looked up.
_LATER = (
    "classical.bessel",
    "classical.carlson",
    "classical.divergences",
    "classical.elliptic",
    "classical.integrals",
    "classical.lambert",
    "classical.modified_bessel",
    "classical.orthogonal",
    "classical.power_transforms",
    "probability.beta_functions",
    "probability.dawson",
    "probability.error",
    "probability.incomplete_beta",
    "probability.incomplete_beta_inverses",
    "probability.incomplete_gamma",
    "probability.incomplete_gamma_inverses",
    "probability.log_normal",
    "probability.zeta",
)

__all__ = [
    "agm",
    "amplitude",
    "beta",
    "betainc",
    "betaincc",
    "betainccinv",
    "betaincinv",
    "betaln",
    "binom",
    "boxcox",
    "boxcox1p",
    "chi",
    "ci",
    "cosdg",
    "cosm1",
    "cotdg",
    "dawsn",
    "digamma",
    "ellipe",
    "ellipeinc",
    "ellipj",
    "ellipk",
    "ellipkinc",
    "ellipkm1",
    "elliprc",
    "elliprd",
    "elliprf",
    "elliprg",
    "elliprj",
    "entr",
    "erfcinv",
    "erfcx",
    "erfi",
    "erfinv",
    "eval_chebyc",
    "eval_chebys",
    "eval_chebyt",
    "eval_chebyu",
    "eval_gegenbauer",
    "eval_genlaguerre",
    "eval_hermite",
    "eval_hermitenorm",
    "eval_jacobi",
    "eval_laguerre",
    "eval_legendre",
    "eval_sh_chebyt",
    "eval_sh_chebyu",
    "eval_sh_legendre",
    "exp1",
    "exp10",
    "expi",
    "expn",
    "exprel",
    "fresnel",
    "fresnel_c",
    "fresnel_s",
    "gammainc",
    "gammaincc",
    "gammainccinv",
    "gammaincinv",
    "gammasgn",
    "huber",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "inv_boxcox",
    "inv_boxcox1p",
    "iv",
    "ive",
    "j0",
    "j1",
    "jn",
    "k0",
    "k0e",
    "k1",
    "k1e",
    "kl_div",
    "kv",
    "kve",
    "lambertw",
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
    "powm1",
    "pseudo_huber",
    "radian",
    "rel_entr",
    "rgamma",
    "shi",
    "shichi",
    "si",
    "sici",
    "sigmoid",
    "sinc",
    "sindg",
    "softplus",
    "spence",
    "tandg",
    "wrightomega",
    "xlog1py",
    "xlogy",
    "y0",
    "y1",
    "yn",
    "zeta",
    "zetac",
]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


def __getattr__(name: str) -> Any:
    """A function of a family that has not been imported, which is an ordinary name of this module from then on."""
    if name in __all__:
        for place in _LATER:
            found = getattr(import_module(f"{__name__}.{place}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
