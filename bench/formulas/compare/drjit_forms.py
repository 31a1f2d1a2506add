"""Dr.Jit, LLVM backend: one traced kernel for values and backward or forward traversals; also with the trace kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import drjit as dr
import numpy as np
from constants import THREADS
from drjit.llvm.ad import Bool, Float, Float64, Int, Int64

from bench.formulas.compare.array_ops import operations, powers, unrolled
from bench.formulas.compare.case import Case, Forms
from bench.formulas.compare.peer_source import ArrayFunction

if not dr.has_backend(dr.JitBackend.LLVM):
    raise ImportError("Dr.Jit finds no LLVM library; name one in DRJIT_LIBLLVM_PATH")
dr.set_thread_count(THREADS)

# The most iterations, of all loops, that are written out.
MOST_UNROLLED = 64
_TYPES = {"float32": Float, "float64": Float64, "int16": Int, "int64": Int64, "bool": Bool}


def host(result: Any) -> Any:
    return result.numpy()


def forms(case: Case, *, guarded: bool = False) -> Forms:
    function, found = case.guarded if guarded else case.plain, Forms()
    loops = function.while_loops + function.for_loops
    few = sum(case.iterations.values()) <= MOST_UNROLLED
    styles = [*(["unrolled"] if few else []), "symbolic loop"] if loops else [""]
    for style in styles:
        directions = ["backward", "forward"] if function.outputs > 1 or style else ["backward"]
        for direction, frozen in product(directions, (False, True)):
            if style == "symbolic loop" and direction == "backward":
                continue  # Dr.Jit has no reverse mode for these loops
            name = ", ".join(filter(None, (direction, style, "frozen" if frozen else "")))
            found[name] = partial(_call, case, function, style, direction == "backward", frozen)
    return found


def _call(case: Case, function: ArrayFunction, style: str, backward: bool, frozen: bool) -> Callable[[], Any]:
    bound, float_type = function.bind(_ops(case, style)), _TYPES[case.formula.dtype]
    arrays = [_TYPES[str(a.dtype)](a) if isinstance(a, np.ndarray) else dr.opaque(float_type, a) for a in case.arrays]
    dr.eval(arrays)

    def traced(arrays: tuple[Any, ...], chosen: list[int]) -> tuple[list[Any], list[Any]]:
        """The values, and the arguments that are differentiated in."""
        given = list(arrays)
        for at in case.active:
            array = type(given[at])(given[at])
            given[at] = array if len(array) == case.size else array + dr.zeros(float_type, case.size)
        wrt = [given[case.active[j]] for j in chosen]
        dr.enable_grad(wrt)
        return bound(*given), wrt

    def reverse(*arrays: Any) -> list[Any]:
        rows: list[Any] = []
        values: list[Any] = []
        for output in range(function.outputs):
            found, wrt = traced(arrays, list(range(len(case.active))))
            values.append(dr.detach(found[output]))
            if dr.grad_enabled(found[output]):
                dr.set_grad(found[output], 1)
                dr.enqueue(dr.ADMode.Backward, found[output])
                dr.traverse(dr.ADMode.Backward)
            rows += [dr.grad(x) for x in wrt]
        return values + rows

    def forward(*arrays: Any) -> list[Any]:
        columns: list[list[Any]] = []
        values: list[Any] = []
        for j in range(len(case.active)):
            found, (x,) = traced(arrays, [j])
            values = [dr.detach(value) for value in found]
            dr.set_grad(x, 1)
            dr.enqueue(dr.ADMode.Forward, x)
            # By default it forgets the tangents of values that others are computed from; an output may be one.
            dr.traverse(dr.ADMode.Forward, dr.ADFlag.ClearEdges)
            columns.append([dr.grad(value) for value in found])
        return values + [column[i] for i in range(function.outputs) for column in columns]

    both = reverse if backward else forward
    both = dr.freeze(both) if frozen else both

    def call() -> Any:
        results = both(*arrays)
        dr.eval(results)
        dr.sync_thread()
        return results

    return call


def _ops(case: Case, style: str) -> Any:
    float_type = _TYPES[case.formula.dtype]
    kinds = {"bool": Bool, "int": Int64, "float": float_type}

    def spread(state: Any, described: Any) -> tuple[Any, ...]:
        return tuple(
            dr.full(kinds[kind], part, case.size) if isinstance(part, (bool, int, float)) else kinds[kind](part)
            for part, kind in zip(state, described, strict=True)
        )

    def where(test: Any, then: Any, orelse: Any) -> Any:
        if isinstance(then, bool) and isinstance(orelse, bool):
            return test if then else ~test
        if isinstance(then, float) and isinstance(orelse, float):
            then = float_type(then)
        return dr.select(test, then, orelse)

    def loop(position: int, iteration: Any, state: Any, described: Any) -> Any:
        if style == "unrolled":
            return unrolled(0, case.iterations[position], 1, lambda _, *state: iteration(*state), state, described)
        return dr.while_loop(
            spread(state, described),
            lambda *state: state[0],
            lambda *state: spread(iteration(*state), described),
            mode="symbolic",
        )

    def count(start: int, stop: int, step: int, iteration: Any, state: Any, described: Any) -> Any:
        if style == "unrolled":
            return unrolled(start, stop, step, iteration, state, described)
        times = len(range(start, stop, step))
        _, *ends = dr.while_loop(
            (Int64(0), *spread(state, described)),
            lambda k, *_: k < times,
            lambda k, *state: (k + 1, *spread(iteration(start + k * step, *state), described)),
            mode="symbolic",
        )
        return tuple(ends)

    def outputs(*values: Any) -> list[Any]:
        return [
            value
            if isinstance(value, float_type) and len(value) == case.size
            else value + dr.zeros(float_type, case.size)
            for value in values
        ]

    names = "exp exp2 log log2 cbrt hypot sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh"
    functions = {
        **{name: getattr(dr, name) for name in f"{names} sign floor ceil trunc erf lgamma".split()},
        **powers(dr.sqrt),
        # It lacks these, and its users write:
        "log10": lambda x: dr.log2(x) * math.log10(2.0),
        "log1p": lambda x: dr.log(1.0 + x),
        "expm1": lambda x: dr.exp(x) - 1.0,
        "erfc": lambda x: 1.0 - dr.erf(x),
        "fmod": lambda a, b: a - b * dr.trunc(a / b),
        "modulo": lambda a, b: a - b * dr.floor(a / b),
        "copysign": dr.copysign,
        "fabs": dr.abs,
        "rint": dr.round,
        "pow": dr.power,
        "not_": lambda test: ~test,
        "to_float": float_type,
        "to_int": Int64,
    }
    return operations(functions, where=where, loop=loop, count=count, outputs=outputs)
