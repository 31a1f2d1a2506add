"""Random programs step by step: their traces against kernels, and what they print against Python."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from choices import drawn
from oracles import numbers_of
from program import Program

TOKEN = re.compile(r"[-+]?\d+\.?\d*(?:e[-+]?\d+)?|nan|-?inf|\w+|\S")


def suits(program: Program) -> bool:
    """Whether all is float64. NumPy promotes numbers that are cast to float32 in its own way."""
    return not program.single and "float32" not in program.text


PROGRAMS = [replace(program, dtypes=(), edges=0.0) for program, _ in map(drawn, range(45)) if suits(program)]
EVERY = pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))


def agree(found: Any, wanted: Any, tolerance: float) -> bool:
    if math.isnan(found) or math.isnan(wanted):
        return math.isnan(found) and math.isnan(wanted)
    return bool(found == wanted or abs(found - wanted) <= tolerance * max(1.0, abs(wanted)))


@EVERY
def test_a_trace_ends_with_what_a_kernel_gives(program: Program) -> None:
    function = program.kernel("python")
    value, jacobian = function.value_and_jacobian(*program.arguments, wrt=program.wrt or None)
    values = numbers_of(value)
    for index in [*np.ndindex(values[0].shape)][:3]:
        trace = function.trace(*program.arguments, index=index, wrt=program.wrt or None, limit=100_000)
        for found, wanted in zip(numbers_of(trace.value), values, strict=True):
            assert agree(found, wanted[index], 0.0)
        last = [row for row in trace.rows if row.what == "return" and row.depth == 0][-len(values) :]
        for output, row in enumerate(last):
            for name, found in row.partials.items():
                # NaN may depend on the order of operations.
                wanted = jacobian[output, name][index]
                assert math.isnan(wanted) or agree(found, wanted, 1e-6), (name, row)


def with_prints(text: str) -> str:
    """The program with a `print` after each assignment to a name."""
    places: dict[int, tuple[int, str]] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            for part in ast.walk(node):
                if isinstance(part, ast.Assign | ast.AugAssign):
                    target = part.targets[0] if isinstance(part, ast.Assign) else part.target
                    if isinstance(target, ast.Name) and part.end_lineno is not None:
                        places[part.end_lineno] = part.col_offset, target.id
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        lines.append(line)
        column, name = places.get(number, (0, ""))
        if name and not line[:column].strip():
            lines.append(f"{' ' * column}print('{name} in line {number}:', {name})")
    return "\n".join(lines) + "\n"


def tokens(text: str) -> list[list[str]]:
    """The lines of a text in parts, without those about functions, and with Python's numbers for NumPy's."""
    plain = re.sub(r"(?:np\.(?:float64|int64)|array)\(([^()]*)\)|np\.(True|False)_", r"\1\2", text)
    return [TOKEN.findall(line) for line in plain.splitlines() if "function" not in line]


def same_token(found: str, wanted: str) -> bool:
    if found == wanted:
        return True
    try:
        return agree(*[float({"True": "1", "False": "0"}.get(each, each)) for each in (found, wanted)], 1e-7)
    except ValueError:
        return False


@EVERY
def test_a_program_prints_what_python_prints(program: Program, capsys: Any) -> None:
    speaking = replace(program, text=with_prints(program.text))
    speaking.kernel("cpu")(*speaking.arguments)
    found = tokens(capsys.readouterr().out)
    with np.errstate(all="ignore"):
        for at in range(speaking.points):
            speaking.function(*speaking.point(at))
    wanted = tokens(capsys.readouterr().out)
    assert len(found) == len(wanted)
    for line, other in zip(found, wanted, strict=True):
        assert len(line) == len(other), (line, other)
        assert all(map(same_token, line, other)), (line, other)
