"""Every exception of the package, and the one formatter that shows the user's file, line, text and a caret."""

from __future__ import annotations

import linecache
import os
import re
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

__all__ = [
    "ArgumentError",
    "BackendError",
    "CompileError",
    "DTypeError",
    "DerivativeError",
    "DualbcastError",
    "IterationError",
    "KernelCancelled",
    "Location",
    "MissingDependencyError",
    "ShapeError",
]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


# The most calls that led to an error and are shown: the innermost, and the outermost, which are the user's own.
_INNERMOST, _OUTERMOST = 8, 4


class Location(NamedTuple):
    """A range of the user's source: 1-based lines, 0-based columns in UTF-8 bytes (the meaning `ast` gives them)."""

    filename: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.filename}:{self.line}:{self.offset}"

    @property
    def offset(self) -> int:
        """The column as editors and `SyntaxError` count it: 1-based, in characters."""
        return self._characters(self.column) + 1

    def excerpt(self) -> str:
        """The user's line with its number, and carets under the range; empty where the text is not to be had."""
        text = self._text()
        if not text:
            return ""
        start = self._characters(self.column)
        stop = self._characters(self.end_column) if self.end_line == self.line else len(text)
        margin = f"{self.line:>6} | "
        padding = "".join("\t" if character == "\t" else " " for character in text[:start])
        return f"{margin}{text}\n{' ' * (len(margin) - 2)}| {padding}{'^' * max(1, stop - start)}"

    def _text(self) -> str:
        # Read afresh: an edited file or a re-run notebook cell must not show its old text.
        linecache.checkcache(self.filename)
        return linecache.getline(self.filename, self.line).rstrip("\n")

    def _characters(self, column: int) -> int:
        text = self._text()
        return len(text.encode()[:column].decode(errors="ignore")) if text else column


class DualbcastError(Exception):
    """The base class of all errors that this package raises on purpose."""


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
        The parameter.
    location : Location
        The parameter.
    filename : str
        The file, as in `SyntaxError`.
    lineno : int
        The line, as in `SyntaxError`.
    offset : int
        The column, which counts from 1, as in `SyntaxError`.
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
        if (left_out := len(led) - _INNERMOST - _OUTERMOST) > 1:
            led[_INNERMOST:-_OUTERMOST] = [[f"… and {left_out} calls more"]]
        parts += [line for lines in led for line in lines]
        super().__init__(message, location, parts)


class ArgumentError(DualbcastError, TypeError):
    """A call has arguments of the wrong number, names or types."""


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
        The parameter.
    count : int
        The parameter.
    location : Location
        The place of the loop.
    filename : str
        The file, as in `SyntaxError`.
    lineno : int
        The line, as in `SyntaxError`.
    offset : int
        The column, which counts from 1, as in `SyntaxError`.
    """

    def __init__(self, name: str, most: int, index: tuple[int, ...], count: int, location: Location) -> None:
        self.index, self.count = index, count
        element = f"the element at index {index}" if index else "these numbers"
        others = f", and for {count - 1} more" if count > 1 else ""
        hint = (
            f"Look at {name}() at that element: test for what does not converge there (a step that no longer gets "
            "smaller, NaN), or let the loop take more with a larger max_iterations="
        )
        what = f"this loop did not end within max_iterations={most} for {element}{others}"
        super().__init__(what, location, (hint,))


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
    """An optional package is needed and is not installed; the message says which pip line installs it."""

    def __init__(self, package: str, purpose: str, install: str) -> None:
        super().__init__(f"{purpose} needs {package}, which is not installed.\nInstall it with: pip install {install}")
