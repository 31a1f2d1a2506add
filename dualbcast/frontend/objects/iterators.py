"""Generators, and what `itertools` and `filter` make of tuples: all of their items, since a kernel has no iterators.

They are all made before the first is used, which nothing shows but what they print and raise. `any` and `all` make no
more items of a `map` or a `filter` than they need.
"""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable
from functools import partial
from typing import Any

from dualbcast.frontend.arithmetic import logical, ordered, truth
from dualbcast.frontend.builtins import BUILTINS, measure, one_of
from dualbcast.frontend.environment import Environment, call_value, expression, lowers, register
from dualbcast.frontend.expressions import sequence
from dualbcast.frontend.operators import short_circuit
from dualbcast.frontend.values import Arguments, Key, Record, Static, Value
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Const

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


def quantified(env: Environment, function: Any, node: ast.Call) -> Value | None:
    """`any` or `all` of a call of `map` or `filter`: no item after the one that decides is made. None for any other."""
    if function not in (any, all) or len(node.args) != 1 or node.keywords:
        return None
    (of,) = node.args
    chosen = _arguments_of(env, of, filter)
    if chosen is None and _arguments_of(env, of, map) is None:
        return None
    name = "or" if function is any else "and"
    result: Atom = FALSE if function is any else TRUE
    test = expression(env, chosen[0]) if chosen is not None else _NONE

    def decides(item: Callable[[], Value]) -> Atom:
        value = item()
        if chosen is None:
            return truth(env, node, value)
        is_chosen = truth(env, node, value if test == _NONE else call_value(env, test, Arguments((value,)), node))
        if function is all:
            is_chosen = logical(env, "not", is_chosen, node=node)
        return truth(env, node, short_circuit(env, _OTHER[name], is_chosen, lambda: truth(env, node, value), node))

    for item in _late_items(env, of if chosen is None else chosen[1], node):
        result = truth(env, node, short_circuit(env, name, result, partial(decides, item), node))
    return result


_OTHER = {"or": "and", "and": "or"}


def _arguments_of(env: Environment, node: ast.expr, function: Any) -> list[ast.expr] | None:
    """The arguments of a call of `filter`, or of `map` with one row or more; None for all else."""
    if not isinstance(node, ast.Call) or node.keywords or not isinstance(node.func, ast.Name | ast.Attribute):
        return None
    if len(node.args) < 2 or any(isinstance(argument, ast.Starred) for argument in node.args):
        return None
    is_call = expression(env, node.func) == Static(function) and (function is map or len(node.args) == 2)
    return node.args if is_call else None


def _late_items(env: Environment, of: ast.expr, node: ast.Call) -> list[Callable[[], Value]]:
    """What makes the items of an iterable: each item of a call of `map` is made when it is asked for."""
    arguments = _arguments_of(env, of, map)
    if arguments is None:
        return [partial(_same, item) for item in sequence(env, expression(env, of), node)]
    function = expression(env, arguments[0])

    def call(row: tuple[Callable[[], Value], ...]) -> Value:
        return call_value(env, function, Arguments(tuple([item() for item in row])), node)

    columns = [_late_items(env, argument, node) for argument in arguments[1:]]
    return [partial(call, row) for row in zip(*columns, strict=False)]


def _same(value: Value) -> Value:
    return value


# --- sorting ---------------------------------------------------------------------------------------------------------

_Row = tuple[Value, Value]  # what decides the place of an item, and the item


def _row_of(env: Environment, test: Atom, then: _Row, orelse: _Row, node: ast.Call) -> _Row:
    measure = one_of(env, test, then[0], orelse[0], node)
    is_measure = then[0] is then[1] and orelse[0] is orelse[1]
    return measure, measure if is_measure else one_of(env, test, then[1], orelse[1], node)


@register(BUILTINS, sorted)
def _sorted(
    env: Environment, node: ast.Call, items: Value, /, *, key: Value | None = None, reverse: Value = FALSE
) -> Value:
    given = sequence(env, items, node)
    if (
        key in (None, _NONE)
        and given
        and all(isinstance(item, Static) and isinstance(item.object, str) for item in given)
    ):
        texts = [item.object for item in given if isinstance(item, Static)]
        return Record(list, map(Static, sorted(texts, reverse=reverse not in (FALSE, Const(0, "int")))))
    rows = [(measure(env, item, key, node), item) for item in given]
    if not isinstance(reverse, Const):
        env.fail(node, "whether sorted() reverses must be known when the kernel is compiled")
    name = "gt" if reverse.value else "lt"
    # Neighbours change places where the second must come first, so that equal numbers keep their order.
    for end in range(1, len(rows)):
        for at in range(end, 0, -1):
            first, second = rows[at - 1], rows[at]
            test = ordered(env, name, second[0], first[0], node)
            rows[at - 1] = _row_of(env, test, second, first, node)
            rows[at] = _row_of(env, test, first, second, node)
    return Record(list, [item for _, item in rows])
