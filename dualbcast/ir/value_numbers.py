"""The numbers of values: names with one number have the same value at a point of a function, and one stands for all.

Branches and loops undo what their blocks have assigned, so that each costs as much as it assigns, however many names
there are.
"""

from __future__ import annotations

from typing import Any

from dualbcast.ir import nodes as ir


class ValueNumbers:
    """The number of each name at the point that the statements so far lead to."""

    def __init__(self) -> None:
        self.holders: list[Any] = []
        # By kind and text, which tell 0.0 from -0.0 and say that nan is nan.
        self.constants: dict[tuple[str, str], int] = {}
        # The numbers of the expressions computed so far, on whatever path: no name may hold such a value here.
        self.computed: dict[tuple[object, ...], int] = {}
        # The number of each name at this point.
        self.numbers: dict[str, int] = {}
        # The names that have been assigned in the innermost branch or loop, each with its number before.
        self.before: dict[str, int | None] = {}
        # The variables that were given a number, first to last; and the place of each name among all.
        self.given: dict[int, list[ir.Var]] = {}
        self.places: dict[str, int] = {}

    def new(self, holder: Any) -> int:
        self.holders.append(holder)
        return len(self.holders) - 1

    def renew(self, target: ir.Var) -> None:
        """Give a variable a number of its own: its value is not known to equal another one."""
        self.give(target, self.new(target))

    def give(self, target: ir.Var, number: int) -> None:
        name = target.name
        self.before.setdefault(name, self.numbers.get(name))
        self.places.setdefault(name, len(self.places))
        self.numbers[name] = number
        self.given.setdefault(number, []).append(target)

    def undo(self, before: dict[str, int | None], outside: dict[str, int | None]) -> None:
        """Give names back the numbers that they had before a branch or loop, and go on outside of it."""
        for name, number in before.items():
            if number is None:
                del self.numbers[name]
            else:
                self.numbers[name] = number
        self.before = outside

    def hold(self, target: ir.Var, number: int) -> None:
        """Give a variable the number of a value that it holds; where no older name does, it stands for the value."""
        self.give(target, number)
        self.stand(target)

    def stand(self, target: ir.Var) -> None:
        """Let the name that has had its value for longest stand for it: that variable, where no older one does."""
        number = self.numbers[target.name]
        if not self.holds(self.holders[number], number):
            self.holders[number] = next(var for var in self.given[number] if self.holds(var, number))

    def number(self, atom: ir.Expr) -> int:
        if isinstance(atom, ir.Const | ir.Array):
            key = (atom.kind, repr(atom.value)) if isinstance(atom, ir.Const) else ("array", atom.name)
            if key not in self.constants:
                self.constants[key] = self.new(atom)
            return self.constants[key]
        assert isinstance(atom, ir.Var)
        return self.numbers[atom.name]

    def holds(self, atom: ir.Expr, number: int) -> bool:
        """Whether an atom that had this number still has it: a name may have been assigned another value since."""
        return not isinstance(atom, ir.Var) or self.numbers.get(atom.name) == number

    def atom(self, expr: ir.Expr) -> Any:
        """The oldest name, or the constant, that still holds the same value."""
        if not isinstance(expr, ir.Var):
            return expr
        number = self.number(expr)
        holder = self.holders[number]
        return holder if self.holds(holder, number) else expr

    def merge(self, test: ir.Expr, before: dict[str, int | None], ends: list[dict[str, int]]) -> None:
        """Give the names that a branch assigns their numbers after it."""
        merged: list[ir.Var] = []
        for name in sorted(before, key=self.places.__getitem__):
            # A name that one side alone assigns, and that had no value before, is not read after the branch.
            found = [number for end in ends if (number := end.get(name, before[name])) is not None]
            if len(found) < len(ends):
                continue
            number = found[0]
            holder = ir.Var(name, self.holders[number].kind)
            if number != found[-1]:
                # Branches on one test that choose between the same values agree.
                key = ("merged", self.number(test), *found)
                if key not in self.computed:
                    self.computed[key] = self.new(holder)
                number = self.computed[key]
            if number != before[name]:
                self.give(holder, number)
                merged.append(holder)
        for holder in merged:
            self.stand(holder)
        # What a name stood for that has another value now, the next name does that still has it.
        for lost in before.values():
            if lost is not None and not self.holds(self.holders[lost], lost):
                still = [var for var in self.given.get(lost, ()) if self.holds(var, lost)]
                self.holders[lost] = min(still, key=lambda var: self.places[var.name], default=self.holders[lost])
