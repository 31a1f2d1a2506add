"""A program as text, as `inspect_ir` shows it."""

from __future__ import annotations

from dualbcast.errors import Location
from dualbcast.ir.nodes import (
    NOWHERE,
    Assign,
    Block,
    Break,
    Const,
    Continue,
    Expr,
    For,
    Function,
    If,
    Load,
    Op,
    Var,
    While,
)

__all__ = ["dump", "format_expr"]


def format_expr(expr: Expr) -> str:
    """An expression in prefix form, as `inspect_ir` shows it."""
    match expr:
        case Const():
            return repr(expr.value)
        case Var():
            return expr.name
        case Load():
            return f"load({expr.name})"
        case Op():
            return f"{expr.name}({', '.join(map(format_expr, expr.args))})"


def dump(function: Function) -> str:
    """The function as text, each statement with the line of the user's source it comes from."""
    lines: list[tuple[str, Location | None]] = []

    def emit(block: Block, depth: int) -> None:
        for stmt in block:
            pad = "    " * depth
            match stmt:
                case Assign():
                    text = f"{stmt.target.name}: {stmt.target.kind} = {format_expr(stmt.value)}"
                    lines.append((pad + text, stmt.location))
                case If():
                    lines.append((f"{pad}if {format_expr(stmt.test)}:", stmt.location))
                    emit(stmt.then, depth + 1)
                    if stmt.orelse:
                        lines.append((f"{pad}else:", None))
                        emit(stmt.orelse, depth + 1)
                case While(masked=True):
                    lines.append((f"{pad}masked while {format_expr(stmt.test)}:", stmt.location))
                    emit(stmt.body, depth + 1)
                case While():
                    lines.append((f"{pad}while:", stmt.location))
                    emit(stmt.pre, depth + 1)
                    lines.append((f"{pad}test {format_expr(stmt.test)}:", stmt.location))
                    emit(stmt.body, depth + 1)
                case For():
                    bounds = ", ".join(map(format_expr, (stmt.start, stmt.stop, stmt.step)))
                    lines.append((f"{pad}for {stmt.target.name} in range({bounds}):", stmt.location))
                    emit(stmt.body, depth + 1)
                case Break():
                    lines.append((f"{pad}break", stmt.location))
                case Continue():
                    lines.append((f"{pad}continue", stmt.location))

    emit(function.body, 1)
    width = min(72, max((len(text) for text, _ in lines), default=0))
    params = ", ".join(f"{param.name}: {param.kind}" for param in function.params)
    rows = [f"function {function.name}({params})"]
    rows += [f"{text:<{width}}  # line {at.line}" if at not in (None, NOWHERE) else text for text, at in lines]
    rows += [f"    output {output.name} = {format_expr(output.value)}" for output in function.outputs]
    return "\n".join(rows) + "\n"
