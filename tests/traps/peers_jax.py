"""The traps as a JAX user writes them: one element's function, under `jit` of `vmap` of `value_and_grad`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from cases import Found, Trap

__all__ = ["run", "version"]


def version(jax: Any) -> str:
    return f"JAX {jax.__version__}"


def run(jax: Any, trap: Trap) -> dict[str, Callable[[], Found]]:
    """The ways to write a row, by name; each is run when it is called."""
    jax.config.update("jax_enable_x64", True)
    ways = programs(jax).get(trap.name, {})
    special = around_the_call(jax).get(trap.name, {})
    return {name: (lambda f=f, name=name: differentiate(jax, trap, f, name)) for name, f in ways.items()} | special


def differentiate(jax: Any, trap: Trap, function: Any, way: str) -> Found:
    """Reverse mode, or forward mode where the way's name says so."""
    arrays = [jax.numpy.asarray(column) for column in trap.columns("float64")]
    if "forward" in way:
        slopes = jax.vmap(jax.jacfwd(function, trap.floats))
        values, partials = jax.vmap(function)(*arrays), jax.jit(slopes)(*arrays)
    else:
        values, partials = jax.jit(jax.vmap(jax.value_and_grad(function, trap.floats)))(*arrays)
    return Found(values.tolist(), [list(point) for point in zip(*(p.tolist() for p in partials), strict=True)])


def programs(jax: Any) -> dict[str, dict[str, Any]]:
    """For each row the ways to write it."""
    jnp, lax = jax.numpy, jax.lax

    def branch(test: Any, yes: Any, no: Any, *safe: float) -> dict[str, Any]:
        """`where`, `cond`, and `where` around arguments that a first `where` has made harmless."""

        def twice(*args: Any) -> Any:
            harmless = [jnp.where(test(*args), a, s) for a, s in zip(args, safe, strict=True)]
            return jnp.where(test(*args), yes(*harmless), no(*args))

        return {
            "where": lambda *args: jnp.where(test(*args), yes(*args), no(*args)),
            "cond": lambda *args: lax.cond(test(*args), yes, no, *args),
            "double where": twice,
        }

    def zero(x: Any, *_: Any) -> Any:
        return jnp.zeros_like(x)

    def unit(x: Any, y: Any) -> Any:
        r = jnp.sqrt(x * x + y * y)
        return jnp.where(r > 0, x / r, 0.0)

    def unit_cond(x: Any, y: Any) -> Any:
        r = jnp.sqrt(x * x + y * y)
        return lax.cond(r > 0, lambda x, r: x / r, zero, x, r)

    def unit_twice(x: Any, y: Any) -> Any:
        square = x * x + y * y
        r = jnp.sqrt(jnp.where(square > 0, square, 1.0))
        return jnp.where(square > 0, x / r, 0.0)

    def either_square(x: Any, y: Any) -> Any:
        return jnp.where(x > 0, x * x, jnp.where(x > 0, 1.0, y) ** 2)

    def sort3(a: Any, b: Any, c: Any) -> Any:
        a, b = jnp.where(a > b, b, a), jnp.where(a > b, a, b)
        b, c = jnp.where(b > c, c, b), jnp.where(b > c, b, c)
        a, b = jnp.where(a > b, b, a), jnp.where(a > b, a, b)
        return a + 10 * b + 100 * c

    def odd(x: Any) -> Any:
        def turn(i: Any, carry: Any) -> Any:
            total, term = carry
            term = jnp.where(i > 0, term * x, term)
            return jnp.where(i % 2 == 0, total, total + term), term

        return lax.fori_loop(0, 6, turn, (0.0 * x, 1.0 + 0.0 * x))[0]

    def largest(x: Any) -> Any:
        def turn(i: Any, best: Any) -> Any:
            v = x * (i - 2)
            return jnp.where((i != 2) & (v > best), v, best)

        return lax.fori_loop(0, 5, turn, 0.0 * x - 1e20)

    def after_loop(x: Any, n: Any) -> Any:
        return x * x * lax.fori_loop(0, n, lambda _, total: total + x, 0.0 * x)

    def after_loop_bounded(x: Any, n: Any) -> Any:
        return x * x * lax.fori_loop(0, 3, lambda i, total: jnp.where(i < n, total + x, total), 0.0 * x)

    def one_side(x: Any) -> Any:
        return lax.fori_loop(0, 3, lambda _, t: jnp.where(x > 1, t + x * x, 1.0), 0.0 * x)

    def large(x: Any) -> Any:
        def turn(_: Any, carry: Any) -> Any:
            total, term, done = carry
            term = jnp.where(done, term, term * x)
            total = jnp.where(done, total, total + term)
            return total, term, done | (total > 10)

        return lax.fori_loop(0, 8, turn, (1.0 + 0.0 * x, 1.0 + 0.0 * x, False))[0]

    def reuse(x: Any) -> Any:
        y = x * x
        x = y + x
        return x * y

    def squares(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda _, y: y * y, x)

    def squares_bounded(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, 3, lambda i, y: jnp.where(i < n, y * y, y), x)

    def pair(x: Any, n: Any) -> Any:
        return lax.fori_loop(0, n, lambda _, s: (s[1], s[0] * s[1]), (x, jnp.ones_like(x)))[1]

    def pair_bounded(x: Any, n: Any) -> Any:
        def turn(i: Any, s: Any) -> Any:
            return jnp.where(i < n, s[1], s[0]), jnp.where(i < n, s[0] * s[1], s[1])

        return lax.fori_loop(0, 3, turn, (x, jnp.ones_like(x)))[1]

    def halve(x: Any) -> Any:
        return lax.while_loop(lambda y: y > 1, lambda y: y / 2, x)

    def halve_bounded(x: Any) -> Any:
        return lax.fori_loop(0, 8, lambda _, y: jnp.where(y > 1, y / 2, y), x)

    def power(x: Any, p: Any) -> Any:
        return x**p

    return {
        "sqrt_guarded": branch(lambda x: x > 0, jnp.sqrt, zero, 1.0),
        "entropy": branch(lambda x: x > 0, lambda x: x * jnp.log(x), zero, 1.0),
        "cardinal_sine": branch(lambda x: x != 0, lambda x: jnp.sin(x) / x, jnp.ones_like, 1.0),
        "softplus": branch(lambda x: x < 20, lambda x: jnp.log1p(jnp.exp(x)), lambda x: x, 0.0)
        | {"nn.softplus": jax.nn.softplus},
        "angle": branch(lambda x: x < 1, jnp.arccos, zero, 0.0),
        "power_guarded": branch(lambda x, _: x > 0, power, zero, 1.0, 1.0),
        "ratio": branch(lambda _, b: b != 0, lambda a, b: a / b, zero, 1.0, 1.0),
        "direction": {"where": unit, "cond": unit_cond, "double where": unit_twice},
        "abs_at_zero": {"": jnp.abs},
        "max_tie": {"": jnp.maximum},
        "min_tie": {"": jnp.minimum},
        "max_of_itself": {"": lambda x: jnp.maximum(x, x)},
        "relu_at_zero": {"maximum": lambda x: jnp.maximum(x, 0.0), "nn.relu": jax.nn.relu},
        "clip_at_bound": {"": lambda x: jnp.clip(x, 0.0, 1.0)},
        "sqrt_taken": {"": jnp.sqrt},
        "power_zero": {"": lambda x: x**0},
        "power_two": {"": lambda x: x**2},
        "zero_to_the_p": {"": power},
        "zero_to_the_zero": {"": power},
        "atan2_at_origin": {"": jnp.arctan2},
        "hypot_at_origin": {"": jnp.hypot},
        "overflowing_product": {"": lambda a, b: a * jnp.exp(-b)},
        "log_of_floor": {"": lambda x, y: x + jnp.log(jnp.floor(y))},
        "log_after_branch": {
            "where": lambda x, y: jnp.log(jnp.where(x > 2, x, 0.0) + y),
            "forward mode": lambda x, y: jnp.log(jnp.where(x > 2, x, 0.0) + y),
        },
        "product_if_equal": {"": lambda x, y: jnp.where(x == y, x * y, 0.0)},
        "special_point": {"": lambda x: jnp.where(x == 1, 1.0, x * x)},
        "threshold": {"": lambda x: jnp.where(x > 3, 2 * x, x)},
        "sorted_digits": {"": sort3},
        "repeated_square": {"fori_loop": squares, "fixed length": squares_bounded, "forward mode": squares},
        "odd_powers": {"": odd},
        "largest_product": {"": largest},
        "used_after_loop": {"fori_loop": after_loop, "fixed length": after_loop_bounded, "forward mode": after_loop},
        "active_on_one_side": {"": one_side},
        "halve_until": {"while_loop": halve, "fixed length": halve_bounded, "forward mode": halve},
        "stop_when_large": {"": large},
        "used_after_overwriting": {"": reuse},
        "pair_in_step": {"fori_loop": pair, "fixed length": pair_bounded, "forward mode": pair},
        "integer_product": {
            "int32": lambda x, n, m: x * (n * m),
            "as int64": lambda x, n, m: x * (n.astype(jnp.int64) * m),
        },
        "floor_division": {"": lambda x, n, m: x * (n // m) + n % m},
        "float_modulo": {"": lambda x, y: x % y},
        "negative_base": {"": power},
        "rounded": {"": lambda x, y: jnp.round(x) * y},
        "signed_square": {"": lambda x: jnp.sign(x) * x * x},
        "literal_in_float64": {"": lambda x: 0.1 * x},
        "unused_nan": branch(lambda x, _: x > 0, lambda x, _: x * x, lambda _, y: y * y, 1.0, 1.0)
        | {"double where": either_square},
        "unused_infinity": branch(lambda x, _: x > 0, lambda x, y: x * y, zero, 1.0, 1.0),
        "nan_compared": {"": lambda x: jnp.where(x > 0, 2 * x, 5.0)},
    }


def around_the_call(jax: Any) -> dict[str, dict[str, Callable[[], Found]]]:
    """The rows that are about more than one element's function."""
    jnp = jax.numpy
    tenth = np.float64(0.1)

    def bits(function: Any, wide: bool) -> Found:
        with jax.enable_x64(wide):
            value, slope = jax.jit(jax.vmap(jax.value_and_grad(function)))(jnp.ones(3, jnp.float32))
            return Found([8.0 * value.dtype.itemsize], [[8.0 * slope.dtype.itemsize]])

    def both(function: Any) -> dict[str, Callable[[], Found]]:
        return {"as installed": lambda: bits(function, False), "enable_x64": lambda: bits(function, True)}

    def rebound(compiled: bool) -> Found:
        factor = 3.0

        def scaled(x: Any) -> Any:
            return factor * x

        slopes = jax.value_and_grad(scaled)
        slopes = jax.jit(slopes) if compiled else slopes
        found = Found([], [])
        for factor in (3.0, 5.0):  # noqa: B007
            value, slope = slopes(2.0)
            found.values.append(float(value))
            found.partials.append([float(slope)])
        return found

    def captured() -> Found:
        x = jnp.array([2.0, 5.0])

        def total(x: Any, weights: Any) -> Any:
            return jax.vmap(lambda w, x: w * x)(weights, x).sum()

        weights = jnp.array([3.0, 4.0])
        slopes = jax.grad(total, (0, 1))(x, weights)
        return Found((weights * x).tolist(), jnp.stack(slopes, axis=1).tolist())

    return {
        "literal_in_float32": both(lambda x: 0.1 * x + jnp.pi),
        "numpy_scalar_in_float32": both(lambda x: tenth * x),
        "captured_number": {"jit": lambda: rebound(True), "not compiled": lambda: rebound(False)},
        "captured_array": {"as an argument": captured},
    }
