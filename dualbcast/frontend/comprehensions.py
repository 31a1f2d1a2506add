"""The front end's comprehensions: written out where the number of items is known, loops of the kernel where a reduction
takes them and it is not.
"""

from __future__ import annotations

import ast
import math
import types
from collections.abc import Callable
from typing import Any

from dualbcast.frontend.inlining import Inlining, assigned_names, local_names
from dualbcast.frontend.values import Frame, Range, Record, Static, Value
from dualbcast.ir.constant_fold import FALSE, TRUE
from dualbcast.ir.nodes import Const

__all__ = ["Comprehensions"]

_Comprehension = ast.ListComp | ast.GeneratorExp

# A reduction as a loop: its start, a turn, its result. `item` is the element, `found` whether there was one.
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


class Comprehensions(Inlining):
    """Lowers comprehensions and generator expressions."""

    def call_with(self, first: tuple[Value, ...], callee: Value, node: ast.Call) -> Value:
        """The result of a call whose first arguments are lowered already; supplied by the layer above."""
        raise NotImplementedError

    def comprehension(self, node: _Comprehension) -> Value:
        """A list, or the items of a generator."""
        items: list[Value] = []
        try:
            self._turns(node, lambda: items.append(self.expression(node.elt)))
        except _Undecided as undecided:
            self.fail(
                undecided.node,
                "how many items this gives depends on the data",
                "sum, prod, min, max, any or all of it, or a for loop",
            )
        return Record(list if isinstance(node, ast.ListComp) else types.GeneratorType, items)

    def reduction(self, function: Any, generator: ast.GeneratorExp, node: ast.Call) -> Value | None:
        """`sum(… for …)` and its like; None for a function that is none of them."""
        if not isinstance(function, types.BuiltinFunctionType) or function not in _LOOPS:
            return None
        restore = self.snapshot()
        try:
            if function in (any, all) and len(node.args) == 1:
                return self._quantified("or" if function is any else "and", generator)
            items: list[Value] = []
            self._turns(generator, lambda: items.append(self.expression(generator.elt)))
        except _Undecided:
            restore()
            return self._loop_of(function, generator, node)
        return self.call_with((Record(types.GeneratorType, items),), Static(function), node)

    def _quantified(self, name: str, generator: ast.GeneratorExp) -> Value:
        """`any` and `all`, which look at no item after the one that decides."""
        result: Value = FALSE if name == "or" else TRUE

        def turn() -> None:
            nonlocal result
            result = self.short_circuit(name, result, lambda: self.condition(generator.elt), generator)

        self._turns(generator, turn)
        return result

    def _turns(self, node: _Comprehension, turn: Callable[[], object]) -> None:
        """Run `turn` with the targets of the loops assigned, in a scope of its own."""
        outer = self.frame
        for part in ast.walk(node):
            if isinstance(part, ast.NamedExpr):
                self.fail(part, "the walrus operator inside a comprehension cannot be compiled", "a for loop")
        targets = frozenset(assigned_names([generator.target for generator in node.generators]))
        inner = Frame(outer.source, targets, {}, outer, outer.calls, name=outer.name)

        def loop(depth: int, iterable: Value) -> None:
            generator = node.generators[depth]
            if generator.is_async:
                self.fail(generator.iter, "async cannot be compiled", "a plain loop")
            if isinstance(iterable, Range) and iterable.known() is None:
                raise _Undecided(generator.iter)
            for item in self.sequence(iterable, generator.iter):
                self.assign(generator.target, item)
                for test_node in generator.ifs:
                    test = self.condition(test_node)
                    if not isinstance(test, Const):
                        raise _Undecided(test_node)
                    if not test.value:
                        break
                else:
                    if depth + 1 == len(node.generators):
                        turn()
                    else:
                        loop(depth + 1, self.expression(node.generators[depth + 1].iter))

        first = self.expression(node.generators[0].iter)
        self.frame = inner
        try:
            loop(0, first)
        finally:
            self.frame = outer

    def _loop_of(self, function: Any, generator: ast.GeneratorExp, node: ast.Call) -> Value:
        """A reduction of a generator as a function with a loop."""
        before, turn, after = _LOOPS[function]
        keywords = {keyword.arg: keyword.value for keyword in node.keywords}
        name = function.__name__
        start = self.expression(node.args[1]) if len(node.args) > 1 else None
        for keyword, value in keywords.items():
            if keyword not in ("start", "default") or (keyword == "default") != (function in (min, max)):
                self.fail(node, f"{name}() of a generator takes no keyword {keyword} in a kernel")
            start = self.expression(value)
        if start is None and function in (min, max):
            self.fail(node, f"{name}() of what may be nothing", f"{name}(…, default=…)")
        if start is None:
            start = Const(1 if function is math.prod else 0, "int")

        text = "\n".join(f"    {line}" for line in (*before.splitlines(), *turn.splitlines(), f"return {after}"))
        made = ast.parse(f"def {name}(items, start):\n{text}").body[0]
        assert isinstance(made, ast.FunctionDef)
        # No name of the user's may be hidden; a percent sign is in none.
        hidden: dict[str, ast.expr] = {
            own: ast.Name(f"%{own}") for own in ("items", "start", "default", "total", "found", "best", "new")
        }
        hidden["default"] = hidden["start"]
        made = _Substitute({**hidden, "item": generator.elt}).visit(made)
        made.args.args = [ast.arg("%items"), ast.arg("%start")]
        head = 1
        body: list[ast.stmt] = made.body[head:-1]
        for depth, part in reversed(list(enumerate(generator.generators))):
            for test in reversed(part.ifs):
                body = [ast.If(test, body, [])]
            iterable = ast.Name("%items", ast.Load()) if depth == 0 else part.iter
            body = [ast.For(part.target, iterable, body, [])]
        made.body = [*made.body[:head], *body, made.body[-1]]
        for part_node in ast.walk(made):
            if not hasattr(part_node, "lineno"):
                ast.copy_location(part_node, generator)
        env: dict[str, Value] = {"%items": self.expression(generator.generators[0].iter), "%start": start}
        frame = Frame(self.frame.source, local_names(made), env, self.frame, self.frame.calls, name=self.frame.name)
        return self.run(frame, made)


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
        found = self.names.get(node.id, node)
        return ast.Name(found.id, node.ctx) if isinstance(found, ast.Name) and found.id[0] == "%" else found
