"""log as LLVM IR, without a division and without a table."""

from __future__ import annotations

import math

from dualbcast.codegen.mathlib.primitives import fma, for_format, format_of, polynomial
from dualbcast.codegen.values import Value

__all__ = ["log"]

# P in log(1 + f) = f - f**2 / 2 + f**3 * P(f) from sqrt(1/2) to sqrt(2); by docs/generate_coefficients.py.
_FLOAT32 = (
    *(0.3333335518836975, -0.2500085234642029, 0.19999825954437256, -0.16621370613574982, 0.14227114617824554),
    *(-0.13202103972434998, 0.1262032687664032, -0.07362867891788483),
)
_FLOAT64 = (
    *(0.3333333333333286, -0.24999999999988237, 0.2000000000015019, -0.1666666666979154, 0.14285714271206917),
    *(-0.12499999689720186, 0.11111111620272714, -0.10000015584842055, 0.09090909746386354, -0.08332893867515177),
    *(0.07691778451952211, -0.0714992981357431, 0.06682130776502695, -0.06190163458644951, 0.05679883651136751),
    *(-0.057222804813101484, 0.06498536047744115, -0.058586638532475796, 0.025120062610375953),
)


def log(x: Value) -> Value:
    """With x = 2**n * (1 + f)."""
    form = format_of(x)
    lift, whole = 2 * form.fraction, 2.0**form.fraction
    is_subnormal = x < form.normal
    normal = is_subnormal.choose(x * 2.0**lift, x)
    # Counted from sqrt(1/2) the exponent is n, and what is left is the distance from there. It goes to a float by way
    # of the last bits of one, since AVX2 cannot convert.
    root, one = x.constant(math.sqrt(0.5)).bits(), x.constant(1.0).bits()
    counted = normal.bits() - root + one
    exponent = (counted >> form.fraction) | x.constant(whole).bits()
    bias = is_subnormal.choose(x.constant(whole + form.bias + lift), whole + form.bias)
    n = exponent.as_float() - bias
    f = ((counted & ((1 << form.fraction) - 1)) + root).as_float() - 1.0

    square = f * f
    tail = fma(f, polynomial(for_format(x, _FLOAT32, _FLOAT64), f), -0.5)
    low = fma(square, tail, n * form.log2_low)
    result = fma(n, form.log2, f + low)

    result = (x < math.inf).choose(result, x)
    nothing = (x == 0.0).choose(x.constant(-math.inf), math.nan)
    return x.unordered(">", 0.0).choose(result, nothing)
