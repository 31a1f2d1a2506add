"""Writes docs/reference/scipy-special.md, which of SciPy's special functions a scalar function may call, from the rule
table: python docs/generate_scipy_special.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import scipy
import scipy.special

from dualbcast.frontend import calls  # noqa: F401 - it imports all rows
from dualbcast.rules.table import BY_SPELLING, add_later_rows

add_later_rows()

PAGE = Path(__file__).parent / "reference" / "scipy-special.md"

HEAD = """\
# SciPy's special functions

A scalar function may call {supported} of the {count} ufuncs of `scipy.special` (release {version}) under SciPy's names,
and {others} of its other functions. The page is generated from the rule table by `docs/generate_scipy_special.py`.
[rules.md](rules.md) has the derivatives, and the docstrings in [special.md](special.md) say how accurate each function
is. Orders, degrees and numbers of events are whole numbers, and have no derivative.

Arguments and results are real numbers: of functions that are defined for complex numbers too, there is the real part of
the definition. A function that is missing is added with [`dualbcast.rule`](../guides/extending.md).
"""

# Why a ufunc is left out, by the reason.
REASONS = {
    "has several results, each of which needs methods of its own": (
        "airy airye itairy it2i0k0 it2j0y0 iti0k0 itj0y0 kelvin mathieu_cem mathieu_sem mathieu_modcem1 "
        "mathieu_modcem2 mathieu_modsem1 mathieu_modsem2 modfresnelm modfresnelp pbdv pbvv pbwa "
        "obl_ang1 obl_ang1_cv obl_rad1 obl_rad1_cv obl_rad2 obl_rad2_cv pro_ang1 pro_ang1_cv pro_rad1 pro_rad1_cv "
        "pro_rad2 pro_rad2_cv"
    ),
    "is complex, also for real arguments": "hankel1 hankel1e hankel2 hankel2e wofz",
    "inverts a distribution function in a parameter, by a search that has no derivative of its own; solve the equation "
    "with `fit` or a loop": (
        "bdtrik bdtrin btdtria btdtrib chdtriv fdtridfd gdtria gdtrib nbdtrik nbdtrin pdtrik stdtridf"
    ),
    "is of a noncentral distribution, a series of incomplete gamma or beta functions": (
        "chndtr chndtridf chndtrinc chndtrix ncfdtr ncfdtri ncfdtridfd ncfdtridfn ncfdtrinc nctdtr nctdtridf nctdtrinc "
        "nctdtrit"
    ),
    "is a hypergeometric function, whose methods change with its parameters, and which has no simple derivative in "
    "them": "hyp0f1 hyp1f1 hyp2f1 hyperu",
    "is a wave function of spheroids or ellipses, whose values need eigenvalues of a matrix": (
        "mathieu_a mathieu_b obl_cv pro_cv"
    ),
    "is a Struve, Kelvin or Wright function, or an integral of one, which is rarely met": (
        "bei beip ber berp kei keip ker kerp besselpoly it2struve0 itmodstruve0 itstruve0 modstruve struve "
        "wright_bessel log_wright_bessel"
    ),
    "is a scaled Bessel function of complex numbers": "jve yve",
    "is the distribution of a test statistic": "kolmogi kolmogorov smirnov smirnovi tklmbda",
    "is not here yet": "*",
}
MISSING = {name: reason for reason, names in REASONS.items() for name in names.split() if name != "*"}
LATER = next(reason for reason, names in REASONS.items() if names == "*")


def ufuncs() -> list[str]:
    """The names of the ufuncs of the installed SciPy."""
    return [name for name in dir(scipy.special) if isinstance(getattr(scipy.special, name), np.ufunc)]


def supported() -> set[str]:
    """The functions of `scipy.special` that have a meaning in kernels."""
    places = (spelling.rpartition(".") for spelling in BY_SPELLING)
    return {name for place, _, name in places if place == "scipy.special"}


def page() -> str:
    """The text of docs/reference/scipy-special.md."""
    known, every = supported(), ufuncs()
    there = [name for name in every if name in known]
    others = sorted(name for name in known if name not in every and hasattr(scipy.special, name))
    lines = [HEAD.format(supported=len(there), count=len(every), others=len(others), version=scipy.__version__)]
    lines.append("| function | supported | why not |\n| --- | --- | --- |")
    for name in every:
        lines.append(f"| `{name}` | yes | |" if name in known else f"| `{name}` | | it {MISSING.get(name, LATER)} |")
    lines.append(
        "\nOther functions of the module that a scalar function may call: " + ", ".join(f"`{n}`" for n in others)
    )
    return "\n".join(lines) + ".\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
