"""Comprehensions and generator expressions: items written out, or a loop of the kernel.

If the number of items depends on the data, a reduction of a generator becomes a loop of the kernel.
"""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from dualbcast.errors import CompileError
from dualbcast.frontend.environment import Environment, expression, lowers
from dualbcast.frontend.expressions import assign, sequence
from dualbcast.frontend.inlining import lower_body
from dualbcast.frontend.objects.outdated import Read, note_changes, note_late
from dualbcast.frontend.operators import condition, short_circuit
from dualbcast.frontend.source import assigned_names, local_names, reducer_of
from dualbcast.frontend.values import Bindings, Range, Record, Value
from dualbcast.ir.nodes import FALSE, TRUE, Const

Comprehension = ast.ListComp | ast.GeneratorExp | ast.DictComp

# The most iterations over ranges that are written out where a loop of the kernel is possible, too. With derivatives the
# sum of 1 / sqrt(a * (1 + k * h)**3 + 1 - a) compiles in 0.4 s with 64 items, 1.5 s with 200 and 19 s with 1,000.
_MOST_WRITTEN_OUT = 128


@lowers(ast.ListComp, ast.GeneratorExp)
def _comprehension(env: Environment, node: ast.ListComp | ast.GeneratorExp) -> Value:
    """A list, or the items of a generator."""
    items: list[Value] = []
    first, reads = iterate(env, node, lambda: items.append(expression(env, node.elt)))
    made = Record(list if isinstance(node, ast.ListComp) else types.GeneratorType, items)
    return note_late(made, (first,), reads)


def reduce_generator(
    env: Environment, function: Any, generator: ast.GeneratorExp, node: ast.Call, call: Callable[[], Value]
) -> Value:
    """`sum(… for …)` and its like; `call` lowers it as it lowers any call, with the items written out."""
    restore = env.snapshot()
    if _has_many_items(env, generator):
        restore()
        try:
            return _loop_of(env, function, generator, node, has_items=True)
        except CompileError:
            pass  # the items are of different kinds, or an index must be known: they are written out
    restore()
    try:
        if function in (any, all) and len(node.args) == 1:
            return _quantified(env, "or" if function is any else "and", generator)
        return call()
    except CompileError as error:
        if getattr(error, "tried", None) is not generator:
            raise
    restore()
    return _loop_of(env, function, generator, node)


class _ManyItems(Exception):
    """A generator of ranges has more items than are written out."""


def _has_many_items(env: Environment, generator: ast.GeneratorExp) -> bool:
    """Whether a generator of ranges that are known has more items than are written out."""
    count = 0

    def item() -> None:
        nonlocal count
        count += 1
        if count > _MOST_WRITTEN_OUT:
            raise _ManyItems

    def accepts(iterable: Value) -> bool:
        if isinstance(iterable, Range) and is_long(iterable):
            raise _ManyItems
        return isinstance(iterable, Range) and iterable.known() is not None

    try:
        iterate(env, generator, item, accepts)
    except _ManyItems:
        return True
    except CompileError:
        pass
    return False


def _quantified(env: Environment, name: str, generator: ast.GeneratorExp) -> Value:
    """`any` and `all`, which evaluate no item after the one that decides."""
    results: list[Value] = [FALSE if name == "or" else TRUE]
    item = partial(condition, env, generator.elt)
    iterate(env, generator, lambda: results.append(short_circuit(env, name, results[-1], item, generator)))
    return results[-1]


def _has_known_length(iterable: Value) -> bool:
    """Whether a loop over a value can be written out."""
    return not isinstance(iterable, Range) or iterable.known() is not None


def iterate(
    env: Environment,
    node: Comprehension,
    iteration: Callable[[], object],
    accepts: Callable[[Value], bool] = _has_known_length,
) -> tuple[Value, list[Read]]:
    """Run `iteration` with the targets of the loops assigned, in a scope of its own.

    A loop over what it does not accept is refused. The result is what the outermost goes over, and what is read later.
    """
    for part in ast.walk(node):
        if isinstance(part, ast.NamedExpr):
            env.fail(part, "the walrus operator inside a comprehension cannot be compiled", "a for loop")
    outer = env.frame
    inner = outer.scope(outer.node, assigned_names([generator.target for generator in node.generators]), {})

    def refuse(part: ast.expr) -> NoReturn:
        instead = "sum, prod, min, max, any or all of it, or a for loop"
        env.fail(part, "how many items this gives depends on the data", instead, tried=node)

    def passes(part: ast.expr) -> bool:
        test = condition(env, part)
        return bool(test.value) if isinstance(test, Const) else refuse(part)

    def loop(iterable: Value, generator: ast.comprehension, *later: ast.comprehension) -> None:
        if generator.is_async:
            env.fail(generator.iter, "async cannot be compiled", "a plain loop")
        if not accepts(iterable):
            refuse(generator.iter)
        for item in sequence(env, iterable, generator.iter):
            assign(env, generator.target, item)
            if all(map(passes, generator.ifs)):
                if later:
                    loop(expression(env, later[0].iter), *later)
                else:
                    iteration()

    first = expression(env, node.generators[0].iter)
    env.frame, reads = inner, len(env.reads)
    note_changes(inner.bindings, [outer.bindings])
    try:
        loop(first, *node.generators)
    finally:
        env.frame = outer
        note_changes(outer.bindings, [inner.bindings])
    return first, env.reads[reads:]


# --- reductions as loops ---------------------------------------------------------------------------------------------


def _loop_of(
    env: Environment, function: Any, generator: ast.GeneratorExp, node: ast.Call, *, has_items: bool = False
) -> Value:
    """A reduction of a generator as a function with a loop; `has_items` says that there is an item at least."""
    name = function.__name__
    start = expression(env, node.args[1]) if len(node.args) > 1 else None
    for keyword in node.keywords:
        if keyword.arg not in ("start", "default") or (keyword.arg == "default") != (function in (min, max)):
            env.fail(node, f"{name}() of a generator takes no keyword {keyword.arg} in a kernel")
        start = expression(env, keyword.value)
    if start is None and function in (min, max) and not has_items:
        env.fail(node, f"{name}() of items of which there may be none", f"{name}(…, default=…)")
    if start is None:
        start = Const(1 if function is math.prod else 0, "int")
    reducer = reducer_of(function, generator)
    bindings: Bindings = {"%items": expression(env, generator.generators[0].iter), "%start": start}
    return lower_body(env, env.frame.scope(reducer, local_names(reducer), bindings))


def is_long(over: Range) -> bool:
    """Whether a range that is known has more items than are written out."""
    known = over.known()
    return known is not None and len(known) > _MOST_WRITTEN_OUT
