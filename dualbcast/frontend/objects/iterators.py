"""Generators, and what `itertools` and `filter` make of tuples: all of their items, since a kernel has no iterators.

They are all made before the first is used, which nothing shows but what they print.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from dualbcast.frontend.arithmetic import truth
from dualbcast.frontend.builtins import BUILTINS
from dualbcast.frontend.environment import Environment, call_value, expression, lowers, register
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.values import Arguments, Key, Record, Static, Value
from dualbcast.ir.nodes import Const

_NONE = Static(None)


@lowers(ast.Yield, ast.YieldFrom)
def _yield(env: Environment, node: ast.Yield | ast.YieldFrom) -> Value:
    """One more item of a generator, or several."""
    value = expression(env, node.value) if node.value is not None else _NONE
    items = env.frame.bindings[Key.YIELDED]
    if not isinstance(items, Record):
        env.fail(node, "how many items this generator gives depends on the data", "a function that returns a tuple")
    given = (value,) if isinstance(node, ast.Yield) else sequence(env, value, node)
    env.frame.bindings[Key.YIELDED] = items.like([*items, *given])
    return _NONE


def _known(env: Environment, node: ast.Call, value: Value, what: str) -> Any:
    return env.known_object(value, node, f"{what} must be known when the kernel is compiled")


def _tuples(
    function: Callable[..., Any], env: Environment, node: ast.Call, /, *iterables: Value, **options: Value
) -> Record:
    """What a function of `itertools` gives: tuples of the items."""
    known = {name: _known(env, node, value, f"{name}=") for name, value in options.items() if name != "fillvalue"}
    if "fillvalue" in options:
        known["fillvalue"] = options["fillvalue"]
    rows = [sequence(env, iterable, node) for iterable in iterables]
    made = env.evaluate(node, lambda: list(itertools.islice(function(*rows, **known), _MOST + 1)))
    if len(made) > _MOST:
        env.fail(node, f"this gives more than {_MOST} items, and they are written out", "a loop over range")
    return Record(type(iter(())), [Record(tuple, row) for row in made])


_MOST = 1024
for _function in (itertools.product, itertools.pairwise, itertools.zip_longest):
    register(BUILTINS, _function)(partial(_tuples, _function))


def _chosen(
    function: Callable[..., Any], env: Environment, node: ast.Call, items: Value, r: Value = _NONE, /
) -> Record:
    """Combinations and permutations, of `r` items each."""
    count = _known(env, node, r, "how many items are taken at a time")
    given = (count,) if count is not None else ()
    return _tuples(lambda row: function(row, *given), env, node, items)


for _choice in (itertools.combinations, itertools.combinations_with_replacement, itertools.permutations):
    register(BUILTINS, _choice)(partial(_chosen, _choice))


@register(BUILTINS, itertools.chain)
def _chain(env: Environment, node: ast.Call, /, *iterables: Value) -> Record:
    return Record(type(iter(())), [item for iterable in iterables for item in sequence(env, iterable, node)])


@register(BUILTINS, itertools.repeat)
def _repeat(env: Environment, node: ast.Call, value: Value, times: Value = _NONE, /) -> Record:
    count = _known(env, node, times, "how often repeat() gives its item")
    if not isinstance(count, int):
        env.fail(node, "repeat() without a number of times has no end", "repeat(x, 3)")
    return Record(type(iter(())), [value] * count)


@register(BUILTINS, itertools.islice)
def _islice(env: Environment, node: ast.Call, items: Value, /, *bounds: Value) -> Record:
    known = [_known(env, node, bound, "a bound of islice()") for bound in bounds]
    row = sequence(env, items, node)
    return Record(type(iter(())), env.evaluate(node, lambda: list(itertools.islice(row, *known))))


@register(BUILTINS, itertools.starmap)
def _starmap(env: Environment, node: ast.Call, function: Value, rows: Value, /) -> Record:
    results = [
        call_value(env, function, Arguments(sequence(env, row, node)), node) for row in sequence(env, rows, node)
    ]
    return Record(type(iter(())), results)


@register(BUILTINS, itertools.accumulate)
def _accumulate(
    env: Environment, node: ast.Call, items: Value, func: Value = _NONE, /, *, initial: Value = _NONE
) -> Record:
    function = Static(operator.add) if func == _NONE else func
    row = [*(() if initial == _NONE else (initial,)), *sequence(env, items, node)]
    results = row[:1]
    for item in row[1:]:
        results.append(call_value(env, function, Arguments((results[-1], item)), node))
    return Record(type(iter(())), results)


@register(BUILTINS, filter)
def _filter(env: Environment, node: ast.Call, function: Value, items: Value, /) -> Record:
    kept: list[Value] = []
    for item in sequence(env, items, node):
        test = truth(env, node, item if function == _NONE else call_value(env, function, Arguments((item,)), node))
        if not isinstance(test, Const):
            instead = "a sum with a test: sum(x for x in items if x > 0)"
            env.fail(node, "how many items this gives depends on the data", instead)
        kept += [item] * bool(test.value)
    return Record(type(iter(())), kept)
