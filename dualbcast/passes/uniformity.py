"""How much of a kernel's work is the same for a whole row: what is computed, in branches, from what stays, and numbers.

LLVM takes such work out of the loop over the elements where no branch is in the way. Where one is, its vectoriser (LLVM
22) asks of every value whether it varies, and anew for all that it is made of: each step of a chain doubles the time.
"""

from __future__ import annotations

from collections.abc import Set

from dualbcast.ir.nodes import Assign, Block, Const, Expr, For, Function, If, Load, Op, Var, While
from dualbcast.ir.walk import assigned
from dualbcast.kernel_spec import Layout

__all__ = ["is_vectorisable", "steady_inputs"]

# Thirty steps take LLVM a second, forty a minute.
LONGEST = 20


def is_vectorisable(function: Function, uniform: Set[str]) -> bool:
    """Whether LLVM may be asked to vectorise a kernel in which the arguments of these names stay within a row."""
    return _longest(function.body, uniform, {}, False) <= LONGEST


def _longest(block: Block, uniform: Set[str], chains: dict[str, int], inside: bool, turns: int = 3) -> int:
    """The longest chain of steps through so many turns of each loop; `chains` has the length for every name that stays,
    and is added to."""

    def chain(expr: Expr) -> int | None:
        """The steps to a value that stays and cannot be taken out; None for one that varies."""
        match expr:
            case Const():
                return 0
            case Load():
                return 0 if expr.name in uniform else None
            case Var():
                return chains.get(expr.name)
            case Op():
                lengths = [chain(arg) for arg in expr.args]
                known = [length for length in lengths if length is not None]
                if len(known) < len(lengths):
                    return None
                longest = max(known, default=0)
                return longest + 1 if inside or longest else 0

    longest = 0
    for stmt in block:
        match stmt:
            case Assign():
                length = chain(stmt.value)
                if length is None:
                    chains.pop(stmt.target.name, None)
                else:
                    chains[stmt.target.name] = length
                    longest = max(longest, length)
            case If():
                test = chain(stmt.test)
                sides = []
                for side in (stmt.then, stmt.orelse):
                    own = dict(chains)
                    longest = max(longest, _longest(side, uniform, own, True, turns))
                    sides.append(own)
                for name in set(assigned((stmt,))):
                    lengths = [own[name] for own in sides if name in own]
                    chains.pop(name, None)
                    if test is not None and lengths:
                        chains[name] = max(*lengths, test) + 1 if len(lengths) > 1 else lengths[0] + 1
            case For() | While():
                # A loop that LLVM unrolls is as long a chain as it has turns. Of loops inside it several turns are
                # looked at once, not in each of its own: in six loops inside each other they would be 729.
                before = dict(chains)
                for turn in range(turns):
                    longest = max(longest, _longest(stmt.body, uniform, chains, True, 1 if turn else turns))
                for name in set(assigned((stmt,))) & before.keys():
                    chains.setdefault(name, before[name])
    return longest


def steady_inputs(function: Function, layout: Layout) -> set[str]:
    """The parameters that do not change within a row."""
    places = zip(function.params, layout.which, strict=False)
    return {param.name for param, position in places if layout.classes[position][-1] == "0"}
