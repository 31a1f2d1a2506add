"""torch.compile: values with one `vjp` for each output, or one `jvp` for each argument, in one graph without loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
import torch
from constants import THREADS
from torch.func import jvp, vjp

from bench.formulas.compare.array_ops import operations, powers, unrolled
from bench.formulas.compare.case import Case, Forms
from bench.formulas.compare.peer_source import ArrayFunction

torch.set_num_threads(THREADS)

# The most iterations, of all loops, that are written out: torch compiles for minutes where there are many.
MOST_UNROLLED = 16
_OF_ONE = "exp exp2 expm1 log log2 log10 log1p sin cos tan sinh cosh tanh sign floor ceil trunc erf erfc lgamma digamma"
_ARC = ("asin", "acos", "atan", "asinh", "acosh", "atanh")


def host(result: Any) -> Any:
    return result.detach().numpy()


def forms(case: Case, *, guarded: bool = False) -> Forms:
    function = case.guarded if guarded else case.plain
    if sum(case.iterations.values()) > MOST_UNROLLED:
        raise NotImplementedError(f"loops of {sum(case.iterations.values())} iterations compile for minutes")
    directions = ["vjp", "jvp"] if function.outputs > 1 else ["vjp"]
    return {direction: partial(_call, case, function, direction == "vjp") for direction in directions}


def _call(case: Case, function: ArrayFunction, reverse: bool) -> Callable[[], Any]:
    bound, dtype = function.bind(_ops(case)), getattr(torch, case.formula.dtype)
    # torch does not trace the lock of a cached property.
    places, size = list(case.active), case.size
    arrays = [torch.from_numpy(a) if isinstance(a, np.ndarray) else torch.tensor(a, dtype=dtype) for a in case.arrays]

    def both(*arrays: Any) -> list[Any]:
        def primal(*active: Any) -> Any:
            given = list(arrays)
            for at, value in zip(places, active, strict=True):
                given[at] = value
            return bound(*given)

        wrt = tuple(arrays[at].expand(size) for at in places)
        zero, one = (torch.full((size,), number, dtype=dtype) for number in (0.0, 1.0))
        if reverse:
            values, pull = vjp(primal, *wrt)
            outputs = range(len(values))
            rows = [pull(tuple(one if k == output else zero for k in outputs)) for output in outputs]
            return [*values, *(part for row in rows for part in row)]
        tangents = [tuple(one if k == j else zero for k in range(len(wrt))) for j in range(len(wrt))]
        pushed = [jvp(primal, wrt, each) for each in tangents]
        values = pushed[0][0]
        return [*values, *(pushed[j][1][i] for i in range(len(values)) for j in range(len(wrt)))]

    # torch limits how often it compiles one code object, so each form has its own.
    code = both.__code__.replace(co_name=f"{case.formula.name}_{'vjp' if reverse else 'jvp'}")
    function_of_form = FunctionType(code, both.__globals__, code.co_name, None, both.__closure__)
    compiled = torch.compile(function_of_form, fullgraph=True, dynamic=False)
    return lambda: compiled(*arrays)


def _ops(case: Case) -> Any:
    dtype, iterations, size = getattr(torch, case.formula.dtype), dict(case.iterations), case.size

    def tensor(number: Any) -> Any:
        return number if isinstance(number, torch.Tensor) else torch.full((), number, dtype=dtype)

    def where(test: Any, then: Any, orelse: Any) -> Any:
        if isinstance(then, bool) and isinstance(orelse, bool):
            return test if then else ~test
        if isinstance(then, float) and isinstance(orelse, float):
            then = tensor(then)
        return torch.where(test, then, orelse)

    def loop(position: int, iteration: Any, state: Any, described: Any) -> Any:
        return unrolled(0, iterations[position], 1, lambda _, *state: iteration(*state), state, described)

    def outputs(*values: Any) -> Any:
        return tuple(tensor(value).to(dtype).expand(size) for value in values)

    def both(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda a, b: function(tensor(a), tensor(b))

    functions = {
        **{name: getattr(torch, name) for name in (*_OF_ONE.split(), *_ARC)},
        **{name: both(getattr(torch, name)) for name in ("hypot", "atan2", "copysign", "fmod")},
        **powers(torch.sqrt),
        "fabs": torch.abs,
        "rint": torch.round,
        "modulo": torch.remainder,
        "pow": torch.pow,
        "cbrt": lambda x: torch.sign(x) * torch.pow(torch.abs(x), 1.0 / 3.0),
        "not_": torch.logical_not,
        "to_float": lambda x: x.to(dtype),
        "to_int": lambda x: x.to(torch.int64),
    }
    namespace = operations(functions, where=where, loop=loop, count=unrolled, outputs=outputs)
    namespace.inf, namespace.nan = math.inf, math.nan
    return namespace
