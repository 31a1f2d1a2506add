"""What the compiler makes of a function's IR, products and kernels' text, from the cache on disk if it was made before.

In the first call of a process the compiler takes longer than all else, and so do its imports, which are made here.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from functools import cache as once
from functools import partial
from typing import Any

from dualbcast import disk_cache
from dualbcast.garbage import collected_later
from dualbcast.ir.nodes import Const, Function, Op
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.program.products import Block, Product, Which, make_product

__all__ = ["identity", "product", "source"]


def identity(function: Function) -> str:
    """A text that two functions share only if the compiler makes the same of them, in any process; empty where it makes
    of them what a user has said elsewhere."""
    try:
        return repr(_plain(function))
    except _Given:
        return ""


@collected_later
def product(function: Function, which: Which, wrt: tuple[int, ...], identity: str) -> Product:
    """What `make_product` gives; the IR of one that was kept is made when somebody asks for it."""
    if not identity:
        return make_product(function, which, wrt)
    made: list[Product] = []

    def make() -> bytes:
        made.append(make_product(function, which, wrt))
        kept = made[0]
        blocks = {place: tuple(block) for place, block in kept.blocks.items()}
        return marshal.dumps((kept.kinds, kept.values, kept.count, blocks, kept.jacobian, kept.work))

    payload = disk_cache.fetch(
        disk_cache.key("product", disk_cache.STAMP, identity, which, repr(wrt)), make, kernel=False
    )
    if made:
        return made[0]
    kinds, values, count, blocks, jacobian, work = marshal.loads(payload)
    found = {place: Block(*block) for place, block in blocks.items()}
    again = once(partial(make_product, function, which, wrt))
    forms = lambda: again().function, lambda: again().forward
    return Product(kinds, values, count, function.structure, found, jacobian, work, *forms)


def source(identity: str, layout: Layout, rest: tuple[Any, ...], make: Callable[[], KernelSource]) -> KernelSource:
    """The text of a kernel.

    Parameters
    ----------
    identity : str
        Of the product: of its function, and what it is. If empty, nothing is kept.
    layout : Layout
    rest : tuple
        All else that the text depends on: text, numbers, and tuples of such.
    make : callable
        Makes it.
    """
    if not identity:
        return make()

    def dumped() -> bytes:
        # Of tuples with names only the parts can be kept; the layout is known.
        return marshal.dumps({**make()._asdict(), "layout": None})

    key = disk_cache.key("source", disk_cache.STAMP, identity, repr(layout), repr(rest))
    return KernelSource(**{**marshal.loads(disk_cache.fetch(key, dumped, kernel=False)), "layout": layout})


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
    return kind.__name__, *[_plain(getattr(node, name)) for name in _said(kind)]


def _said(kind: Any) -> tuple[str, ...]:
    found = _fields.get(kind)
    if found is None:
        found = _fields[kind] = tuple([name for name in kind.__match_args__ if name not in ("location", "structure")])
    return found


_fields: dict[type, tuple[str, ...]] = {}
