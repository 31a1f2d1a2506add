"""`Batched`: a Variable that stands for one element of a batch, inside `vmap`.

Comes in: a Variable with the batch along its first axis. Goes out: a Variable that looks as if it had no such axis.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.graph.variable import Variable


class Batched(Variable):
    """A Variable without the first axis of `inner`. `level` is the number of the call of `vmap`: no other call has it,
    and calls inside it have higher ones."""

    __slots__ = ("inner", "level")

    inner: Variable
    level: int

    @property
    def shape(self) -> tuple[int, ...]:
        return self.inner.shape[1:]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.inner.dtype

    @property
    def namespace(self) -> Any:
        return self.inner.namespace

    @property
    def array(self) -> Any:
        raise ArgumentError(
            "inside vmap a Variable has a value for each element of the batch, so that Python cannot read one. Write "
            "np.where(…), or a BroadcastFunction with an `if`, for a choice, and graph.take(array, i) for elements of "
            "a plain array; call what needs values outside of vmap"
        )

    def __repr__(self) -> str:
        return f"<Variable inside vmap, of shape {self.shape} and dtype {self.dtype.name}>"


def batched(inner: Variable, level: int) -> Batched:
    """The Variable that stands for an element along the first axis of another one."""
    new = object.__new__(Batched)
    new.inner, new.level = inner, level
    new.tracked, new.serial = inner.tracked, inner.serial
    new._value, new.node, new.index, new.source, new.frozen = inner, None, 0, None, None
    return new


def level_of(values: Iterable[Any]) -> int:
    """The highest level of the values; 0 if none is batched."""
    return max([each.level for each in values if type(each) is Batched], default=0)


def is_at(value: Any, level: int) -> bool:
    """Whether a value is batched at this level."""
    return type(value) is Batched and value.level == level
