"""The way from PyTorch's tensors on a CPU to a kernel by their addresses: no array is made around them.

Comes in: a call that is ready to run. Goes out: the outputs of calls on tensors of the same forms.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from dualbcast.interop.pytorch.memory import tensor_of
from dualbcast.program.element import Call
from dualbcast.runtime.arguments import host_addresses, on_host
from dualbcast.runtime.buffer_pool import POOL
from dualbcast.runtime.cpu.address_call import AddressCall
from dualbcast.runtime.iteration_space import Shapes
from dualbcast.runtime.launch_plan import is_pooled

Tensor, _empty_like, _data_ptr = torch.Tensor, torch.empty_like, torch.Tensor.data_ptr


class Direct:
    """The calls on tensors of the same forms as those of one call."""

    __slots__ = ("_call", "_dtypes", "_memory", "_names", "_numbers", "_signature", "_templates")

    @staticmethod
    def suits(call: Call, values: Sequence[Any], shapes: Shapes) -> bool:
        """Whether the kernel of a call reads all values in place, and writes the outputs as they are returned."""
        spec, planned, geometry = call.spec, call.plan, call.plan.geometry
        numbers = planned.operands.numbers
        read = [array for at, array in enumerate(planned.operands.arrays) if at not in numbers]
        blocks = spec.product.blocks.values()
        return bool(
            call.takes_addresses
            and all(block.stored == at for at, block in enumerate(blocks))
            and {None, geometry.shape}.issuperset(shapes or ())
            and not any(isinstance(value, Tensor) and value.is_neg() for value in values)
            and list(map(pointer_of, filter(_is_array, values))) == [array.ctypes.data for array in read]
        )

    def __init__(self, call: Call, values: Sequence[Any], kinds: Sequence[torch.dtype]) -> None:
        operands, geometry = call.plan.operands, call.plan.geometry
        itemsizes = tuple([array.itemsize for array in operands.arrays])
        self._call = AddressCall(call.cpu_kernel(), geometry, itemsizes, len(kinds))
        self._names, self._signature = operands.names, operands.signature
        self._numbers = tuple([at for at, value in enumerate(values) if not isinstance(value, Tensor)])
        self._memory, self._dtypes = geometry.memory, call.plan.dtypes
        # Outputs for which the pool has memory are made anew each time; None says so. The others are made from tensors
        # of the same strides, which takes half the time that it takes from a shape.
        self._templates: list[Any] | None = None
        if not is_pooled(geometry, len(kinds)):
            lengths, axes = self._memory
            templates = [torch.empty(lengths, dtype=kind, device="cpu") for kind in kinds]
            self._templates = [each if axes is None else each.permute(axes) for each in templates]

    def run(self, values: Sequence[Any]) -> tuple[Any, ...] | None:
        """The outputs; None where the kernel cannot read a value in place, and has not run."""
        outputs = self._pooled() if self._templates is None else tuple(map(_empty_like, self._templates))
        if self._numbers:
            given = list(values)
            for at in self._numbers:
                given[at] = on_host(values[at], self._signature.tokens[at], self._signature, self._names[at])
            addresses = [*map(pointer_of, given), *map(_data_ptr, outputs)]
        else:
            addresses = [*map(_data_ptr, values), *map(_data_ptr, outputs)]
        return outputs if self._call.run(addresses) else None

    def _pooled(self) -> tuple[Any, ...]:
        """Outputs with memory of the pool, since fresh memory takes longer than many kernels."""
        lengths, axes = self._memory
        outputs = [tensor_of(array) for array in POOL.empties(lengths, self._dtypes)]
        return tuple(outputs if axes is None else [y.permute(axes) for y in outputs])


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor | np.ndarray)


def pointer_of(array: Any) -> int:
    """The address of a tensor's elements, or of those of an array of NumPy's."""
    address: int = array.data_ptr() if isinstance(array, Tensor) else host_addresses((array,))[0]
    return address
