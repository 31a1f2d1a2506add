"""Loops around kernels and beside them, in a small language of their own (`builder`, `codegen.values`).

Comes in: sizes of elements and numbers of arguments. Goes out: by functions `write_…`, a loop in LLVM's language, of
which `runtime.cpu.loader.compiled` makes machine code.
"""

from itertools import accumulate

# The status that a loop returns where an input is misaligned, and the kernel has not run.
MISALIGNED = 1
# The bytes of a line of the processor's cache.
LINE = 64


def places_of(sizes: list[int]) -> list[int]:
    """Where arrays of so many bytes begin that lie one after the other, each at a line of the cache; and the end."""
    return list(accumulate([-(-size // LINE) * LINE for size in sizes], initial=0))
