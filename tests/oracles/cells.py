"""Programs of a user as the tests of errors run them: their text is in `linecache` only, as that of a notebook cell is.

In a program's text, « and » enclose what its error must point at.
"""

from __future__ import annotations

import itertools
import linecache
import math
import textwrap
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.errors import CompileError

__all__ = ["Cell", "X", "Y", "agree", "check", "check_traceback", "program", "rows", "verify"]

COMPILER = tuple(
    str(Path(dualbcast.__file__).parent / stage) for stage in ("ir", "rules", "frontend", "autodiff", "passes")
)
X, Y = np.array([0.5, 2.0]), np.array([1.5, -0.5])
SMOOTH = np.array([0.5, 2.25]), np.array([1.5, -0.625])  # where rounding and comparisons do not jump

_count = itertools.count(1)


@dataclass
class Cell:
    """A program, run; `captured` are further global names of its."""

    marked: str
    captured: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.text = self.marked.replace("«", "").replace("»", "")
        self.filename = f"<ipython-input-{next(_count)}>"
        lines = self.text.replace("\r\n", "\n").splitlines(keepends=True)  # as `linecache` reads files
        linecache.cache[self.filename] = (len(self.text), None, lines, self.filename)
        self.names: dict[str, Any] = {"math": math, "np": np, **self.captured}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # `(x, y)[1.5]` is wrong on purpose
            exec(compile(self.text, self.filename, "exec", dont_inherit=True), self.names)

    def place(self) -> tuple[int, int, str]:
        """Line, column (both from 1, in characters) and text on that line of what the marks enclose."""
        before, rest = self.marked.split("«")
        inside = rest.split("»")[0]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1, inside.split("\n")[0]

    def error(self, *arrays: Any) -> CompileError:
        """The error of a call of the program's `f`, as a user gets it."""
        with pytest.raises(CompileError) as caught:
            differentiable_broadcast(self.names["f"])(*(arrays or (X, Y)))
        return caught.value


def program(body: str) -> str:
    """A function of two numbers with this body."""
    return "def f(x, y):\n" + textwrap.indent(body, "    ") + "\n"


def rows(table: dict[str, tuple[Any, ...]]) -> list[Any]:
    """The rows of a table as parameters of a test."""
    return [pytest.param(*row, id=name) for name, row in table.items()]


# --- errors ----------------------------------------------------------------------------------------------------------


def verify(cell: Cell, message: str, hint: Any, *arrays: Any) -> CompileError:
    """The one error of a program; `hint` is part of its hint, None where it must have none, ... for any."""
    error = cell.error(*arrays)
    check(cell, error, message, error.hint or None if hint is ... else hint)
    return error


def check(cell: Cell, error: CompileError, message: str, hint: str | None) -> None:
    """An error says `message`, points at what the program marks, and shows nothing of the compiler's."""
    line, column, text = cell.place()
    assert message in error.message
    assert (error.filename, error.lineno) == (cell.filename, line)
    source = cell.text.split("\n")[line - 1].rstrip("\r")
    first, shown, carets = str(error).split("\n")[:3]
    assert first.endswith(error.message)
    assert first.startswith(f"{cell.filename}:{line}:{column}: ")
    assert error.offset == column
    assert shown == f"{line:>6} | {source}"
    start = len(shown) - len(source) + column - 1
    padding = "".join("\t" if character == "\t" else " " for character in source[: column - 1])
    assert carets == f"{'|':>8} {padding}{'^' * len(text)}", f"{shown}\n{carets}"
    assert shown[start:].startswith(text)
    if hint is None:
        assert not error.hint
    else:
        assert hint
        assert hint in error.hint
        assert f"Write instead: {error.hint}" in str(error)
    check_traceback(error)


def check_traceback(error: BaseException) -> None:
    """No frame of the compiler shows, and no second error is printed before or after this one."""
    frames = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    assert not [name for name in frames if name.startswith(COMPILER)]
    assert error.__cause__ is None
    assert error.__context__ is None or error.__suppress_context__
    assert "".join(traceback.format_exception(error)).count("Traceback") == 1


# --- what is accepted ------------------------------------------------------------------------------------------------


def agree(cell: Cell, arrays: tuple[Any, ...] = SMOOTH) -> None:
    """The program's `f` gives what plain Python gives, and its slopes are those of plain Python's differences."""
    f = cell.names["f"]
    points = list(zip(*(array.tolist() for array in arrays), strict=True))
    value, jacobian = differentiable_broadcast(backend="python")(f).value_and_jacobian(*arrays)
    found = _flat(value)
    wanted = np.array([_flat(f(*point)) for point in points], float).T
    np.testing.assert_allclose(np.array(found, float), wanted, rtol=1e-13, atol=1e-15)
    step = 1e-6
    for name in jacobian.wrt:
        at = f.__code__.co_varnames.index(name)
        for position, point in enumerate(points):
            above, below = list(point), list(point)
            above[at] += step
            below[at] -= step
            pair = np.array(_flat(f(*above)), float), np.array(_flat(f(*below)), float)
            slopes = (pair[0] - pair[1]) / (above[at] - below[at])
            blocks = [jacobian[output, name] for output in range(len(found))]
            np.testing.assert_allclose([block[position] for block in blocks], slopes, rtol=1e-6, atol=1e-7)


def _flat(value: Any) -> list[Any]:
    """The numbers in an output of any structure."""
    if hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    if isinstance(value, tuple | list):
        return [number for part in value for number in _flat(part)]
    return [value]
