"""The launches whose outputs are stored past the cache.

A store to memory that is not in the cache reads the line first, and drives out what inputs would be read from; a
streaming store of a whole line does neither.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
from collections.abc import Sequence
from functools import cache as once

from dualbcast.codegen.llvm.target import features
from dualbcast.kernel_spec import Layout
from dualbcast.runtime.cpu.threads import allowed_cpus

__all__ = ["goes_past_the_cache", "room"]

# The most bytes of the last-level cache for each CPU that the process may use: a virtual machine sees a cache that
# others use too. More outputs than `_MANY_OUTPUTS` are streamed from half the room on. The figures are in
# docs/decisions/044-room-in-the-cache.md.
_CACHE_PER_CPU = 1 << 23
_MANY_OUTPUTS = 24


def goes_past_the_cache(layout: Layout, total: int, itemsizes: Sequence[int], inputs: int) -> bool:
    """Whether outputs of a launch are streamed: it moves more than the cache has room for, and stores vectors.

    Parameters
    ----------
    layout : Layout
        Of the kernel.
    total : int
        The number of elements.
    itemsizes : sequence of int
        The bytes of an element of each argument, inputs first.
    inputs : int
        How many of them are inputs.
    """
    patterns = [layout.classes[which] for which in layout.which]
    moved = total * sum(itertools.compress(itemsizes, ["0" not in pattern for pattern in patterns]))
    # Sums stay in the cache.
    stored = [pattern for pattern in patterns[inputs:] if "0" not in pattern]
    most = room() // 2 if len(stored) > _MANY_OUTPUTS else room()
    return moved > most and _stores_lines() and bool(stored) and all(pattern.endswith("1") for pattern in stored)


def room() -> int:
    """The bytes that may be thought to stay in the cache from one launch to the next."""
    return min(_last_level_cache(), _CACHE_PER_CPU * allowed_cpus())


@once
def _last_level_cache() -> int:
    """The bytes of the processor's largest cache, as far as the system tells."""
    import glob

    sizes = []
    for path in glob.glob("/sys/devices/system/cpu/cpu0/cache/index*/size"):
        with contextlib.suppress(OSError, ValueError), open(path) as file:
            sizes.append(int(file.read().strip().removesuffix("K")) << 10)
    return max(sizes, default=1 << 25)


@once
def _stores_lines() -> bool:
    """Whether the processor has vectors as long as a line of its cache."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return False
    return "avx512f" in features()
