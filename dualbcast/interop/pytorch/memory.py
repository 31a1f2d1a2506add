"""PyTorch's tensors as arrays of NumPy's or CuPy's that share their memory, and back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import ml_dtypes
import numpy as np
import torch

from dualbcast.codegen.cuda.build import optional
from dualbcast.errors import ArgumentError, DTypeError
from dualbcast.runtime.arguments import STORAGES, DType

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
_NUMPY = {
    torch.bfloat16: _BFLOAT16,
    **{getattr(torch, name): np.dtype(name) for name in STORAGES},
}
_TORCH = {dtype: kind for kind, dtype in _NUMPY.items()}


def numpy_dtype(tensor: Any, name: str) -> DType:
    """The dtype of a tensor's elements as NumPy's; a `DTypeError` or an `ArgumentError` where none is supported."""
    kind = tensor.dtype
    if tensor.layout is not torch.strided:
        raise ArgumentError(f"{name} is a tensor of layout {tensor.layout}. Pass {name}.to_dense()")
    dtype: DType | None = _NUMPY.get(kind)
    if dtype is None:
        hint = f"Pass {name}.to(torch.float32), or another of the float, integer and bool dtypes."
        if kind.is_complex:
            hint = f"Pass {name}.real and {name}.imag as two arguments."
        elif tensor.is_quantized:
            hint = f"Pass {name}.dequantize()."
        raise DTypeError(f"{name} has dtype {kind}, which is not supported. {hint}")
    return dtype


def numpy_dtype_of(name: str) -> DType:
    """The dtype of NumPy's with this name."""
    return _BFLOAT16 if name == "bfloat16" else np.dtype(name)


def torch_dtype(dtype: DType) -> torch.dtype:
    """A dtype of NumPy's as PyTorch's."""
    return _TORCH[dtype]


def array_of(tensor: Any) -> Any:
    """An array of NumPy's, or for a tensor on a GPU of CuPy's, that shares the memory of a tensor."""
    # A tensor may stand for the negative of what is in memory.
    tensor = tensor.detach().resolve_neg()
    is_bfloat16 = tensor.dtype is torch.bfloat16
    if is_bfloat16:
        tensor = tensor.view(torch.int16)
    array = tensor.numpy() if tensor.is_cpu else _cupy().from_dlpack(tensor)
    return array.view(_BFLOAT16) if is_bfloat16 else array


def tensor_of(array: Any) -> Any:
    """A tensor that shares the memory of an array of NumPy's or CuPy's, or a copy of a NumPy scalar."""
    if isinstance(array, np.generic):
        array = np.asarray(array)
    is_bfloat16 = array.dtype == _BFLOAT16
    if is_bfloat16:
        array = array.view(np.int16)
    tensor = torch.from_numpy(array) if type(array) is np.ndarray else torch.from_dlpack(array)
    return tensor.view(torch.bfloat16) if is_bfloat16 else tensor


def constant(array: Any, kind: torch.dtype, device: Any) -> Any:
    """A tensor of an array's one number, which is in memory once."""
    number = float(array.reshape(-1)[0]) if array.size else 0.0
    return torch.full((1,), number, dtype=kind, device=device).as_strided(array.shape, (0,) * array.ndim)


def device_of(values: Sequence[Any], names: Sequence[str]) -> Any:
    """The device of the tensors among the values of a call; an `ArgumentError` where they are on several."""
    found: dict[Any, str] = {}
    for value, name in zip(values, names, strict=True):
        if isinstance(value, torch.Tensor):
            found.setdefault(value.device, name)
    devices = [*found]
    if len(devices) > 1:
        first, second = devices[:2]
        raise ArgumentError(
            f"{found[first]} is on {first} and {found[second]} is on {second}: the tensors of one call are on one "
            f"device. Pass {found[second]}.to({str(first)!r})."
        )
    if devices and devices[0].type not in ("cpu", "cuda"):
        name = found[devices[0]]
        raise ArgumentError(f"{name} is on {devices[0]}, where no kernel can run. Pass {name}.cpu().")
    return devices[0] if devices else torch.device("cpu")


def on_stream(device: Any) -> AbstractContextManager[Any]:
    """A context in which CuPy works on PyTorch's current stream of a device; none needed on a CPU."""
    if device.type == "cpu":
        return nullcontext()
    cupy = _cupy()
    current = torch.cuda.current_stream(device)
    stack: AbstractContextManager[Any] = _Streams(cupy, device.index, current.cuda_stream)
    return stack


class _Streams:
    """CuPy's device and stream, for a block."""

    def __init__(self, cupy: Any, device: int, stream: int) -> None:
        self._device, self._stream = cupy.cuda.Device(device), cupy.cuda.ExternalStream(stream, device)

    def __enter__(self) -> None:
        self._device.__enter__()
        self._stream.__enter__()

    def __exit__(self, *raised: Any) -> None:
        self._stream.__exit__(*raised)
        self._device.__exit__(*raised)


def _cupy() -> Any:
    return sys.modules.get("cupy") or optional("cupy", "CuPy", "A call on tensors on a GPU")
