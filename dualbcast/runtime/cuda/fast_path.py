"""The fast path on a GPU: from CuPy arrays of known forms straight to the launch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualbcast.runtime.arguments import Array, Operands
from dualbcast.runtime.cuda.kernel import CudaKernel
from dualbcast.runtime.cuda.launch import WIDEST_ACCESS, prepared
from dualbcast.runtime.cuda.memory import allocate, reserve, shared_block
from dualbcast.runtime.launch_plan import Plan, aside_of, fresh, summed


class _Ready(NamedTuple):
    """The kernel as it is loaded on a device, its launch, and the bits that no address may have."""

    function: Any
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    ints: tuple[Any, ...]
    mask: int


class CudaFastPath:
    """The fast path of calls whose arguments have the same forms (`forms_of`) as those of one that was made.

    Forms do not say where arrays are: there is one path for all devices, with the kernel as each has it.

    Attributes
    ----------
    results
        The caller's own object.
    """

    __slots__ = ("_arrays", "_block", "_converted", "_fit", "_geometry", "_planned", "_ready", "_shapes", "results")

    def __init__(self, planned: Plan, kernel: CudaKernel, results: Any, earlier: object) -> None:
        operands, geometry = planned.operands, planned.geometry
        self._planned = planned.dtypes, operands.compute
        self._geometry, self.results = geometry, results
        self._fit, self._shapes = planned.fit_of_outputs(), planned.shapes_to_finish()
        self._converted = tuple([(at, _maker(operands, at)) for at in operands.numbers])
        self._arrays = tuple([at for at in range(len(operands.arrays)) if at not in operands.numbers])
        # Of new outputs that are no sums and not transposed.
        lengths, axes = geometry.memory
        plain = geometry.split is None and axes is None and geometry.total
        self._block = shared_block(lengths, tuple(planned.dtypes)) if plain else None
        device = operands.arrays[self._arrays[0]].data.device_id
        itemsizes = [operands.arrays[at].itemsize for at in self._arrays]
        widest = WIDEST_ACCESS if kernel.source.layout.lanes > 1 else max(itemsizes)
        launch = prepared(kernel, geometry.sizes, geometry.strides)
        self._ready: dict[int, _Ready] = dict(earlier._ready) if isinstance(earlier, CudaFastPath) else {}
        self._ready[device] = _Ready(kernel.functions[device], *launch, widest - 1)

    @staticmethod
    def of(
        planned: Plan, values: Sequence[Any], kernel: CudaKernel, results: Any, earlier: object = None
    ) -> CudaFastPath | None:
        """The fast path of a call that has run; None where the plan is not repeatable, or an array was converted.

        `earlier` is the path that did not serve the call, for arrays on another device.
        """
        operands = planned.operands
        pairs = zip(values, operands.arrays, strict=True)
        copied = [at for at, (x, array) in enumerate(pairs) if x is not array and at not in operands.numbers]
        if copied or len(operands.numbers) == len(values) or not planned.is_repeatable():
            return None
        return CudaFastPath(planned, kernel, results, earlier)

    def run(self, values: tuple[Array, ...], out: tuple[Array, ...] = ()) -> Sequence[Array] | None:
        """Start the kernel on arguments of these forms, and on arrays to write to where the first call had such.

        Returns
        -------
        sequence of array or None
            Its outputs; None where it cannot read or write the arrays in place, and nothing has run.
        """
        cupy = sys.modules["cupy"]
        arrays: Sequence[Array] = values
        if self._converted:
            every = list(values)
            try:
                for at, make in self._converted:
                    every[at] = make(every[at])
            except OverflowError:
                return None  # the longer way has a message for it
            arrays, values = [values[at] for at in self._arrays], tuple(every)
        device, bits = arrays[0].data.device_id, 0
        for x in (*arrays, *out):
            memory = x.data
            if memory.device_id != device:
                return None
            bits |= memory.ptr
        ready = self._ready.get(device)
        if ready is None or bits & ready.mask:
            return None
        if cupy.cuda.runtime.getDevice() == device:
            return self._launch(cupy, ready, values, out)
        with cupy.cuda.Device(device):
            return self._launch(cupy, ready, values, out)

    def _launch(
        self, cupy: Any, ready: _Ready, values: tuple[Any, ...], out: tuple[Array, ...]
    ) -> Sequence[Array] | None:
        geometry, (dtypes, compute) = self._geometry, self._planned
        outputs: Sequence[Array]
        targets: Sequence[Any]
        if self._fit is None and self._block is not None:
            if self.results.may_wait:
                outputs = reserve(self._block)
                targets = outputs.pointers
            else:
                outputs = targets = allocate(self._block)
        elif self._fit is None:
            outputs, targets = fresh(geometry, dtypes, compute, cupy)
        else:
            if aside_of(self._fit, tuple([0 if isinstance(x, np.generic) else x.data.ptr for x in (*values, *out)])):
                return None
            outputs = targets = out
        # CuPy takes an array, or memory, for an address, faster than a number.
        ready.function(ready.grid, ready.block, (*ready.ints, *values, *targets))
        return (
            outputs if self._shapes is None else summed(geometry, self._shapes, dtypes, tuple(outputs), tuple(targets))
        )


def _maker(operands: Operands, at: int) -> Callable[[Any], Any]:
    """A function from a number to the argument that `launch.by_value` would make of it."""
    array = operands.arrays[at]
    if isinstance(operands.signature.tokens[at], type):
        make: Callable[[Any], Any] = array.dtype.type
        return make
    return _bits if array.dtype.name == "bfloat16" else _itself


def _bits(number: Any) -> Any:
    return number.view(np.uint16)


def _itself(number: Any) -> Any:
    return number
