"""What is known of ForwardDiff in each row, and from where; nothing here has been run."""

from __future__ import annotations

__all__ = ["FACTS", "SOURCES"]

_ISSUES = "https://github.com/JuliaDiff/ForwardDiff.jl/issues/"

SOURCES = {
    "docs": ("ForwardDiff's documentation", "https://juliadiff.org/ForwardDiff.jl/stable/user/limitations/"),
    "rules": ("the table of DiffRules", "https://github.com/JuliaDiff/DiffRules.jl/blob/master/src/rules.jl"),
    "julia": ("Julia's manual", "https://docs.julialang.org/en/v1/manual/conversion-and-promotion/"),
    "Zygote 1018": ("Zygote 1018", "https://github.com/FluxML/Zygote.jl/pull/1018"),
    **{number: (number, _ISSUES + number) for number in ("331", "377", "414", "480", "607", "742", "745", "774", "777")},
}

_RIGHT = "right; docs"
_OTHER_SIDE = "takes the other side; 742"

# The cell, and after a semicolon the sources. Since ForwardDiff 1.0 duals are compared by their tangents, too.
FACTS = {
    "sqrt_guarded": _OTHER_SIDE,
    "entropy": _OTHER_SIDE,
    "cardinal_sine": "takes the other side; 607",
    "softplus": _RIGHT,
    "power_guarded": _RIGHT,
    "ratio": "takes the other side; 607",
    "abs_at_zero": "convention: 1; 377",
    "max_tie": "convention: (0, 1); rules",
    "min_tie": "right; rules",
    "max_of_itself": "right; rules",
    "relu_at_zero": "convention: 0; rules",
    "sqrt_taken": "right; rules",
    "power_zero": "right; 331",
    "power_two": "right; 331",
    "zero_to_the_p": "right; 414",
    "atan2_at_origin": "right; rules",
    "hypot_at_origin": "convention: (NaN, NaN); rules",
    "overflowing_product": "(NaN, NaN), right in NaN-safe mode; 745 777",
    "log_after_branch": "(NaN, inf), right in NaN-safe mode; 774 777",
    "product_if_equal": "takes the other side; 480",
    "special_point": "convention: 2; 480",
    "threshold": _OTHER_SIDE,
    "repeated_square": _RIGHT,
    "odd_powers": _RIGHT,
    "used_after_loop": _RIGHT,
    "active_on_one_side": _RIGHT,
    "halve_until": "one turn more at 8; 742",
    "stop_when_large": _RIGHT,
    "used_after_overwriting": _RIGHT,
    "pair_in_step": _RIGHT,
    "float_modulo": "right; rules",
    "literal_in_float64": "right; julia",
    "literal_in_float32": "64 bits; julia",
    "numpy_scalar_in_float32": "64 bits; julia",
    "unused_nan": _RIGHT,
    "unused_infinity": _RIGHT,
    "nan_compared": _RIGHT,
    "captured_array": "none for arrays on the GPU (Zygote); Zygote 1018",
}
