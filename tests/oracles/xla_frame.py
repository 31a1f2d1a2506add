"""A call frame as XLA gives it to a handler of its foreign function interface."""

from __future__ import annotations

import ctypes
from typing import Any

from dualbcast.codegen.loops.xla import API, FRAME
from dualbcast.interop import xla

__all__ = ["Frame"]


class Frame:
    """What XLA gives a handler, with functions of the interface that note their calls.

    Arrays are NumPy's, or addresses.
    """

    def __init__(
        self,
        arguments: list[Any],
        results: list[Any],
        launch: int,
        *,
        threads: int = 1,
        refuses: bool = False,
        stream: int = 0,
        device: int = 0,
    ) -> None:
        self.scheduled: list[tuple[int, int]] = []
        self.errors: list[tuple[bytes, int]] = []
        self.destroyed: list[int] = []
        function = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64))

        @function
        def create(given: Any) -> int:
            assert given[0] == 28
            self.errors.append((ctypes.string_at(given[2]), given[3] & 0xFFFFFFFF))
            return 1000 + len(self.errors)

        @function
        def destroy(given: Any) -> int:
            assert given[0] == 24
            self.destroyed.append(given[2])
            return 0

        @function
        def count(given: Any) -> int:
            assert (given[0], given[2]) == (32, 77)
            if threads == 0:
                return 5
            ctypes.c_int64.from_address(given[3]).value = threads
            return 0

        @function
        def schedule(given: Any) -> int:
            assert (given[0], given[2]) == (40, 77)
            if refuses:
                return 6
            self.scheduled.append((given[3], given[4]))
            return 0

        @function
        def stream_of(given: Any) -> int:
            assert (given[0], given[2]) == (32, 77)
            if refuses:
                return 7
            given[3] = stream
            return 0

        @function
        def ordinal(given: Any) -> int:
            assert (given[0], given[2]) == (28, 77)
            ctypes.c_int32.from_address(ctypes.addressof(given.contents) + 24).value = device
            return 0

        functions = [create, destroy, count, schedule, stream_of, ordinal]
        self.kept: list[Any] = [*functions]
        api = self.bytes(200)
        names = "error_create", "error_destroy", "num_threads", "schedule", "stream", "device_ordinal"
        for name, each in zip(names, functions, strict=True):
            self.put(api, API[name], ctypes.cast(each, ctypes.c_void_p).value)
        self.frame = self.bytes(176)
        self.put(self.frame, FRAME["api"], ctypes.addressof(api))
        self.put(self.frame, FRAME["context"], 77)
        for name, arrays in (("args", arguments), ("rets", results)):
            self.put(self.frame, FRAME[name], ctypes.addressof(self.table([self.buffer(each) for each in arrays])))
        value = self.table([launch])
        scalar = self.table([5, ctypes.addressof(value)])
        self.put(self.frame, FRAME["attrs"], ctypes.addressof(self.table([ctypes.addressof(scalar)])))

    def bytes(self, count: int) -> Any:
        self.kept.append(ctypes.create_string_buffer(count))
        return self.kept[-1]

    def table(self, numbers: list[int]) -> Any:
        self.kept.append((ctypes.c_int64 * max(1, len(numbers)))(*numbers))
        return self.kept[-1]

    def put(self, memory: Any, place: int, number: Any) -> None:
        ctypes.c_int64.from_address(ctypes.addressof(memory) + place).value = number

    def buffer(self, array: Any) -> int:
        memory = self.bytes(48)
        self.put(memory, 24, array if isinstance(array, int) else array.ctypes.data)
        return ctypes.addressof(memory)

    def run(self, handler: int | None = None) -> int:
        """Call a handler, by default that of the CPU; its error, or 0."""
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(handler or xla.handler())
        return int(call(ctypes.addressof(self.frame)))
