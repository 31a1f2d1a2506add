"""From a function object to its syntax: the right `def` or `lambda`, wherever it stands, with the file's positions."""

from __future__ import annotations

import ast
import functools
import importlib.util
import itertools
import linecache
import sys
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.errors import CompileError
from dualbcast.frontend.environment import locate
from dualbcast.frontend.source import find_source

numbers = itertools.count()


def cell(text: str) -> dict[str, Any]:
    """The names that a notebook cell of this text defines."""
    filename = f"<ipython-input-source-{next(numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    names: dict[str, Any] = {"np": np, "functools": functools}
    exec(compile(text, filename, "exec", dont_inherit=True), names)
    return names


def module(path: Path, text: str) -> ModuleType:
    """The text as a file, imported."""
    path.write_text(text, encoding="utf-8")
    name = f"{path.stem}_{next(numbers)}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def text_of(function: Any) -> str:
    return ast.unparse(find_source(function).node)


def test_a_function_of_this_file() -> None:
    def local(x):
        return x + 1

    source = find_source(local)
    assert source.filename == __file__
    assert isinstance(source.node, ast.FunctionDef)
    assert source.node.lineno == local.__code__.co_firstlineno
    assert ast.unparse(source.node) == "def local(x):\n    return x + 1"


def test_lambdas_that_share_a_line() -> None:
    one, two = (lambda x: x + 1), (lambda x: x + 2)
    nested = lambda x: (lambda y: y * 3)(x)  # noqa: E731
    assert text_of(one) == "lambda x: x + 1"
    assert text_of(two) == "lambda x: x + 2"
    assert text_of(nested) == "lambda x: (lambda y: y * 3)(x)"


LAMBDAS = {
    "one": ("f = lambda x: x * 2\n", "lambda x: x * 2"),
    "second of a line": ("f = (lambda x: x * 1, lambda x: x * 2)[1]\n", "lambda x: x * 2"),
    "same body, other parameter": ("f = (lambda a: a, lambda b: b)[1]\n", "lambda b: b"),
    "constants": ("f = (lambda x: 1.0, lambda x: 2.0)[1]\n", "lambda x: 2.0"),
    "outer": ("f = lambda x: (lambda y: y)(x)\n", "lambda x: (lambda y: y)(x)"),
    "inner": ("f = (lambda: (lambda y: y * 2))()\n", "lambda y: y * 2"),
    "over lines": ("f = (\n    lambda x:\n        x\n        * 2\n)\n", "lambda x: x * 2"),
    "second begins where the first ends": ("f = (lambda x: x * 1, lambda x:\n    x * 2)[1]\n", "lambda x: x * 2"),
    "first, over lines": ("f = (lambda x:\n    x * 1, lambda x: x * 2)[0]\n", "lambda x: x * 1"),
    "default": ("f = [lambda x, n=n: x * n for n in (1, 2)][1]\n", "lambda x, n=n: x * n"),
    "argument of a call": ("f = functools.wraps(abs)(lambda x: x * 2)\n", "lambda x: x * 2"),
    "in a dictionary": ("f = {1: lambda x: x, 2: lambda x: -x}[2]\n", "lambda x: -x"),
    "unicode before it": ("f = ('größe', lambda x: x * 1, lambda x: x * 2)[2]\n", "lambda x: x * 2"),
    "conditional": ("f = lambda x: x if x > 0 else -x\n", "lambda x: x if x > 0 else -x"),
    # A body that chooses has no instruction of its whole span.
    "two conditionals": (
        "g, f = lambda x: x if x > 0 else -x, lambda x: -x if x > 0 else x\n",
        "lambda x: -x if x > 0 else x",
    ),
    "a conditional in a lambda": (
        "g = lambda x: (lambda x: x if x else 1)(x) if x else 2; f = lambda x: (lambda x: 3)(x) if x else 2\n",
        "lambda x: (lambda x: 3)(x) if x else 2",
    ),
    "a conditional, and defaults": (
        "g = lambda x, k='a': x if k == 'a' else -x; f = lambda x, k='b': x if k == 'b' else -x\n",
        "lambda x, k='b': x if k == 'b' else -x",
    ),
}


@pytest.mark.parametrize(("text", "wanted"), LAMBDAS.values(), ids=LAMBDAS)
def test_lambdas(text: str, wanted: str) -> None:
    assert text_of(cell(text)["f"]) == wanted


FUNCTIONS = {
    "plain": ("def f(x):\n    return 1\n", 1),
    "after another of its name": ("def f(x):\n    return 2\n\ndef f(x):\n    return 1\n", 4),
    "in a branch": ("if False:\n    def f(x):\n        return 2\nelse:\n    def f(x):\n        return 1\n", 5),
    "nested": ("def make():\n    def f(x):\n        return 1\n    return f\nf = make()\n", 2),
    "in a class": ("class A:\n    def f(x):\n        return 1\nf = A.f\n", 2),
    "in a class in a function": (
        "def make():\n    class A:\n        def f(x):\n            return 1\n    return A.f\nf = make()\n",
        3,
    ),
    "decorated": ("def keep(g):\n    return g\n\n@keep\n@keep\ndef f(x):\n    return 1\n", 6),
    "decorator over lines": (
        "def keep(*a):\n    return lambda g: g\n\n@keep(\n    1,\n    2,\n)\n\ndef f(x):\n    return 1\n",
        9,
    ),
    "one line": ("def f(x): return 1\n", 1),
    "one line, several statements": ("y = 1; f = None\ndef f(x): z = 1; return z\n", 2),
    "signature over lines": ("def f(\n    x,\n):\n    return 1\n", 1),
    "comments and docstring": ('# a\n\ndef f(x):\n    """Text.\n    """\n    # b\n    return 1\n', 3),
    "in try": ("try:\n    def f(x):\n        return 1\nfinally:\n    pass\n", 2),
    "renamed": ("def g(x):\n    return 1\nf = g\nf.__name__ = f.__qualname__ = 'other'\n", 1),
}


@pytest.mark.parametrize(("text", "line"), FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions(text: str, line: int) -> None:
    function = cell(text)["f"]
    node = find_source(function).node
    assert isinstance(node, ast.FunctionDef)
    assert node.lineno == line
    assert node.name == function.__code__.co_name
    last = node.body[-1]
    assert isinstance(last, ast.Return)
    assert function(0) == 1


STATEMENTS = """\
import functools

text = '''
def decorated(x):
    return 0
'''


# A comment before it.
@functools.lru_cache(
    maxsize=None
)
@functools.lru_cache
def decorated(x):
    def inner(y):
        # another comment
        return x + y

# which goes on
    return inner


lambdas = [
    lambda x: x * 2,
    lambda x: x * 3,
]

if text:
    def chosen(x):
        return x + 1
else:
    def chosen(x):
        return x + 2

try:
    raise ValueError
except ValueError:
    def caught(x):
        return x + 3

class Holder:
    def method(self, x):
        return x + 4
"""


@pytest.mark.parametrize(
    ("expression", "wanted"),
    [
        ("decorated.__wrapped__.__wrapped__", "def decorated(x):"),
        ("decorated(1)", "def inner(y):"),
        ("lambdas[0]", "lambda x: x * 2"),
        ("lambdas[1]", "lambda x: x * 3"),
        ("chosen", "def chosen(x):\n    return x + 1"),
        ("caught", "def caught(x):\n    return x + 3"),
        ("Holder.method", "def method(self, x):"),
    ],
)
def test_a_function_is_found_among_others(tmp_path: Path, expression: str, wanted: str) -> None:
    loaded = module(tmp_path / "statements.py", STATEMENTS)
    function = eval(expression, vars(loaded))
    found = find_source(function)
    assert wanted in ast.unparse(found.node)
    assert found.node.lineno in range(function.__code__.co_firstlineno, function.__code__.co_firstlineno + 5)
    line = STATEMENTS.splitlines()[found.node.lineno - 1]
    assert wanted.partition("(")[0].partition(":")[0].split()[-1] in line


def test_positions_are_those_of_the_file() -> None:
    function = cell("\n\nclass A:\n    def f(x):\n        return x + 10\nf = A.f\n")["f"]
    source = find_source(function)
    where = locate(source.node.body[0].value.right, source.filename)  # type: ignore[union-attr]
    assert (where.line, where.column, where.end_line, where.end_column) == (5, 19, 5, 21)
    assert where.excerpt().splitlines() == ["     5 |         return x + 10", "       |                    ^^"]


CAPTURES = """\
abs = 5
y = 1
z = 1

def make(y):
    def f(x):
        return x + y + z + abs + len

    def forget():
        nonlocal y
        del y

    return f, forget

f, forget = make(2)
"""


def test_captures_are_looked_up_as_python_does() -> None:
    source = find_source(cell(CAPTURES)["f"])
    for name, value in (("y", 2), ("z", 1), ("abs", 5), ("len", len)):
        capture = source.capture(name)
        assert capture is not None
        assert capture.value is value
        assert capture.holds()
    assert source.capture("missing") is None


def test_a_capture_no_longer_holds_when_it_is_rebound_or_gone() -> None:
    names = cell(CAPTURES)
    source = find_source(names["f"])
    for value, still in ((1, True), (1.0, False), (True, False), (2, False), ([1], False)):
        before = source.capture("z")
        assert before is not None
        names["z"] = value
        assert before.holds() == still
        names["z"] = 1
    in_cell, free = source.capture("y"), source.capture("z")
    assert in_cell is not None
    assert free is not None
    names["forget"]()
    del names["z"]
    assert not in_cell.holds()
    assert not free.holds()
    assert source.capture("y") is None
    assert source.capture("z") is None


def test_a_file_that_was_edited_so_that_the_function_moved(tmp_path: Path) -> None:
    loaded = module(tmp_path / "edited.py", "def f(x):\n    return x * 2\n")
    (tmp_path / "edited.py").write_text("# a comment\n\ndef f(x):\n    return x * 2\n")
    with pytest.raises(CompileError, match="the source of f is not available"):
        find_source(loaded.f)


def test_a_function_keeps_the_text_it_was_decorated_with(tmp_path: Path) -> None:
    loaded = module(tmp_path / "kept.py", "def f(x):\n    return x * 2\n")
    decorated = differentiable_broadcast(backend="python")(loaded.f)
    (tmp_path / "kept.py").write_text("def f(x):\n    return x * 3\n")
    assert decorated(np.array([1.5])).tolist() == [3.0]


def test_a_text_that_is_no_longer_what_would_run(tmp_path: Path) -> None:
    loaded = module(tmp_path / "changed.py", "def f(x):\n    return x * 2\n")
    (tmp_path / "changed.py").write_text("def f(x):\n    return x * 3\n")
    with pytest.raises(CompileError, match="has changed since it was defined"):
        find_source(loaded.f)


def test_a_cell_whose_statements_are_compiled_one_by_one() -> None:
    """As by IPython. Python's code for a call of a module's function is another where it sees the import."""
    text = "import math\ndef f(x):\n    return math.sin(x)\n"
    filename = f"<ipython-input-source-{next(numbers)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)
    names: dict[str, Any] = {}
    for statement in ast.parse(text).body:
        exec(compile(ast.Module([statement], []), filename, "exec", dont_inherit=True), names)
    assert text_of(names["f"]) == "def f(x):\n    return math.sin(x)"


@pytest.mark.parametrize("text", ["def f(x:\n", "", "def g(x):\n    return x\n", "f = lambda x: x\n"])
def test_a_file_that_was_edited_so_that_the_function_is_gone(tmp_path: Path, text: str) -> None:
    loaded = module(tmp_path / "edited.py", "def f(x):\n    return x * 2\n")
    (tmp_path / "edited.py").write_text(text)
    with pytest.raises(CompileError, match="the source of f is not available"):
        find_source(loaded.f)


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    loaded = module(tmp_path / "lost.py", "def f(x):\n    return x * 2\n")
    (tmp_path / "lost.py").unlink()
    linecache.checkcache(str(tmp_path / "lost.py"))
    with pytest.raises(CompileError, match="the source of f is not available"):
        find_source(loaded.f)


CELLS = """import math
# %%
import cmath
def f(x):
    return math.sin(x) + len(np.shape(2 * x))
# %%
import numpy as np
def g(x):
    return np.sin(x) + math.cos(x) * cmath.pi
import functools
# %%
def h(x):
    return math.sin(np.cos(x)) + functools.reduce(max, (x, 2))
"""


def run_cells(path: Path, text: str) -> dict[str, Any]:
    """The names of a file of which each cell was compiled by itself, as builders of galleries and some editors do."""
    path.write_text(text)
    names: dict[str, Any] = {"np": np}
    lines = 0
    for part in text.split("# %%\n"):
        exec(compile("\n" * lines + part, str(path), "exec", dont_inherit=True), names)
        lines += part.count("\n") + 1
    return names


def test_a_file_that_was_run_cell_by_cell(tmp_path: Path) -> None:
    """A call such as `math.sin(x)` has other code if `math` was imported in another cell."""
    names = run_cells(tmp_path / "cells.py", CELLS)
    for name in "fgh":
        assert text_of(names[name]).startswith(f"def {name}(x):\n")
    found = differentiable_broadcast(backend="python")(names["g"])(np.array([1.5]))
    assert found.tolist() == [np.sin(1.5) + np.cos(1.5) * np.pi]


def test_a_cell_that_was_edited_since_it_was_run(tmp_path: Path) -> None:
    names = run_cells(tmp_path / "cells.py", CELLS)
    (tmp_path / "cells.py").write_text(CELLS.replace("math.sin", "math.cos").replace("np.sin", "np.tan"))
    for name in "fgh":
        with pytest.raises(CompileError, match="has changed since it was defined"):
            find_source(names[name])


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_file_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "encoded.py"
    path.write_bytes(f"# -*- coding: {encoding} -*-\ngröße = 2.0\ndef f(x):\n    return größe * x\n".encode(encoding))
    spec = importlib.util.spec_from_file_location("encoded", path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert differentiable_broadcast(backend="python")(loaded.f)(np.array([1.5])).tolist() == [3.0]


def test_a_module_in_a_zip_file(tmp_path: Path) -> None:
    import zipfile

    archive = tmp_path / "archive.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("zipped_function.py", "def f(x):\n    return x * 2\n")
    sys.path.insert(0, str(archive))
    try:
        loaded = importlib.import_module("zipped_function")
    finally:
        sys.path.remove(str(archive))
    assert text_of(loaded.f) == "def f(x):\n    return x * 2"


def test_a_cell_that_is_run_again_under_its_name() -> None:
    results = []
    for factor in (2, 3):
        text = f"def f(x):\n    return x * {factor}\n"
        linecache.cache["<ipython-input-again>"] = (
            len(text),
            None,
            text.splitlines(keepends=True),
            "<ipython-input-again>",
        )
        names: dict[str, Any] = {}
        exec(compile(text, "<ipython-input-again>", "exec"), names)
        results.append(differentiable_broadcast(backend="python")(names["f"])(np.array([1.0])).item())
    assert results == [2.0, 3.0]


@pytest.mark.parametrize("thing", [abs, int, np.sin, functools.partial(abs), "text", None, [].append])
def test_what_is_no_function(thing: Any) -> None:
    with pytest.raises(CompileError, match="not a Python function"):
        find_source(thing)


def test_text_without_a_file() -> None:
    names: dict[str, Any] = {}
    exec("def f(x): return x\ng = lambda x: x", names)
    for function in (names["f"], names["g"], eval("lambda x: x")):
        assert isinstance(function, FunctionType)
        with pytest.raises(CompileError, match="is not available"):
            find_source(function)
