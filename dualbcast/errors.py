"""Every exception of the package."""

from __future__ import annotations

import copyreg
import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from itertools import groupby
from types import MappingProxyType
from typing import Any, TypeVar, cast

from dualbcast.location import Location
from dualbcast.tracebacks import handled_by_callers, place_of, running_shell, user_frames, without_own_frames

__all__ = [
    "ArgumentError",
    "BackendError",
    "BlockKeyError",
    "BoundsError",
    "CompileError",
    "DTypeError",
    "DerivativeError",
    "DualbcastError",
    "FailedAssertion",
    "IterationError",
    "KernelCancelled",
    "Location",
    "MissingDependencyError",
    "NonFiniteError",
    "RaisedError",
    "ShapeError",
]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


# The most calls that led to an error and are shown: the innermost, and the outermost, which are the user's own.
_INNERMOST, _OUTERMOST = 8, 4


class DualbcastError(Exception):
    """The base class of all errors that this package raises on purpose.

    Their tracebacks have the user's frames only, and IPython shows the message and the calls in a few lines. With
    `DUALBCAST_TRACEBACK=full` in the environment the frames of this package show, too.
    """

    def hide_own_frames(self) -> None:
        """Take the frames of this package out of the traceback.

        A `raise` without an error must follow in the same `except` block: it adds no frame for its own function.
        """
        self.__traceback__ = without_own_frames(self.__traceback__)
        if self.__suppress_context__ and self.__cause__ is None:
            # A `from None` in this package hides an exception of its own, not one that the caller is handling.
            handled = handled_by_callers(self)
            if handled is not None:
                self.__context__, self.__suppress_context__ = handled, False

    def __reduce__(self) -> tuple[Any, ...]:
        # Not by the constructor, which would look for the user's text where the error arrives.
        return copyreg.__newobj__, (type(self), *self.args), vars(self) or None  # type: ignore[attr-defined]

    def _render_traceback_(self) -> list[str]:
        """The lines that IPython shows: the message, and the calls that led there, the innermost first."""
        shell = running_shell()
        formatter = getattr(shell, "InteractiveTB", None)
        is_chained = self.__cause__ is not None or (self.__context__ is not None and not self.__suppress_context__)
        wants_all = os.environ.get("DUALBCAST_TRACEBACK") == "full" or getattr(formatter, "mode", "") == "Verbose"
        if formatter is not None and (is_chained or wants_all):
            # The first frame is that of the shell, which runs the cell.
            lines: list[str] = formatter.structured_traceback(type(self), self, self.__traceback__, tb_offset=1)
            return lines
        if formatter is not None:
            formatter.tb = self.__traceback__  # for %debug
        calls = []
        for entry in reversed(user_frames(self.__traceback__)):
            code, line = entry.tb_frame.f_code, entry.tb_lineno
            within = "" if code.co_name.startswith("<") else f", in {code.co_name}()"
            text = Location(code.co_filename, line, 0, line, 0).numbered_line()
            calls.append([f"called at {place_of(code.co_filename, line)}{within}", text])
        message = f"{type(self).__name__}: {self}".splitlines() + getattr(self, "__notes__", [])
        return [line for lines in (message, *_shortened(calls)) for line in lines if line]


Entry = TypeVar("Entry", bound=Callable[..., Any])


def entry_point(function: Entry) -> Entry:
    """Decorate a function that users call: its errors leave it without the frames of this package."""

    @wraps(function)
    def enter(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except DualbcastError as error:
            error.hide_own_frames()
            raise

    return cast(Entry, enter)


def _shortened(calls: list[list[str]]) -> list[list[str]]:
    """The lines about calls, the innermost first, without those of many in the middle."""
    left_out = len(calls) - _INNERMOST - _OUTERMOST
    if left_out > 1:
        calls[_INNERMOST:-_OUTERMOST] = [[f"… and {left_out} calls more"]]
    return calls


class _LocatedError(DualbcastError):
    """An error with a place in the user's source, in attributes that have the names and meaning of `SyntaxError`'s."""

    def __init__(self, message: str, location: Location, more: Sequence[str]) -> None:
        self.location = location
        self.filename, self.lineno, self.offset = location.filename, location.line, location.offset
        place = "" if location.filename == "<unknown>" else f"{location}: "
        super().__init__("\n".join(part for part in (place + message, location.excerpt(), *more) if part))


class CompileError(_LocatedError):
    """A scalar function uses something that cannot be compiled.

    Parameters
    ----------
    message : str
        The fault.
    location : Location
        Its place in the user's source.
    hint : str
        The construct to write instead.
    calls : sequence of (str, Location)
        The calls that led there, the outermost first: for each the name of the callee and the place of the call.

    Attributes
    ----------
    message : str
        The fault, without its place.
    hint : str
        The construct to write instead, or "".
    calls : tuple of (str, Location)
        The calls that led there, the outermost first.
    location : Location
        The place in the user's source.
    filename : str
        The file, as in `SyntaxError`.
    lineno, offset : int
        The line and the column, which count from 1, as in `SyntaxError`.
    """

    def __init__(
        self, message: str, location: Location, hint: str = "", calls: tuple[tuple[str, Location], ...] = ()
    ) -> None:
        self.message, self.hint, self.calls = message, hint, calls
        parts = [f"Write instead: {hint}"] if hint else []
        led = []
        for (name, where), group in groupby(reversed(calls)):
            again = len(list(group)) - 1
            repeated = f"… and {again} more times" if again < 10 else "… and so on"
            led.append([f"in {name}(), called at {where}", where.excerpt(), repeated * (again > 0)])
        parts += [line for lines in _shortened(led) for line in lines]
        super().__init__(message, location, parts)


class ArgumentError(DualbcastError, TypeError):
    """A call has arguments of the wrong number, names or types."""


class BlockKeyError(ArgumentError, KeyError):
    """A Jacobian or a Hessian is indexed by something that it has no block for."""

    # KeyError shows the message as a literal.
    __str__ = BaseException.__str__


class ShapeError(DualbcastError, ValueError):
    """The shapes of the arguments do not broadcast together, or `out=` has the wrong shape."""


class DTypeError(DualbcastError, TypeError):
    """An argument or `out=` has a dtype that cannot be used there."""


class DerivativeError(DualbcastError, AssertionError):
    """A derivative differs from the one that it is compared with; the message is a table of the differences."""


class BackendError(DualbcastError, RuntimeError):
    """A backend cannot do what was asked: no device, no driver, an unknown name."""


class IterationError(_LocatedError, RuntimeError):
    """A loop has not ended after `max_iterations`; the contents of `out=` are undefined.

    Parameters
    ----------
    name : str
        The scalar function's name.
    most : int
        The most iterations that the loop may take.
    index : tuple of int
        The first element that would have taken more, in the shape that the arguments broadcast to.
    count : int
        The number of such elements.
    location : Location
        The place of the loop in the user's source.

    Attributes
    ----------
    index : tuple of int
        The index of the first element that was stopped.
    count : int
        The number of elements that were stopped.
    location : Location
        The place of the loop.
    filename : str
        The file, as in `SyntaxError`.
    lineno, offset : int
        The line and the column, which count from 1, as in `SyntaxError`.
    """

    def __init__(self, name: str, most: int, index: tuple[int, ...], count: int, location: Location) -> None:
        self.index, self.count = index, count
        hint = (
            f"Look at {name}() at that element: test for what does not converge there (a step that no longer gets "
            "smaller, NaN), or let the loop take more with a larger max_iterations="
        )
        what = f"this loop did not end within max_iterations={most} for {_elements_from(index, count)}"
        super().__init__(what, location, (hint,))


class BoundsError(_LocatedError, IndexError):
    """An index of a whole array was out of range; the contents of `out=` are undefined.

    The attributes are those of an `IterationError`; the location is that of the index.
    """

    def __init__(self, name: str, index: tuple[int, ...], count: int, location: Location) -> None:
        self.index, self.count = index, count
        hint = (
            f"Look at {name}() at that element; min(max(i, 0), len(array) - 1) or "
            'np.take(array, i, mode="clip") reads the nearest element, mode="wrap" goes round'
        )
        super().__init__(f"this index is out of range for {_elements_from(index, count)}", location, (hint,))


class NonFiniteError(_LocatedError, FloatingPointError):
    """A result is NaN, or not finite, though the arguments are: what the option `check` looks for.

    The kernel has run, and arrays of `out=` have the results. The attributes are those of an `IterationError`, without
    `count`, and `inputs`; the location is that of the operation that the number comes from. For a sum that overflows
    `index` is None. `earlier` is where an infinity comes from that a NaN was made of, and the operation.

    Attributes
    ----------
    inputs : dict
        The arguments of the element by name, for example for `trace`.
    """

    def __init__(
        self,
        name: str,
        what: str,
        location: Location,
        index: tuple[int, ...] | None = None,
        inputs: Mapping[str, Any] = MappingProxyType({}),
        earlier: tuple[Location, str] | None = None,
    ) -> None:
        self.index, self.inputs = index, dict(inputs)
        element = f", for {_element_at(index)}" if index is not None else ""
        more = [_arguments_there(inputs)] if inputs else []
        if earlier is not None:
            where, text = earlier
            more += [f"The infinity in it comes from {text}, at {where}", where.excerpt()]
        traced = name.partition(":")[0]  # not what is derived from it
        if index is not None and traced.isidentifier():
            more.append(f"{traced}.trace(…{f', index={index}' if index else ''}) shows each step.")
        super().__init__(what + element, location, more)


class FailedAssertion(_LocatedError, AssertionError):
    """An `assert` of a scalar function does not hold for an element; the kernel has not run.

    The attributes are those of a `NonFiniteError`, and `message`: that of the assertion, or "".
    """

    def __init__(self, message: str, location: Location, index: tuple[int, ...], inputs: Mapping[str, Any]) -> None:
        self.message, self.index, self.inputs = message, index, dict(inputs)
        what = f"this assertion fails for {_element_at(index)}{message and f': {message}'}"
        super().__init__(what, location, [_arguments_there(inputs)])


class RaisedError(_LocatedError):
    """A `raise` of a scalar function is reached for an element; the kernel has not run.

    It is an error of the class that the `raise` names, too, so that `except ValueError` catches it. The attributes are
    those of a `FailedAssertion`; `message` is what the `raise` says, or "".
    """

    def __init__(self, message: str, location: Location, index: tuple[int, ...], inputs: Mapping[str, Any]) -> None:
        self.message, self.index, self.inputs = message, index, dict(inputs)
        what = f"this is raised for {_element_at(index)}{message and f': {message}'}"
        super().__init__(what, location, [_arguments_there(inputs)])


_Located = TypeVar("_Located", bound=_LocatedError)


def also_of(error: type[_Located], kind: type[BaseException]) -> type[_Located]:
    """The subclass of an error's class whose errors are of a user's class, too, and have its name."""
    builtin = next(base for base in kind.__mro__ if base.__module__ == "builtins")
    if builtin.__basicsize__ != Exception.__basicsize__:
        return error  # it has attributes of its own, as OSError has
    own = {"__module__": kind.__module__, "__init__": error.__init__, "__reduce__": _parts_of_mixed}
    # KeyError shows the message as a literal.
    return type(kind.__name__, (error, kind), {**own, "__str__": BaseException.__str__})


def _parts_of_mixed(error: _LocatedError) -> tuple[Any, ...]:
    return _mixed, (*type(error).__bases__, error.args, vars(error))


def _mixed(own: type[_Located], kind: type[BaseException], args: tuple[Any, ...], attributes: Any) -> _Located:
    """An error of two classes that has been pickled."""
    mixed = also_of(own, kind)
    error = mixed.__new__(mixed, *args)
    vars(error).update(attributes)
    return error


def _element_at(index: tuple[int, ...]) -> str:
    return f"the element at index {index}" if index else "these numbers"


def _elements_from(index: tuple[int, ...], count: int) -> str:
    return _element_at(index) + (f", and for {count - 1} more" if count > 1 else "")


def _arguments_there(inputs: Mapping[str, Any]) -> str:
    return f"The arguments there: {', '.join(f'{name} = {value}' for name, value in inputs.items())}"


class KernelCancelled(DualbcastError, RuntimeError):
    """A kernel was stopped by `dualbcast.cancel`; the contents of its outputs are undefined."""


# Letters that are spoken by their names count: an nd-array, an x-array. So does "u" as in "you".
_AN = re.compile(r"[aeiou]|nd|xarray|mp[fqz]\b", re.IGNORECASE)
_A = re.compile(r"u(func|int|ni|se|tc|uid)|eu|one", re.IGNORECASE)


def a_or_an(noun: str) -> str:
    """A noun, such as the name of a type, after its article.

    Examples
    --------
    >>> [a_or_an(noun) for noun in ("array", "list", "ufunc", "xarray.DataArray", "ndarray", "UUID", "_Own")]
    ['an array', 'a list', 'a ufunc', 'an xarray.DataArray', 'an ndarray', 'a UUID', 'an _Own']
    """
    spoken = noun.lstrip("_")
    return f"{'an' if _AN.match(spoken) and not _A.match(spoken) else 'a'} {noun}"


def nested_too_deeply(location: Location) -> CompileError:
    """The error of a function that Python's stack is not deep enough to go through."""
    what = "branches or expressions in this function are nested too deeply"
    return CompileError(what, location, "a loop")


def kernel_fault(function: str, compiler: str, path: str, error: Exception) -> BackendError:
    """The error of a kernel that its compiler refuses, which no user's program should cause.

    `function` is the scalar function's name, and `path` the file that has the kernel's text.
    """
    where = f"is in {path}" if os.path.exists(path) else f"is the result of {function}.inspect_source(…)"
    return BackendError(
        f"{compiler} cannot compile the kernel of {function}(). This is a fault of dualbcast's, not of your function: "
        f"please report it.\nThe kernel's text {where}\n{type(error).__name__}: {error}"
    )


class MissingDependencyError(DualbcastError, ImportError):
    """An optional package is needed and is not installed; the message says which line of pip's, say, installs it."""

    def __init__(self, package: str, purpose: str, install: str, command: str = "pip install") -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed.\nInstall it with: {command} {install}")
