"""The memory of a GPU, modelled by that of the host."""

from __future__ import annotations


class Memory(bytearray):
    """cupy.cuda.MemoryPointer: memory that an offset can be added to."""

    def __add__(self, offset: int) -> memoryview:  # type: ignore[override]
        return memoryview(self)[offset:]
