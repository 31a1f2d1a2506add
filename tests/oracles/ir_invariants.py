"""The invariants of a program, on which every pass relies; tests verify them after every pass."""

from __future__ import annotations

from collections import Counter

from dualbcast.ir.nodes import (
    ARITHMETIC,
    BITWISE,
    COMPARISONS,
    FUSED,
    LOGIC,
    TRUE,
    Assign,
    Atom,
    Block,
    Break,
    Continue,
    Expr,
    For,
    Function,
    If,
    Note,
    Op,
    Stmt,
    Var,
    While,
    format_expr,
)
from dualbcast.ir.traversal import assigned, blocks, expressions, read_counts


def verify(function: Function) -> Function:
    """Assert the invariants: kinds agree, names are assigned before they are read, and jumps are in loops.

    Returns the function, so that a pass can end with it.
    """
    verifier = _Verifier(function)
    known = verifier.block(function.body, {param.name for param in function.params})
    assert known is not None
    for output in function.outputs:
        verifier.expression(output.value, known)
    return function


def verify_single_assignment(function: Function) -> Function:
    """Assert the invariants, and that each name has one assignment, or one on each of several paths that meet.

    The latter are copies, or conversions of integers where a float comes along another path. A parameter counts as
    assigned at the start. The name is not read in the rest of the block, but for a loop that hands it on, and what
    follows that loop. The front end gives such programs, and so do differentiation and simplification of them.
    """
    counts = Counter([*(param.name for param in function.params), *assigned(function.body)])

    def visit(block: Block) -> None:
        for at, stmt in enumerate(block):
            if isinstance(stmt, Assign | For) and counts[stmt.target.name] > 1:
                name = stmt.target.name
                assert isinstance(stmt, Assign), f"{name} counts iterations, and is assigned"
                assert _is_copy(stmt.value), f"{name} = {format_expr(stmt.value)}, and is assigned elsewhere"
                after = _up_to_loop(block[at + 1 :], name)
                assert name not in assigned(after), f"{name} is assigned twice along a path"
                assert name not in read_counts(after), f"{name} is read where it is assigned"
            for inner in blocks(stmt):
                visit(inner)

    visit(function.body)
    return verify(function)


def _is_copy(value: Expr) -> bool:
    """Whether a value is an atom, or that of an integer as a float."""
    return isinstance(value, Atom) or (isinstance(value, Op) and value.name == "to_float")


def _up_to_loop(block: Block, name: str) -> Block:
    """The statements before a loop that assigns a name."""
    loops = (at for at, stmt in enumerate(block) if isinstance(stmt, For | While) and name in assigned((stmt,)))
    return block[: next(loops, len(block))]


class _Verifier:
    def __init__(self, function: Function) -> None:
        self.kinds = {param.name: param.kind for param in function.params}
        # For each open loop, the names known at its breaks.
        self.breaks: list[list[set[str]]] = []

    def block(self, block: Block, known: set[str]) -> set[str] | None:
        """The names known after the block, or None where no path reaches its end."""
        for position, stmt in enumerate(block):
            if not isinstance(stmt, While):
                for expr in expressions(stmt):
                    self.expression(expr, known)
            after = self.statement(stmt, known)
            if after is None:
                assert position == len(block) - 1, "statements after a jump"
                return None
            known = after
        return known

    def statement(self, stmt: Stmt, known: set[str]) -> set[str] | None:
        """The names known after a statement, or None where no path reaches its end."""
        match stmt:
            case Assign():
                self.target(stmt.target)
                assert stmt.value.kind == stmt.target.kind, f"{stmt.target.name} = {format_expr(stmt.value)}"
                return known | {stmt.target.name}
            case If():
                assert stmt.test.kind == "bool"
                return _on_all([self.block(stmt.then, known), self.block(stmt.orelse, known)])
            case While():
                return self.while_loop(stmt, known)
            case For():
                self.target(stmt.target)
                self.breaks.append([])
                self.block(stmt.body, known | {stmt.target.name})
                self.breaks.pop()
                return known | set(assigned((stmt,)))
            case Note():
                return known
            case Break() | Continue():
                assert self.breaks, "a jump outside a loop"
                if isinstance(stmt, Break):
                    self.breaks[-1].append(known)
                return None

    def while_loop(self, loop: While, known: set[str]) -> set[str] | None:
        assert loop.test.kind == "bool"
        self.breaks.append([])
        tested = self.block(loop.pre, known)
        assert tested is not None
        self.expression(loop.test, tested)
        self.block(loop.body, tested)
        return _on_all([*self.breaks.pop(), tested if loop.test != TRUE else None])

    def target(self, var: Var) -> None:
        assert self.kinds.setdefault(var.name, var.kind) == var.kind, f"{var.name} changes its kind"

    def expression(self, expr: Expr, known: set[str]) -> None:
        if isinstance(expr, Var):
            kind = self.kinds.get(expr.name)
            assert expr.name in known, f"{expr.name} is read before it is assigned"
            assert kind == expr.kind, f"{expr.name} is {kind}, read as {expr.kind}"
        elif isinstance(expr, Op):
            for arg in expr.args:
                self.expression(arg, known)
            assert _kinds_agree(expr), format_expr(expr)


def _on_all(paths: list[set[str] | None]) -> set[str] | None:
    """The names known on all paths that are taken to their end; None where there is no such path."""
    ends = [known for known in paths if known is not None]
    return set.intersection(*ends) if ends else None


def _kinds_agree(op: Op) -> bool:
    """Whether an operator's operands have the kinds that it takes."""
    operands = [arg.kind for arg in op.args]
    if op.name in COMPARISONS:
        return op.kind == "bool" and len(set(operands)) == 1
    if op.name in LOGIC:
        return op.kind == "bool" and set(operands) == {"bool"}
    if op.name in (*ARITHMETIC, *BITWISE, *FUSED):
        return set(operands) == {op.kind}
    return op.name != "select" or operands == ["bool", op.kind, op.kind]
