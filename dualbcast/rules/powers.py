"""Powers with a known exponent that products or roots compute faster than pow does, and their partials."""

from __future__ import annotations

from types import FunctionType

from dualbcast.rules.table import CUSTOMS, Custom

__all__ = ["INVERSE_POWERS", "LARGEST_PRODUCT", "ROOTS"]

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

    assert isinstance(power, FunctionType)
    custom = Custom(f"inverse_power_{count}", power, lambda x, y: ((-count * y) * (1.0 / x),), ((0.1, 10.0),))
    CUSTOMS[custom.name] = custom
    return custom


# By the exponent without its sign.
INVERSE_POWERS = {count: _inverse_power(count) for count in range(2, LARGEST_PRODUCT + 1)}
