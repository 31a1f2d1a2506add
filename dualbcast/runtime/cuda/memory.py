"""Memory of CUDA devices: the outputs of a call in one allocation."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from dualbcast.runtime.arguments import Array, DType

# What CuPy's pool rounds to, and more than any access needs.
_ALIGNMENT = 512


class SharedBlock(NamedTuple):
    """Arrays of one shape in one block of memory, whose size this is: for each its type and where it begins."""

    shape: tuple[int, ...]
    size: int
    kinds: tuple[type, ...]
    places: tuple[int, ...]


@lru_cache
def shared_block(shape: tuple[int, ...], dtypes: tuple[DType, ...]) -> SharedBlock:
    """How arrays of a shape share a block."""
    sizes = [-(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT for dtype in dtypes]
    # CuPy makes an array of a type in less time than of a dtype.
    kinds = tuple([dtype.type for dtype in dtypes])
    return SharedBlock(shape, sum(sizes), kinds, tuple(itertools.accumulate([0, *sizes[:-1]])))


class Reserved(Sequence[Array]):
    """Arrays whose memory is there already, while the objects are made at the first look.

    To make the objects takes as long as the launch. The kernel takes the `pointers` and need not wait for them.
    """

    __slots__ = ("_arrays", "_kinds", "_shape", "pointers")

    def __init__(self, shape: tuple[int, ...], kinds: tuple[type, ...], pointers: list[Any]) -> None:
        self._shape, self._kinds, self.pointers = shape, kinds, pointers
        self._arrays: list[Array] | None = None

    def __len__(self) -> int:
        return len(self.pointers)

    def __reduce__(self) -> tuple[Any, ...]:
        # In a copy or a pickle the arrays have memory of their own; addresses have no meaning there.
        return tuple, (tuple(self),)

    def __getitem__(self, at: Any) -> Any:
        if self._arrays is None and isinstance(at, slice):
            return Reserved(self._shape, self._kinds[at], self.pointers[at])
        return self._made()[at]

    def __iter__(self) -> Iterator[Array]:
        return iter(self._made())  # a sequence's own asks for one after the other, which takes longer

    def _made(self) -> list[Array]:
        if self._arrays is None:
            make = sys.modules["cupy"].ndarray
            self._arrays = [*map(make, itertools.repeat(self._shape), self._kinds, self.pointers)]
        return self._arrays


def reserve(wanted: SharedBlock) -> Reserved:
    """Uninitialised contiguous CuPy arrays, in one block of CuPy's current pool. One that is kept keeps the block.

    CuPy's `MemoryError` says how much is taken; a note says what the call needs and what may help.
    """
    if not wanted.kinds:
        return Reserved(wanted.shape, (), [])
    try:
        memory = sys.modules["cupy"].cuda.alloc(wanted.size)
    except MemoryError as error:
        error.add_note(
            f"The outputs of the call take {wanted.size:,} bytes on the GPU. What CuPy keeps of arrays that are gone "
            "is given back by cupy.get_default_memory_pool().free_all_blocks(); wrt= asks for fewer partial "
            "derivatives."
        )
        raise
    return Reserved(wanted.shape, wanted.kinds, [memory + at if at else memory for at in wanted.places])
