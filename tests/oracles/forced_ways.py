"""Differentiation made to work in one way: the order of elimination, and the variables that branches and loops are
differentiated in. Otherwise it takes what needs the fewest operations.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

from dualbcast.autodiff import differentiate, eliminate
from dualbcast.autodiff.linearize import Region
from dualbcast.program import derived_functions, products

__all__ = ["WAYS", "forced"]


class _ManySources(Region):
    """A region that seems to have more sources than a branch or a loop can read variables."""

    def between(self, ends: Iterable[int], stops: Container[int] = ()) -> tuple[set[int], set[int]]:
        inner, sources = super().between(ends, stops)
        return inner, sources | {-1 - at for at in range(1000)}


def _in_one_order(name: str) -> Iterator[Any]:
    yield mock.patch.object(eliminate, "_ORDERS", {name: eliminate._ORDERS[name]})


def _in(is_local: bool) -> Iterator[Any]:
    kind, locally = differentiate._Differentiation, differentiate._Locally(is_local, is_local)

    def made(function: Any, directions: Any, names: Any, _: Any, *at_once: bool) -> Any:
        return kind(function, directions, names, locally, *at_once)

    yield mock.patch.object(differentiate, "_Differentiation", made)
    if is_local:
        yield mock.patch.object(differentiate, "Region", _ManySources)


def _at_once() -> Iterator[Any]:
    whole = derived_functions.differentiate

    def at_once(*args: Any, **options: Any) -> Any:
        return whole(*args, **{**options, "at_once": True})

    yield mock.patch.object(derived_functions, "differentiate", at_once)


WAYS: Mapping[str, Callable[[], Iterable[Any]]] = {
    "natural": tuple,
    **{name: partial(_in_one_order, name) for name in eliminate._ORDERS},
    "in the sources": partial(_in, False),
    "in variables": partial(_in, True),
    "at once": _at_once,
}


@contextmanager
def forced(way: str) -> Iterator[None]:
    """Work in one of `WAYS`; nothing that was made in another one is used."""
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(products, "identity", return_value=""))
        for patch in WAYS[way]():
            patches.enter_context(patch)
        yield
