"""A function and its partials, or its tangents, as one function."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dualbcast.autodiff.eliminate import ReverseMode
from dualbcast.autodiff.linearize import Direction, Dual, ForwardMode
from dualbcast.autodiff.loop_jacobians import LoopJacobians, is_shorter
from dualbcast.ir.nodes import ONE, Atom, Function, Names

__all__ = ["Dual", "dualize", "push"]


def dualize(
    function: Function,
    seeds: Sequence[int],
    names: Names | None = None,
    *,
    reverse: bool = False,
    flagged: bool = False,
) -> Dual:
    """The function that returns the outputs of `function` and their partials in the parameters at `seeds`.

    Parameters
    ----------
    function : Function
        As the front end gives it: operations on atoms.
    seeds : sequence of int
        Positions of float parameters.
    names : Names, optional
        The names of the function that the result becomes part of; those of `function` if not given.
    reverse : bool
        Whether to use reverse mode, where `eliminate.is_shorter` holds.
    flagged : bool
        Whether the caller reads the flags of the `Dual`: where one is false, the tangent may be any number.
    """
    directions = {seed: Direction(function.params[seed].name, {seed: ONE}) for seed in seeds}
    mode = ReverseMode if reverse else LoopJacobians if is_shorter(function) else ForwardMode
    return mode(function, directions, names).run(flagged=flagged)


def push(function: Function, tangents: Mapping[int, Atom]) -> Dual:
    """The function that returns the outputs of `function` and their tangents for those of its parameters.

    Parameters
    ----------
    function : Function
        As the front end gives it; `tangents` may be parameters of it.
    tangents : mapping of int to Atom
        By the positions of float parameters; the one direction is 0 in the result.
    """
    return ForwardMode(function, {0: Direction("ot", tangents)}, None).run()
