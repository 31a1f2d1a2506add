"""Launches of a kernel on addresses, for arrays of other libraries: no array of NumPy's is made around their memory.

Comes in: a kernel with the geometry of a call whose arrays have known forms. Goes out: a call of that kernel on
addresses, on as many threads as a call on NumPy's arrays takes.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from operator import and_
from time import perf_counter_ns

from dualbcast.codegen.llvm.target import STOPPED
from dualbcast.codegen.loops.calls import write_address_call
from dualbcast.runtime.cpu import interrupt, policy
from dualbcast.runtime.cpu.kernel import CpuKernel, run_ranges
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.iteration_space import Geometry

_PROTOTYPE = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p)


class AddressCall:
    """A kernel with all its arguments but addresses; for geometries without `split` and `packing`.

    `itemsizes` are the bytes of an element of each input, which its address must be a multiple of.
    """

    __slots__ = ("_head", "_ints", "_is_one_range", "_kernel", "_masks", "_numbers", "_pack", "_run", "_total")

    def __init__(self, kernel: CpuKernel, geometry: Geometry, itemsizes: tuple[int, ...], outputs: int) -> None:
        self._kernel, self._total, self._ints = kernel, geometry.total, geometry.ints
        # So few elements are one range at any pace, and no clock is read for them.
        self._is_one_range = geometry.total < 2 * policy.ALIGNMENT
        head = kernel.address(geometry.total), geometry.total, *geometry.ints
        self._numbers = (ctypes.c_int64 * len(head))(*head)
        self._head = ctypes.addressof(self._numbers)
        self._masks = masks = tuple([size - 1 for size in itemsizes])
        self._run = _PROTOTYPE(compiled("address_call", write_address_call, len(geometry.ints), masks, outputs))
        self._pack = struct.Struct(f"{len(masks) + outputs}q").pack

    def run(self, addresses: Sequence[int]) -> bool:
        """Run the kernel on arrays at these addresses, of inputs and then of outputs, without the GIL.

        It is False where the address of an input is no multiple of its itemsize, and nothing has run.
        """
        if interrupt.cancelled:
            interrupt.begin()
        threads = 1 if self._is_one_range else policy.threads_for(self._kernel.pace, self._total)
        if threads > 1:
            if any(map(and_, addresses, self._masks)):
                return False
            run_ranges(self._kernel, self._total, self._ints, addresses, threads)
            return True
        if self._is_one_range:
            status = self._run(self._head, self._pack(*addresses))
        else:
            began = perf_counter_ns()
            status = self._run(self._head, self._pack(*addresses))
            if perf_counter_ns() - began >= policy.THREAD_NS:
                self._kernel.pace.note(began, 1.0, self._total)
        if status == STOPPED:
            raise interrupt.raised()
        return not status
