"""Comprehensions and generator expressions: written out where the number of items is known when the kernel is compiled;
a reduction of a generator where it is not is a loop of the kernel.
"""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Callable
from typing import Any

from dualbcast.frontend.conditionals import condition, short_circuit
from dualbcast.frontend.dispatch import expression, lowers
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.inlining import lower_body
from dualbcast.frontend.names import assign
from dualbcast.frontend.source import assigned_names, local_names
from dualbcast.frontend.values import Bindings, Frame, Range, Record, Value
from dualbcast.ir.nodes import FALSE, TRUE, Const

__all__ = ["reduction"]

_Comprehension = ast.ListComp | ast.GeneratorExp

# A reduction as a loop: its start, an iteration, its result. `item` is the element, `found` whether there was one.
_LOOPS: dict[Any, tuple[str, str, str]] = {
    sum: ("total = start", "total = total + item", "total"),
    math.prod: ("total = start", "total = total * item", "total"),
    any: ("pass", "if item: return True", "False"),
    all: ("pass", "if not item: return False", "True"),
    **{
        function: (
            "found, best = False, 0",
            f"new = item\nbest = new if not found or new {sign} best else best\nfound = True",
            "best if found else default",
        )
        for function, sign in ((min, "<"), (max, ">"))
    },
}


class _Undecided(Exception):
    """How many items there are depends on the data."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node


@lowers(ast.ListComp, ast.GeneratorExp)
def _comprehension(env: Environment, node: _Comprehension) -> Value:
    """A list, or the items of a generator."""
    try:
        items = _items(env, node)
    except _Undecided as undecided:
        env.fail(
            undecided.node,
            "how many items this gives depends on the data",
            "sum, prod, min, max, any or all of it, or a for loop",
        )
    return Record(list if isinstance(node, ast.ListComp) else types.GeneratorType, items)


def reduction(
    env: Environment, function: Any, generator: ast.GeneratorExp, node: ast.Call, call: Callable[[Value], Value]
) -> Value | None:
    """`sum(… for …)` and its like; None for a function that is none of them.

    `call` gives the result of calling the function with the generator's items.
    """
    if not isinstance(function, types.BuiltinFunctionType) or function not in _LOOPS:
        return None
    restore = env.snapshot()
    try:
        if function in (any, all) and len(node.args) == 1:
            return _quantified(env, "or" if function is any else "and", generator)
        items = _items(env, generator)
    except _Undecided:
        restore()
        return _loop_of(env, function, generator, node)
    return call(Record(types.GeneratorType, items))


def _quantified(env: Environment, name: str, generator: ast.GeneratorExp) -> Value:
    """`any` and `all`, which look at no item after the one that decides."""
    result: Value = FALSE if name == "or" else TRUE

    def look() -> None:
        nonlocal result
        result = short_circuit(env, name, result, lambda: condition(env, generator.elt), generator)

    _iterate(env, generator, look)
    return result


def _items(env: Environment, node: _Comprehension) -> list[Value]:
    items: list[Value] = []
    _iterate(env, node, lambda: items.append(expression(env, node.elt)))
    return items


def _iterate(env: Environment, node: _Comprehension, iteration: Callable[[], object]) -> None:
    """Run `iteration` with the targets of the loops assigned, in a scope of its own."""
    outer = env.frame
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr):
            env.fail(part, "the walrus operator inside a comprehension cannot be compiled", "a for loop")
    targets = frozenset(assigned_names([generator.target for generator in node.generators]))
    inner = Frame(outer.source, targets, {}, outer, outer.calls, name=outer.name)

    def loop(depth: int, iterable: Value) -> None:
        generator = node.generators[depth]
        if generator.is_async:
            env.fail(generator.iter, "async cannot be compiled", "a plain loop")
        if isinstance(iterable, Range) and iterable.known() is None:
            raise _Undecided(generator.iter)
        for item in sequence(env, iterable, generator.iter):
            assign(env, generator.target, item)
            for test_node in generator.ifs:
                test = condition(env, test_node)
                if not isinstance(test, Const):
                    raise _Undecided(test_node)
                if not test.value:
                    break
            else:
                if depth + 1 == len(node.generators):
                    iteration()
                else:
                    loop(depth + 1, expression(env, node.generators[depth + 1].iter))

    first = expression(env, node.generators[0].iter)
    env.frame = inner
    try:
        loop(0, first)
    finally:
        env.frame = outer


# --- reductions as loops ---------------------------------------------------------------------------------------------


def _loop_of(env: Environment, function: Any, generator: ast.GeneratorExp, node: ast.Call) -> Value:
    """A reduction of a generator as a function with a loop."""
    name = function.__name__
    start = expression(env, node.args[1]) if len(node.args) > 1 else None
    for keyword in node.keywords:
        if keyword.arg not in ("start", "default") or (keyword.arg == "default") != (function in (min, max)):
            env.fail(node, f"{name}() of a generator takes no keyword {keyword.arg} in a kernel")
        start = expression(env, keyword.value)
    if start is None and function in (min, max):
        env.fail(node, f"{name}() of what may be nothing", f"{name}(…, default=…)")
    if start is None:
        start = Const(1 if function is math.prod else 0, "int")
    written = _written_out(function, generator)
    bindings: Bindings = {"%items": expression(env, generator.generators[0].iter), "%start": start}
    outer = env.frame
    frame = Frame(outer.source, local_names(written), bindings, outer, outer.calls, name=outer.name)
    return lower_body(env, frame, written)


def _written_out(function: Any, generator: ast.GeneratorExp) -> ast.FunctionDef:
    """The function of `%items` and `%start` that reduces a generator; the user's own names mean the same in it."""
    before, iteration, result = _LOOPS[function]
    lines = (*before.splitlines(), *iteration.splitlines(), f"return {result}")
    text = "\n".join(f"    {line}" for line in lines)
    written = ast.parse(f"def {function.__name__}(items, start):\n{text}").body[0]
    assert isinstance(written, ast.FunctionDef)
    # No name of the user's may be hidden; a percent sign is in none.
    hidden: dict[str, ast.expr] = {
        own: ast.Name(f"%{own}") for own in ("items", "start", "default", "total", "found", "best", "new")
    }
    hidden["default"] = hidden["start"]
    _Substitute({**hidden, "item": generator.elt}).visit(written)
    written.args.args = [ast.arg("%items"), ast.arg("%start")]
    first, *body, last = written.body
    for depth, part in reversed(list(enumerate(generator.generators))):
        for test in reversed(part.ifs):
            body = [ast.If(test, body, [])]
        iterable = ast.Name("%items", ast.Load()) if depth == 0 else part.iter
        body = [ast.For(part.target, iterable, body, [])]
    written.body = [first, *body, last]
    for node in ast.walk(written):
        if not hasattr(node, "lineno"):
            ast.copy_location(node, generator)
    return written


class _Substitute(ast.NodeTransformer):
    """Puts expressions in the place of names, and forgets where the template's own nodes were."""

    def __init__(self, names: dict[str, ast.expr]) -> None:
        self.names = names

    def visit(self, node: ast.AST) -> Any:
        for attribute in ("lineno", "col_offset", "end_lineno", "end_col_offset"):
            if hasattr(node, attribute):
                delattr(node, attribute)
        return super().visit(node)

    def visit_Name(self, node: ast.Name) -> ast.expr:
        other = self.names.get(node.id, node)
        return ast.Name(other.id, node.ctx) if isinstance(other, ast.Name) and other.id[0] == "%" else other
