"""One element's function of each trap as a Warp user writes it."""

# Warp reads the source of these functions, where every literal is written with its type.
# ruff: noqa: B007, SIM108

from __future__ import annotations

from typing import Any

__all__ = ["programs"]


def programs(wp: Any) -> dict[str, dict[str, Any]]:
    """For each row the ways to write it."""
    real = wp.float64

    def sqrt_guarded(x: Any):
        if x > real(0.0):
            return wp.sqrt(x)
        return real(0.0)

    def sqrt_where(x: Any):
        return wp.where(x > real(0.0), wp.sqrt(x), real(0.0))

    def entropy(x: Any):
        if x > real(0.0):
            return x * wp.log(x)
        return real(0.0)

    def cardinal_sine(x: Any):
        if x != real(0.0):
            return wp.sin(x) / x
        return real(1.0)

    def softplus(x: Any):
        if x < real(20.0):
            return wp.log(real(1.0) + wp.exp(x))
        return x

    def angle(x: Any):
        if x < real(1.0):
            return wp.acos(x)
        return real(0.0)

    def power_guarded(x: Any, p: Any):
        if x > real(0.0):
            return wp.pow(x, p)
        return real(0.0)

    def ratio(a: Any, b: Any):
        if b != real(0.0):
            return a / b
        return real(0.0)

    def direction(x: Any, y: Any):
        r = wp.sqrt(x * x + y * y)
        if r > real(0.0):
            return x / r
        return real(0.0)

    def normalized(x: Any, y: Any):
        return wp.normalize(wp.vec2d(x, y))[0]

    def abs_at_zero(x: Any):
        return wp.abs(x)

    def max_tie(x: Any, y: Any):
        return wp.max(x, y)

    def min_tie(x: Any, y: Any):
        return wp.min(x, y)

    def max_of_itself(x: Any):
        return wp.max(x, x)

    def relu_at_zero(x: Any):
        return wp.max(x, real(0.0))

    def clip_at_bound(x: Any):
        return wp.clamp(x, real(0.0), real(1.0))

    def sqrt_taken(x: Any):
        return wp.sqrt(x)

    def power_zero(x: Any):
        return wp.pow(x, real(0.0))

    def power_two(x: Any):
        return wp.pow(x, real(2.0))

    def power(x: Any, p: Any):
        return wp.pow(x, p)

    def atan2_at_origin(y: Any, x: Any):
        return wp.atan2(y, x)

    def hypot_at_origin(x: Any, y: Any):
        return wp.length(wp.vec2d(x, y))

    def overflowing_product(a: Any, b: Any):
        return a * wp.exp(-b)

    def log_of_floor(x: Any, y: Any):
        return x + wp.log(wp.floor(y))

    def log_after_branch(x: Any, y: Any):
        s = real(0.0)
        if x > real(2.0):
            s = x
        return wp.log(s + y)

    def product_if_equal(x: Any, y: Any):
        if x == y:
            return x * y
        return real(0.0)

    def special_point(x: Any):
        if x == real(1.0):
            return real(1.0)
        return x * x

    def threshold(x: Any):
        if x > real(3.0):
            return real(2.0) * x
        return x

    def sorted_digits(a: Any, b: Any, c: Any):
        if a > b:
            t = a
            a = b
            b = t
        if b > c:
            t = b
            b = c
            c = t
        if a > b:
            t = a
            a = b
            b = t
        return a + real(10.0) * b + real(100.0) * c

    def repeated_square(x: Any, n: Any):
        y = x
        for _ in range(n):
            y = y * y
        return y

    def repeated_square_fixed(x: Any, n: Any):
        y = x
        for i in range(3):
            if i < n:
                y = y * y
        return y

    def odd_powers(x: Any):
        total = real(0.0)
        term = real(1.0)
        for i in range(6):
            if i > 0:
                term = term * x
            if i % 2 == 0:
                continue
            total = total + term
        return total

    def odd_powers_by_if(x: Any):
        total = real(0.0)
        term = real(1.0)
        for i in range(6):
            if i > 0:
                term = term * x
            if i % 2 == 1:
                total = total + term
        return total

    def largest_product(x: Any):
        best = real(-1e20)
        for i in range(5):
            d = i - 2
            if d == 0:
                continue
            v = x * real(d)
            if v > best:
                best = v
        return best

    def largest_by_if(x: Any):
        best = real(-1e20)
        for i in range(5):
            v = x * real(i - 2)
            if i != 2 and v > best:
                best = v
        return best

    def used_after_loop(x: Any, n: Any):
        y = x * x
        total = real(0.0)
        for _ in range(n):
            total = total + x
        return y * total

    @wp.func
    def summed(x: Any, n: Any):
        total = real(0.0)
        for _ in range(n):
            total = total + x
        return total

    def used_after_call(x: Any, n: Any):
        return x * x * summed(x, n)

    def used_after_loop_fixed(x: Any, n: Any):
        y = x * x
        total = real(0.0)
        for i in range(3):
            if i < n:
                total = total + x
        return y * total

    def active_on_one_side(x: Any):
        total = real(0.0)
        for i in range(3):
            if x > real(1.0):
                total = total + x * x
            else:
                total = real(1.0)
        return total

    def halve_until(x: Any):
        y = x
        while y > real(1.0):
            y = y / real(2.0)
        return y

    def halve_fixed(x: Any):
        y = x
        for i in range(8):
            if y > real(1.0):
                y = y / real(2.0)
        return y

    def stop_when_large(x: Any):
        total = real(1.0)
        term = real(1.0)
        for i in range(8):
            term = term * x
            total = total + term
            if total > real(10.0):
                break
        return total

    def stop_by_flag(x: Any):
        total = real(1.0)
        term = real(1.0)
        for i in range(8):
            if total <= real(10.0):
                term = term * x
                total = total + term
        return total

    def used_after_overwriting(x: Any):
        y = x * x
        x = y + x
        return x * y

    def pair_in_step(x: Any, n: Any):
        a = x
        b = real(1.0)
        for _ in range(n):
            t = a * b
            a = b
            b = t
        return b

    def pair_fixed(x: Any, n: Any):
        a = x
        b = real(1.0)
        for i in range(3):
            if i < n:
                t = a * b
                a = b
                b = t
        return b

    def integer_product(x: Any, n: Any, m: Any):
        return x * real(n * m)

    def integer_product_wide(x: Any, n: Any, m: Any):
        return x * real(wp.int64(n) * wp.int64(m))

    def floor_division(x: Any, n: Any, m: Any):
        return x * real(n // m) + real(n % m)

    def float_modulo(x: Any, y: Any):
        return x % y

    def float_modulo_by_floor(x: Any, y: Any):
        return x - wp.floor(x / y) * y

    def negative_base(x: Any, n: Any):
        return wp.pow(x, real(n))

    def rounded(x: Any, y: Any):
        return wp.round(x) * y

    def rounded_to_even(x: Any, y: Any):
        return wp.rint(x) * y

    def signed_square(x: Any):
        return wp.sign(x) * x * x

    def plain_literal(x: Any):
        return 0.1 * x

    def typed_literal(x: Any):
        return real(0.1) * x

    def unused_nan(x: Any, y: Any):
        if x > real(0.0):
            return x * x
        return y * y

    def unused_infinity(x: Any, y: Any):
        if x > real(0.0):
            return x * y
        return real(0.0)

    def nan_compared(x: Any):
        if x > real(0.0):
            return real(2.0) * x
        return real(5.0)

    return {
        "sqrt_guarded": {"if": sqrt_guarded, "wp.where": sqrt_where},
        "entropy": {"": entropy},
        "cardinal_sine": {"": cardinal_sine},
        "softplus": {"": softplus},
        "angle": {"": angle},
        "power_guarded": {"": power_guarded},
        "ratio": {"": ratio},
        "direction": {"if": direction, "wp.normalize": normalized},
        "abs_at_zero": {"": abs_at_zero},
        "max_tie": {"": max_tie},
        "min_tie": {"": min_tie},
        "max_of_itself": {"": max_of_itself},
        "relu_at_zero": {"": relu_at_zero},
        "clip_at_bound": {"": clip_at_bound},
        "sqrt_taken": {"": sqrt_taken},
        "power_zero": {"": power_zero},
        "power_two": {"": power_two},
        "zero_to_the_p": {"": power},
        "zero_to_the_zero": {"": power},
        "atan2_at_origin": {"": atan2_at_origin},
        "hypot_at_origin": {"": hypot_at_origin},
        "overflowing_product": {"": overflowing_product},
        "log_of_floor": {"": log_of_floor},
        "log_after_branch": {"": log_after_branch},
        "product_if_equal": {"": product_if_equal},
        "special_point": {"": special_point},
        "threshold": {"": threshold},
        "sorted_digits": {"": sorted_digits},
        "repeated_square": {"range(n)": repeated_square, "fixed length": repeated_square_fixed},
        "odd_powers": {"continue": odd_powers, "if": odd_powers_by_if},
        "largest_product": {"continue": largest_product, "if": largest_by_if},
        "used_after_loop": {
            "range(n)": used_after_loop,
            "loop in its own function": used_after_call,
            "fixed length": used_after_loop_fixed,
        },
        "active_on_one_side": {"": active_on_one_side},
        "halve_until": {"while": halve_until, "fixed length": halve_fixed},
        "stop_when_large": {"break": stop_when_large, "if": stop_by_flag},
        "used_after_overwriting": {"": used_after_overwriting},
        "pair_in_step": {"range(n)": pair_in_step, "fixed length": pair_fixed},
        "integer_product": {"int32": integer_product, "wp.int64": integer_product_wide},
        "floor_division": {"": floor_division},
        "float_modulo": {"%": float_modulo, "by floor": float_modulo_by_floor},
        "negative_base": {"": negative_base},
        "rounded": {"wp.round": rounded, "wp.rint": rounded_to_even},
        "signed_square": {"": signed_square},
        "literal_in_float64": {"0.1": plain_literal, "wp.float64(0.1)": typed_literal},
        "unused_nan": {"": unused_nan},
        "unused_infinity": {"": unused_infinity},
        "nan_compared": {"": nan_compared},
    }
