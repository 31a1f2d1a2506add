"""The partials of one value in another with their presence: whether the value depends on the other one along the path
that was taken. Their products, and their sums.

A variable that depends on an argument along some paths only has a derivative of zero on the others. The product of that
zero and an infinite partial would be NaN; therefore a flag decides whether the term counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.builder import Builder

# Tests, each with the result that it must have.
Conditions = frozenset[tuple[ir.Atom, bool]]


@dataclass(frozen=True, slots=True)
class Edge:
    """A partial of one value in another: a constant factor times a variable, or times 1.

    Where the flag is false the value does not depend on the other one. The partial is zero there, unless it is because
    of an `unmasked` condition that the flag is false: the partial may be any number then. The flag `begins` where it is
    false in the first iterations of a loop only: an integration would otherwise read, in each iteration, a flag whose
    value is known. The partial is then an ordinary zero in the first iterations, unless it is multiplied by one that
    `has_poles`: that can be infinite at finite arguments. A partial that `is_fixed` is made of constants alone, so that
    it is zero only where there is no dependence; it `is_finite` unless iterations of a loop have multiplied them.
    """

    partial: ir.Atom
    factor: float = 1.0
    flag: ir.Atom = ir.TRUE
    unmasked: Conditions = frozenset()
    begins: bool = False
    has_poles: bool = False
    is_fixed: bool = False
    is_finite: bool = False

    def __post_init__(self) -> None:
        partial = self.partial
        if isinstance(partial, ir.Const) and partial != ir.ONE and math.isfinite(partial.value):
            object.__setattr__(self, "factor", self.factor * partial.value)
            object.__setattr__(self, "partial", ir.ONE)


UNIT = Edge(ir.ONE, is_fixed=True, is_finite=True)


class EdgeBuilder(Builder):
    """Appends the statements for partials and flags."""

    def __init__(self, names: ir.Names) -> None:
        super().__init__(names)
        # The conditions that flags are the conjunction of.
        self._conditions: dict[str, Conditions] = {}
        # The operands of products.
        self._operands: dict[ir.Atom, tuple[ir.Atom, ir.Atom]] = {}

    # --- flags ---------------------------------------------------------------------------------------------------

    def conditions(self, flag: ir.Atom) -> Conditions:
        """The conditions whose conjunction a flag is."""
        if isinstance(flag, ir.Const):
            return frozenset()
        return self._conditions.get(flag.name, frozenset({(flag, True)}))

    def opposite(self, test: ir.Atom, where: Location) -> ir.Atom:
        """The flag that is false where a test is true."""
        flag = self.operate("not", test, kind="bool", where=where)
        if isinstance(flag, ir.Var):
            self._conditions[flag.name] = frozenset({(test, False)})
        return flag

    def both(self, one: ir.Atom, other: ir.Atom, where: Location) -> ir.Atom:
        """The flag that is true where both are."""
        if ir.TRUE in (one, other) or one == other:
            return other if one == ir.TRUE else one
        flag = self.operate("and", one, other, kind="bool", where=where)
        if isinstance(flag, ir.Var):
            self._conditions[flag.name] = self.conditions(one) | self.conditions(other)
        return flag

    def conjunction(self, conditions: Conditions, where: Location) -> ir.Atom:
        """The flag that is true where all of some conditions are."""
        flag: ir.Atom = ir.TRUE
        for test, result in sorted(conditions, key=repr):
            flag = self.both(flag, test if result else self.opposite(test, where), where)
        return flag

    def _distinguishing(self, one: ir.Atom, other: ir.Atom) -> ir.Atom | None:
        """A test that has one result where one flag is true, and another where the other one is."""
        others = self.conditions(other)
        return next((test for test, result in self.conditions(one) if (test, not result) in others), None)

    # --- partials ------------------------------------------------------------------------------------------------

    def scaled(self, edge: Edge, where: Location) -> ir.Atom:
        """The partial of an edge times its factor; the sign of a product is that of an operand, which others share."""
        if edge.factor == 1:
            return edge.partial
        if edge.factor != -1 or edge.partial == ir.ONE:
            return self.operate("mul", ir.Const(edge.factor, "float"), edge.partial, where=where)
        first, second = self._operands.get(edge.partial, (ir.ONE, edge.partial))
        return self.operate("mul", first, self.operate("neg", second, where=where), where=where)

    def settled(self, edge: Edge, where: Location) -> Edge:
        """The edge of several ways, which do not multiply by its factor one by one; signs are left to them."""
        if edge.partial == ir.ONE or abs(edge.factor) == 1:
            return edge
        return replace(edge, partial=self.scaled(edge, where), factor=1.0)

    def exact(self, edge: Edge, where: Location) -> ir.Atom:
        """The partial of an edge times its factor, and zero where it is absent."""
        masked = self._masked(edge.partial, edge.unmasked, where)
        return self.scaled(Edge(masked, edge.factor), where)

    def _masked(self, partial: ir.Atom, unmasked: Conditions, where: Location) -> ir.Atom:
        """The partial, and zero where one of the conditions is false."""
        if len(unmasked) == 1:
            ((test, result),) = unmasked
            sides = (partial, ir.ZERO) if result else (ir.ZERO, partial)
            return self.operate("select", test, *sides, where=where)
        return self.operate("select", self.conjunction(unmasked, where), partial, ir.ZERO, where=where)

    def product(self, one: Edge, other: Edge, where: Location) -> Edge | None:
        """The edge for a way along two edges; None if they are never present together."""
        if self._distinguishing(one.flag, other.flag) is not None:
            return None
        factor, operands = one.factor * other.factor, (one.partial, other.partial)
        # With larger or smaller factors, the product could overflow or underflow where the two do not.
        if not 1e-6 < abs(factor) < 1e6 and abs(one.factor) != 1 and abs(other.factor) != 1:
            factor, operands = one.factor, (one.partial, self.scaled(other, where))
        partial = self.operate("mul", *operands, where=where)
        if partial not in operands:
            self._operands[partial] = operands
        flag, unmasked, begins = self.both(one.flag, other.flag, where), one.unmasked | other.unmasked, True
        for edge, times in ((one, other), (other, one)):
            if edge.flag != ir.TRUE:
                is_zero_then = edge.begins and not times.has_poles
                begins &= is_zero_then
                if not (is_zero_then or times.is_finite):
                    unmasked |= self.conditions(edge.flag)
        begins &= flag != ir.TRUE
        return Edge(partial, factor, flag, unmasked, begins, **kinds_of(one, other))

    def total(self, one: Edge, other: Edge, where: Location) -> Edge:
        """The sum of two edges from one source; of which one at most is present, by one select."""
        flag: ir.Atom = ir.TRUE
        if ir.TRUE not in (one.flag, other.flag):
            flag = one.flag
            if flag != other.flag:
                flag = self.operate("or", one.flag, other.flag, kind="bool", where=where)
        test = self._distinguishing(one.flag, other.flag) if one.unmasked or other.unmasked else None
        rests = [_without(self.conditions(edge.flag), test) for edge in (one, other)]
        masks = [_without(edge.unmasked, test) for edge in (one, other)]
        if test is not None and rests[0] == rests[1]:
            flag = self.conjunction(rests[0], where)
        factor, signs, partials = one.factor, (1, 1), [one.partial, other.partial]
        if other.factor == -factor and test is None:
            signs, factor = (1, -1) if factor > 0 else (-1, 1), abs(factor)
        elif other.factor != factor:
            parts = [each if test is not None else replace(each, factor=abs(each.factor)) for each in (one, other)]
            partials = [self.scaled(part, where) for part in parts]
            signs = (1, 1) if test is not None else (one.factor > 0 or -1, other.factor > 0 or -1)
            factor = 1.0
        unmasked = masks[0]
        if masks[0] != masks[1]:
            partials = [self._masked(*pair, where) for pair in zip(partials, masks, strict=True)]
            unmasked = frozenset()
        if test is not None:
            if (test, False) in self.conditions(one.flag):
                partials.reverse()
            partial = self.operate("select", test, *partials, where=where)
        else:
            if signs == (-1, 1):
                partials.reverse()
            elif signs == (-1, -1):
                factor = -factor
            partial = self.operate("sub" if signs[0] != signs[1] else "add", *partials, where=where)
        begins = flag != ir.TRUE and one.begins and other.begins
        return Edge(partial, factor, flag, unmasked, begins, **kinds_of(one, other))


def kinds_of(*edges: Edge) -> dict[str, bool]:
    """What is known of a product or a sum of partials."""
    return {
        "has_poles": any(edge.has_poles for edge in edges),
        "is_fixed": all(edge.is_fixed for edge in edges),
        "is_finite": all(edge.is_finite for edge in edges),
    }


def _without(conditions: Conditions, test: ir.Atom | None) -> Conditions:
    return frozenset(each for each in conditions if each[0] != test)
