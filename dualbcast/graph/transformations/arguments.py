"""What transformations are given: a function, the arguments to differentiate it in, and tangents of these.

Comes in: what the user passed. Goes out: positions and names of arguments, or an ArgumentError.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, a_or_an


def positions_of(function: Any, wrt: Any, args: tuple[Any, ...], named: dict[str, Any]) -> list[int | str]:
    """The positions of the arguments to differentiate in, or the names of those that are passed by name."""
    positions = [_position(function, each, args, named) for each in (wrt if isinstance(wrt, list | tuple) else [wrt])]
    if len({*positions}) < len(positions):
        raise ArgumentError(f"wrt={wrt!r} names an argument twice; a derivative is for one of them")
    return positions


def _position(function: Any, wrt: Any, args: tuple[Any, ...], named: dict[str, Any]) -> int | str:
    """The position of an argument to differentiate in, or its name if it is passed by name."""
    if isinstance(wrt, str):
        if wrt in named:
            return wrt
        names = list(inspect.signature(function).parameters)
        if wrt in names and names.index(wrt) < len(args):
            return names.index(wrt)
    elif isinstance(wrt, int | np.integer) and -len(args) <= wrt < len(args):
        return int(wrt) % len(args)
    raise ArgumentError(f"wrt={wrt!r} is none of the arguments given: {len(args)} by position, {[*named]} by name")


def check_callable(function: Any, name: str) -> None:
    """Refuse what is no function, given to the transformation `name`."""
    if not callable(function):
        choice = "a function, or a Variable" if name == "grad" else "a function"
        raise ArgumentError(f"{name} takes {choice}; this is {a_or_an(type(function).__name__)}, of unknown origin")


def check_tangents(what: str, primals: Any, tangents: Any) -> None:
    """Refuse what is no pair of tuples of one length."""
    for each, name in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(each, list | tuple):
            raise ArgumentError(f"{what}: the {name} are a tuple like the arguments: {what}(f, (x,), (x_tangent,))")
    if len(primals) != len(tangents):
        raise ArgumentError(f"{what}: there are {len(primals)} primals and {len(tangents)} tangents")
