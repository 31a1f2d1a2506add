"""The rule table: a row for each differentiable function, and the custom derivatives of users' functions.

Differentiation, the documentation and the tests all read the same rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any

__all__ = ["ALIASES", "CUSTOMS", "REAL", "RULES", "WHOLE", "Custom", "Interval", "Kink", "Rule"]

Interval = tuple[float, float]
Kink = tuple[tuple[float, ...], tuple[float, ...]]

REAL: Interval = (-20.0, 20.0)
WHOLE: Interval = (0.0, 5.0)


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """One differentiable function.

    Attributes
    ----------
    name : str
        Its name in the IR; that of a user's row ends with `#` and a number, so that two rows are never confused.
    partials : function
        In the scalar language, from the arguments and the result to the tuple of partial derivatives, one an argument.
        A literal 0 says that the partial is zero everywhere; it needs no code.
    spellings : tuple of str
        Dotted names of the Python callables that mean this function.
    function : function or None
        How to compute it in the scalar language; None where every target has it natively.
    domain : tuple of (float, float)
        For each argument, the closed interval that tests sample.
    kinks : tuple of (point, partials)
        Points where the derivative is a convention, with the partials chosen there.
    integer : tuple of int
        Positions of the arguments that are integers, and carry no derivative.
    """

    name: str
    partials: Callable[..., Any]
    spellings: tuple[str, ...]
    function: FunctionType | None
    domain: tuple[Interval, ...]
    kinks: tuple[Kink, ...]
    integer: tuple[int, ...]

    @property
    def arity(self) -> int:
        """How many arguments the function takes."""
        return len(self.domain)

    @property
    def label(self) -> str:
        """The name for readers, which emitted text uses too, with a number where it is taken there."""
        return self.name.partition("#")[0]

    @property
    def by_user(self) -> bool:
        """Whether a user has added it."""
        return "#" in self.name


@dataclass(frozen=True, eq=False, slots=True)
class Custom:
    """A Python function whose derivative is given instead of derived from its body.

    The body is inlined, as any function's is. Then the operation `name(value, *arguments)` stands for "`value`, with
    this derivative in `arguments`". It computes nothing, and kernels have no code for it.

    Attributes
    ----------
    name : str
        The operation's name in the IR, unique.
    function : function
        The user's.
    partials : function or None
        As a `Rule`'s; None for a function that is not differentiable.
    domain : tuple of (float, float) or None
        For each argument, the closed interval that `check_partials` samples.
    """

    name: str
    function: FunctionType
    partials: Callable[..., Any] | None
    domain: tuple[Interval, ...] | None

    @property
    def label(self) -> str:
        """The name for readers."""
        return self.name.partition("#")[0]

    @property
    def by_user(self) -> bool:
        """Whether a user has given it."""
        return "#" in self.name


# By their names in the IR.
RULES: dict[str, Rule] = {}
CUSTOMS: dict[str, Custom] = {}

# The functions that are inlined, by dotted name.
ALIASES: dict[str, Callable[..., Any]] = {}
