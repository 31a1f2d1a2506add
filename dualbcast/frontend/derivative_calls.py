"""The front end's derivatives: of a function that the kernel calls, in its language, to any depth.

The call is lowered with fresh names for the arguments that the derivative is in, forward mode transforms what it gave,
and the result is inlined. All other names are no seeds there, so that derivatives in two arguments are never confused.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any

from dualbcast.errors import ArgumentError
from dualbcast.frontend.builtins import BUILTINS, KEYWORDS
from dualbcast.frontend.comprehensions import Comprehensions
from dualbcast.frontend.environment import LONGEST, freeze
from dualbcast.frontend.values import (
    Closure,
    Derived,
    Operator,
    Partial,
    Static,
    Value,
    describe,
    items_like,
)
from dualbcast.ir.nodes import TEMPORARY, Assign, Atom, Block, Const, Function, Output, Stmt, Var
from dualbcast.ir.value_numbering import simplify
from dualbcast.ir.walk import among, assigned, atoms, expressions, statements

__all__ = [
    "DerivativeOf",
    "Derivatives",
    "called_with",
    "find_argument",
    "parameter_names",
    "take_derivative",
]


class DerivativeOf:
    """A derivative of a function as a Python object.

    Attributes
    ----------
    function : callable
    operator : Operator
    """

    def __init__(self, function: Any, operator: Operator) -> None:
        self.function, self.operator = function, operator


class Derivatives(Comprehensions):
    """Lowers derivatives; `call_value` is supplied by the layer above."""

    def call_value(self, callee: Value, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value:
        raise NotImplementedError

    def differentiate(
        self, derived: Derived, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call
    ) -> Value:
        """The result of calling a derivative of a function."""
        operator, where, calls = derived.operator, self.locate(node), (*derived.calls, (args, keywords))
        (args, keywords), later = calls[0], calls[1:]
        names = parameter_names(derived.function)
        wanted = self._wanted(operator, names, args, keywords, node)
        given: dict[int | str, Value] = dict(enumerate(args))
        given.update(keywords)
        seeds: dict[int | str, Var] = {}
        moves: list[Stmt] = []
        for at in dict.fromkeys(wanted):
            label = at if isinstance(at, str) else names[at] if at < len(names) else "x"
            aligned = isinstance(at, int) and not derived.calls and len(node.args) == len(args)
            point = self._point(given[at], at, operator, node.args[at] if aligned else node)  # type: ignore[index]
            seeds[at] = Var(self.names.fresh(label), "float")
            moves.append(Assign(seeds[at], point, where))
        given.update(seeds)
        body: list[Stmt] = []
        root = self.root
        if self.block is root:
            self.root = body  # what always happens in the function that is called always happens
        try:
            with self.into(body):
                positional = tuple(given[at] for at in range(len(args)))
                value = self.call_value(derived.function, positional, {key: given[key] for key in keywords}, node)
                for more, named in later:
                    value = self.call_value(value, more, named, node)
        finally:
            self.root = root
        if _is_function(value):
            # Its derivative is that of what it gives, at whatever arguments.
            if operator.has_value:
                what = f"{describe(derived.function)} returns {describe(value)}, which is no value for an output"
                self.fail(
                    node, what, f"{operator.name.removeprefix('value_and_')}(…), and the value by a call of its own"
                )
            return Derived(operator, derived.function, calls)
        leaves = list(self._leaves(value, derived, node))
        outputs = tuple(Output(f"{TEMPORARY}{at}", self.current(leaf)) for at, leaf in enumerate(leaves))
        inside = freeze(body, self.current)
        function = Function("", tuple(seeds.values()), inside, outputs, where, derived=among(self.derived, inside))
        results = iter(self._transformed(function, freeze(moves, self.current), operator.has_value, node))
        values = [next(results) for _ in leaves] if operator.has_value else []
        partials = {at: _rebuild(value, iter([next(results) for _ in leaves])) for at in seeds}
        found: Value = tuple(partials[at] for at in wanted)
        if operator.wrt is not None and not isinstance(operator.wrt, tuple):
            found = partials[wanted[0]]
        return (_rebuild(value, iter(values)), found) if operator.has_value else found

    def _transformed(self, function: Function, moves: Block, has_value: bool, node: ast.AST) -> list[Atom]:
        """Append what computes a function's partials: its values, if wanted, and then its partials, by parameter."""
        # Forward mode needs the front end for the rules.
        from dualbcast.autodiff.differentiate import dualize
        from dualbcast.frontend.rule_bodies import guards_of

        # Before it, since it takes operations away.
        self.guards.extend(guards_of(function))
        dual = dualize(function, range(len(function.params)), self.names)
        outputs, count = dual.function.outputs, len(function.outputs)
        results = {output.name: output.value for output in outputs}
        wanted = [output.value for output in outputs[:count]] if has_value else []
        for seed in range(len(function.params)):
            for position in range(count):
                name = dual.partials.get((position, seed))
                wanted.append(Const(0.0, "float") if name is None else results[name])
        body = (*moves, *dual.function.body)
        outputs = tuple(Output(f"{TEMPORARY}{at}", value) for at, value in enumerate(wanted))
        final = simplify(Function("", _free(body, outputs), body, outputs, function.location))
        self.length += sum(1 for _ in statements(final.body))
        if self.length > LONGEST:
            self.fail(node, f"this derivative makes more than {LONGEST:,} operations of the function", "a lower order")
        self.block.extend(final.body)
        self.derived.update(dual.function.derived)
        return [output.value for output in final.outputs if isinstance(output.value, Atom)]

    # --- arguments and results -----------------------------------------------------------------------------------

    def _wanted(
        self,
        operator: Operator,
        names: Sequence[str],
        args: tuple[Value, ...],
        keywords: dict[str, Value],
        node: ast.Call,
    ) -> list[int | str]:
        """The arguments that a derivative is in, each by its position, or by its name where it is given so."""
        if operator.wrt is None:
            if not args and not keywords:
                self.fail(node, f"{operator.name}() is taken in the arguments of this call, and there are none")
            return [*range(len(args)), *keywords]
        found: list[int | str] = []
        for item in operator.items:
            at = find_argument(item, names, len(args), keywords)
            if at is None:
                shown = f"argument {item + 1}" if isinstance(item, int) and item >= 0 else f"wrt={item!r}"
                what = f"{operator.name}() is taken in {shown}, which this call does not give"
                self.fail(node, what, "a call that gives it, too")
            found.append(at)
        return found

    def _point(self, value: Value, at: int | str, operator: Operator, where: ast.AST) -> Atom:
        """The number at which a derivative is taken."""
        what = at if isinstance(at, str) else f"argument {at + 1}"
        if isinstance(value, Const) and value.kind == "int":  # 2 for 2.0
            return Const(float(value.value), "float")
        self.merged(value, where)
        others = "wrt= for the arguments that are floats" if operator.wrt is None else ""
        if not isinstance(value, Const | Var):
            self.fail(where, f"a derivative is in numbers, and {what} is {describe(value)}", others)
        if value.kind != "float":
            kind = "an integer" if value.kind == "int" else "a bool"
            instead = f"float(…) around it{', or ' * bool(others)}{others}"
            self.fail(where, f"{what} is {kind}, in which there is no derivative", instead)
        return value

    def plain_wrt(self, value: Value, node: ast.AST) -> Any:
        """The argument `wrt=` of an operator, which must be known."""
        if isinstance(value, tuple):
            return tuple(self.plain_wrt(item, node) for item in value)
        if not isinstance(value, Const | Static):
            self.fail(node, f"wrt= must be known when the kernel is compiled, and this is {describe(value)}")
        return value.value if isinstance(value, Const) else value.object

    def _leaves(self, value: Value, derived: Derived, node: ast.Call) -> Iterator[Atom]:
        """The numbers that a function returns."""
        if isinstance(value, tuple):
            for item in value:
                yield from self._leaves(item, derived, node)
        elif isinstance(value, Const | Var):
            yield value
        else:
            self.merged(value, node)
            what = f"an output of {describe(derived.function)} is {describe(value)}"
            self.fail(node, f"{what}, which has no derivative", "numbers, or tuples of them")


def parameter_names(function: Value) -> Sequence[str]:
    """The names of a function's positional parameters, as far as they are known."""
    match function:
        case Closure():
            spec = function.node.args
            return [parameter.arg for parameter in (*spec.posonlyargs, *spec.args)]
        case Partial():
            names = parameter_names(function.function)[len(function.args) :]
            return [name for name in names if name not in function.keywords]
        case Derived():
            return parameter_names(function.function)
        case Static(DerivativeOf() as known):
            return parameter_names(Static(known.function))
        case Static(known):
            try:
                parameters = inspect.signature(known, follow_wrapped=False).parameters.values()
            except (TypeError, ValueError):
                return []
            by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
            return [parameter.name for parameter in parameters if parameter.kind in by_position]
    return []


def find_argument(item: int | str, names: Sequence[str], count: int, named: Collection[str]) -> int | str | None:
    """Where a call gives the argument that `item` of a `wrt=` means: its position, or the name it is given by.

    `names` are those of the function's parameters; the call gives `count` arguments by position, and others by name.
    """
    at = item
    if isinstance(at, int):
        at = at + count if at < 0 else at
        at = names[at] if count <= at < len(names) else at
    elif at not in named and at in names:
        at = names.index(at)
    return at if at in named or at in range(count) else None


def _is_function(value: Value) -> bool:
    return isinstance(value, Closure | Partial | Derived) or (isinstance(value, Static) and callable(value.object))


def _rebuild(model: Value, leaves: Iterator[Atom]) -> Value:
    """The structure of `model` with other numbers in it."""
    if isinstance(model, tuple):
        return items_like(model, [_rebuild(item, leaves) for item in model])
    return next(leaves)


def _free(body: Block, outputs: Iterable[Output]) -> tuple[Var, ...]:
    """The variables that are read, and not assigned."""
    exprs = [expr for stmt in statements(body) for expr in expressions(stmt)]
    exprs.extend(output.value for output in outputs)
    read = {leaf.name: leaf for expr in exprs for leaf in atoms(expr) if isinstance(leaf, Var)}
    own = set(assigned(body))
    return tuple(leaf for name, leaf in read.items() if name not in own)


# --- the public functions in a kernel ---------------------------------------------------------------------------------


def take_derivative(public: Callable[..., Any], default: int | None) -> None:
    """Make calls of a public function mean an operator of its name, which by default is in these arguments."""

    def lowering(self: Derivatives, node: ast.Call, function: Value, *more: Value, wrt: Value | None = None) -> Value:
        name = public.__name__
        if more or not _is_function(function):
            what = f"{name}() takes a function, and this is {describe(function)}"
            if more:
                what = f"{name}() takes a function alone; what it gives takes the arguments"
            self.fail(node, what, f"{name}(g)(x)")
        try:
            return Derived(Operator(name, default if wrt is None else self.plain_wrt(wrt, node)), function)
        except ArgumentError as error:
            self.fail(node, str(error))

    BUILTINS[public] = lowering
    KEYWORDS[public] = frozenset({"wrt"})


def called_with(function: Any, names: tuple[str, ...], *args: Any) -> Any:
    """`function(*args)`, with the last arguments by these names: what a call outside a kernel compiles."""
    return _spread(function, names, *args)


def _spread(function: Any, names: tuple[str, ...], *args: Any) -> Any:
    count = len(args) - len(names)
    return function(*args[:count], **dict(zip(names, args[count:], strict=True)))


def _lower_spread(self: Derivatives, node: ast.Call, function: Value, names: tuple[Static, ...], *args: Value) -> Value:
    count = len(args) - len(names)
    named = dict(zip((name.object for name in names), args[count:], strict=True))
    return self.call_value(function, args[:count], named, node)


BUILTINS[_spread] = _lower_spread
