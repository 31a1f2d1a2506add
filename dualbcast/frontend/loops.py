"""The front end's loops: of the kernel, or over tuples and then written out; `break`, `continue` and `return` in them.

A return inside a loop leaves the loop, and what follows asks whether it happened.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from dualbcast.errors import Location
from dualbcast.frontend.calls import Calls
from dualbcast.frontend.environment import open_block
from dualbcast.frontend.inlining import assigned_names
from dualbcast.frontend.values import (
    PARTLY,
    RESULT,
    RETURNED,
    RETURNED_AT,
    SKIPPING,
    Copies,
    Env,
    KindRaised,
    Loop,
    Range,
    Unassigned,
    Unrolled,
    Value,
    end_of,
    zeros_like,
)
from dualbcast.ir.constant_fold import FALSE, TRUE
from dualbcast.ir.nodes import Atom, Break, Const, Continue, For, Kind, Stmt, Var, While

__all__ = ["Loops"]


class Loops(Calls):
    """Lowers loops; `statements` is supplied by the layer above."""

    # --- leaving them --------------------------------------------------------------------------------------------

    def unless(self, flag: str, state: Var, node: ast.AST, follow: Callable[[], bool]) -> bool:
        """What follows, on the path where a flag that is in doubt is not set."""

        def decide(value: Const, side: Callable[[], bool]) -> bool:
            self.settle_partly(flag, there=value == TRUE)
            self.frame.env[flag] = self.frame.env[SKIPPING] = value
            return side()

        where = self.locate(node)
        return self.branch(state, where, partial(decide, TRUE, lambda: True), partial(decide, FALSE, follow))

    def settle(self, node: ast.AST) -> bool:
        """Inside a loop of the kernel: leave it too where a loop inside it has returned."""
        loop, flag = self.innermost_loop(), self.frame.env.get(RETURNED, FALSE)
        if loop is None or flag == FALSE:
            return True
        if not isinstance(flag, Var):
            return self.leave(loop, node)

        def leave() -> bool:
            self.frame.env[RETURNED] = TRUE
            return self.leave(loop, node)

        falls = self.branch(flag, self.locate(node), leave, lambda: True)
        self.frame.env[RETURNED] = self.frame.env[SKIPPING] = FALSE
        return falls

    def innermost_loop(self) -> Loop | None:
        return next((loop for loop in reversed(self.frame.loops) if isinstance(loop, Loop)), None)

    def leave(self, loop: Loop, node: ast.AST) -> bool:
        loop.breaks.append((self.block, dict(self.frame.env), self.locate(node)))
        return False

    # --- loops ---------------------------------------------------------------------------------------------------

    def while_loop(self, stmt: ast.While) -> bool:
        """A `while` loop; False where its end is never reached."""
        if any(isinstance(node, ast.NamedExpr) for node in ast.walk(stmt.test)):
            # What the test assigns belongs to the turn.
            if any(isinstance(node, ast.Break | ast.Continue) for part in stmt.orelse for node in ast.walk(part)):
                message = "a jump in the `else` of a loop whose test assigns names cannot be compiled"
                self.fail(stmt.orelse[0], message, "the assignment in the loop")
            end = ast.copy_location(ast.Break(), stmt)
            turn = ast.copy_location(ast.If(stmt.test, stmt.body, [*stmt.orelse, end]), stmt)
            always = ast.copy_location(ast.Constant(True), stmt.test)
            stmt = ast.copy_location(ast.While(always, [turn], []), stmt)
        return self._loop(stmt, lambda: self.condition(stmt.test), None)

    def for_loop(self, stmt: ast.For) -> bool:
        """A `for` loop; False where its end is never reached."""
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
        self.unrolled += 1  # a loop in the `else` of another is not inside it, but its flags are others
        flags = Unrolled(f"<broke {self.unrolled}>", f"<skip {self.unrolled}>")
        frame.flags += [flags.skip, flags.broke]
        frame.env.update({flags.skip: FALSE, flags.broke: FALSE})
        frame.loops.append(flags)

        def turns(position: int) -> bool:
            for later in range(position, len(items)):
                self.assign(stmt.target, items[later])
                falls = self.statements(stmt.body)
                if not falls:
                    return False
                self.take_up(flags, flags.skip)
                for flag in (flags.broke, RETURNED):
                    state = frame.env.get(flag, FALSE)
                    if state == TRUE:
                        return True
                    if isinstance(state, Var):
                        return self.unless(flag, state, stmt, partial(turns, later + 1))
            frame.loops.pop()  # a jump in the `else` is not this loop's
            falls = self.statements(stmt.orelse)
            frame.loops.append(flags)
            return falls

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
        restore = self.snapshot()
        while True:
            try:
                return self._loop_once(stmt, test, over, raised)
            except KindRaised as wider:
                restore()
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
            return self.statements(stmt.orelse)
        endless = condition == TRUE and over is None
        frame.loops.append(loop)
        with self.into(body):
            if over is not None and isinstance(stmt, ast.For):
                base = stmt.target.id if isinstance(stmt.target, ast.Name) else "_"
                target = Var(self.names.fresh(base), "int")
                self.assign(stmt.target, target)
            if self.statements(stmt.body) and self.settle(stmt):
                loop.continues.append((body, frame.env, where))
        frame.loops.pop()

        certain = over is not None and bool(over.known())
        edges = loop.breaks + loop.continues
        moves: list[Copies] = [[] for _ in edges]
        for copies, (_, env, _) in zip(moves, edges, strict=True):
            if env.get(RETURNED) == TRUE:
                continue  # nothing reads them any more
            for name, carried in header.items():
                self.conform(name, carried, env[name], copies, stmt)
        breaks, every = range(len(loop.breaks)), range(len(edges))
        merge = partial(self._after, edges, moves, start, header, before)
        broke: Var | None = None
        if stmt.orelse and loop.breaks and not endless:
            # Two ends: after the breaks, and after the last turn, where `else` follows.
            broke = Var(self.names.fresh("broke"), "bool")
            after_breaks = merge(list(breaks), missing=False)
            turns = list(every[len(breaks) :]) if certain else []
            after_turns = merge(turns, missing=not certain)
            before.append((broke, FALSE))
            for position in breaks:
                moves[position].append((broke, TRUE))
        else:
            leaving = list(every if certain and not endless else breaks)
            after_turns = merge(leaving, missing=not endless and not certain)

        self.copy_parallel(outer, before)
        for (block, env, _), copies in zip(edges, moves, strict=True):
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
        frame.env = after_turns
        if broke is not None:
            block = []
            with self.into(block):
                falls = self.statements(stmt.orelse)
            return self.close_branch(broke, where, [([], after_breaks, True), (block, frame.env, falls)])
        if endless:
            return bool(loop.breaks)
        return self.statements(stmt.orelse)

    def _after(
        self,
        edges: list[tuple[list[Stmt], Env, Location]],
        moves: list[Copies],
        start: Env,
        header: Env,
        before: Copies,
        leaving: list[int],
        *,
        missing: bool,
    ) -> Env:
        """What each name stands for after the loop where it was left by the edges at `leaving`.

        `missing` says that it may also be left without any of them.
        """
        after = dict(start)
        fresh = {name for position in leaving for name in edges[position][1]} - header.keys() - {PARTLY}
        for name in sorted(fresh):
            if (
                start.get(name) is not None
                and not isinstance(start[name], Unassigned)
                and name not in (RESULT, RETURNED, RETURNED_AT)
            ):
                continue  # the loop does not assign it
            lack = start.get(name, Unassigned(f"{name} is assigned inside this loop only, which may have no turn"))
            envs = [edges[position][1] for position in leaving]
            values, _ = self.fill(name, [env.get(name, lack) for env in envs], envs)
            targets = [moves[position] for position in leaving]
            if missing:
                values.append(lack)
                targets.append(before)
            else:
                # On other paths nothing reads it, but Numba does not see that, and wants it to have a value.
                model = next((value for value in values if not isinstance(value, Unassigned)), values[0])
                if not (isinstance(model, Const) and all(value == model for value in values)):
                    values.append(zeros_like(model))
                    targets.append(before)
            after[name] = self.unify(name, values, targets)
        if leaving and not missing and all(edges[at][1].get(SKIPPING) == TRUE for at in leaving):
            after[SKIPPING] = TRUE
        return after


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
