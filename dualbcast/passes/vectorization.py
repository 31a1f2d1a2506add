"""How the elements of a row go through a function on a CPU: as vectors all the way, or one after the other."""

from __future__ import annotations

from collections.abc import Set
from typing import NamedTuple

from dualbcast.ir.nodes import Function
from dualbcast.passes.if_conversion import Choice, into_selects, is_straight
from dualbcast.passes.inline_helpers import opened
from dualbcast.passes.masked_loops import lockstep

__all__ = ["Together", "together"]


class Together(NamedTuple):
    """How elements go through a function.

    Attributes
    ----------
    function : Function
        With selects for branches, and with loops that elements leave together.
    choices : list of Choice
        What became of each branch that is in no such loop.
    straight : bool
        Whether elements differ in numbers only, and so may be vectors.
    """

    function: Function
    choices: list[Choice]
    straight: bool


def together(function: Function, steady: Set[str]) -> Together:
    """How the elements of a row go through a function.

    Parameters
    ----------
    function : Function
        Simplified, operations on atoms.
    steady : set of str
        The parameters that are the same for the elements of a row.
    """
    bare = opened(function)
    for each in (bare and (lockstep(bare, steady) or bare), lockstep(function, steady), function):
        if each is not None:
            found, choices = into_selects(each, steady)
            if is_straight(found, steady):
                return Together(found, choices, True)
    return Together(found, choices, False)
