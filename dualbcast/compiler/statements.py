"""The front end's statements: assignment, branches, loops and returns, each path's environment merged where paths meet.

Loops over tuples are written out; a return inside a loop leaves the loop, and what follows asks whether it happened.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from dualbcast.compiler.builder import open_block
from dualbcast.compiler.calls import Calls, assigned_names
from dualbcast.compiler.fold import FALSE, TRUE
from dualbcast.compiler.ir import (
    Atom,
    Break,
    Const,
    Continue,
    For,
    Kind,
    Stmt,
    Var,
    While,
)
from dualbcast.compiler.values import (
    RESULT,
    RETURNED,
    RETURNED_AT,
    SKIPPING,
    Copies,
    Env,
    KindRaised,
    Loop,
    Range,
    Static,
    Unassigned,
    Unrolled,
    Value,
    end_of,
)

__all__ = ["Statements"]

# What to write instead of a statement that cannot be compiled.
_UNSUPPORTED = {
    ast.Assert: ("assert", "a conditional value, such as nan where the condition fails"),
    ast.Raise: ("raise", "a return of nan: elements of an array cannot stop each other"),
    ast.Try: ("try", "a test of the values beforehand"),
    ast.TryStar: ("try", "a test of the values beforehand"),
    ast.With: ("with", "plain statements"),
    ast.Import: ("import inside the function", "the import at the top of the file"),
    ast.ImportFrom: ("import inside the function", "the import at the top of the file"),
    ast.Global: ("global", "another output: a kernel cannot change what is outside it"),
    ast.Nonlocal: ("nonlocal", "a returned value: a function cannot change what is outside it"),
    ast.Delete: ("del", "nothing: variables cost nothing"),
    ast.ClassDef: ("a class definition", "functions and tuples"),
    ast.AsyncFunctionDef: ("async", "a plain function"),
    ast.AsyncFor: ("async", "a plain loop"),
    ast.AsyncWith: ("async", "plain statements"),
    ast.Match: ("match", "if/elif/else"),
}


class Statements(Calls):
    """Lowers statements."""

    def statements(self, body: list[ast.stmt]) -> bool:
        """Lower a block; False where its end is never reached. Paths that have returned skip what follows."""
        for position, stmt in enumerate(body):
            rest = body[position:]
            if not self._settle(stmt):
                return False
            pending = next((flag for flag in self.frame.flags if self.frame.env.get(flag, FALSE) != FALSE), None)
            if pending is not None:
                flag = self.frame.env[pending]
                if isinstance(flag, Var):
                    return self._unless(pending, flag, stmt, partial(self.statements, rest))
                assert flag == TRUE, flag
                return True
            if isinstance(stmt, ast.If):
                falls, consumed = self._if(stmt, rest[1:])
                if consumed:
                    return falls
            else:
                falls = self._statement(stmt)
            if not falls:
                return False
        return True

    def _unless(self, flag: str, state: Var, node: ast.AST, follow: Callable[[], bool]) -> bool:
        """What follows, on the path where a flag that is in doubt is not set."""

        def decide(value: Const, side: Callable[[], bool]) -> bool:
            self.frame.env[flag] = self.frame.env[SKIPPING] = value
            return side()

        where = self.locate(node)
        return self.branch(state, where, partial(decide, TRUE, lambda: True), partial(decide, FALSE, follow))

    def _settle(self, node: ast.AST) -> bool:
        """Inside a loop of the kernel: leave it too where a loop inside it has returned."""
        loop, flag = self._innermost_loop(), self.frame.env.get(RETURNED, FALSE)
        if loop is None or flag == FALSE:
            return True
        if not isinstance(flag, Var):
            return self._leave(loop, node)

        def leave() -> bool:
            self.frame.env[RETURNED] = TRUE
            return self._leave(loop, node)

        falls = self.branch(flag, self.locate(node), leave, lambda: True)
        self.frame.env[RETURNED] = self.frame.env[SKIPPING] = FALSE
        return falls

    def _statement(self, stmt: ast.stmt) -> bool:
        match stmt:
            case ast.Assign():
                value = self.expression(stmt.value)
                for target in stmt.targets:
                    self._assign(target, value)
            case ast.AnnAssign():
                if stmt.value is not None:
                    self._assign(stmt.target, self.expression(stmt.value))
            case ast.AugAssign():
                self._augmented(stmt)
            case ast.Return():
                return self._return(stmt)
            case ast.For():
                return self._for(stmt)
            case ast.While():
                return self._while(stmt)
            case ast.Break() | ast.Continue():
                return self._jump(stmt)
            case ast.FunctionDef():
                if stmt.decorator_list:
                    self.fail(stmt.decorator_list[0], "decorators of an inner function cannot be compiled")
                self.frame.env[stmt.name] = self.closure(stmt)
            case ast.Pass():
                pass
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

    def _assign(self, target: ast.expr, value: Value) -> None:
        if isinstance(target, ast.Name):
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
            middle = tuple(items[before : len(items) - after])
            items = [*items[:before], middle, *items[len(items) - after :]]
        if len(items) != len(target.elts):
            self.fail(target, f"{len(items)} values cannot be unpacked into {len(target.elts)} names")
        for part, item in zip(target.elts, items, strict=True):
            self._assign(part.value if isinstance(part, ast.Starred) else part, item)

    def _augmented(self, stmt: ast.AugAssign) -> None:
        if not isinstance(stmt.target, ast.Name):
            self._assign(stmt.target, FALSE)
            return
        read = ast.copy_location(ast.Name(stmt.target.id, ast.Load()), stmt.target)
        both = ast.copy_location(ast.BinOp(read, stmt.op, stmt.value), stmt)
        self._assign(stmt.target, self.expression(both))

    # --- branches and jumps --------------------------------------------------------------------------------------

    def _if(self, stmt: ast.If, rest: list[ast.stmt]) -> tuple[bool, bool]:
        """Lower an `if`, and with it what follows where only one side gets there; says whether it did."""
        test = self.condition(stmt.test)
        if isinstance(test, Const):
            return self.statements(stmt.body if test.value else stmt.orelse), False
        frame, before = self.frame, self.frame.env
        ends: list[tuple[list[Stmt], Env, bool]] = []
        alive: list[bool] = []
        for body in (stmt.body, stmt.orelse):
            frame.env = dict(before)
            block: list[Stmt] = []
            with self.into(block):
                falls = self.statements(body)
            alive.append(falls and frame.env.get(SKIPPING) != TRUE)
            ends.append((block, frame.env, falls))
        consumed = bool(rest) and alive[0] != alive[1]
        if consumed:
            side = alive.index(True)
            block, frame.env, _ = ends[side]
            with self.into(block):
                falls = self.statements(rest)
            ends[side] = (block, frame.env, falls)
        return self.close_branch(test, self.locate(stmt), ends), consumed

    def _return(self, stmt: ast.Return) -> bool:
        if stmt.value is None or (isinstance(stmt.value, ast.Constant) and stmt.value.value is None):
            self.fail(stmt, "a return without a value", "the value: `return x`")
        self.frame.env[RESULT] = self.expression(stmt.value)
        self.frame.returned_at = stmt
        self.frame.env[RETURNED_AT] = Static(self.locate(stmt))
        self.frame.env[RETURNED] = self.frame.env[SKIPPING] = TRUE
        loop = self._innermost_loop()
        return True if loop is None else self._leave(loop, stmt)

    def _innermost_loop(self) -> Loop | None:
        return next((loop for loop in reversed(self.frame.loops) if isinstance(loop, Loop)), None)

    def _leave(self, loop: Loop, node: ast.AST) -> bool:
        loop.breaks.append((self.block, dict(self.frame.env), self.locate(node)))
        return False

    def _jump(self, stmt: ast.Break | ast.Continue) -> bool:
        loop = self.frame.loops[-1]  # Python's own parser refuses jumps outside loops
        if isinstance(loop, Unrolled):
            self.frame.env[loop.broke if isinstance(stmt, ast.Break) else loop.skip] = TRUE
            self.frame.env[SKIPPING] = TRUE
            return True
        if isinstance(stmt, ast.Break):
            return self._leave(loop, stmt)
        loop.continues.append((self.block, dict(self.frame.env), self.locate(stmt)))
        return False

    # --- loops ---------------------------------------------------------------------------------------------------

    def _while(self, stmt: ast.While) -> bool:
        if stmt.orelse:
            self.fail(stmt.orelse[0], "`else` after a loop cannot be compiled", "a flag that the loop sets")
        return self._loop(stmt, lambda: self.condition(stmt.test), None)

    def _for(self, stmt: ast.For) -> bool:
        if stmt.orelse:
            self.fail(stmt.orelse[0], "`else` after a loop cannot be compiled", "a flag that the loop sets")
        iterable = self.expression(stmt.iter)
        if isinstance(iterable, Range):
            turns = iterable.known()
            if turns is None or not _indexes(stmt):
                return self._loop(stmt, lambda: TRUE, iterable)
        items = self.sequence(iterable, stmt.iter)
        return self._unroll(stmt, list(items))

    def _unroll(self, stmt: ast.For, items: list[Value]) -> bool:
        """Write a loop over a tuple out; `break` and `continue` become flags that skip what follows them."""
        frame = self.frame
        depth = len(frame.loops)
        flags = Unrolled(f"<broke {depth}>", f"<skip {depth}>")
        frame.flags += [flags.skip, flags.broke]
        frame.env.update({flags.skip: FALSE, flags.broke: FALSE})
        frame.loops.append(flags)

        def turns(position: int) -> bool:
            for later in range(position, len(items)):
                self._assign(stmt.target, items[later])
                falls = self.statements(stmt.body)
                if not falls:
                    return False
                self.take_up(flags, flags.skip)
                for flag in (flags.broke, RETURNED):
                    state = frame.env.get(flag, FALSE)
                    if state == TRUE:
                        return True
                    if isinstance(state, Var):
                        return self._unless(flag, state, stmt, partial(turns, later + 1))
            return True

        falls = turns(0)
        frame.loops.pop()
        del frame.flags[-2:]
        self.take_up(flags, flags.broke)
        for flag in (flags.skip, flags.broke):
            del frame.env[flag]
        return falls

    def _loop(self, stmt: ast.For | ast.While, test: Callable[[], Atom], over: Range | None) -> bool:
        """Lower a loop of the kernel; again from the start while a turn widens the kind of a carried name."""
        raised: dict[str, Kind] = {}
        while True:
            mark, env, guards = self.names.mark(), dict(self.frame.env), len(self.guards)
            loops, length = len(self.frame.loops), len(self.block)
            renamed, definitions = dict(self.renamed), dict(self.definitions)
            try:
                return self._loop_once(stmt, test, over, raised)
            except KindRaised as wider:
                self.names.reset(mark)
                self.renamed, self.definitions = renamed, definitions
                self.frame.env = env
                del self.guards[guards:], self.frame.loops[loops:], self.block[length:]
                raised[wider.path] = wider.kind

    def _loop_once(
        self, stmt: ast.For | ast.While, test: Callable[[], Atom], over: Range | None, raised: dict[str, Kind]
    ) -> bool:
        frame, outer, where = self.frame, self.block, self.locate(stmt)
        names, initial = assigned_names([stmt]), frame.env
        before: Copies = []
        header: Env = {}
        for name in sorted(names & frame.env.keys()):
            value = frame.env[name]
            if not isinstance(value, Unassigned):
                header[name] = self.header(name, value, raised, before)
        late = {
            name: Unassigned(f"{name} is assigned inside this loop only, and is read where that may not have happened")
            for name in names - header.keys()
        }
        start: Env = {**frame.env, **header, **late}

        loop = Loop()
        pre: list[Stmt] = []
        body: list[Stmt] = []
        target: Var | None = None
        frame.env = dict(start)
        with self.into(pre):
            condition = test()
        if condition == FALSE:
            frame.env = initial
            return True
        endless = condition == TRUE and over is None
        frame.loops.append(loop)
        with self.into(body):
            if over is not None and isinstance(stmt, ast.For):
                base = stmt.target.id if isinstance(stmt.target, ast.Name) else "_"
                target = Var(self.names.fresh(base), "int")
                self._assign(stmt.target, target)
            if self.statements(stmt.body) and self._settle(stmt):
                loop.continues.append((body, frame.env, where))
        frame.loops.pop()

        certain = over is not None and bool(over.known())
        moves = self._close_edges(stmt, loop, start, header, before, exhausted=not endless, certain=certain)
        self.copy_parallel(outer, before)
        for (block, env, _), copies in zip(loop.breaks + loop.continues, moves, strict=True):
            self.copy_parallel(block, copies, end_of(env))
        for block, _, at in loop.breaks:
            block.append(Break(at))
        for block, _, at in loop.continues:
            if block is not body:
                block.append(Continue(at))
        if target is not None and over is not None:
            outer.append(For(target, over.start, over.stop, over.step, open_block(body), where))
        else:
            outer.append(While(tuple(pre), condition, open_block(body), where))
        return bool(loop.breaks) or not endless

    def _close_edges(
        self,
        stmt: ast.stmt,
        loop: Loop,
        start: Env,
        header: Env,
        before: Copies,
        *,
        exhausted: bool,
        certain: bool,
    ) -> list[Copies]:
        """Decide what each name stands for after the loop; the assignments that breaks and continues must do for it.

        `exhausted` says that the loop can end by itself, `certain` that it then has had a turn.
        """
        edges = loop.breaks + loop.continues
        moves: list[Copies] = [[] for _ in edges]
        for copies, (_, env, _) in zip(moves, edges, strict=True):
            if env.get(RETURNED) == TRUE:
                continue  # nothing reads them any more
            for name, carried in header.items():
                self.conform(name, carried, env[name], copies, stmt)
        leaving = list(range(len(edges) if exhausted and certain else len(loop.breaks)))
        after = dict(start)
        fresh = {name for position in leaving for name in edges[position][1]} - header.keys()
        for name in sorted(fresh):
            if (
                start.get(name) is not None
                and not isinstance(start[name], Unassigned)
                and name not in (RESULT, RETURNED, RETURNED_AT)
            ):
                continue  # the loop does not assign it
            missing = start.get(name, Unassigned(f"{name} is assigned inside this loop only, which may have no turn"))
            envs = [edges[position][1] for position in leaving]
            values = self.fill(name, [env.get(name, missing) for env in envs], envs)
            targets = [moves[position] for position in leaving]
            if exhausted and not certain:
                values.append(missing)
                targets.append(before)
            after[name] = self.unify(name, values, targets)
        if leaving and (certain or not exhausted) and all(edges[at][1].get(SKIPPING) == TRUE for at in leaving):
            after[SKIPPING] = TRUE
        self.frame.env = after
        return moves


def _indexes(loop: ast.For) -> bool:
    """Whether a loop's variable takes part in an index, so that its values must be known."""
    if not isinstance(loop.target, ast.Name):
        return False
    subscripts = (node for stmt in loop.body for node in ast.walk(stmt) if isinstance(node, ast.Subscript))
    return any(
        isinstance(node, ast.Name) and node.id == loop.target.id
        for subscript in subscripts
        for node in ast.walk(subscript.slice)
    )
