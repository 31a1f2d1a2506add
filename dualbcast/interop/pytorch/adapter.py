"""PyTorch's tensors as arguments of a BroadcastFunction: results are tensors of the same device, and autograd records
them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from dualbcast.adapters import Adapter, register
from dualbcast.interop.bridge import bridged
from dualbcast.interop.pytorch.autograd import call, is_traced
from dualbcast.interop.pytorch.memory import numpy_dtype, torch_dtype
from dualbcast.interop.pytorch.operations import Symbol, operation
from dualbcast.interop.pytorch.transforms import arrays_below
from dualbcast.interop.pytorch.whole_arrays import Bridged
from dualbcast.program.element import Element
from dualbcast.runtime.arguments import DType


class TorchAdapter(Adapter):
    """For `torch.Tensor` and its subclasses, such as `torch.nn.Parameter`."""

    name, arrays = "PyTorch", "tensor"

    def token(self, value: Any, name: str) -> Any:
        return value.dtype if isinstance(value, Symbol) else numpy_dtype(value, name)

    # No method in Python: it is called for every tensor of every call.
    form = staticmethod(attrgetter("dtype"))  # type: ignore[assignment]

    def shape(self, values: tuple[Any, ...]) -> tuple[int, ...]:
        return tuple(torch.broadcast_shapes(*[tuple(getattr(value, "shape", ())) for value in values]))

    def apply(
        self,
        element: Element,
        values: tuple[Any, ...],
        dtypes: tuple[DType, ...],
        sums: tuple[int | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        return call(operation(element, dtypes, sums), values)

    def bound(self, element: Element, dtypes: tuple[DType, ...]) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        return partial(call, operation(element, dtypes))

    def on_host(self, element: Element, values: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any] | None:
        arrays = None if is_traced() else arrays_below(values, element.whole)
        return None if arrays is None else (arrays, None)

    def with_whole(self, function: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
        made, tensors, results = bridged(self, function, args, named)
        return results.pack(Bridged.apply(made, *tensors))

    def cast(self, value: Any, dtype: DType, name: str) -> Any:
        if not isinstance(value, torch.Tensor):
            return torch.as_tensor(value, dtype=torch_dtype(dtype))
        numpy_dtype(value, name)
        return value.to(torch_dtype(dtype))

    def complex_of(self, real: Any, imag: Any) -> Any:
        dtype = torch.promote_types(torch.promote_types(real.dtype, imag.dtype), torch.float32)
        return torch.complex(real.to(dtype), imag.to(dtype))

    def stack(self, blocks: Sequence[Any]) -> Any:
        return torch.stack(tuple(blocks), dim=-1)


register(TorchAdapter(), torch.Tensor, Symbol)
