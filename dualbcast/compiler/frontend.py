"""The front end's entry: from a scalar function and the kinds of its arguments to IR, and the names it captures."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from dualbcast.compiler.builder import freeze
from dualbcast.compiler.calls import local_names
from dualbcast.compiler.ir import (
    Const,
    Function,
    Kind,
    Names,
    Output,
    Var,
)
from dualbcast.compiler.rules import RULES
from dualbcast.compiler.source import Capture, find_source
from dualbcast.compiler.statements import Statements
from dualbcast.compiler.values import Env, Frame, Unassigned, Value, describe

__all__ = ["RESERVED", "Lowered", "lower", "parameter_names"]

# Names that emitted text uses for itself; a user's variable of that name gets a number.
RESERVED = frozenset(keyword.kwlist) | {
    *("float32", "float64", "int64", "uint8", "range", "min"),
    *(f"{verb}_{half}" for verb in ("load", "store") for half in ("float16", "bfloat16")),
}


@dataclass(frozen=True, slots=True)
class Lowered:
    """A function in IR, and the captured names its meaning rests on (they are compiled in, so calls compare them)."""

    function: Function
    guards: tuple[Capture, ...]


def parameter_names(function: Callable[..., Any], arity: int | None = None) -> tuple[tuple[str, ...], str | None]:
    """The names of a scalar function's arguments, and that of its `*args` parameter or None.

    With an arity, `*args` is spread over as many names as the call needs: `xs_0`, `xs_1`, …
    """
    node = find_source(function).node
    names = [parameter.arg for parameter in (*node.args.posonlyargs, *node.args.args)]
    vararg = node.args.vararg.arg if node.args.vararg else None
    if vararg is not None and arity is not None:
        names += [f"{vararg}_{position}" for position in range(arity - len(names))]
    return tuple(names), vararg


def lower(function: Callable[..., Any], arguments: Sequence[Kind | Const], *, called: bool = False) -> Lowered:
    """The IR of a scalar function for arguments of these kinds, or numbers that are known.

    Where it is a function that kernels call, with all of its arguments, its parameters may have defaults.

    Raises
    ------
    CompileError
        At the user's line, for whatever cannot be compiled.
    """
    source = find_source(function)
    assert isinstance(function, FunctionType)
    names = Names(RESERVED | RULES.keys())
    frontend = Statements(names)
    positional, vararg = parameter_names(function, len(arguments))
    params: list[Var] = []
    values: list[Value] = []
    for name, argument in zip(positional, arguments, strict=True):
        if isinstance(argument, Const):
            values.append(argument)
        else:
            params.append(Var(names.fresh(name), argument))
            values.append(params[-1])
    env: Env = dict(zip(positional, values, strict=True))
    if vararg is not None:
        fixed = len(source.node.args.posonlyargs) + len(source.node.args.args)
        env = {**dict(zip(positional[:fixed], values, strict=False)), vararg: tuple(values[fixed:])}
    frame = Frame(source, local_names(source.node), env)
    frontend.frame = frame
    if not called:
        _check_signature(frontend, source.node)
    try:
        value = frontend.run(frame, source.node)
    except RecursionError:
        frontend.fail(source.node, "calls or expressions in this function are nested too deeply", "a loop")
    frontend.frame = frame
    results = value if isinstance(value, tuple) else (value,)
    outputs: list[Output] = []
    for position, item in enumerate(results):
        if not isinstance(item, Const | Var):
            reason = item.reason if isinstance(item, Unassigned) else f"an output is {describe(item)}"
            frontend.fail(frame.returned_at or source.node, reason, "a return of numbers, or of a tuple of numbers")
        name = f"out{position}" if isinstance(value, tuple) else "out"
        outputs.append(Output(names.fresh(name), frontend.current(item)))
    if not outputs:
        frontend.fail(
            frame.returned_at or source.node, "this function returns an empty tuple", "a return of at least one number"
        )
    where = frontend.locate(source.node)
    lowered = Function(
        function.__name__,
        tuple(params),
        freeze(frontend.block, frontend.current),
        tuple(outputs),
        where,
        isinstance(value, tuple),
    )
    return Lowered(lowered, tuple({(id(g.place), g.name): g for g in frontend.guards}.values()))


def _check_signature(frontend: Statements, node: ast.FunctionDef | ast.Lambda) -> None:
    """Refuse parameters that a call on arrays cannot fill."""
    spec = node.args
    if spec.kwonlyargs:
        frontend.fail(
            spec.kwonlyargs[0],
            "keyword-only parameters of a broadcast function are not supported",
            "a positional parameter",
        )
    if spec.kwarg is not None:
        frontend.fail(spec.kwarg, f"`**{spec.kwarg.arg}` cannot be compiled", "named parameters")
    if spec.defaults:
        frontend.fail(
            spec.defaults[0],
            "default values of a broadcast function's parameters are not supported",
            "the parameter without a default, and pass the number with the call",
        )
