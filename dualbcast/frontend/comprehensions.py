"""Comprehensions and generator expressions, which are written out item by item.

If the number of items depends on the data, a reduction of a generator becomes a loop of the kernel.
"""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Callable
from typing import Any, NoReturn

from dualbcast.errors import CompileError
from dualbcast.frontend.conditionals import condition, short_circuit
from dualbcast.frontend.dispatch import expression, lowers
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.inlining import lower_body
from dualbcast.frontend.names import assign
from dualbcast.frontend.source import assigned_names, local_names
from dualbcast.frontend.values import Bindings, Frame, Range, Record, Value
from dualbcast.ir.nodes import FALSE, TRUE, Const

__all__ = ["is_reduction", "reduce_generator"]

_Comprehension = ast.ListComp | ast.GeneratorExp

# A reduction as a loop: its start, one iteration, and its result. `item` stands for the element.
_LOOPS: dict[Any, tuple[str, str, str]] = {
    sum: ("total = start", "total = total + item", "total"),
    math.prod: ("total = start", "total = total * item", "total"),
    any: ("pass", "if item: return True", "False"),
    all: ("pass", "if not item: return False", "True"),
    **{
        function: (
            "has_item, best = False, 0",
            f"new = item\nbest = new if not has_item or new {sign} best else best\nhas_item = True",
            "best if has_item else start",
        )
        for function, sign in ((min, "<"), (max, ">"))
    },
}


@lowers(ast.ListComp, ast.GeneratorExp)
def _comprehension(env: Environment, node: _Comprehension) -> Value:
    """A list, or the items of a generator."""
    items: list[Value] = []
    _iterate(env, node, lambda: items.append(expression(env, node.elt)))
    return Record(list if isinstance(node, ast.ListComp) else types.GeneratorType, items)


def is_reduction(function: Any) -> bool:
    """Whether a function can reduce a generator in a loop of the kernel."""
    return isinstance(function, types.BuiltinFunctionType) and function in _LOOPS


def reduce_generator(
    env: Environment, function: Any, generator: ast.GeneratorExp, node: ast.Call, call: Callable[[], Value]
) -> Value:
    """`sum(… for …)` and its like; `call` lowers it as it lowers any call, with the items written out."""
    restore = env.snapshot()
    try:
        if function in (any, all) and len(node.args) == 1:
            return _quantified(env, "or" if function is any else "and", generator)
        return call()
    except CompileError as error:
        if getattr(error, "undecided", None) is not generator:
            raise
    restore()
    return _loop_of(env, function, generator, node)


def _quantified(env: Environment, name: str, generator: ast.GeneratorExp) -> Value:
    """`any` and `all`, which evaluate no item after the one that decides."""
    result: Value = FALSE if name == "or" else TRUE

    def evaluate_item() -> None:
        nonlocal result
        result = short_circuit(env, name, result, lambda: condition(env, generator.elt), generator)

    _iterate(env, generator, evaluate_item)
    return result


def _iterate(env: Environment, node: _Comprehension, iteration: Callable[[], object]) -> None:
    """Run `iteration` with the targets of the loops assigned, in a scope of its own."""
    outer = env.frame
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr):
            env.fail(part, "the walrus operator inside a comprehension cannot be compiled", "a for loop")
    targets = frozenset(assigned_names([generator.target for generator in node.generators]))
    inner = Frame(outer.source, targets, {}, outer, outer.calls, name=outer.name)

    def refuse(part: ast.expr) -> NoReturn:
        instead = "sum, prod, min, max, any or all of it, or a for loop"
        message = "how many items this gives depends on the data"
        error = CompileError(message, env.locate(part), instead, inner.calls)
        error.undecided = node  # type: ignore[attr-defined] # for `reduce_generator` alone
        raise error

    def loop(depth: int, iterable: Value) -> None:
        generator = node.generators[depth]
        if generator.is_async:
            env.fail(generator.iter, "async cannot be compiled", "a plain loop")
        if isinstance(iterable, Range) and iterable.known() is None:
            refuse(generator.iter)
        for item in sequence(env, iterable, generator.iter):
            assign(env, generator.target, item)
            for test_node in generator.ifs:
                test = condition(env, test_node)
                if not isinstance(test, Const):
                    refuse(test_node)
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
        env.fail(node, f"{name}() of items of which there may be none", f"{name}(…, default=…)")
    if start is None:
        start = Const(1 if function is math.prod else 0, "int")
    reducer = _reducer(function, generator)
    bindings: Bindings = {"%items": expression(env, generator.generators[0].iter), "%start": start}
    outer = env.frame
    frame = Frame(outer.source, local_names(reducer), bindings, outer, outer.calls, name=outer.name)
    return lower_body(env, frame, reducer)


def _reducer(function: Any, generator: ast.GeneratorExp) -> ast.FunctionDef:
    """A function of `%items` and `%start` that reduces a generator; the user's names keep their meaning in it."""
    before, iteration, result = _LOOPS[function]
    lines = (*before.splitlines(), *iteration.splitlines(), f"return {result}")
    text = "\n".join(f"    {line}" for line in lines)
    written = ast.parse(f"def {function.__name__}(items, start):\n{text}").body[0]
    assert isinstance(written, ast.FunctionDef)
    for node in ast.walk(written):
        ast.copy_location(node, generator)
    _Fill(generator.elt).visit(written)
    first, *body, last = written.body
    for depth, part in reversed(list(enumerate(generator.generators))):
        for test in reversed(part.ifs):
            body = [ast.copy_location(ast.If(test, body, []), generator)]
        iterable = part.iter if depth else ast.copy_location(ast.Name("%items", ast.Load()), generator)
        body = [ast.copy_location(ast.For(part.target, iterable, body, []), generator)]
    written.body = [first, *body, last]
    return written


class _Fill(ast.NodeTransformer):
    """Puts the element in the place of `item`, and `%` before the other names, which hide no user's name then."""

    def __init__(self, element: ast.expr) -> None:
        self.element = element

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.element if node.id == "item" else ast.copy_location(ast.Name(f"%{node.id}", node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.copy_location(ast.arg(f"%{node.arg}"), node)
