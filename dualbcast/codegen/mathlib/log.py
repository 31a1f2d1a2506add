"""log as LLVM IR, without a division and without a table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from dualbcast.codegen.mathlib.primitives import Steps
from dualbcast.codegen.mathlib.vector_types import is_single

__all__ = ["FUNCTIONS"]

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


def _log(builder: ir.IRBuilder, arguments: Sequence[ir.Value]) -> ir.Value:
    """With x = 2**n * (1 + f)."""
    (x,) = arguments
    f = Steps(builder, x.type)
    smallest, lift = float(f.info.tiny), 2 * f.fraction
    subnormal = builder.fcmp_ordered("<", x, f.number(smallest))
    normal = builder.select(subnormal, builder.fmul(x, f.number(2.0**lift)), x)
    # Counted from sqrt(1/2) the exponent is n, and what is left is the distance from there. It goes to a float by way
    # of the last bits of one, since AVX2 cannot convert.
    root, one = f.bits(f.number(math.sqrt(0.5))), f.bits(f.number(1))
    counted = builder.add(builder.sub(f.bits(normal), root), one)
    whole = 2.0**f.fraction
    exponent = builder.or_(builder.lshr(counted, f.integer(f.fraction)), f.bits(f.number(whole)))
    bias = builder.select(subnormal, f.number(whole + f.bias + lift), f.number(whole + f.bias))
    n = builder.fsub(builder.bitcast(exponent, f.kind), bias)
    rest = builder.add(builder.and_(counted, f.integer((1 << f.fraction) - 1)), root)
    r = builder.fsub(builder.bitcast(rest, f.kind), f.number(1))

    square = builder.fmul(r, r)
    tail = f.fma(r, f.polynomial(_FLOAT32 if is_single(f.kind) else _FLOAT64, r), f.number(-0.5))
    low = f.fma(square, tail, builder.fmul(n, f.number(f.format.log2_low)))
    result = f.fma(n, f.number(float(f.format.dtype(math.log(2.0)))), builder.fadd(r, low))

    result = builder.select(builder.fcmp_ordered("<", x, f.number(math.inf)), result, x)
    nothing = builder.select(builder.fcmp_ordered("==", x, f.number(0)), f.number(-math.inf), f.number(math.nan))
    return builder.select(builder.fcmp_unordered(">", x, f.number(0)), result, nothing)


FUNCTIONS = {"log": _log}
