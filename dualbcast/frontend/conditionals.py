"""The front end's branches: `if` and `match`, and with them what follows where only one side gets there."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial

from dualbcast.frontend.loops import Loops
from dualbcast.frontend.short_circuit import needs_order, split_and
from dualbcast.frontend.values import SKIPPING, Env, Record, Static, Value, describe, is_instance
from dualbcast.ir.constant_fold import FALSE, TRUE
from dualbcast.ir.nodes import Atom, Const, Stmt, Var

__all__ = ["Branches"]

# Classes whose pattern takes the object itself: `case float(x)`.
_ITSELF = (bool, int, float, str, bytes, tuple, list, frozenset)


class Branches(Loops):
    """Lowers branches."""

    def if_statement(self, stmt: ast.If, rest: list[ast.stmt]) -> tuple[bool, bool]:
        """Lower an `if` and maybe what follows it; says whether its end is reached, and whether `rest` is lowered."""
        if needs_order(stmt.test):
            first, later = split_and(stmt.test)
            inner = ast.copy_location(ast.If(later, stmt.body, stmt.orelse), stmt)
            stmt = ast.copy_location(ast.If(first, [inner], stmt.orelse), stmt)
        test = self.condition(stmt.test)
        if isinstance(test, Const):
            return self.statements(stmt.body if test.value else stmt.orelse), False
        sides = partial(self.statements, stmt.body), partial(self.statements, stmt.orelse)
        return self.split(test, sides, rest, stmt)

    def split(
        self, test: Atom, sides: tuple[Callable[[], bool], Callable[[], bool]], rest: list[ast.stmt], node: ast.AST
    ) -> tuple[bool, bool]:
        """Lower both sides of a branch, and what follows on the one side that gets there, if it is one only."""
        frame, before = self.frame, self.frame.env
        ends: list[tuple[list[Stmt], Env, bool]] = []
        alive: list[bool] = []
        for side in sides:
            frame.env = dict(before)
            block: list[Stmt] = []
            with self.into(block):
                falls = side()
            alive.append(falls and frame.env.get(SKIPPING) != TRUE)
            ends.append((block, frame.env, falls))
        consumed = bool(rest) and alive[0] != alive[1]
        if consumed:
            at = alive.index(True)
            block, frame.env, _ = ends[at]
            with self.into(block):
                falls = self.statements(rest)
            ends[at] = (block, frame.env, falls)
        return self.close_branch(test, self.locate(node), ends), consumed

    # --- match ---------------------------------------------------------------------------------------------------

    def match_statement(self, stmt: ast.Match, rest: list[ast.stmt]) -> tuple[bool, bool]:
        """Lower a `match`; says what `if_statement` says."""
        subject = self.expression(stmt.subject)
        self.refuse_iterator(subject, stmt.subject, "the subject of match")
        return self._cases(subject, stmt.cases, rest)

    def _cases(
        self, subject: Value, cases: list[ast.match_case], rest: list[ast.stmt], ruled_out: tuple[bool, ...] = ()
    ) -> tuple[bool, bool]:
        """Lower what is left of the cases; of the two truth values some may be `ruled_out` by those before."""
        if not cases:
            return True, False
        case, later = cases[0], cases[1:]
        bound: dict[str, Value] = {}
        test = self._matches(case.pattern, subject, bound)
        if isinstance(case.pattern, ast.MatchSingleton) and isinstance(case.pattern.value, bool):
            if (not case.pattern.value) in ruled_out and not isinstance(test, Const):
                test = TRUE
            if case.guard is None:
                ruled_out = (*ruled_out, case.pattern.value)
        has_bound = False
        if case.guard is not None and test != FALSE:
            guard, has_bound = case.guard, test == TRUE
            if not has_bound:
                self._refuse_rebinding(guard, bound)

            def guarded() -> Value:
                self.frame.env.update(bound)
                return self.condition(guard)

            test = self.truth(guarded() if test == TRUE else self.short_circuit("and", test, guarded, guard), guard)

        def body() -> bool:
            if not has_bound:  # else the guard may have given them other values since
                self.frame.env.update(bound)
            return self.statements(case.body)

        if isinstance(test, Const):
            return (body(), False) if test.value else self._cases(subject, later, rest, ruled_out)
        return self.split(test, (body, lambda: self._cases(subject, later, [], ruled_out)[0]), rest, case.pattern)

    def _refuse_rebinding(self, guard: ast.expr, bound: dict[str, Value]) -> None:
        """Refuse a guard that assigns what its pattern binds, where that is known only if the pattern matches."""
        for node in ast.walk(guard):
            if isinstance(node, ast.NamedExpr) and node.target.id in bound:
                self.fail(node, f"this guard assigns {node.target.id}, which its pattern binds", "another name")

    def _matches(self, pattern: ast.pattern, value: Value, bound: dict[str, Value]) -> Atom:
        """Whether a pattern matches; the names it binds go into `bound`."""
        if not isinstance(pattern, ast.MatchAs):
            self.merged(value, pattern)
        match pattern:
            case ast.MatchValue():
                return self.equal(value, self.expression(pattern.value), pattern)
            case ast.MatchSingleton():
                if isinstance(pattern.value, bool) and isinstance(value, Const | Var) and value.kind == "bool":
                    return value if pattern.value else self.unary(ast.Not(), value, pattern)
                return TRUE if pattern.value is None and value == Static(None) else FALSE
            case ast.MatchAs():
                test = TRUE if pattern.pattern is None else self._matches(pattern.pattern, value, bound)
                if pattern.name is not None:
                    bound[pattern.name] = value
                return test
            case ast.MatchOr():
                return self._alternatives(pattern, value, bound)
            case ast.MatchSequence():
                is_sequence = isinstance(value, tuple) and (not isinstance(value, Record) or value.is_sequence)
                return self._items(pattern, tuple(value), bound) if is_sequence else FALSE  # type: ignore[arg-type]
            case ast.MatchClass():
                return self._of_class(pattern, value, bound)
        self.fail(pattern, "a mapping pattern cannot be compiled", "names or attributes")

    def _alternatives(self, pattern: ast.MatchOr, value: Value, bound: dict[str, Value]) -> Atom:
        result: Atom = FALSE
        for alternative in pattern.patterns:
            names: dict[str, Value] = {}
            test = self._matches(alternative, value, names)
            if test == FALSE:
                continue
            if names and not (test == TRUE and result == FALSE):
                self.fail(alternative, "alternatives that bind names depend on the data here", "a case for each")
            bound.update(names)
            result = self.op("or", result, test, kind="bool", location=self.locate(pattern))
            if result == TRUE:
                break
        return result

    def _items(self, pattern: ast.MatchSequence, items: tuple[Value, ...], bound: dict[str, Value]) -> Atom:
        parts = pattern.patterns
        stars = [position for position, part in enumerate(parts) if isinstance(part, ast.MatchStar)]
        if len(items) < len(parts) - len(stars) or (not stars and len(items) != len(parts)):
            return FALSE
        if stars:
            (at,) = stars
            end = len(items) - (len(parts) - at - 1)
            star = parts[at]
            if isinstance(star, ast.MatchStar) and star.name is not None:
                bound[star.name] = Record(list, items[at:end])
            parts, items = [*parts[:at], *parts[at + 1 :]], (*items[:at], *items[end:])
        return self._all(pattern, [self._matches(part, item, bound) for part, item in zip(parts, items, strict=True)])

    def _of_class(self, pattern: ast.MatchClass, value: Value, bound: dict[str, Value]) -> Atom:
        kind = self.expression(pattern.cls)
        if not isinstance(kind, Static) or not isinstance(kind.object, type):
            self.fail(pattern.cls, f"{describe(kind)} is no class")
        if not is_instance(value, kind.object):
            return FALSE
        if kind.object in _ITSELF:
            return self._matches(pattern.patterns[0], value, bound) if pattern.patterns else TRUE
        names = getattr(kind.object, "__match_args__", ())
        if len(pattern.patterns) > len(names):
            self.fail(pattern, f"{kind.object.__name__} has {len(names)} positional parts, not {len(pattern.patterns)}")
        named = [
            *zip(names, pattern.patterns, strict=False),
            *zip(pattern.kwd_attrs, pattern.kwd_patterns, strict=True),
        ]
        tests: list[Atom] = []
        for name, part in named:
            if not isinstance(value, Record) or name not in value.fields:
                self.fail(part, f"{describe(value)} has no field {name}")
            tests.append(self._matches(part, value[value.fields.index(name)], bound))
        return self._all(pattern, tests)

    def _all(self, node: ast.AST, tests: list[Atom]) -> Atom:
        result: Atom = TRUE
        for test in tests:
            result = self.op("and", result, test, kind="bool", location=self.locate(node))
        return result
