"""JAX: `jit` of values with one `vjp` for each output, or one `jvp` for each argument; loops in every form it has."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy import special

from bench.formulas.compare.array_ops import COMMON, RENAMED, operations, powers, unrolled
from bench.formulas.compare.case import Case, Forms
from bench.formulas.compare.peer_source import ArrayFunction

jax.config.update("jax_enable_x64", True)  # arrays of float32 stay float32

# The most iterations, of all loops, that are written out.
MOST_UNROLLED = 8
CHUNK = 1 << 12

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(jnp, name) for name in COMMON},
    **{name: getattr(jnp, other) for name, other in RENAMED.items()},
    **powers(jnp.sqrt),
    "erf": special.erf,
    "erfc": special.erfc,
    "lgamma": special.gammaln,
    "tgamma": special.gamma,
    "digamma": special.digamma,
    "to_int": lambda x: x.astype(jnp.int64),
}


def host(result: Any) -> Any:
    return np.asarray(result)


def forms(case: Case, *, guarded: bool = False) -> Forms:
    function, found = case.guarded if guarded else case.plain, Forms()
    for style in _styles(case, function):
        directions = ["vjp", "jvp"] if function.outputs > 1 or len(case.active) < 4 or style else ["vjp"]
        for direction, chunked in product(directions, (False, True)):
            if direction == "vjp" and style == "while":
                continue  # JAX has no reverse mode for these loops
            name = ", ".join(filter(None, (direction, style, "in chunks" if chunked else "")))
            found[name] = partial(_call, case, function, style, direction == "vjp", chunked)
    return found


def _styles(case: Case, function: ArrayFunction) -> list[str]:
    """The forms that loops are written in."""
    if not (function.while_loops or function.for_loops):
        return [""]
    styles = ["while" if function.while_loops else "fori_loop"]
    if function.while_loops:
        styles.append("fori_loop")
    return [*styles, "unrolled"] if sum(case.iterations.values()) <= MOST_UNROLLED else styles


def _call(case: Case, function: ArrayFunction, style: str, reverse: bool, chunked: bool) -> Callable[[], Any]:
    size = CHUNK if chunked and case.size % CHUNK == 0 else case.size
    element = _with_partials(case, function, style, reverse, size)
    arrays = [jnp.asarray(a) for a in case.arrays]
    if size != case.size:
        split = [a if a.ndim == 0 else a.reshape(-1, size) for a in arrays]
        columns = [k for k, a in enumerate(split) if a.ndim]

        def both(*given: Any) -> Any:
            def part(rows: Any) -> Any:
                all_of = list(given)
                for k, row in zip(columns, rows, strict=True):
                    all_of[k] = row
                return element(*all_of)

            return lax.map(part, [given[k] for k in columns])

        arrays = split
    else:
        both = element
    compiled = jax.jit(both)

    def call() -> Any:
        return jax.block_until_ready(compiled(*arrays))

    if size == case.size:
        return call
    return lambda: [a.reshape(-1) for a in call()]


def _with_partials(
    case: Case, function: ArrayFunction, style: str, reverse: bool, size: int
) -> Callable[..., list[Any]]:
    bound = function.bind(_ops(case, style, size))

    def both(*arrays: Any) -> list[Any]:
        def primal(*active: Any) -> Any:
            given = list(arrays)
            for at, value in zip(case.active, active, strict=True):
                given[at] = value
            return bound(*given)

        wrt = tuple(jnp.broadcast_to(jnp.asarray(arrays[at], case.formula.dtype), (size,)) for at in case.active)
        zero, one = (jnp.full((size,), number, case.formula.dtype) for number in (0, 1))
        if reverse:
            values, pull = jax.vjp(primal, *wrt)
            rows = [pull([one if k == output else zero for k in range(len(values))]) for output in range(len(values))]
            return [*values, *(part for row in rows for part in row)]
        values, push = primal(*wrt), partial(jax.jvp, primal, wrt)
        columns = [push(tuple(one if k == j else zero for k in range(len(wrt))))[1] for j in range(len(wrt))]
        return [*values, *(columns[j][i] for i in range(len(values)) for j in range(len(wrt)))]

    return both


def _ops(case: Case, style: str, size: int) -> Any:
    kinds = {"bool": jnp.bool_, "int": jnp.int64, "float": case.formula.dtype}

    def spread(state: Any, described: Any) -> tuple[Any, ...]:
        return tuple(
            jnp.broadcast_to(jnp.asarray(part, kinds[kind]), (size,))
            for part, kind in zip(state, described, strict=True)
        )

    def alike(iteration: Any, described: Any) -> Any:
        return lambda *state: spread(iteration(*state), described)

    def loop(position: int, iteration: Any, state: Any, described: Any) -> Any:
        state, turn = spread(state, described), alike(iteration, described)
        if style == "while":
            return lax.while_loop(lambda state: jnp.any(state[0]), lambda state: turn(*state), state)
        most = case.iterations[position]
        if style == "unrolled":
            return unrolled(0, most, 1, lambda _, *state: turn(*state), state, None)
        return lax.fori_loop(0, most, lambda _, state: turn(*state), state)

    def count(start: int, stop: int, step: int, iteration: Any, state: Any, described: Any) -> Any:
        if style == "unrolled":
            return unrolled(start, stop, step, iteration, state, described)
        body = alike(iteration, described)
        times = len(range(start, stop, step))
        return lax.fori_loop(0, times, lambda k, state: body(start + k * step, *state), spread(state, described))

    def outputs(*values: Any) -> list[Any]:
        return [jnp.broadcast_to(jnp.asarray(value, case.formula.dtype), (size,)) for value in values]

    functions = {**_FUNCTIONS, "to_float": lambda x: x.astype(case.formula.dtype)}
    return operations(functions, where=jnp.where, loop=loop, count=count, outputs=outputs)
