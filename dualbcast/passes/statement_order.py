"""The order of statements where many values would wait for registers: each runs once it is the last to read a value."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import most_live, results, variables

# The values from which on LLVM takes seconds to find registers for them, in time that grows with their square.
_MANY = 64


def shorten_waits(function: ir.Function, many: int = _MANY) -> ir.Function:
    """The function with its statements in an order in which at most half as many values wait to be read, if there is
    one; itself where fewer than `many` wait, or where it has branches or loops.

    Derivatives come after all values: in a sum of many terms, each of these waits for its partial.

    Before (many=6)::

        function f(x: float)
            a: float = sin(x)
            b: float = cos(x)
            c: float = tan(x)
            d: float = exp(x)
            e: float = sinh(x)
            f: float = cosh(x)
            s: float = add(a, b)
            t: float = add(s, c)
            u: float = add(t, d)
            v: float = add(u, e)
            w: float = add(v, f)
            output out = w

    After::

        function f(x: float)
            a: float = sin(x)
            b: float = cos(x)
            s: float = add(a, b)
            c: float = tan(x)
            t: float = add(s, c)
            d: float = exp(x)
            u: float = add(t, d)
            e: float = sinh(x)
            v: float = add(u, e)
            f: float = cosh(x)
            w: float = add(v, f)
            output out = w
    """
    body = function.body
    assigned = [stmt for stmt in body if isinstance(stmt, ir.Assign)]
    if len(body) < many or len(assigned) < len(body) or len({stmt.target.name for stmt in assigned}) < len(body):
        return function
    before = most_live(function)
    if before < many:
        return function
    ordered = replace(function, body=_ordered(assigned, [leaf.name for leaf in results(function)]))
    return ordered if 2 * most_live(ordered) <= before else function


def _ordered(body: Sequence[ir.Assign], after: Sequence[str]) -> ir.Block:
    """The statements, each right after the one from which on it can run and is the last to read a value."""
    reads = [{leaf.name for leaf in variables(stmt.value)} for stmt in body]
    targets = {stmt.target.name for stmt in body}
    # The statements that wait for a value; for each name, how many have yet to read it, and who they are.
    missing = [len(names & targets) for names in reads]
    left = Counter([name for names in reads for name in names])
    left.update(set(after))
    readers: dict[str, list[int]] = defaultdict(list)
    for at, names in enumerate(reads):
        for name in names & targets:
            readers[name].append(at)
    done: set[int] = set()
    new: list[ir.Stmt] = []
    for first in range(len(body)):
        pending = [first]
        while pending:
            at = pending.pop()
            if at in done:
                continue
            done.add(at)
            new.append(body[at])
            left.subtract(reads[at])
            nearby = set(readers[body[at].target.name])
            for reader in nearby:
                missing[reader] -= 1
            for name in reads[at] & targets:
                if left[name] == 1:
                    nearby.update(readers[name])
            last = [each for each in nearby if any(left[name] == 1 for name in reads[each] & targets)]
            pending += sorted((each for each in last if each not in done and not missing[each]), reverse=True)
    return tuple(new)
