"""The machinery of the one rule table: what a row is, how a Python callable finds its row.

The rows themselves are in `rows.py`; forward mode, the documentation and the tests all read the same ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import Any

__all__ = ["ALIASES", "RULES", "Kink", "Rule", "alias", "lookup", "rule"]

Interval = tuple[float, float]
Kink = tuple[tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, eq=False, slots=True)
class Rule:
    """One differentiable function.

    Attributes
    ----------
    name : str
        Its name in the IR and in emitted text.
    partials : function
        In the scalar language, from the arguments and the result to the tuple of partial derivatives, one an argument.
        A literal 0 says that the partial is zero everywhere, so no code is made for it.
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


RULES: dict[str, Rule] = {}
ALIASES: dict[str, Callable[..., Any]] = {}
_BY_SPELLING: dict[str, Rule | Callable[..., Any]] = {}
_BY_IDENTITY: dict[int, tuple[Any, Rule | Callable[..., Any]]] = {}


def rule(
    name: str,
    partials: Callable[..., Any],
    *spellings: str,
    function: Callable[..., Any] | None = None,
    domain: tuple[Interval, ...],
    kinks: tuple[Kink, ...] = (),
    integer: tuple[int, ...] = (),
) -> Rule:
    """Add a row to the table; see `Rule` for what the parts mean."""
    assert function is None or isinstance(function, FunctionType)
    row = Rule(name, partials, spellings, function, domain, kinks, integer)
    assert name not in RULES, f"there is a rule for {name} already"
    RULES[name] = row
    _register(row, function, spellings)
    return row


def alias(function: Callable[..., Any], *spellings: str) -> None:
    """Say that the callables of these names mean `function`, which is inlined and differentiated as user code is."""
    ALIASES.update(dict.fromkeys(spellings, function))
    _register(function, function, spellings)


def _register(meaning: Rule | Callable[..., Any], function: Any, spellings: tuple[str, ...]) -> None:
    if function is not None:
        _BY_IDENTITY[id(function)] = (function, meaning)
    for spelling in spellings:
        assert spelling not in _BY_SPELLING, f"{spelling} means {_BY_SPELLING[spelling]} already"
        _BY_SPELLING[spelling] = meaning


def lookup(function: Any) -> Rule | Callable[..., Any] | None:
    """What a Python callable means: its row, the scalar function to inline for it, or None where it is unknown."""
    entry = _BY_IDENTITY.get(id(function))
    if entry is not None and entry[0] is function:
        return entry[1]
    for spelling, meaning in _BY_SPELLING.items():
        if _resolve(spelling) is function:
            _BY_IDENTITY[id(function)] = (function, meaning)
            return meaning
    return None


def by_spelling(spelling: str) -> Rule | Callable[..., Any]:
    """The meaning of a dotted name; raises `KeyError` where the table has none."""
    return _BY_SPELLING[spelling]


def _resolve(spelling: str) -> Any:
    module, _, name = spelling.rpartition(".")
    # SciPy's spellings count where SciPy is imported already; it is not imported to find out.
    if module not in sys.modules and not module.startswith(("math", "numpy", "builtins", "dualbcast")):
        return None
    return getattr(sys.modules.get(module) or import_module(module), name, None)
