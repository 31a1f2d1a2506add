"""Keys of products and kernels by the IR of a function, and the cache on disk of the facts about products.

In the first call of a process differentiation takes longer than all else, with the imports that it needs. A product
that is on disk needs neither.
"""

from __future__ import annotations

import marshal
from functools import cache, partial
from typing import Any

from dualbcast import disk_cache
from dualbcast.ir.nodes import Const, Function, Op
from dualbcast.kernel_spec import Layout
from dualbcast.program.products import Block, Product, Which, make_product

__all__ = ["identity", "kernel_key", "product"]


def identity(function: Function) -> str:
    """A text that two functions share only if they compile to the same kernels in any process.

    It is empty where the kernels depend on a user's rule or partials, which are not in the IR.
    """
    try:
        return repr(_plain(function))
    except _UserDefined:
        return ""


def product(function: Function, which: Which, wrt: tuple[int, ...], identity: str) -> Product:
    """The product that `make_product` returns. If its facts are on disk, its IR is made only when it is needed."""
    if not identity:
        return make_product(function, which, wrt)
    compiled: list[Product] = []

    def compile_facts() -> bytes:
        new = make_product(function, which, wrt)
        compiled.append(new)
        blocks = {place: tuple(block) for place, block in new.blocks.items()}
        return marshal.dumps((new.kinds, new.values, new.count, blocks, new.jacobian, new.work))

    payload = disk_cache.fetch(disk_cache.key("product", disk_cache.STAMP, identity, which, repr(wrt)), compile_facts)
    if compiled:
        return compiled[0]
    kinds, values, count, places, jacobian, work = marshal.loads(payload)
    blocks = {place: Block(*block) for place, block in places.items()}
    again = cache(partial(make_product, function, which, wrt))
    forms = lambda: again().function, lambda: again().forward
    return Product(kinds, values, count, function.structure, blocks, jacobian, work, *forms)


def kernel_key(identity: str, layout: Layout, rest: tuple[Any, ...]) -> str:
    """The key of a kernel, from everything that its text depends on; empty where only the text itself can be the key.

    Parameters
    ----------
    identity : str
        That of the function, with the kind of the product; or empty.
    layout : Layout
    rest : tuple
        Everything else: text, numbers, and tuples of such.
    """
    return identity and disk_cache.key("kernel", identity, repr(layout), repr(rest))


class _UserDefined(Exception):
    """The IR has an operation whose value or derivative a user has defined.

    A user cannot redefine a function of the library, so that other operations mean the same in any process.
    """


# This function of the library is registered as users' functions are, and always as the first one.
_STOP = "stop_derivative#1"


def _plain(node: Any) -> Any:
    """A node of the IR as tuples, without the parts that no kernel depends on: places in the user's file, and the
    structure that the function returns."""
    kind: Any = type(node)
    if kind is tuple:
        return tuple([_plain(item) for item in node])
    if kind in (str, bool):
        return node
    if kind is Const:
        return "Const", repr(node.value), node.kind
    if kind is Op and "#" in node.name and node.name != _STOP:
        raise _UserDefined
    return kind.__name__, *[_plain(getattr(node, name)) for name in _fields_of(kind)]


@cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    return tuple([name for name in kind.__match_args__ if name not in ("location", "structure")])
