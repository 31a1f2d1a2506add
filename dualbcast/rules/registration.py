"""Registration in the rule table: the calls that add rows and custom derivatives, for the library and for users.

The library's rows are in `library.py`, which adds them by the same calls.
"""

from __future__ import annotations

import functools
import itertools
import keyword
import sys
from collections.abc import Callable
from inspect import CO_VARARGS
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from dualbcast.errors import ArgumentError, a_or_an
from dualbcast.ir.simplification import FUNCTIONS
from dualbcast.rules import table
from dualbcast.rules.table import REAL, WHOLE, Custom, Interval, Kink, Rule

Scalar = TypeVar("Scalar", bound=Callable[..., Any])

_numbers = itertools.count(1)
_check: Callable[[Rule, list[Any]], None] | None = None


def open_to_users(check: Callable[[Rule, list[Any]], None]) -> None:
    """End the library's own part of the table: later rows are users', and `check` refuses wrong ones.

    `check` is called with a row that has just been added, and the Python callables that mean it.
    """
    global _check
    _check = check


def _is_own(partials: Any) -> bool:
    """Whether a row belongs to the library's own part, some modules of which are imported when they are needed."""
    return _check is None or getattr(partials, "__module__", None) in table.LATER


def rule(
    name: str,
    partials: Callable[..., Any],
    *spellings: str | Callable[..., Any],
    function: Callable[..., Any] | None = None,
    domain: tuple[Interval, ...] | None = None,
    kinks: tuple[Kink, ...] = (),
    integer: tuple[int, ...] = (),
) -> Rule:
    """Add a differentiable function to the rule table; kernels that call it then use these partial derivatives.

    A call of `function` or of any of `spellings` means this rule. A rule that is registered again under its name (as
    when a notebook cell is run again) replaces the earlier one, and kernels that used that one are compiled anew.

    Parameters
    ----------
    name : str
        The name of the function in the text of kernels.
    partials : function
        A function of the arguments and then the result `y`, in the scalar language. It returns a tuple with a partial
        derivative for each argument. A literal 0 says that the function does not depend on the argument at all.
    *spellings : str or callable
        Other Python callables that compute this function, such as a ufunc of a C library. Each is given itself, or by
        its dotted name; for ``"scipy.special.ber"`` the module is not imported.
    function : function
        The function itself, in the scalar language. Its arguments are floats, except those in `integer`.
    domain : tuple of (float, float), optional
        For each argument the closed interval in which `testing.check_partials` takes points; [-20, 20] if not given.
    kinks : tuple of (point, partials), optional
        Points where the derivative is a convention, with the partials chosen there, for readers and tests. Kernels
        compute `partials` at these points, too.
    integer : tuple of int, optional
        Positions of the arguments that are integers; they carry no derivative.

    Returns
    -------
    Rule
        The row.

    Raises
    ------
    ArgumentError
        The parts do not fit together, or a name or spelling has a meaning already.
    CompileError
        `function` or `partials` cannot be compiled, at the line that is wrong.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> import dualbcast
    >>> def softabs(x, width):
    ...     return math.sqrt(x * x + width * width)
    >>> row = dualbcast.rule("softabs", lambda x, width, y: (x / y, width / y), function=softabs)
    >>> @dualbcast.differentiable_broadcast
    ... def f(x):
    ...     return 2 * softabs(x, 4.0)
    >>> f.jacobian(np.array([3.0]))["x"]
    array([1.2])
    """
    if not isinstance(name, str) or not name.isidentifier() or keyword.iskeyword(name):
        raise ArgumentError(f"{name!r} is no name for a rule; kernels need a Python identifier that is no keyword")
    is_own = _is_own(partials)
    if not is_own:
        table.add_later_rows()
    if name in table.RULES:
        raise ArgumentError(f"there is a rule for {name} in the library already; choose another name")
    if not is_own and function is None:
        raise ArgumentError(f"the rule {name} needs function=, how to compute it in the scalar language")
    if function is not None and not isinstance(function, FunctionType):
        raise ArgumentError(f"function= of the rule {name} is {function!r}, not a Python function")
    if function is not None and function.__code__.co_kwonlyargcount:
        raise ArgumentError(
            f"{function.__name__}() has keyword-only parameters; a rule's function is called by position"
        )
    arity = _arity(name, partials, function, domain)
    if arity is None:
        raise ArgumentError(f"how many arguments {name} has is not known; give domain=")
    row = Rule(
        name if is_own else f"{name}#{next(_numbers)}",
        partials,
        tuple(spelling if isinstance(spelling, str) else _dotted(spelling) for spelling in spellings),
        function,
        _domain(name, arity, domain, integer),
        tuple(kinks),
        tuple(integer),
    )
    for point, chosen in row.kinks:
        if len(point) != row.arity or len(chosen) != row.arity:
            raise ArgumentError(f"a kink of the rule {name} is (point, partials), each of {row.arity} numbers")
    callables = [each for each in (function, *spellings) if each is not None and not isinstance(each, str)]
    dotted = tuple(spelling for spelling in spellings if isinstance(spelling, str))
    if is_own or _check is None:
        table.RULES[name] = row
        FUNCTIONS[name] = functools.partial(_computed, row)
        _enter(row, callables, dotted)
    else:
        for spelling in dotted:
            _require_spelling(spelling)
        _add_users(row, callables, dotted, _check)
    return row


def customise(
    function: Any, partials: Callable[..., Any] | None, domain: tuple[Interval, ...] | None, decorator: str
) -> Custom:
    """Give a Python function custom partials, or with None mark it as not differentiable, for the decorator named."""
    if not isinstance(function, FunctionType):
        kind = type(function).__name__
        raise ArgumentError(
            f"{decorator} decorates a Python function, not {a_or_an(kind)}; put it directly above the `def`"
        )
    present = table.lookup(function)
    if present is not None and not isinstance(present, Custom):
        raise ArgumentError(f"{function.__name__}() has a rule already; {decorator} would change its meaning")
    label = function.__name__ if function.__name__.isidentifier() else "lambda"
    arity = None if partials is None else _arity(label, partials, function, domain)
    if arity is not None:
        domain = _domain(label, arity, domain, ())
    custom = Custom(label if _is_own(partials) else f"{label}#{next(_numbers)}", function, partials, domain)
    table.CUSTOMS[custom.name] = custom
    table.set_meaning(function, custom)
    return custom


def custom_partials(
    partials: Callable[..., Any], *, domain: tuple[Interval, ...] | None = None
) -> Callable[[Scalar], Scalar]:
    """Give a scalar function partial derivatives of your own; its value is still computed by its body.

    Python calls the function as before. Wherever a kernel calls it, its result is a float that has these partials,
    whatever its body does. `dualbcast.testing.check_partials` compares them with the automatic ones.

    Parameters
    ----------
    partials : function
        A function of the arguments and then the result `y`, in the scalar language. It returns a tuple with a partial
        derivative for each argument. A literal 0 says that the function does not depend on the argument at all.
        The partial derivative in an integer argument is not used.
    domain : tuple of (float, float), optional
        For each argument the closed interval in which `check_partials` takes points; [-20, 20] if not given.

    Raises
    ------
    ArgumentError
        The decorated object is no Python function, or the numbers of arguments differ.

    Examples
    --------
    A step that passes derivatives straight through:

    >>> import numpy as np
    >>> import dualbcast
    >>> @dualbcast.differentiable_broadcast
    ... @dualbcast.custom_partials(lambda x, y: (1.0,))
    ... def step(x):
    ...     return 1.0 if x > 0.5 else 0.0
    >>> y, J = step.value_and_jacobian(np.array([0.2, 0.7]))
    >>> y, J["x"]
    (array([0., 1.]), array([1., 1.]))
    """

    def decorate(function: Scalar) -> Scalar:
        customise(function, partials, domain, "custom_partials")
        return function

    return decorate


def not_differentiable(function: Scalar) -> Scalar:
    """Mark a scalar function as not differentiable: a Jacobian that needs its derivative is an error.

    Without the mark a function of comparisons and rounding has a derivative of zero. With it, the value still compiles,
    and so do derivatives that do not pass through the function; `stop_derivative` asks for the zero.

    Examples
    --------
    >>> import numpy as np
    >>> import dualbcast
    >>> @dualbcast.not_differentiable
    ... def level(x):
    ...     return int(4 * x)
    >>> f = dualbcast.differentiable_broadcast(lambda x, y: y * level(x))
    >>> x, y = np.array([0.3, 0.6]), 10.0
    >>> f(x, y), f.jacobian(x, y, wrt="y")["y"]
    (array([10., 20.]), array([1., 2.]))
    >>> f.jacobian(x, y)                                   # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    dualbcast.errors.CompileError: ...: level() is marked as not differentiable, and its derivative is needed here
    ...
    """
    customise(function, None, None, "not_differentiable")
    return function


def alias(function: Callable[..., Any], *spellings: str) -> None:
    """Let the callables of these names mean `function`, which is inlined and differentiated as user code is.

    Where the function has a custom derivative, that is taken.
    """
    table.ALIASES.update(dict.fromkeys(spellings, function))
    _enter(table.given(function) or function, [function], spellings)


def _enter(meaning: Rule | Custom | Callable[..., Any], callables: list[Any], spellings: tuple[str, ...]) -> None:
    """Give callables and dotted names a meaning."""
    table.BY_SPELLING.update(dict.fromkeys(spellings, meaning))
    for each in callables:
        table.set_meaning(each, meaning)


def _add_users(
    row: Rule, callables: list[Any], spellings: tuple[str, ...], check: Callable[[Rule, list[Any]], None]
) -> None:
    """Add a user's row, which replaces one of the same name; if `check` refuses it, nothing changes."""
    resolved = [(spelling, table.resolve(spelling)) for spelling in spellings]
    replaced: set[Rule] = set()
    for named, old in [
        *((spelling, table.BY_SPELLING.get(spelling) or table.lookup(each)) for spelling, each in resolved),
        *((each, table.lookup(each)) for each in callables),
    ]:
        if isinstance(old, Rule) and old.by_user and old.label == row.label:
            replaced.add(old)
        elif old is not None:
            raise ArgumentError(f"{_called(named)} has a meaning in kernels already: {_called(old)}")
    callables = [*callables, *(each for _, each in resolved if each is not None)]
    old_spellings = dict(table.BY_SPELLING)
    # The function of a rule that is replaced keeps its meaning, for the kernels that call it.
    old_meanings = [(each, old) for each, old in table.meanings() if old in replaced and each is not old.function]
    old_meanings += [(each, table.lookup(each)) for each in callables]
    for spelling, old in old_spellings.items():
        if old in replaced:
            del table.BY_SPELLING[spelling]
    for each, _ in old_meanings:
        table.set_meaning(each, None)
    table.RULES[row.name] = row
    _enter(row, callables, spellings)
    try:
        check(row, callables)
    except BaseException:
        del table.RULES[row.name]
        table.BY_SPELLING.clear()
        table.BY_SPELLING.update(old_spellings)
        for each, old in old_meanings:
            table.set_meaning(each, old)
        raise


def _computed(row: Rule, *args: float) -> Any:
    """The result of a function of the library at known numbers; an exception where Python has none."""
    originals = (table.resolve(each) for each in row.spellings if each.startswith(("math.", "numpy.")))
    with np.errstate(all="raise"):
        result = (next(originals, None) or row.function)(*args)  # type: ignore[misc] # one of the two exists
    return result.item() if isinstance(result, np.generic) else result


def _arity(name: str, partials: Any, function: FunctionType | None, domain: tuple[Interval, ...] | None) -> int | None:
    """The number of arguments of a function, on which all sources must agree; None if there is no source."""
    if not isinstance(partials, FunctionType):
        raise ArgumentError(f"the partials of {name} are {partials!r}, not a Python function")
    if partials.__code__.co_kwonlyargcount:
        raise ArgumentError(f"the partials of {name} have keyword-only parameters; they are called by position")
    counts = {"domain= has": None if domain is None else len(domain)}
    if not partials.__code__.co_flags & CO_VARARGS:
        counts["the partials take, before the result,"] = partials.__code__.co_argcount - 1
    if function is not None and not function.__code__.co_flags & CO_VARARGS:
        counts["the function takes"] = function.__code__.co_argcount + function.__code__.co_kwonlyargcount
    known = {of: count for of, count in counts.items() if count is not None}
    if len(set(known.values())) > 1:
        sources = ", ".join(f"{of} {count}" for of, count in known.items())
        raise ArgumentError(f"it is unclear how many arguments {name} has: {sources}")
    arity = next(iter(known.values()), None)
    if arity is not None and arity < 1:
        raise ArgumentError(f"the partials of {name} take its arguments, one at least, and then its result")
    return arity


def _domain(
    name: str, arity: int, domain: tuple[Interval, ...] | None, integer: tuple[int, ...]
) -> tuple[Interval, ...]:
    """The domain: one interval for each argument."""
    if any(position not in range(arity) for position in integer):
        raise ArgumentError(f"integer={integer} of {name} is not of positions of its arguments, from 0 to {arity - 1}")
    if domain is None:
        return tuple(WHOLE if position in integer else REAL for position in range(arity))
    for interval in domain:
        if not (isinstance(interval, tuple | list) and len(interval) == 2 and interval[0] <= interval[1]):
            raise ArgumentError(f"the domain of {name} has {interval!r}; it is a (low, high) for each argument")
    return tuple((float(low), float(high)) for low, high in domain)


def _dotted(function: Any) -> str:
    """The dotted name of a callable that is given as a spelling."""
    if not callable(function):
        raise ArgumentError(f"a spelling is a dotted name or a callable, not {function!r}")
    module = getattr(function, "__module__", None)
    name = getattr(function, "__name__", type(function).__name__)
    return f"{module}.{name}" if module else name


def _called(meaning: Any) -> str:
    if isinstance(meaning, Custom):
        return "its custom derivative"
    if isinstance(meaning, Rule):
        return f"the rule {meaning.label}"
    return meaning if isinstance(meaning, str) else str(getattr(meaning, "__name__", meaning))


def _require_spelling(spelling: str) -> None:
    """Refuse a dotted name that cannot be the name of a callable."""
    module, _, name = spelling.rpartition(".")
    if not module or not all(part.isidentifier() for part in spelling.split(".")):
        raise ArgumentError(f"{spelling!r} is not the dotted name of a callable, such as 'scipy.special.ber'")
    spelled = table.resolve(spelling)
    if spelled is None and module in sys.modules:
        raise ArgumentError(f"the module {module} has no {name}")
    if spelled is not None and not callable(spelled):
        raise ArgumentError(f"{spelling} is {a_or_an(type(spelled).__name__)}, which cannot be called")


@custom_partials(lambda x, y: (0,))  # noqa: ARG005
def stop_derivative(x: Any) -> Any:
    """The value of `x` with a derivative of zero.

    It also works on plain numbers. Integers are returned as they are.

    Examples
    --------
    >>> import numpy as np
    >>> import dualbcast
    >>> @dualbcast.differentiable_broadcast
    ... def f(x):
    ...     return x * dualbcast.stop_derivative(x)
    >>> f.jacobian(np.array([3.0]))["x"]
    array([3.])
    """
    return x
