"""Statements other than branches and loops: assignments, returns and jumps, inner functions, `raise` and `assert`."""

from __future__ import annotations

import ast
import sys
from typing import NoReturn

from dualbcast.frontend.conditionals import condition
from dualbcast.frontend.dispatch import expression, lowers, refuses
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.expressions import assign, items_of, make_closure
from dualbcast.frontend.paths import leave_loop, return_from_loop
from dualbcast.frontend.values import (
    RESULT,
    RETURNED,
    RETURNED_AT,
    SKIPPING,
    Edge,
    Static,
    Unrolled,
    is_list,
    object_of,
)
from dualbcast.ir.nodes import FALSE, TRUE, Const

__all__: list[str] = []

Rest = list[ast.stmt]

# --- assignment ------------------------------------------------------------------------------------------------------


@lowers(ast.Assign)
def _assign(env: Environment, stmt: ast.Assign, _: Rest) -> None:
    value = expression(env, stmt.value)
    for target in stmt.targets:
        assign(env, target, value)


@lowers(ast.AnnAssign)
def _annotated(env: Environment, stmt: ast.AnnAssign, _: Rest) -> None:
    if stmt.value is not None:
        assign(env, stmt.target, expression(env, stmt.value))


@lowers(ast.AugAssign)
def _augmented(env: Environment, stmt: ast.AugAssign, _: Rest) -> None:
    if not isinstance(stmt.target, ast.Name):
        assign(env, stmt.target, FALSE)
        return
    read = ast.copy_location(ast.Name(stmt.target.id, ast.Load()), stmt.target)
    before = expression(env, read)
    if is_list(before):
        name = stmt.target.id  # in Python, every other name of this list would see the change
        env.fail(stmt, "a list does not change in a kernel", f"a new list: {name} = [*{name}, …]")
    both = ast.copy_location(ast.BinOp(read, stmt.op, stmt.value), stmt)
    assign(env, stmt.target, expression(env, both))


@lowers(ast.FunctionDef)
def _define(env: Environment, stmt: ast.FunctionDef, _: Rest) -> None:
    if stmt.decorator_list:
        problem = "decorators of an inner function cannot be compiled"
        env.fail(stmt.decorator_list[0], problem, "the decorated function outside this one")
    env.frame.bindings[stmt.name] = make_closure(env, stmt)


# --- returns and jumps -----------------------------------------------------------------------------------------------


@lowers(ast.Return)
def _return(env: Environment, stmt: ast.Return, _: Rest) -> bool | None:
    if stmt.value is None or (isinstance(stmt.value, ast.Constant) and stmt.value.value is None):
        env.fail(stmt, "a return without a value", "the value: `return x`")
    frame = env.frame
    frame.bindings[RESULT] = expression(env, stmt.value)
    frame.returned_at = stmt
    frame.bindings[RETURNED_AT] = Static(env.locate(stmt))
    frame.bindings[RETURNED] = frame.bindings[SKIPPING] = TRUE
    return None if return_from_loop(env, stmt) else False


@lowers(ast.Break, ast.Continue)
def _jump(env: Environment, stmt: ast.Break | ast.Continue, _: Rest) -> bool | None:
    frame = env.frame
    loop = frame.loops[-1]  # Python's own parser refuses jumps outside loops
    if isinstance(loop, Unrolled):
        frame.bindings[loop.broke if isinstance(stmt, ast.Break) else loop.skip] = TRUE
        frame.bindings[SKIPPING] = TRUE
        return None
    if isinstance(stmt, ast.Break):
        return leave_loop(env, loop, stmt)
    loop.continues.append(Edge(env.block, dict(frame.bindings), env.locate(stmt)))
    return False


# --- statements that stop a call while it is compiled ----------------------------------------------------------------


@lowers(ast.Raise)
def _raise(env: Environment, stmt: ast.Raise, _: Rest) -> NoReturn:
    if env.block is not env.root:
        env.fail(stmt, "raise cannot be compiled", "a return of nan: elements of an array cannot stop each other")
    called = stmt.exc.func if isinstance(stmt.exc, ast.Call) else stmt.exc
    name = ast.unparse(called) if called is not None else "an exception"
    words = _words(env, stmt.exc.args) if isinstance(stmt.exc, ast.Call) else ""
    env.fail(stmt, f"this call raises {name}{words and ': '}{words}")


@lowers(ast.Assert)
def _assert(env: Environment, stmt: ast.Assert, _: Rest) -> None:
    restore, is_outermost = env.snapshot(), env.block is env.root
    test = condition(env, stmt.test)
    if test == TRUE:
        restore()
        return
    if test == FALSE and is_outermost:
        words = _words(env, [stmt.msg] if stmt.msg else [])
        env.fail(stmt, f"this assertion fails{words and ': '}{words}")
    env.fail(stmt, "assert cannot be compiled", "a conditional value, such as nan where the condition fails")


def _words(env: Environment, nodes: list[ast.expr]) -> str:
    """The text of an exception, if it is known when the kernel is compiled."""
    values = items_of(env, nodes)
    is_known = all(isinstance(value, Const | Static) for value in values)
    return ", ".join(str(object_of(value)) for value in values) if is_known else ""


# --- statements without effect, and without meaning in a kernel ------------------------------------------------------


@lowers(ast.Pass)
def _pass(_: Environment, __: ast.Pass, ___: Rest) -> None:
    pass


@lowers(ast.Expr)
def _expression(env: Environment, stmt: ast.Expr, _: Rest) -> None:
    if isinstance(stmt.value, ast.Constant) and isinstance(stmt.value.value, str):  # a docstring
        return
    expression(env, stmt.value)  # an error in it comes first
    env.fail(stmt, "the value of this expression is not used", "an assignment or a return")


for _kind, _name, _instead in (
    (ast.Try, "try", "a test of the values beforehand"),
    (ast.TryStar, "try", "a test of the values beforehand"),
    (ast.With, "with", "plain statements"),
    (ast.Import, "import inside the function", "the import at the top of the file"),
    (ast.ImportFrom, "import inside the function", "the import at the top of the file"),
    (ast.Global, "global", "another output: a kernel cannot change what is outside it"),
    (ast.Nonlocal, "nonlocal", "a returned value: a function cannot change what is outside it"),
    (ast.Delete, "del", "nothing: variables cost nothing"),
    (ast.ClassDef, "a class definition", "the class outside the function: a named tuple or a dataclass"),
    (ast.AsyncFunctionDef, "async", "a plain function"),
    (ast.AsyncFor, "async", "a plain loop"),
    (ast.AsyncWith, "async", "plain statements"),
):
    refuses(_kind, _name, _instead)
if sys.version_info >= (3, 12):
    refuses(ast.TypeAlias, "a type alias", "the alias outside the function")
