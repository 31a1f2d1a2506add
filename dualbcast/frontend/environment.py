"""The part of the front end that knows the IR but no Python syntax: how statements are appended and how paths merge.

Statements are appended to the open block; an environment says what each of the user's names stands for on this path.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn, cast

from dualbcast.errors import CompileError, Location
from dualbcast.frontend.source import Capture, locate
from dualbcast.frontend.values import (
    CHOICE,
    PARTLY,
    RESULT,
    RETURNED,
    SKIPPING,
    Closure,
    Copies,
    Env,
    Frame,
    KindRaised,
    Static,
    Unassigned,
    Unrolled,
    Value,
    are_alike,
    describe,
    end_of,
    is_like,
    items_like,
    part_of,
    partly_assigned,
    same,
    zeros_like,
)
from dualbcast.ir.constant_fold import INTEGRAL, convert, fold, join
from dualbcast.ir.nodes import (
    FALSE,
    NOWHERE,
    TEMPORARY,
    TRUE,
    Assign,
    Atom,
    Block,
    Const,
    Expr,
    If,
    Kind,
    Names,
    Op,
    Stmt,
    Var,
)
from dualbcast.ir.walk import assigned_always, map_expr, map_exprs
from dualbcast.rules.table import RULES

__all__ = ["Builder"]

LONGEST = 20_000


class Builder:
    """The state of one lowering."""

    def __init__(self, names: Names, array_kind: Callable[[Any], Kind | None]) -> None:
        self.names, self.array_kind = names, array_kind
        self.root: list[Stmt] = []
        self.block = self.root
        self.frame: Frame
        self.guards: list[Capture] = []
        # The names of derivatives.
        self.derived: set[str] = set()
        # The captured arrays by name, each with the parameter that stands for its element; and the names in use.
        self.arrays: dict[str, tuple[Var, Capture]] = {}
        self.taken: set[str] = set()
        self.definitions: dict[str, tuple[Op, list[Stmt]]] = {}
        self.length = 0
        self.unrolled = 0
        # What a temporary that has been given a user's name is called now; other values may still hold the old name.
        self.renamed: dict[str, Var] = {}

    # --- errors and places ---------------------------------------------------------------------------------------

    def locate(self, node: ast.AST) -> Location:
        return locate(node, self.frame.source.filename)

    def fail(self, node: ast.AST, message: str, hint: str = "") -> NoReturn:
        raise CompileError(message, self.locate(node), hint, self.frame.calls)

    def array(self, capture: Capture, kind: Kind) -> Var:
        """The element of a captured array: a parameter like those of the call."""
        for param, known in self.arrays.values():
            if known.place is capture.place and known.key == capture.key:
                return param
        paths = [capture.path, f"{self.frame.name}.{capture.path}"]
        paths += [f"{paths[1]}_{count}" for count in range(2, len(self.arrays) + 3)]
        label = next(path for path in paths if path not in self.taken)
        self.taken.add(label)
        param = Var(self.names.fresh(re.sub(r"\W+", "_", label).strip("_")), kind)
        self.arrays[label] = param, capture
        return param

    # --- statements ----------------------------------------------------------------------------------------------

    def emit(self, value: Expr, location: Location, name: str = TEMPORARY) -> Atom:
        """The value as an atom, assigned to a new name where it is not one already."""
        if isinstance(value, Atom):
            return value
        if isinstance(value, Op):
            value = replace(value, args=tuple(self.emit(arg, location) for arg in value.args), location=location)
            if name == TEMPORARY and value.name in RULES:
                name += "_".join([value.name, *filter(None, [_given_name(value.args[0])])])
        target = Var(self.names.fresh(name), value.kind)
        if isinstance(value, Op):
            self.definitions[target.name] = value, self.block
        self.length += 1
        if self.length > LONGEST:
            message = f"this function has more than {LONGEST:,} operations when its calls and loops are written out"
            raise CompileError(message, location, "a loop over range, or fewer calls within calls", self.frame.calls)
        self.block.append(Assign(target, value, location))
        return target

    def op(self, name: str, *args: Expr, kind: Kind, location: Location) -> Atom:
        """The result of an operation, folded where it can be."""
        value = fold(Op(name, args, kind, location))
        if isinstance(value, Op) and kind == "int" and all(isinstance(arg, Const) for arg in value.args):
            message = "this integer does not fit 64 bits"
            raise CompileError(message, location, "a float, such as 2.0**64", self.frame.calls)
        return self.emit(value, location)

    def convert(self, value: Atom, kind: Kind, location: Location) -> Atom:
        """The value as another kind; `float(int(x))` is the whole part of x, however large it is, but never -0.0."""
        definition = self._definition(value) if kind == "float" else None
        if definition is not None and definition.name == "to_int" and definition.args[0].kind == "float":
            (inner,) = definition.args
            whole = self._definition(inner)
            if whole is None or whole.name not in INTEGRAL:
                inner = self.op("trunc", inner, kind="float", location=location)
            return self.op("add", inner, Const(0.0, "float"), kind="float", location=location)
        return self.emit(convert(value, kind), location)

    def _definition(self, value: Expr) -> Op | None:
        """The operation behind a name, where this block has it: its operands are then what they were."""
        definition, block = self.definitions.get(value.name, (None, None)) if isinstance(value, Var) else (None, None)
        return definition if block is self.block else None

    def snapshot(self) -> Callable[[], None]:
        """A function that takes back all that is lowered from here on, for another try."""
        frame, block, length, size = self.frame, self.block, len(self.block), self.length
        mark, env, loops, guards = self.names.mark(), dict(frame.env), len(frame.loops), len(self.guards)
        renamed, definitions = dict(self.renamed), dict(self.definitions)
        arrays, taken, derived = dict(self.arrays), set(self.taken), set(self.derived)
        last = block[-1:]  # which may have been given a user's name since

        def restore() -> None:
            self.names.reset(mark)
            self.frame, self.block, self.length, frame.env = frame, block, size, dict(env)
            self.renamed, self.definitions, self.arrays = dict(renamed), dict(definitions), dict(arrays)
            self.taken, self.derived = set(taken), set(derived)
            del self.guards[guards:], frame.loops[loops:], block[length:]
            block[length - len(last) :] = last

        return restore

    @contextmanager
    def into(self, block: list[Stmt]) -> Generator[None]:
        """Append to another block for a while."""
        self.block, outer = block, self.block
        try:
            yield
        finally:
            self.block = outer

    def rename(self, value: Value, name: str) -> Value:
        """Give a value that was just computed into a compiler's name the user's name."""
        if isinstance(value, Var) and value.name.startswith(TEMPORARY) and self.block:
            last = self.block[-1]
            if isinstance(last, Assign | If) and value.name in assigned_always((last,)):
                new = Var(self.names.fresh(name), value.kind)
                self.block[-1] = _retarget(last, value, new)
                self.renamed[value.name] = new
                return new
        return value

    def current(self, expr: Expr) -> Expr:
        """The expression with every temporary under its present name."""

        def leaf(at: Expr) -> Expr:
            while isinstance(at, Var) and at.name in self.renamed:
                at = self.renamed[at.name]
            return at

        return map_expr(expr, leaf)

    # --- merging paths -------------------------------------------------------------------------------------------

    def branch(self, test: Atom, location: Location, then: Callable[[], bool], orelse: Callable[[], bool]) -> bool:
        """Lower both sides of a branch and merge their environments; False where neither reaches the end."""
        frame, before = self.frame, self.frame.env
        ends: list[tuple[list[Stmt], Env, bool]] = []
        for side in (then, orelse):
            frame.env = dict(before)
            block: list[Stmt] = []
            with self.into(block):
                falls = side()
            ends.append((block, frame.env, falls))
        return self.close_branch(test, location, ends)

    def close_branch(self, test: Atom, location: Location, ends: list[tuple[list[Stmt], Env, bool]]) -> bool:
        """Merge two lowered sides, each given as (block, environment, whether its end is reached)."""
        (then, then_env, then_falls), (orelse, else_env, else_falls) = ends
        if then_falls and else_falls:
            self.frame.env = self._merge([(then, then_env), (orelse, else_env)])
        else:
            self.frame.env = then_env if then_falls else else_env
        # Even where both sides are empty: a jump may be added to one when its loop is closed.
        self.block.append(If(test, open_block(then), open_block(orelse), location))
        return then_falls or else_falls

    def _merge(self, edges: list[tuple[list[Stmt], Env]]) -> Env:
        copies: list[Copies] = [[] for _ in edges]
        envs = [env for _, env in edges]
        partly = frozenset().union(*map(partly_assigned, envs))
        merged: Env = {}
        for name in dict.fromkeys(name for env in envs for name in env):
            if name == SKIPPING:
                merged[name] = TRUE if all(env.get(SKIPPING) == TRUE for env in envs) else FALSE
            elif name != PARTLY:
                missing = Unassigned(f"{name} is not assigned on every path that leads here")
                values, flags = self.fill(name, [env.get(name, missing) for env in envs], envs)
                partly |= {(flag, name) for flag in flags}
                merged[name] = self.unify(name, values, copies)
        if partly:
            merged[PARTLY] = Static(partly)
        for (block, env), moves in zip(edges, copies, strict=True):
            self.copy_parallel(block, moves, end_of(env))
        return merged

    def fill(self, name: str, values: list[Value], envs: list[Env]) -> tuple[list[Value], set[str]]:
        """The values of a name on several paths, with any number for those that a path lacks and does not read.

        The second result has the flags of the loops that some paths skip the rest of, where only those assign the name.
        """
        skipping = [env.get(SKIPPING) == TRUE for env in envs]
        live = [value for value, skips in zip(values, skipping, strict=True) if not skips]
        if name.startswith("<") or not any(skipping):
            return values, set()
        flags = [self._flags_set(env) if skips else set() for env, skips in zip(envs, skipping, strict=True)]
        leaving = [value for value, own in zip(values, flags, strict=True) if own]
        filled = list(values)
        if live and not isinstance(live[0], Unassigned):
            for position, value in enumerate(values):
                if skipping[position] and not (same(value, live[0]) or is_like(value, live[0])):
                    filled[position] = zeros_like(live[0])
                    # Where a path takes up again, the name is as good as unassigned.
                    for loop in self.frame.loops:
                        if isinstance(loop, Unrolled):
                            for flag in flags[position] & {loop.skip, loop.broke}:
                                loop.lacking.setdefault(flag, set()).add(name)
            return filled, set()
        if not leaving or not all(same(value, leaving[0]) or is_like(value, leaving[0]) for value in leaving):
            return values, set()
        for position, value in enumerate(values):
            if isinstance(value, Unassigned) and not value.conflict:
                filled[position] = zeros_like(leaving[0])
        return filled, set().union(*flags) if live else set()

    def _flags_set(self, env: Env) -> set[str]:
        """The flags that make a path skip the rest of loops that are written out; none where it has returned."""
        if env.get(RETURNED) == TRUE:
            return set()
        loops = (loop for loop in self.frame.loops if isinstance(loop, Unrolled))
        return {flag for loop in loops for flag in (loop.skip, loop.broke) if env.get(flag, FALSE) != FALSE}

    def take_up(self, loop: Unrolled, flag: str) -> None:
        """The paths that a flag made skip go on from here."""
        env = self.frame.env
        for name in loop.lacking.pop(flag, ()):
            env[name] = Unassigned(f"{name} is not assigned where this loop goes on after a `break` or `continue`")
        state = env.get(flag, FALSE)
        self.settle_partly(flag, there=state == TRUE)
        env[flag] = FALSE
        if state != FALSE:
            env[SKIPPING] = TRUE if any(env.get(other) == TRUE for other in self.frame.flags) else FALSE

    def settle_partly(self, flag: str, *, there: bool) -> None:
        """On this path a flag is no longer in doubt; the names that are assigned only where it is set are `there`."""
        env = self.frame.env
        partly = partly_assigned(env)
        for name in {name for other, name in partly if other == flag and not there}:
            env[name] = Unassigned(f"{name} is not assigned on every path that leads here")
        env[PARTLY] = Static(frozenset(entry for entry in partly if entry[0] != flag))

    def unify(self, name: str, values: list[Value], copies: list[Copies], shown: str = "") -> Value:
        """One value that stands for `values[i]` after edge i has done `copies[i]`, to which assignments are added.

        `shown` is what messages call it.
        """
        first = values[0]
        if all(same(value, first) for value in values):
            return first
        conflict = next((value for value in values if isinstance(value, Unassigned) and value.conflict), None)
        if conflict is not None:
            return conflict
        if name == RESULT and any(isinstance(value, Unassigned) for value in values):
            # Only read on the paths that have returned; on the others any number will do.
            values = [
                zeros_like(next(v for v in values if not isinstance(v, Unassigned)))
                if isinstance(value, Unassigned)
                else value
                for value in values
            ]
            return self.unify(name, values, copies)
        for value in values:
            if isinstance(value, Unassigned):
                return value
        if all(isinstance(value, Const | Var) for value in values):
            kinds: list[Kind] = [value.kind for value in values if isinstance(value, Const | Var)]
            kind = kinds[0]
            for other in kinds[1:]:
                kind = join(kind, other)
            target = Var(self.names.fresh(_base(name)), kind)
            for moves, value in zip(copies, values, strict=True):
                assert isinstance(value, Const | Var)
                moves.append((target, convert(value, kind)))
            return target
        if all(isinstance(value, tuple) for value in values):
            columns = [value for value in values if isinstance(value, tuple)]
            if are_alike(columns):
                own = shown or {RESULT: "the returned value", CHOICE: "this choice"}.get(name, name)
                merged = [
                    self.unify(f"{_base(name)}_{position}", list(items), copies, part_of(own, columns[0], position))
                    for position, items in enumerate(zip(*columns, strict=True))
                ]
                return items_like(columns[0], merged)
        what = shown or ("the returned value" if name == RESULT else name)
        kinds_text = " and ".join(dict.fromkeys(describe(value) for value in values))
        if name == CHOICE:
            return Unassigned(f"the two sides of this expression are not of one kind: {kinds_text}", True)
        if all(isinstance(value, Static | Closure) for value in values):
            return Unassigned(f"{what} is {kinds_text}, depending on the data, as only numbers may", True)
        return Unassigned(f"{what} is {kinds_text}, depending on the path that leads here", True)

    def conform(self, path: str, target: Value, value: Value, moves: Copies, node: ast.AST, shown: str = "") -> None:
        """Add to `moves` what makes the loop-carried `target` hold `value`; KindRaised where its kind is too narrow.

        `shown` is what messages call it.
        """
        if same(target, value):
            return
        if isinstance(target, Var) and isinstance(value, Const | Var):
            kind = join(target.kind, value.kind)
            if kind != target.kind:
                raise KindRaised(path, kind)
            moves.append((target, convert(value, kind)))
        elif isinstance(target, tuple) and isinstance(value, tuple) and are_alike((target, value)):
            for position, (inner, item) in enumerate(zip(target, value, strict=True)):
                self.conform(f"{path}_{position}", inner, item, moves, node, part_of(shown or path, target, position))
        elif isinstance(value, Unassigned):
            self.fail(node, f"{value.reason}, and the loop's next turn needs it")
        else:
            self.fail(
                node,
                f"{shown or path} is {describe(target)} before this loop and {describe(value)} after a turn of it",
                "one kind of thing under one name, or two names",
            )

    def header(self, path: str, value: Value, raised: dict[str, Kind], moves: Copies) -> Value:
        """What stands for a name that a loop assigns, at the start of each turn; `moves` initialise it."""
        if isinstance(value, Const | Var):
            kind = join(value.kind, raised.get(path, value.kind))
            target = Var(self.names.fresh(_base(path)), kind)
            moves.append((target, convert(value, kind)))
            return target
        if isinstance(value, tuple):
            inner = [self.header(f"{path}_{position}", item, raised, moves) for position, item in enumerate(value)]
            return items_like(value, inner)
        return value

    def copy_parallel(self, block: list[Stmt], moves: Copies, location: Location = NOWHERE) -> None:
        """Append assignments that all read the values from before them, whatever their order."""
        pending = [(target, value) for target, value in moves if target != value]
        while pending:
            for position, (target, value) in enumerate(pending):
                others = pending[:position] + pending[position + 1 :]
                if not any(target.name in _reads(other) for _, other in others):
                    block.append(Assign(target, value, location))
                    pending = others
                    break
            else:  # a cycle, such as a swap: save one value first
                target, _ = pending[0]
                saved = Var(self.names.fresh(TEMPORARY), target.kind)
                block.append(Assign(saved, target, location))
                pending = [(to, _substitute(value, target, saved)) for to, value in pending]


def _given_name(value: Expr) -> str:
    """The name that the user gave a value, if any."""
    return value.name if isinstance(value, Var) and not value.name.startswith(TEMPORARY) else ""


def _base(name: str) -> str:
    return TEMPORARY if name in (RESULT, CHOICE) else "done" if name.startswith("<") else name


def _reads(value: Expr) -> set[str]:
    return {arg.name for arg in (value.args if isinstance(value, Op) else (value,)) if isinstance(arg, Var)}


def _substitute(value: Expr, old: Var, new: Var) -> Expr:
    if isinstance(value, Op):
        return replace(value, args=tuple(new if arg == old else arg for arg in value.args))
    return new if value == old else value


def _retarget(stmt: Stmt, old: Var, new: Var) -> Stmt:
    if isinstance(stmt, Assign):
        return replace(stmt, target=new) if stmt.target == old else stmt
    return map_exprs(stmt, lambda expr: expr, lambda block: open_block([_retarget(part, old, new) for part in block]))


def open_block(block: list[Stmt]) -> Block:
    """A block that is still a list inside its statement: jumps in it are completed when their loop is. See `freeze`."""
    return cast(Block, block)


def freeze(block: Iterable[Stmt], rename: Callable[[Expr], Expr]) -> Block:
    """The block with every list in it made a tuple, and `rename` applied to its expressions."""
    return tuple(map_exprs(stmt, rename, lambda inner: freeze(inner, rename)) for stmt in block)
