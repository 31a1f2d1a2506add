"""A Python function comes in; its syntax tree, with the lines and columns of its file, and its local names go out."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import math
import os
import sys
import threading
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, cast

from dualbcast.errors import CompileError, Location, a_or_an
from dualbcast.frontend.source_text import register_text
from dualbcast.rules.guards import Capture

FunctionNode = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class Source:
    """A function's syntax tree and file, and its surroundings."""

    function: FunctionType
    node: FunctionNode
    filename: str

    def code(self) -> Capture:
        """The function's code as a capture: tools that reload modules replace it in functions that exist."""
        return Capture(self.function, "__code__", self.function.__code__, self.function.__name__, attribute=True)

    def capture(self, name: str) -> Capture | None:
        """Look up a free name as Python does: in closure cells, then globals, then builtins."""
        code = self.function.__code__
        if name in code.co_freevars:
            cell = (self.function.__closure__ or ())[code.co_freevars.index(name)]
            try:
                return Capture(cell, name, cell.cell_contents, name)
            except ValueError:
                return None
        for place in (self.function.__globals__, vars(builtins)):
            if name in place:
                return Capture(place, name, place[name], name)
        return None


def find_source(function: Callable[..., Any]) -> Source:
    """The syntax tree of a Python function or lambda; an error if its text is not available."""
    if not isinstance(function, FunctionType):
        name = getattr(function, "__qualname__", repr(function))
        raise CompileError(
            f"{name} is {a_or_an(type(function).__name__)}, not a Python function, so it has no source to compile",
            Location("<unknown>", 1, 0, 1, 0),
            "a function made with `def` or `lambda`",
        )
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        problem = f"{function.__qualname__} is async, and a kernel cannot wait"
        raise CompileError(problem, _first_line_of(function.__code__), "a plain function")
    code = function.__code__
    # The text is read once, so a function that exists keeps its meaning when its file is edited.
    found = _found.get((code.co_filename, code))
    if found is None:
        found = _found[code.co_filename, code] = _arrived(code) or (_locate(function), code.co_filename)
    return Source(function, *found)


# By the file and the code of a function, its node, and the name of the text that has it.
_found: dict[tuple[str, CodeType], tuple[FunctionNode, str]] = {}
# The texts of functions from other processes, by the names that they have here.
_texts: dict[str, str] = {}


def take_text(text: str) -> None:
    """Look for functions in this text, too: those of another process whose code alone has come from there."""
    _texts[register_text(text, "text of another process")] = text


def _arrived(code: CodeType) -> tuple[FunctionNode, str] | None:
    """The node of a function in one of the texts that `take_text` has taken, and the name of that text."""
    if code.co_filename == _DYNAMIC:
        for name, text in _texts.items():
            tree, functions = _parse(text)
            node = _find(functions[code.co_firstlineno, code.co_name], code)
            if node is not None and _is_current(text, tree, code):
                return node, name
    return None


# The file of all code that `cloudpickle` has pickled.
_DYNAMIC = "<dynamic-code>"


def _locate(function: FunctionType) -> FunctionNode:
    code = function.__code__
    linecache.checkcache(code.co_filename)
    lines = linecache.getlines(code.co_filename, function.__globals__)
    text = "".join(lines)
    tree, functions = _parse(text)
    node = _find(functions[code.co_firstlineno, code.co_name], code)
    if node is not None and _is_current(text, tree, code):
        return node
    where = _first_line_of(code)
    if node is None:
        reason = f"its text is not in {code.co_filename}"
        instead = "the function in a file or a notebook cell"
        if code.co_filename == "<string>":
            reason = "exec() keeps no text, nor does `python -c` before Python 3.13"
        elif code.co_filename == "<stdin>":
            reason = "Python keeps no text of a program on standard input"
            if hasattr(sys, "ps1"):
                reason = "the prompt keeps no text before Python 3.13"
                instead = "the function in a file, in IPython, or at the prompt of Python 3.13"
        instead += "; or differentiable_broadcast.from_source(text), with the function's text as a string"
        raise CompileError(f"the source of {function.__qualname__} is not available: {reason}", where, instead)
    raise CompileError(
        f"the text of {function.__qualname__} has changed since it was defined, so it is not what would run",
        where,
        "nothing new: reload the module, or run the cell again",
    )


def _first_line_of(code: CodeType) -> Location:
    return Location(code.co_filename, code.co_firstlineno, 0, code.co_firstlineno, 1)


# `catch_warnings` concerns the whole process, and before Python 3.11.9 `ast.parse` fails in concurrent threads.
_parsing = threading.Lock()


def _renew_after_fork() -> None:
    global _parsing
    _parsing = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)


@lru_cache(maxsize=64)
def _parse(text: str) -> tuple[ast.Module, defaultdict[tuple[int, str], list[FunctionNode]]]:
    """The syntax tree of a file, and its functions by first line and name; of an empty one if it is no Python now."""
    try:
        with _parsing, warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except SyntaxError:  # the file was edited since; or a REPL that keeps other text under this name
        tree = ast.Module([], [])
    functions: defaultdict[tuple[int, str], list[FunctionNode]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode):
            functions[_first_line(node), getattr(node, "name", "<lambda>")].append(node)
    return tree, functions


def _is_current(text: str, tree: ast.Module, code: CodeType) -> bool:
    """Whether the present text of a function still compiles to its code.

    Its statement and the imports are compiled, because code depends on which names are modules. A file may have been
    run as a whole, or cell by cell as its `# %%` comments divide it. A cell has the imports of a range of statements.
    """
    if _REWRITTEN in code.co_names:
        return True
    body = [
        stmt
        for stmt in tree.body
        if not isinstance(stmt, _IMPORT_NOTHING) or _first_line(stmt) <= code.co_firstlineno <= (stmt.end_lineno or 0)
    ]
    own = next(i for i, stmt in enumerate(body) if code.co_firstlineno <= (stmt.end_lineno or 0))
    imports = [i for i, stmt in enumerate(body) if any(isinstance(node, _IMPORT) for node in ast.walk(stmt))]
    starts = [0, *(i + 1 for i in imports if i < own)]
    stops = [len(body), *(i for i in reversed(imports) if i > own)]
    return any(_compiles_to(code, body[start:stop], text) for start in starts for stop in stops)


def _compiles_to(code: CodeType, body: list[ast.stmt], text: str) -> bool:
    """Whether the code is among that of these statements of the text."""

    def content(of: CodeType) -> tuple[object, ...]:
        constants = [repr(constant) for constant in of.co_consts if not isinstance(constant, CodeType)]
        return of.co_name, of.co_firstlineno, of.co_code, of.co_names, of.co_varnames, of.co_freevars, constants

    with _parsing, warnings.catch_warnings(action="ignore"):  # Python gave them when it ran the text
        try:
            pending = [compile(ast.Module(body, []), "<source>", "exec", dont_inherit=True)]
        except RecursionError:  # Python can compile deeper nesting from text than from a tree
            pending = [compile(text, "<source>", "exec", dont_inherit=True)]
    wanted = content(code)
    while pending:
        candidate = pending.pop()
        if content(candidate) == wanted:
            return True
        pending.extend(constant for constant in candidate.co_consts if isinstance(constant, CodeType))
    return False


# A name in functions whose `assert` pytest has rewritten: their code is not what their text compiles to.
_REWRITTEN = "@pytest_ar"
_IMPORT = (ast.Import, ast.ImportFrom)
_IMPORT_NOTHING = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Expr, ast.Assign, ast.AnnAssign)


def _first_line(node: Any) -> int:
    """The first line of a node; the decorators of a function or a class come before its own first line."""
    first: int = min([node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))])
    return first


def _find(candidates: list[FunctionNode], code: CodeType) -> FunctionNode | None:
    if len(candidates) > 1:  # several lambdas on one line: the columns of the code are in the body of its own
        # What Python adds to a function has no columns, or an empty place. A body that chooses has no place as a whole.
        places = [
            ((line, column), (end_line, end_column))
            for line, end_line, column, end_column in code.co_positions()
            if line is not None and end_line is not None and column is not None and end_column is not None
        ]
        places = [place for place in places if place[0] != place[1]]
        bodies = {_place(cast(ast.Lambda, node).body): node for node in candidates}
        around = [body for body in bodies if all(body[0] <= start and end <= body[1] for start, end in places)]
        if places:  # of bodies that are in each other the inner one begins last
            return bodies[max(around)] if around else None
        # Python 3.12 has no columns for a lambda that is only a constant, so its constants decide.
        candidates = [node for node in candidates if _constants(node) == code.co_consts]
    return candidates[0] if candidates else None


def _place(node: ast.expr) -> tuple[tuple[int, int], tuple[int, int]]:
    """The lines and columns where an expression begins and ends."""
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)


def _constants(node: FunctionNode) -> tuple[object, ...]:
    """The constants of a lambda's code, which comes after the constants of its defaults."""
    inner = compile(ast.Expression(cast(ast.Lambda, node)), "<source>", "eval").co_consts
    return [each for each in inner if isinstance(each, CodeType)][-1].co_consts


# --- the names of a function -----------------------------------------------------------------------------------------


def positional_parameters(spec: ast.arguments) -> list[ast.arg]:
    """The parameters that may be given by position."""
    return [*spec.posonlyargs, *spec.args]


@lru_cache(maxsize=1024)
def local_names(function: FunctionNode) -> frozenset[str]:
    """The names that are local to a function: its parameters and those that its own statements assign."""
    spec = function.args
    parameters = [*positional_parameters(spec), *spec.kwonlyargs, spec.vararg, spec.kwarg]
    own = {parameter.arg for parameter in parameters if parameter is not None}
    return frozenset(own | assigned_names(_body(function)))


@lru_cache(maxsize=1024)
def first_yield(function: FunctionNode) -> ast.expr | None:
    """The first `yield` of a function, which makes it a generator even if it is never reached."""
    yields = (node for node in _own_nodes(_body(function)) if isinstance(node, ast.Yield | ast.YieldFrom))
    return next(yields, None)


def assigned_names(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that code assigns, without the local names of functions and comprehensions in it."""
    names: set[str] = set()
    for node in _own_nodes(nodes):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.FunctionDef(name=name):
                names.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names.add(name)
    return names


def changed_names(nodes: Sequence[ast.AST]) -> set[str]:
    """The names of what code may change in place: `items.append(x)`, `items[0] = x`."""
    names: set[str] = set()
    for node in _own_nodes(nodes):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                names.add(name)
            case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                names.add(name)
    return names


def _body(function: FunctionNode) -> Sequence[ast.AST]:
    return function.body if isinstance(function, ast.FunctionDef) else [function.body]


def _own_nodes(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of code in their order, without the bodies of functions and the targets of comprehensions in it."""
    pending = [*reversed(nodes)]
    while pending:
        node = pending.pop()
        yield node
        inner: list[ast.AST]
        match node:
            case ast.FunctionDef(args=spec) | ast.AsyncFunctionDef(args=spec) | ast.Lambda(args=spec):
                # Defaults are evaluated outside the function: `lambda v=(x := 1): v` assigns a name there.
                inner = [node for node in (*spec.defaults, *spec.kw_defaults) if node is not None]
            case ast.comprehension():
                inner = [node.iter, *node.ifs]
            case _:
                inner = list(ast.iter_child_nodes(node))
        pending.extend(reversed(inner))


# --- functions that stand for reductions of generators ----------------------------------------------------------------

# A reduction as a loop: its start, one iteration, and its result. `item` is the element.
REDUCTIONS: dict[Any, tuple[str, str, str]] = {
    sum: ("total = start", "total = total + item", "total"),
    math.prod: ("total = start", "total = total * item", "total"),
    any: ("pass", "if item: return True", "False"),
    all: ("pass", "if not item: return False", "True"),
    **{
        function: (
            "has_item, best = False, 0",
            f"best = item if not has_item or item {sign} best else best\nhas_item = True",
            "best if has_item else start",
        )
        for function, sign in ((min, "<"), (max, ">"))
    },
}


def reducer_of(function: Any, generator: ast.GeneratorExp) -> ast.FunctionDef:
    """A function of `%items` and `%start` that reduces a generator; the user's names keep their meaning in it."""
    before, iteration, result = REDUCTIONS[function]
    lines = (before, "item = 0", *iteration.splitlines(), f"return {result}")
    text = "\n".join(f"    {line}" for line in lines)
    written = ast.parse(f"def {function.__name__}(items, start):\n{text}").body[0]
    assert isinstance(written, ast.FunctionDef)
    for node in ast.walk(written):
        ast.copy_location(node, generator)
        if isinstance(node, ast.Name):
            node.id = f"%{node.id}"
        elif isinstance(node, ast.arg):
            node.arg = f"%{node.arg}"
    first, *body, last = written.body
    assert isinstance(body[0], ast.Assign)
    body[0].value = generator.elt
    for depth, part in reversed(list(enumerate(generator.generators))):
        for test in reversed(part.ifs):
            body = [ast.copy_location(ast.If(test, body, []), generator)]
        iterable = part.iter if depth else ast.copy_location(ast.Name("%items", ast.Load()), generator)
        body = [ast.copy_location(ast.For(part.target, iterable, body, []), generator)]
    written.body = [first, *body, last]
    return written
