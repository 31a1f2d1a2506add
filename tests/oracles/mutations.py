"""Random mutations of programs: statements and expressions deleted, copied, swapped or replaced by what looks odd."""

from __future__ import annotations

import ast
import copy
import random
from typing import Any

__all__ = ["mutate"]

_ATOMS = """\
True; 0; 1; -1; 2.5; 1e400; 1j; 1 << 70; None; ...; 'a'; b''; f'{1}'; (); (1.0, 2); [1, 2]; {1: 2}; *(1, 2)
x; x[0]; x.y
nothing; math; math.sin; float; len; abs; print; range(3); lambda *a: 1.0; not 1; 1 if x else (2,); (w := 1)
(yield 1)
zip((1, 2), (3, 4)); (i for i in (1.0, 2)); [a for a in (1, 2.0)]; sum(i * 1.0 for i in range(int(2.0))); min()
max((), default=1); Pair; Pair(1.0, 2); Pair.first; Point; Point(1.0, 2).y; Point(1.0); Point(1.0, 2).total()\
"""
_STATEMENTS = """\
pass; return; return None; return x, (x,); break; continue; x = 1; x = (x, 1); x = None; x = lambda: x; x = [x]; x = x,
x, = x,; (x, y), z = x; x = x = 2; x: int; x += 1; del x; global x; nonlocal x; import os; print(x); yield x; raise E
assert x; for x in (1, 2): pass; while x: x -= 1; for i in range(3): x = i; if x: return x; if x: x = (1,)
def x(): return 1; class x: pass; with x: pass; x = Pair(x, 1); x = Point(x, 1); for x in zip((1, 2), (3, 4)): pass
if (x := 1) > 0 and (z := 2) > x: x = z
match x:
    case 1: x = 2
    case _: return x
match x:
    case (a, b): x = a
    case Pair(first=1): return 1
    case [*_]: x = 3
    case float() | int(): x = 4
for i in range(int(x)):
    x = x * 2
    if x > 5: break
else:
    x = 1
for i in (1, 2):
    if i > x: continue
    x = i
    break
while True:
    x = 1
    if x: break
try:
    x
except E:
    x\
"""


def mutate(function: ast.FunctionDef, rng: random.Random) -> ast.FunctionDef:
    """A copy of a function with one to three mutations; it may not compile."""
    tree = copy.deepcopy(function)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        mutation = rng.choice(_MUTATIONS)
        if _slots(tree):
            mutation(tree, rng)
    return ast.fix_missing_locations(tree)


def _pieces(lines: str) -> list[str]:
    """The programs in a text: separated by semicolons, or a line that is not indented with what belongs to it."""
    found: list[str] = []
    for line in lines.split("\n"):
        if line.startswith((" ", "else", "except")):
            found[-1] += "\n" + line
        else:
            found += line.split("; ")
    return found


ATOMS, STATEMENTS = _pieces(_ATOMS), _pieces(_STATEMENTS)

# --- places of a tree ------------------------------------------------------------------------------------------------

Slot = tuple[Any, Any]


def _slots(tree: ast.AST) -> list[Slot]:
    """The places that hold an expression which is read."""
    found: list[Slot] = []
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                found += [(value, at) for at, item in enumerate(value) if _is_read(item) and name != "decorator_list"]
            elif _is_read(value) and name not in ("annotation", "returns"):
                found.append((node, name))
    return found


def _is_read(value: Any) -> bool:
    return isinstance(value, ast.expr) and not isinstance(getattr(value, "ctx", None), ast.Store | ast.Del)


def _blocks(tree: ast.AST) -> list[list[ast.stmt]]:
    lists = [value for node in ast.walk(tree) for _, value in ast.iter_fields(node) if isinstance(value, list)]
    return [value for value in lists if value and isinstance(value[0], ast.stmt)]


def _get(slot: Slot) -> Any:
    holder, at = slot
    return copy.deepcopy(holder[at] if isinstance(holder, list) else getattr(holder, at))


def _put(slot: Slot, value: ast.expr) -> None:
    holder, at = slot
    if isinstance(holder, list):
        holder[at] = value
    else:
        setattr(holder, at, value)


def _named(tree: ast.AST, rng: random.Random, made: ast.AST) -> None:
    """Let `x` in a new part be one of the tree's own names."""
    names = sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}) or ["x"]
    chosen = rng.choice(names)
    for node in ast.walk(made):
        if isinstance(node, ast.Name) and node.id == "x":
            node.id = chosen


# --- mutations -------------------------------------------------------------------------------------------------------


def _delete(tree: ast.AST, rng: random.Random) -> None:
    block = rng.choice(_blocks(tree))
    del block[rng.randrange(len(block))]
    if not block:
        block.append(ast.Pass())


def _repeat(tree: ast.AST, rng: random.Random) -> None:
    block, other = rng.choice(_blocks(tree)), rng.choice(_blocks(tree))
    block.insert(rng.randrange(len(block) + 1), copy.deepcopy(rng.choice(other)))


def _exchange(tree: ast.AST, rng: random.Random) -> None:
    block, other = rng.choice(_blocks(tree)), rng.choice(_blocks(tree))
    i, j = rng.randrange(len(block)), rng.randrange(len(other))
    block[i], other[j] = copy.deepcopy(other[j]), copy.deepcopy(block[i])


def _add_statement(tree: ast.AST, rng: random.Random) -> None:
    indented = "\n".join(f"        {line}" for line in rng.choice(STATEMENTS).split("\n"))
    loop = ast.parse(f"def f():\n    while 1:\n{indented}").body[0].body[0]  # type: ignore[attr-defined]
    _named(tree, rng, loop)
    block = rng.choice(_blocks(tree))
    at = rng.randrange(len(block) + 1)
    block[at:at] = loop.body


def _replace_expression(tree: ast.AST, rng: random.Random) -> None:
    call = ast.parse(f"f({rng.choice(ATOMS)})", mode="eval").body
    _named(tree, rng, call)
    _put(rng.choice(_slots(tree)), call.args[0])  # type: ignore[attr-defined]


def _copy_expression(tree: ast.AST, rng: random.Random) -> None:
    _put(rng.choice(_slots(tree)), _get(rng.choice(_slots(tree))))


def _exchange_expressions(tree: ast.AST, rng: random.Random) -> None:
    one, two = rng.choice(_slots(tree)), rng.choice(_slots(tree))
    first, second = _get(one), _get(two)
    _put(one, second)
    _put(two, first)


def _lift_operand(tree: ast.AST, rng: random.Random) -> None:
    slot = rng.choice(_slots(tree))
    operands = [child for child in ast.iter_child_nodes(_get(slot)) if _is_read(child)]
    if operands:
        _put(slot, rng.choice(operands))  # type: ignore[arg-type]


_MUTATIONS = [
    _delete,
    _repeat,
    _exchange,
    _add_statement,
    _replace_expression,
    _copy_expression,
    _exchange_expressions,
    _lift_operand,
]
