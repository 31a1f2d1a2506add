"""Statements that speak, `print`, `assert` and `raise`: their texts become templates in notes.

Kernels have none of them.
A function whose statements speak is lowered a second time, with notes, for the elements that reach one.
"""

from __future__ import annotations

import ast
import builtins

from dualbcast.frontend.environment import Environment, expression, lowers
from dualbcast.frontend.expressions import items_of
from dualbcast.frontend.notes import append_note
from dualbcast.frontend.objects.changes import change_by_method
from dualbcast.frontend.operators import condition
from dualbcast.frontend.values import Record, Static, Value, describe, is_complex, is_member
from dualbcast.ir.nodes import FALSE, TRUE, Atom, Const

# A number of each kind, with which a format is tried.
_SAMPLES: dict[str, object] = {"float": 0.5, "int": 1, "bool": True}


@lowers(ast.Assert)
def _assert(env: Environment, stmt: ast.Assert, _: list[ast.stmt]) -> None:
    """A condition that must hold for every element; as in Python, the option `-O` takes it away."""
    is_outermost = env.block is env.root
    test = condition(env, stmt.test)
    if test == TRUE or not __debug__:
        return
    if test == FALSE and is_outermost:
        env.fail(stmt, f"this assertion fails{words(env, [stmt.msg] if stmt.msg else [])}")
    if env.notes is None:
        problem = "assert cannot be compiled in the function or the partials of a rule"
        env.fail(stmt, problem, "a conditional value, such as nan where the condition fails")
    env.speaks = True
    values = [test]
    template = _template(env, stmt.msg, values) if stmt.msg else ""
    append_note(env, "assert", (template,), tuple(values), stmt)


def parts_of_raise(stmt: ast.Raise) -> tuple[ast.expr | None, list[ast.expr]]:
    """What a `raise` names, and the arguments."""
    return (stmt.exc.func, stmt.exc.args) if isinstance(stmt.exc, ast.Call) else (stmt.exc, [])


def raised(env: Environment, called: ast.expr | None) -> object:
    """The object that a `raise` names, an exception or its class; None if it is not known."""
    known = expression(env, called) if called is not None else None
    return known.object if isinstance(known, Static) else None


def append_raise(env: Environment, stmt: ast.Raise) -> None:
    """Append what a `raise` says, which only elements that come to it do."""
    called, args = parts_of_raise(stmt)
    kind = raised(env, called)
    if isinstance(kind, Exception):  # one that has been made outside of the function
        kind, args = type(kind), [ast.copy_location(ast.Constant(", ".join(map(str, kind.args))), stmt)]
    if not isinstance(kind, type) or not issubclass(kind, Exception):
        env.fail(stmt, "only an exception can be raised", 'raise ValueError("…")')
    if env.notes is None:
        problem = "raise cannot be compiled in the function or the partials of a rule"
        env.fail(stmt, problem, "a conditional value, such as nan in place of the error")
    env.speaks = True
    values: list[Atom] = []
    template = ", ".join(_template(env, arg, values) for arg in args)
    append_note(env, "raise", (template,), tuple(values), stmt, kind)


@lowers(ast.Expr)
def _expression(env: Environment, stmt: ast.Expr, _: list[ast.stmt]) -> None:
    """An expression as a statement: a docstring, `...`, a call of `print`, or of a method that changes a list."""
    node = stmt.value
    if isinstance(node, ast.Constant) and (isinstance(node.value, str) or node.value is ...):
        return
    if change_by_method(env, stmt):
        return
    if isinstance(node, ast.Yield | ast.YieldFrom):
        expression(env, node)
        return
    if isinstance(node, ast.Call) and env.notes is not None and expression(env, node.func) == Static(builtins.print):
        _print(env, node)
        return
    expression(env, node)  # an error in it comes first
    env.fail(stmt, "the value of this expression is not used", "an assignment or a return")


def _print(env: Environment, node: ast.Call) -> None:
    env.speaks = True
    options = {"sep": " ", "end": "\n"}
    for keyword in node.keywords:
        problem = f"{keyword.arg}= of print must be known text" if keyword.arg in options else ""
        if keyword.arg not in (*options, "flush"):
            env.fail(keyword, "print in a kernel takes sep=, end= and flush= only", "print(…) without it")
        known = env.known_object(expression(env, keyword.value), keyword.value, problem)
        if keyword.arg in options and known is not None:
            if not isinstance(known, str):
                env.fail(keyword.value, problem)
            options[keyword.arg] = known
    values: list[Atom] = []
    parts: list[str] = []
    for arg in node.args:
        if isinstance(arg, ast.Starred):
            parts += [_field(item, values) for item in items_of(env, [arg])]
        else:
            parts.append(_template(env, arg, values))
    template = _escaped(options["sep"]).join(parts) + _escaped(options["end"])
    append_note(env, "print", (template,), tuple(values), node)


def words(env: Environment, nodes: list[ast.expr]) -> str:
    """The text of an exception after a colon; empty if it is not known when the kernel is compiled."""
    values = items_of(env, nodes)
    is_known = all(isinstance(value, Const | Static) for value in values)
    text = ", ".join(str(env.known_object(value, nodes[0], "")) for value in values) if is_known else ""
    return text and f": {text}"


# --- templates -------------------------------------------------------------------------------------------------------


def _template(env: Environment, node: ast.expr, values: list[Atom]) -> str:
    """The text of an expression as a template of `str.format`; the numbers in it are appended to `values`."""
    if not isinstance(node, ast.JoinedStr):
        return _field(expression(env, node), values)
    parts: list[str] = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            parts.append(_escaped(str(part.value)))
            continue
        assert isinstance(part, ast.FormattedValue)
        value = expression(env, part.value)
        layout = expression(env, part.format_spec) if part.format_spec else Static("")
        assert isinstance(layout, Static)  # the text of an f-string, in which all is known
        if isinstance(value, Atom) or is_complex(value):
            sample = _SAMPLES[value.kind] if isinstance(value, Atom) else 0.5j
            env.evaluate(part.value, format, sample, layout.object)
            parts.append(_field(value, values, f":{layout.object}" if layout.object else ""))
        elif isinstance(value, Static):
            shown = repr(value.object) if part.conversion in (ord("r"), ord("a")) else value.object
            parts.append(_escaped(env.evaluate(part.value, format, shown, layout.object)))
        else:
            parts.append(_field(value, values))
    return "".join(parts)


def _field(value: Value, values: list[Atom], layout: str = "", *, inside: bool = False) -> str:
    """A value in a template; `inside` a tuple Python shows the `repr` of an item."""
    if isinstance(value, Atom):
        values.append(value)
        return f"{{{len(values) - 1}{layout}}}"
    if isinstance(value, Record) and is_member(value):
        return _field(value[0], values, layout)
    if isinstance(value, Record) and is_complex(value):
        values.extend(value)
        return f"{{{len(values) - 2}&{len(values) - 1}{layout}}}"
    if isinstance(value, Record):
        items = [_field(item, values, inside=True) for item in value]
        if value.python_type is dict:
            shown = ", ".join(f"{_escaped(repr(key))}: {item}" for key, item in zip(value.fields, items, strict=True))
            return f"{{{{{shown}}}}}"
        if value.fields:
            pairs = zip(value.fields, items, strict=True)
            return f"{value.python_type.__name__}({', '.join(f'{name}={item}' for name, item in pairs)})"
        if value.python_type is list:
            return f"[{', '.join(items)}]"
        return f"({', '.join(items)}{',' * (len(items) == 1)})"
    if isinstance(value, Static):
        return _escaped(repr(value.object) if inside else str(value.object))
    return _escaped(f"<{describe(value)}>")


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
