"""The theoretical occupancy of kernels: how many of their warps fit on a multiprocessor; no device is needed."""

from __future__ import annotations

from dualbcast.codegen.cuda.kernel_shell import THREADS_PER_BLOCK
from dualbcast.errors import BackendError

WARP = 32
# Registers are allotted to a warp in units of so many a thread.
_UNIT = 8

# Per compute capability: resident warps, resident blocks and bytes of shared memory of a multiprocessor; from the CUDA
# C++ Programming Guide, "Technical Specifications per Compute Capability". All have 64 K registers in four partitions.
_LIMITS = {
    (7, 0): (64, 32, 98304),
    (7, 2): (64, 32, 98304),
    (7, 5): (32, 16, 65536),
    (8, 0): (64, 32, 167936),
    (8, 6): (48, 16, 102400),
    (8, 7): (48, 16, 167936),
    (8, 9): (48, 24, 102400),
    (9, 0): (64, 32, 233472),
    (10, 0): (64, 32, 233472),
    (10, 3): (64, 32, 233472),
    (11, 0): (48, 24, 233472),
    (12, 0): (48, 24, 102400),
    (12, 1): (48, 24, 102400),
}


def occupancy(cc: tuple[int, int], registers: int, block_size: int, shared: int = 0) -> float:
    """The theoretical occupancy: the share of a multiprocessor's warp slots that resident blocks can fill.

    It is from 0 (such a block does not fit) to 1. `registers` are of a thread, `shared` are bytes of a block. A
    BackendError says that the limits of the compute capability are not known.
    """
    if cc not in _LIMITS:
        known = ", ".join(f"{major}.{minor}" for major, minor in _LIMITS)
        raise BackendError(f"No occupancy is known for compute capability {cc[0]}.{cc[1]}, only for {known}.")
    if block_size < 1:
        raise ValueError("a block has at least one thread")
    warps = -(-block_size // WARP)
    return _resident_blocks(cc, registers, warps, shared) * warps / _LIMITS[cc][0]


def _resident_blocks(cc: tuple[int, int], registers: int, warps: int, shared: int = 0) -> int:
    """How many blocks of so many warps fit on a multiprocessor, by the rules of the CUDA toolkit's occupancy calculator
    (`cuda_occupancy.h`): a warp's registers are allotted from one of four equal partitions; a block's shared memory in
    units of 128 bytes (256 before 8.0), and from 8.0 on the driver takes 1 KiB more of it.
    """
    max_warps, max_blocks, shared_memory = _LIMITS[cc]
    allotted = _round_up(max(registers, 1), _UNIT) * WARP
    if warps > 32 or registers > 255 or allotted * _round_up(warps, 4) > 65536:
        return 0
    blocks = min(max_blocks, max_warps // warps, 4 * (16384 // allotted) // warps)
    taken = _round_up(shared + 1024, 128) if cc >= (8, 0) else _round_up(shared, 256)
    return min(blocks, shared_memory // taken) if taken else blocks


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def block_size(cc: tuple[int, int], registers: int) -> int:
    """The threads of a block: THREADS_PER_BLOCK, or half of them where a multiprocessor then has room for more warps:
    with 72 registers 3 blocks of 8 warps fit, or 7 of 4."""
    if cc not in _LIMITS:  # a GPU that is newer than the table
        return THREADS_PER_BLOCK
    return max((THREADS_PER_BLOCK, THREADS_PER_BLOCK // 2), key=lambda size: occupancy(cc, registers, size))


def roomier(cc: tuple[int, int], registers: int) -> int | None:
    """How many blocks of THREADS_PER_BLOCK would fit on a multiprocessor if a kernel took one unit of registers less;
    None if no more than do now."""
    if cc not in _LIMITS:
        return None
    now, then = (_resident_blocks(cc, each, THREADS_PER_BLOCK // WARP) for each in (registers, registers - _UNIT))
    return then if then > now else None
