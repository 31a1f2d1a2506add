"""The front end's statements, one after another; paths that have returned skip the rest."""

from __future__ import annotations

import ast
import sys
from functools import partial
from typing import NoReturn

from dualbcast.compiler.branches import Branches
from dualbcast.compiler.fold import FALSE, TRUE
from dualbcast.compiler.ir import Const, Var
from dualbcast.compiler.values import (
    RESULT,
    RETURNED,
    RETURNED_AT,
    SKIPPING,
    Record,
    Static,
    Unrolled,
    Value,
)

__all__ = ["Statements"]

# What to write instead of a statement that cannot be compiled.
_UNSUPPORTED = {
    ast.Try: ("try", "a test of the values beforehand"),
    ast.TryStar: ("try", "a test of the values beforehand"),
    ast.With: ("with", "plain statements"),
    ast.Import: ("import inside the function", "the import at the top of the file"),
    ast.ImportFrom: ("import inside the function", "the import at the top of the file"),
    ast.Global: ("global", "another output: a kernel cannot change what is outside it"),
    ast.Nonlocal: ("nonlocal", "a returned value: a function cannot change what is outside it"),
    ast.Delete: ("del", "nothing: variables cost nothing"),
    ast.ClassDef: ("a class definition", "the class outside the function: a named tuple or a dataclass"),
    ast.AsyncFunctionDef: ("async", "a plain function"),
    ast.AsyncFor: ("async", "a plain loop"),
    ast.AsyncWith: ("async", "plain statements"),
}
if sys.version_info >= (3, 12):
    _UNSUPPORTED[ast.TypeAlias] = ("a type alias", "the alias outside the function")


class Statements(Branches):
    """Lowers statements."""

    def statements(self, body: list[ast.stmt]) -> bool:
        """Lower a block; False where its end is never reached. Paths that have returned skip what follows."""
        for position, stmt in enumerate(body):
            rest = body[position:]
            if not self.settle(stmt):
                return False
            pending = next((flag for flag in self.frame.flags if self.frame.env.get(flag, FALSE) != FALSE), None)
            if pending is not None:
                flag = self.frame.env[pending]
                if self.frame.env.get(SKIPPING) == TRUE:
                    return True  # no path gets here, whichever flag each has set
                assert isinstance(flag, Var), flag
                return self.unless(pending, flag, stmt, partial(self.statements, rest))
            if isinstance(stmt, ast.If | ast.Match):
                lower = self.if_statement if isinstance(stmt, ast.If) else self.match_statement
                falls, consumed = lower(stmt, rest[1:])  # type: ignore[arg-type]
                if consumed:
                    return falls
            else:
                falls = self._statement(stmt)
            if not falls:
                return False
        return True

    def _statement(self, stmt: ast.stmt) -> bool:
        match stmt:
            case ast.Assign():
                value = self.expression(stmt.value)
                for target in stmt.targets:
                    self.assign(target, value)
            case ast.AnnAssign():
                if stmt.value is not None:
                    self.assign(stmt.target, self.expression(stmt.value))
            case ast.AugAssign():
                self._augmented(stmt)
            case ast.Return():
                return self._return(stmt)
            case ast.For():
                return self.for_loop(stmt)
            case ast.While():
                return self.while_loop(stmt)
            case ast.Break() | ast.Continue():
                return self._jump(stmt)
            case ast.FunctionDef():
                if stmt.decorator_list:
                    self.fail(
                        stmt.decorator_list[0],
                        "decorators of an inner function cannot be compiled",
                        "the decorated function outside this one",
                    )
                self.frame.env[stmt.name] = self.closure(stmt)
            case ast.Pass():
                pass
            case ast.Raise():
                self._raise(stmt)
            case ast.Assert():
                self._assert(stmt)
            case ast.Expr(value=ast.Constant(value=str())):  # a docstring
                pass
            case ast.Expr():
                self.expression(stmt.value)  # an error in it comes first
                self.fail(stmt, "the value of this expression is not used", "an assignment or a return")
            case _:
                what, instead = _UNSUPPORTED.get(type(stmt), (f"this statement ({type(stmt).__name__})", ""))
                self.fail(stmt, f"{what} cannot be compiled", instead)
        return True

    # --- assignment ----------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
            self.refuse_iterator(value, target, target.id)
            self.frame.env[target.id] = self.rename(value, target.id)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target, value)
        elif isinstance(target, ast.Subscript):
            self.fail(
                target,
                "an element cannot be assigned: tuples do not change, and outputs are returned",
                "a new tuple, or another output",
            )
        else:
            self.fail(target, "an attribute cannot be assigned in a kernel", "a local variable")

    def _unpack(self, target: ast.Tuple | ast.List, value: Value) -> None:
        items = list(self.sequence(value, target))
        stars = [position for position, part in enumerate(target.elts) if isinstance(part, ast.Starred)]
        if stars:
            before, after = stars[0], len(target.elts) - stars[0] - 1
            if len(items) < before + after:
                self.fail(target, f"{len(items)} values cannot fill {before + after} names and a starred one")
            middle = Record(list, items[before : len(items) - after])
            items = [*items[:before], middle, *items[len(items) - after :]]
        if len(items) != len(target.elts):
            self.fail(target, f"{len(items)} values cannot be unpacked into {len(target.elts)} names")
        for part, item in zip(target.elts, items, strict=True):
            self.assign(part.value if isinstance(part, ast.Starred) else part, item)

    def _augmented(self, stmt: ast.AugAssign) -> None:
        if not isinstance(stmt.target, ast.Name):
            self.assign(stmt.target, FALSE)
            return
        read = ast.copy_location(ast.Name(stmt.target.id, ast.Load()), stmt.target)
        before = self.expression(read)
        if isinstance(before, Record) and before.python_type is list:
            name = stmt.target.id  # in Python, every other name of this list would see the change
            self.fail(stmt, "a list does not change in a kernel", f"a new list: {name} = [*{name}, …]")
        both = ast.copy_location(ast.BinOp(read, stmt.op, stmt.value), stmt)
        self.assign(stmt.target, self.expression(both))

    # --- branches and jumps --------------------------------------------------------------------------------------

    def _return(self, stmt: ast.Return) -> bool:
        if stmt.value is None or (isinstance(stmt.value, ast.Constant) and stmt.value.value is None):
            self.fail(stmt, "a return without a value", "the value: `return x`")
        self.frame.env[RESULT] = self.expression(stmt.value)
        self.frame.returned_at = stmt
        self.frame.env[RETURNED_AT] = Static(self.locate(stmt))
        self.frame.env[RETURNED] = self.frame.env[SKIPPING] = TRUE
        loop = self.innermost_loop()
        return True if loop is None else self.leave(loop, stmt)

    def _jump(self, stmt: ast.Break | ast.Continue) -> bool:
        loop = self.frame.loops[-1]  # Python's own parser refuses jumps outside loops
        if isinstance(loop, Unrolled):
            self.frame.env[loop.broke if isinstance(stmt, ast.Break) else loop.skip] = TRUE
            self.frame.env[SKIPPING] = TRUE
            return True
        if isinstance(stmt, ast.Break):
            return self.leave(loop, stmt)
        loop.continues.append((self.block, dict(self.frame.env), self.locate(stmt)))
        return False

    # --- what stops a call while it is compiled ------------------------------------------------------------------

    def _raise(self, stmt: ast.Raise) -> NoReturn:
        if self.block is not self.root:
            self.fail(stmt, "raise cannot be compiled", "a return of nan: elements of an array cannot stop each other")
        called = stmt.exc.func if isinstance(stmt.exc, ast.Call) else stmt.exc
        name = ast.unparse(called) if called is not None else "an exception"
        words = self._words(stmt.exc.args) if isinstance(stmt.exc, ast.Call) else ""
        self.fail(stmt, f"this call raises {name}{words and ': '}{words}")

    def _assert(self, stmt: ast.Assert) -> None:
        restore, outermost = self.snapshot(), self.block is self.root
        test = self.condition(stmt.test)
        if test == TRUE:
            restore()
            return
        if test == FALSE and outermost:
            words = self._words([stmt.msg] if stmt.msg else [])
            self.fail(stmt, f"this assertion fails{words and ': '}{words}")
        self.fail(stmt, "assert cannot be compiled", "a conditional value, such as nan where the condition fails")

    def _words(self, nodes: list[ast.expr]) -> str:
        """What an exception says, where that is known when the kernel is compiled."""
        values = self.items(nodes)
        parts: list[str] = []
        for value in values:
            if not isinstance(value, Const | Static):
                return ""
            parts.append(str(value.value if isinstance(value, Const) else value.object))
        return ", ".join(parts)
