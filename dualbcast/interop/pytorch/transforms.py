"""What is below the transforms of `torch.func`: the numbers of tensors while a call is differentiated or batched."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch._C import _functorch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from dualbcast.interop.pytorch.memory import array_of


def arrays_below(values: Sequence[Any], whole: Collection[int] = ()) -> tuple[Any, ...] | None:
    """The values with arrays of NumPy's in place of tensors; the batches of `vmap` are their first axes.

    The values at `whole` do not broadcast with the others. None where a tensor has no numbers in the host's memory.
    """
    found: list[tuple[Any, dict[int, int]]] = []
    for value in values:
        batches: dict[int, int] = {}  # by the level of a transform, the axis among those that the next one sees
        while isinstance(value, torch.Tensor) and _functorch.is_functorch_wrapped_tensor(value):
            if _functorch.is_batchedtensor(value):
                batches[_functorch.maybe_get_level(value)] = _functorch.maybe_get_bdim(value)
            elif not _functorch.is_gradtrackingtensor(value):
                return None
            value = _functorch.get_unwrapped(value)
        if isinstance(value, torch.Tensor):
            is_plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_cpu
            if not is_plain or _functorch.is_legacy_batchedtensor(value):
                return None
            with temporarily_clear_interpreter_stack():
                value = array_of(value)
        found.append((value, dict(sorted(batches.items()))))
    levels = sorted({level for _, batches in found for level in batches})
    if not levels:
        return tuple([value for value, _ in found])
    rank = max(np.ndim(value) - len(batches) for at, (value, batches) in enumerate(found) if at not in whole)
    arrays = []
    for at, (value, batches) in enumerate(found):
        if np.ndim(value) and at not in whole:
            for place, axis in enumerate(batches.values()):
                value = np.moveaxis(value, place + axis, place)
            lengths = dict(zip(batches, value.shape, strict=False))
            own = value.shape[len(batches) :]
            value = value.reshape(*[lengths.get(level, 1) for level in levels], *[1] * (rank - len(own)), *own)
        arrays.append(value)
    return tuple(arrays)
