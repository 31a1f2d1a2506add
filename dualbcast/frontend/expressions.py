"""The front end's expressions: from Python syntax to values, with Python's evaluation order and short circuits."""

from __future__ import annotations

import ast
import enum
from collections.abc import Iterator
from types import FunctionType
from typing import TypeGuard

from dualbcast.errors import a_or_an
from dualbcast.frontend.short_circuit import Choices
from dualbcast.frontend.values import Closure, Keywords, Range, Record, Static, Value, describe
from dualbcast.ir.constant_fold import FALSE, TRUE, number
from dualbcast.ir.nodes import Atom, Const, Var

__all__ = ["Expressions"]

_COMPARISONS = {
    ast.Lt: "lt",
    ast.LtE: "le",
    ast.Gt: "gt",
    ast.GtE: "ge",
    ast.Eq: "eq",
    ast.NotEq: "ne",
}
# The names of the methods that give classes operators of their own.
_METHODS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.MatMult: "matmul",
    ast.USub: "neg",
    ast.UAdd: "pos",
    ast.Invert: "invert",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
}

# Tuples exist at compile time only, and what loops over one is written out.
LONGEST_TUPLE = 1024

# What to write instead of an expression that cannot be compiled.
_UNSUPPORTED = {
    ast.Dict: ("a dictionary", "separate variables, or a named tuple"),
    ast.Set: ("a set", "a tuple"),
    ast.SetComp: ("a set comprehension", "tuple(… for …)"),
    ast.DictComp: ("a dictionary comprehension", "tuple(… for …)"),
    ast.Await: ("await", "plain code: a scalar function runs to its end"),
    ast.Yield: ("yield", "return: a scalar function gives one value for each element"),
    ast.YieldFrom: ("yield from", "return: a scalar function gives one value for each element"),
}


class Expressions(Choices):
    """Lowers expressions; what is not defined here is supplied by the layers above."""

    def call(self, node: ast.Call) -> Value:
        raise NotImplementedError

    def call_value(self, callee: Value, args: tuple[Value, ...], keywords: dict[str, Value], node: ast.Call) -> Value:
        raise NotImplementedError

    def assign(self, target: ast.expr, value: Value) -> None:
        raise NotImplementedError

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> Value:
        raise NotImplementedError

    # --- entry points --------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Value:
        """The value of an expression; what it needs is appended to the open block."""
        match node:
            case ast.Constant():
                return self.constant(node)
            case ast.Name():
                return self.name(node)
            case ast.Tuple():
                return self._display(node)
            case ast.List():
                return Record(list, self._display(node))
            case ast.BinOp():
                return self._binary(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.BoolOp():
                return self.boolean(node, node.values, self.expression)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                return self.conditional(node)
            case ast.Call():
                return self.call(node)
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.Lambda():
                return self.closure(node)
            case ast.ListComp() | ast.GeneratorExp():
                return self.comprehension(node)
            case ast.NamedExpr():
                self.assign(node.target, self.expression(node.value))
                return self.frame.env[node.target.id]
            case ast.JoinedStr():
                return Static(self._text(node))
        what, instead = _UNSUPPORTED.get(type(node), (f"this expression ({type(node).__name__})", ""))
        self.fail(node, f"{what} cannot be compiled", instead)

    def scalar(self, node: ast.expr) -> Atom:
        """The value of an expression that must be a number."""
        return self.as_scalar(self.expression(node), node)

    def items(self, nodes: list[ast.expr]) -> tuple[Value, ...]:
        """The values of a list of expressions, starred ones spread."""
        found: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found.extend(self.sequence(self.expression(node.value), node.value))
            else:
                found.append(self.expression(node))
        return tuple(found)

    def sequence(self, value: Value, node: ast.AST) -> tuple[Value, ...]:
        """The items of what can be looped over, in number and order known when the kernel is compiled."""
        if isinstance(value, tuple) and (not isinstance(value, Record) or value.is_sequence or value.is_iterator):
            return tuple(value)
        if isinstance(value, Range):
            known = value.known()
            if known is not None:
                self.limit(len(known), node)
                return tuple(number(item) for item in known)
            self.fail(node, "the length of this range is not known when the kernel is compiled", "a for loop over it")
        if isinstance(value, Static) and isinstance(value.object, str | enum.EnumMeta):
            return tuple(Static(item) for item in value.object)
        if isinstance(value, Keywords):
            return tuple(Static(name) for name in value)
        what, instead = describe(value), "a tuple: (a, b)"
        if isinstance(value, Var):
            what += ": one element of an array, not the array"
            instead += "; what comes from the whole array is another argument of the call"
        self.fail(node, f"a tuple is needed here, and this is {what}", instead)

    def limit(self, length: int, node: ast.AST) -> None:
        """Refuse to write out what would be too long to compile."""
        if length > LONGEST_TUPLE:
            self.fail(
                node, f"this would be written out {length:,} times; {LONGEST_TUPLE} is the most", "a loop over range"
            )

    def refuse_iterator(self, value: Value, node: ast.AST, what: str) -> None:
        """An iterator gives its items once; under a name it would seem to give them again."""
        if isinstance(value, Record) and value.is_iterator:
            name = "generator" if value.python_type.__name__ == "generator" else f"{value.python_type.__name__}()"
            self.fail(node, f"{what} is {a_or_an(name)}, which can be used once only", "tuple(…) around it")

    def closure(self, node: ast.FunctionDef | ast.Lambda) -> Closure:
        defaults = tuple(self.expression(default) for default in node.args.defaults)
        keywords = tuple(None if default is None else self.expression(default) for default in node.args.kw_defaults)
        return Closure(node, self.frame, defaults, keywords)

    def _display(self, node: ast.Tuple | ast.List) -> tuple[Value, ...]:
        items = self.items(node.elts)
        for item in items:
            self.refuse_iterator(item, node, "an item here")
        return items

    def _text(self, node: ast.JoinedStr) -> str:
        """An f-string of what is known when the kernel is compiled."""
        parts: list[str] = []
        for part in node.values:
            if isinstance(part, ast.Constant):
                parts.append(str(part.value))
                continue
            assert isinstance(part, ast.FormattedValue)
            value = self.expression(part.value)
            if not isinstance(value, Const | Static):
                self.fail(
                    part.value, "text is made when the kernel is compiled, and this is not known then", "what is known"
                )
            plain = value.value if isinstance(value, Const) else value.object
            shown = f"{plain!r}" if part.conversion in (114, 97) else plain
            layout = self._text(part.format_spec) if isinstance(part.format_spec, ast.JoinedStr) else ""
            try:
                parts.append(format(shown, layout))
            except Exception as error:
                self.fail(part.value, f"this raises {type(error).__name__}: {error}")
        return "".join(parts)

    # --- operators -----------------------------------------------------------------------------------------------

    def truth(self, value: Value, node: ast.AST) -> Atom:
        for name in ("__bool__", "__len__"):
            method = _method(value, name)
            if method is not None:
                return super().truth(self.inline(method, (value,), {}, node), node)
        if isinstance(value, Record) and not value.is_sequence:
            return TRUE
        return super().truth(value, node)

    def _binary(self, node: ast.BinOp) -> Value:
        left, right = self.expression(node.left), self.expression(node.right)
        return self.binary_value(node.op, left, right, node)

    def binary_value(self, operator: ast.operator, left: Value, right: Value, node: ast.BinOp) -> Value:
        """An operator on numbers, on tuples (`+` joins, `*` repeats), or on objects that define it."""
        for first, second, prefix in ((left, right, "__"), (right, left, "__r")):
            method = _method(first, f"{prefix}{_METHODS[type(operator)]}__")
            if method is not None:
                return self.inline(method, (first, second), {}, node)
        if isinstance(operator, ast.Add) and _is_sequence(left) and _is_sequence(right):
            if _is_list(left) != _is_list(right):
                self.fail(node, f"{describe(left)} and {describe(right)} cannot be joined", "two tuples, or two lists")
            joined = (*self.sequence(left, node.left), *self.sequence(right, node.right))
            return Record(list, joined) if _is_list(left) else joined
        if isinstance(operator, ast.Mult):
            for items, count in ((left, right), (right, left)):
                if _is_sequence(items) and isinstance(count, Const) and count.kind in ("int", "bool"):
                    self.limit(len(items) * int(count.value), node)
                    repeated = self.sequence(items, node) * int(count.value)
                    return Record(list, repeated) if _is_list(items) else repeated
        kinds = [side.object for side in (left, right) if isinstance(side, Static) and isinstance(side.object, type)]
        if len(kinds) == 2 and isinstance(operator, ast.BitOr):
            return Static(kinds[0] | kinds[1])  # for isinstance()
        return self.binary(operator, self.as_scalar(left, node.left), self.as_scalar(right, node.right), node)

    def _unary(self, node: ast.UnaryOp) -> Value:
        value = (self.condition if isinstance(node.op, ast.Not) else self.expression)(node.operand)
        method = None if isinstance(node.op, ast.Not) else _method(value, f"__{_METHODS[type(node.op)]}__")
        if method is not None:
            return self.inline(method, (value,), {}, node)
        return self.unary(node.op, value, node)

    # --- comparisons ---------------------------------------------------------------------------------------------

    def _compare(self, node: ast.Compare) -> Value:
        left = self.expression(node.left)

        def link(position: int, left: Value) -> Value:
            left_node = node.comparators[position - 1] if position else node.left
            right_node = node.comparators[position]
            right = self.expression(right_node)
            test = self._compare_two(node.ops[position], (left, left_node), (right, right_node), node)
            if position + 1 == len(node.ops):
                return test
            return self.short_circuit("and", test, lambda: link(position + 1, right), node)

        return link(0, left)

    def _compare_two(
        self, operator: ast.cmpop, one: tuple[Value, ast.expr], two: tuple[Value, ast.expr], node: ast.Compare
    ) -> Atom:
        (left, left_node), (right, right_node) = one, two
        match operator:
            case ast.Is() | ast.IsNot():
                return self._positive(isinstance(operator, ast.Is), self._identical(left, right, node), node)
            case ast.In() | ast.NotIn():
                return self._positive(isinstance(operator, ast.In), self._contains(left, right, node, right_node), node)
            case ast.Eq() | ast.NotEq():
                if not (isinstance(left, Const | Var) and isinstance(right, Const | Var)):
                    return self._positive(isinstance(operator, ast.Eq), self.equal(left, right, node), node)
        name = _COMPARISONS[type(operator)]
        numbers = self.as_scalar(left, left_node), self.as_scalar(right, right_node)
        return self.comparison(name, *numbers, self.locate(node))

    def _positive(self, positive: bool, test: Atom, node: ast.AST) -> Atom:
        return test if positive else self.op("not", test, kind="bool", location=self.locate(node))

    def _identical(self, left: Value, right: Value, node: ast.AST) -> Atom:
        if isinstance(left, Static) and isinstance(right, Static):
            return TRUE if left.object is right.object else FALSE
        if Static(None) in (left, right):
            return FALSE
        self.fail(node, "numbers have no identity in a kernel", "== instead of `is`")

    def _contains(self, item: Value, container: Value, node: ast.AST, at: ast.AST) -> Atom:
        if isinstance(container, Static) and not isinstance(container.object, enum.EnumMeta):
            if not isinstance(item, Static | Const):
                self.fail(node, f"whether {describe(container)} has a number depends on the data", "a tuple of numbers")
            plain = item.value if isinstance(item, Const) else item.object
            try:
                return TRUE if plain in container.object else FALSE
            except Exception as error:
                self.fail(node, f"this raises {type(error).__name__}: {error}")
        if isinstance(container, Range) and isinstance(item, Const | Var) and item.kind != "float":
            inside = container.known()
            if inside is not None and isinstance(item, Const):
                return TRUE if item.value in inside else FALSE
        found: Atom = FALSE
        for candidate in self.sequence(container, at):
            same = self.equal(item, candidate, node)
            found = self.op("or", found, same, kind="bool", location=self.locate(node))
        return found

    def equal(self, left: Value, right: Value, node: ast.AST) -> Atom:
        """`left == right`, of numbers, tuples and known objects."""
        self.merged(left, node)
        self.merged(right, node)
        if isinstance(left, Const | Var) and isinstance(right, Const | Var):
            return self.comparison("eq", left, right, self.locate(node))
        if isinstance(left, tuple) and isinstance(right, tuple):
            for one, two in ((left, right), (right, left)):
                method = _method(one, "__eq__")
                if method is not None:
                    return self.truth(self.inline(method, (one, two), {}, node), node)
            if _family(left) is not _family(right) or len(left) != len(right) or issubclass(_family(left), Iterator):
                return FALSE
            result: Atom = TRUE
            for a, b in zip(left, right, strict=True):
                result = self.op("and", result, self.equal(a, b, node), kind="bool", location=self.locate(node))
            return result
        for value, other in ((left, right), (right, left)):
            if isinstance(value, Static) and isinstance(value.object, int | float) and isinstance(other, Const | Var):
                return self.comparison("eq", self.as_scalar(value, node), other, self.locate(node))
        if isinstance(left, Static) and isinstance(right, Static):
            try:
                return TRUE if left.object == right.object else FALSE
            except Exception as error:
                self.fail(node, f"this raises {type(error).__name__}: {error}")
        if isinstance(left, Static | tuple) or isinstance(right, Static | tuple):
            return FALSE
        self.fail(node, f"{describe(left)} and {describe(right)} cannot be compared", "two numbers")


def _method(value: Value, name: str) -> FunctionType | None:
    """A method that a named tuple's or dataclass's author has written."""
    method = getattr(value.python_type, name, None) if isinstance(value, Record) else None
    # Those that the dataclass decorator makes have no file.
    return method if isinstance(method, FunctionType) and method.__code__.co_filename != "<string>" else None


def _is_sequence(value: Value) -> TypeGuard[tuple[Value, ...]]:
    """Whether a value is a tuple or a list, and no iterator or dataclass."""
    return isinstance(value, tuple) and (not isinstance(value, Record) or value.is_sequence)


def _is_list(value: Value) -> bool:
    return isinstance(value, Record) and value.python_type is list


def _family(value: tuple[Value, ...]) -> type:
    """What a tuple must share with another to be equal to it."""
    kind = value.python_type if isinstance(value, Record) else tuple
    return tuple if issubclass(kind, tuple) else kind
