"""Keys by the IR of a function for what the compiler makes of it, and the facts about products that are kept on disk.

In the first call of a process the compiler takes longer than all else, and so do its imports, which are not made for
what is on disk.
"""

from __future__ import annotations

import marshal
from functools import cache as once
from functools import partial
from typing import Any

from dualbcast import disk_cache
from dualbcast.ir.nodes import Const, Function, Op
from dualbcast.kernel_spec import Layout
from dualbcast.program.products import Block, Product, Which, make_product

__all__ = ["identity", "kernel_key", "product"]


def identity(function: Function) -> str:
    """A text that two functions share only if the compiler makes the same of them, in any process; empty where it makes
    of them what a user has said elsewhere."""
    try:
        return repr(_plain(function))
    except _Given:
        return ""


def product(function: Function, which: Which, wrt: tuple[int, ...], identity: str) -> Product:
    """The product that `make_product` gives; if it is from the disk, its IR is made when somebody asks for it."""
    if not identity:
        return make_product(function, which, wrt)
    made: list[Product] = []

    def make() -> bytes:
        made.append(make_product(function, which, wrt))
        facts = made[0]
        blocks = {place: tuple(block) for place, block in facts.blocks.items()}
        return marshal.dumps((facts.kinds, facts.values, facts.count, blocks, facts.jacobian, facts.work))

    payload = disk_cache.fetch(disk_cache.key("product", disk_cache.STAMP, identity, which, repr(wrt)), make)
    if made:
        return made[0]
    kinds, values, count, places, jacobian, work = marshal.loads(payload)
    blocks = {place: Block(*block) for place, block in places.items()}
    again = once(partial(make_product, function, which, wrt))
    forms = lambda: again().function, lambda: again().forward
    return Product(kinds, values, count, function.structure, blocks, jacobian, work, *forms)


def kernel_key(identity: str, layout: Layout, rest: tuple[Any, ...]) -> str:
    """What stands for the text of a kernel in a key.

    Parameters
    ----------
    identity : str
        Of the product: of its function, and what it is. If it is empty, nothing but the text stands for the text.
    layout : Layout
    rest : tuple
        All else that the text depends on: text, numbers, and tuples of such.
    """
    return identity and disk_cache.key("kernel", identity, repr(layout), repr(rest))


class _Given(Exception):
    """An operation of which a user has said what it means, or its derivative. (What the library means by a function
    nobody can change, so that there are such operations wherever it matters what a user has said.)"""


# Of those that have a number this one is: there is none before it.
_STOP = "stop_derivative#1"


def _plain(node: Any) -> Any:
    """A node of the IR as tuples: without its place in the user's file, of which machine code knows nothing, and
    without the classes in the structure of what it returns, which the compiler passes on."""
    kind = type(node)
    if kind is tuple:
        return tuple([_plain(item) for item in node])
    if kind in (str, bool):
        return node
    if kind is Const:
        return "Const", repr(node.value), node.kind
    if kind is Op and "#" in node.name and node.name != _STOP:
        raise _Given
    return kind.__name__, *[_plain(getattr(node, name)) for name in _fields_of(kind)]


def _fields_of(kind: Any) -> tuple[str, ...]:
    found = _fields.get(kind)
    if found is None:
        found = _fields[kind] = tuple([name for name in kind.__match_args__ if name not in ("location", "structure")])
    return found


_fields: dict[type, tuple[str, ...]] = {}
