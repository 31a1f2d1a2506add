"""Whatever the program, a call gives Python's results or one error of this package: random mutations of the corpus."""

from __future__ import annotations

import ast
import contextlib
import linecache
import random
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import corpus
import corpus_objects
import numpy as np
import pytest
from cells import program
from mutations import ATOMS, STATEMENTS, mutate
from test_ast_table import CAPTURED, TABLE, Is

import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.errors import BackendError, CompileError, DualbcastError

PACKAGE = str(Path(dualbcast.__file__).parent)

Program = tuple[ast.FunctionDef, tuple[Any, ...], dict[str, Any]]


def programs() -> list[Program]:
    """The functions of the corpus and of the table of syntax, with points and global names."""
    found: list[Program] = []
    for module in (corpus, corpus_objects):
        with open(module.__file__, encoding="utf-8") as file:
            tree = ast.parse(file.read())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        names = {**CAPTURED, **vars(module)}
        found += [(functions[case.name], case.points, names) for case in corpus.CORPUS if case.name in functions]
    points = ((0.5, 1.5), (2.25, -0.625))
    for rows in TABLE.values():
        texts = [row.text for row in rows if isinstance(row, Is) and row.since <= (3, 11)]
        for text in texts:
            node = ast.parse(text if text.startswith("def f") else program(text)).body[0]
            assert isinstance(node, ast.FunctionDef)
            found.append((node, points, {**vars(corpus), **CAPTURED}))
    return found


class OutOfTime(BaseException):
    """No Exception, so that the package does not take it for an error of its own."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """End what does not end by itself: a mutated loop may not."""

    def stop(*_: Any) -> None:
        raise OutOfTime

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def numbers(value: Any) -> list[Any]:
    """The numbers in a result of any structure."""
    if hasattr(value, "__dataclass_fields__"):
        value = [getattr(value, name) for name in value.__dataclass_fields__]
    if isinstance(value, tuple | list):
        return [number for part in value for number in numbers(part)]
    return [value]


def run(source: Program, rng: random.Random, name: str) -> str:
    """Run a mutation of a program as a kernel and in Python; says what came of it."""
    tree, points, names = source
    plain = ast.FunctionDef(tree.name, tree.args, tree.body, [], None, None)
    if "type_params" in ast.FunctionDef._fields:
        plain.type_params = []
    try:
        text = ast.unparse(mutate(ast.fix_missing_locations(plain), rng)) + "\n"
        with warnings.catch_warnings(action="ignore"):
            code = compile(text, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return "no program"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope = dict(names)
    exec(code, scope)
    function = scope[tree.name]
    arrays = [np.array(column) for column in zip(*points, strict=True)]
    caught: list[DualbcastError] = []
    value: Any = ()
    try:
        with limited(2):
            value, _ = differentiable_broadcast(backend="python")(function).value_and_jacobian(*arrays)
    except OutOfTime:
        return "no end"
    except DualbcastError as error:
        caught.append(error)
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}\n{text}") from error
    for error in caught:
        assert not isinstance(error, BackendError), f"{text}\n{error}"
        if isinstance(error, CompileError):
            assert error.message, text
            assert PACKAGE not in error.filename, f"{text}\n{error}"
        return "error"
    try:
        with limited(2):
            wanted = [[float(number) for number in numbers(function(*point))] for point in points]
    # What the kernel may compute: divisions by zero, numbers without bounds, loops that end with them.
    except (Exception, OutOfTime):
        return "an error of Python's only"
    for position, row in enumerate(wanted):
        found = [np.broadcast_to(number, len(points))[position] for number in numbers(value)]
        np.testing.assert_allclose(np.array(found, float), row, rtol=1e-9, atol=1e-12, err_msg=text)
    return "the same"


def test_every_piece_is_python() -> None:
    assert len(ATOMS) > 40
    assert len(STATEMENTS) > 40


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_mutated_program_gives_pythons_results_or_one_error(seed: int) -> None:
    every = programs()
    outcomes: dict[str, int] = {}
    for turn in range(300 if seed == 1 else 3000):
        rng = random.Random(1_000_000 * seed + turn)
        outcome = run(rng.choice(every), rng, f"<mutation {seed} {turn}>")
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    total = sum(outcomes.values())
    assert outcomes["the same"] > total / 5, outcomes
    assert outcomes["error"] > total / 5, outcomes
    assert outcomes.get("no end", 0) < total / 20, outcomes
