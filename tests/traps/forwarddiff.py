"""What is known of ForwardDiff in each row, and from where; nothing here has been run."""

from __future__ import annotations

__all__ = ["FACTS", "SOURCES"]

_ISSUES = "https://github.com/JuliaDiff/ForwardDiff.jl/issues/"

SOURCES = {
    "docs": "https://juliadiff.org/ForwardDiff.jl/stable/user/limitations/",
    "DiffRules": "https://github.com/JuliaDiff/DiffRules.jl/blob/master/src/rules.jl",
    "Julia": "https://docs.julialang.org/en/v1/manual/conversion-and-promotion/",
    "Zygote": "https://github.com/FluxML/Zygote.jl/pull/1018",
    **{number: _ISSUES + number for number in ("331", "377", "414", "481", "607", "742", "745", "774", "777")},
}

_RIGHT = "right; docs"
_OTHER_SIDE = "takes the other side; 742"

# The cell, and after the last semicolon the sources. Since ForwardDiff 1.0 duals are compared by their tangents, too.
FACTS = {
    "sqrt_guarded": _OTHER_SIDE,
    "entropy": _OTHER_SIDE,
    "cardinal_sine": "takes the other side; 607",
    "softplus": _RIGHT,
    "power_guarded": _RIGHT,
    "ratio": "takes the other side; 607",
    "abs_at_zero": "convention: `1`; 377",
    "max_tie": "convention: `(0, 1)`; DiffRules",
    "min_tie": "right; DiffRules",
    "max_of_itself": "right; DiffRules",
    "relu_at_zero": "convention: `0`; DiffRules",
    "sqrt_taken": "right; DiffRules",
    "power_zero": "right; 331",
    "power_two": "right; 331",
    "zero_to_the_p": "right; 414",
    "atan2_at_origin": "right; DiffRules",
    "hypot_at_origin": "convention: `(NaN, NaN)`; DiffRules",
    "overflowing_product": "`(NaN, NaN)`; right in NaN-safe mode; 745 777",
    "log_after_branch": "`(NaN, inf)`; right in NaN-safe mode; 774 777",
    "product_if_equal": "takes the other side; 481",
    "special_point": "convention: `2`; 481",
    "threshold": _OTHER_SIDE,
    "repeated_square": _RIGHT,
    "odd_powers": _RIGHT,
    "used_after_loop": _RIGHT,
    "active_on_one_side": _RIGHT,
    "halve_until": "one iteration more; 742",
    "stop_when_large": _RIGHT,
    "used_after_overwriting": _RIGHT,
    "pair_in_step": _RIGHT,
    "float_modulo": "right; DiffRules",
    "literal_in_float64": "right; Julia",
    "literal_in_float32": "value `64`; Julia",
    "numpy_scalar_in_float32": "value `64`; Julia",
    "unused_nan": _RIGHT,
    "unused_infinity": _RIGHT,
    "nan_compared": _RIGHT,
    "captured_array": "none for arrays on the GPU; Zygote",
}
