"""Element functions on PyTorch's tensors, without derivatives: the kernel runs on the tensors' own memory.

Comes in: an element function with the dtypes of its outputs. Goes out: an `Operation`, which runs on tensors and
numbers, and the operations that are its derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from dualbcast.graph import checkpoint_policy
from dualbcast.graph.lazy import contracted
from dualbcast.interop.pytorch.direct import Direct
from dualbcast.interop.pytorch.memory import (
    array_of,
    constant,
    device_of,
    numpy_dtype,
    on_stream,
    tensor_of,
    torch_dtype,
)
from dualbcast.program.element import Element, run_call
from dualbcast.runtime.arguments import DType, forms_of
from dualbcast.runtime.iteration_space import Shapes
from dualbcast.runtime.launch_plan import FastPath, Recent

# The outputs of a call, its Jacobian, and the tensors of that.
WithJacobian = tuple[tuple[Any, ...], "Kept", list[Any]]
# For an output of an operation: None, the position of the value to whose shape it is summed, or that shape.
Sum = int | tuple[int, ...] | None
Tensor = torch.Tensor


@dataclass(frozen=True, slots=True)
class Symbol:
    """A number that PyTorch does not know yet while it compiles; its `dtype` is `float` or `int`."""

    number: Any
    dtype: type


@lru_cache(maxsize=4096)
def operation(element: Element, dtypes: tuple[DType, ...], sums: tuple[Sum, ...] | None = None) -> Operation:
    """The operation of an element function whose outputs have these dtypes."""
    if sums is not None and not any(each is not None for each in sums):
        return operation(element, dtypes)
    return Operation(element, dtypes, sums)


class Operation:
    """An element function on tensors; see `Adapter.apply` for its values, and `operation`."""

    def __init__(self, element: Element, dtypes: tuple[DType, ...], sums: tuple[Sum, ...] | None) -> None:
        self.element, self.dtypes, self.sums = element, dtypes, sums
        self.kinds = tuple(map(torch_dtype, dtypes))
        # The positions of outputs that carry no derivative.
        self.undifferentiable = tuple([at for at in range(len(dtypes)) if at not in element.floats])
        # The operation that it was derived from, and how: the method and its arguments; None if it was not derived.
        self.origin: tuple[Any, ...] | None = None
        # Its key in graphs that PyTorch compiles, once it is in one.
        self.key = ""
        # The guards of the latest call that was not the first of its kind, what it has in common with others, and
        # whether a value requires gradients.
        self.latest: tuple[Any, Any, bool] = (None, None, False)
        self._calls: Recent[TensorCall] = Recent()
        self.paths: Recent[FastPath] = Recent()
        self._pullbacks: dict[Any, Operation] = {}
        self._tangents: dict[Any, Operation] = {}

    def pullback(self, wrt: tuple[int, ...], present: tuple[int, ...], dtypes: tuple[DType, ...]) -> Operation:
        """The cotangents of the values at `wrt`, from all values and then the cotangents of the outputs `present`.

        They are summed to the shapes of the values, and have their `dtypes`. A cotangent of an output that is summed
        has the shape of the sum, and broadcasts.
        """
        key = wrt, present
        found = self._pullbacks.get(key)
        if found is None or found.dtypes != dtypes:
            element = self.element if present == self.element.floats else self.element.select(present)
            found = self._pullbacks[key] = operation(element.derive("pullback", wrt), dtypes, wrt)
            found.came_from(self, "pullback", wrt, present, dtypes)
        return found

    def tangent(self, wrt: tuple[int, ...]) -> Operation:
        """The tangents of all outputs, from all values and then the tangents of those at `wrt`."""
        found = self._tangents.get(wrt)
        if found is None:
            element = self.element.derive("tangent", wrt)
            found = self._tangents[wrt] = operation(element, self.dtypes, self.sums)
            found.came_from(self, "tangent", wrt)
        return found

    def came_from(self, *origin: Any) -> None:
        """Remember the operation that it was derived from, and how, unless that is known."""
        if self.origin is None:
            self.origin = origin

    def find(self, values: tuple[Any, ...]) -> tuple[TensorCall | BatchedCall, bool]:
        """What calls on values of these forms have in common, and whether a value requires gradients."""
        key: list[Any] = []
        requires_grad = False
        for value in values:
            if isinstance(value, Tensor):
                key += value.shape
                key += value.stride()
                key.append(value.dtype)
                if not value.is_cpu:
                    key.append(value.device)
                if value.is_neg():
                    key.append("negative")
                requires_grad = requires_grad or value.requires_grad
            elif isinstance(value, np.ndarray):  # an array that a function has captured
                key += (type(value), value.shape, value.strides, value.dtype)
            else:
                key.append((type(value),))
        # It is unambiguous: a tensor has as many integers as it has lengths and strides, and then its dtype.
        found = self._calls.get(tuple(key))
        if found is None:
            if any(map(_is_batched, values)):
                return BatchedCall(self), requires_grad
            found = self._calls.keep(tuple(key), TensorCall(self, values))
        elif found.are_tensors and found.guarded < _MOST_GUARDS:
            # The next call is likely to be like this one, which was not the first of its kind.
            found.guarded += 1
            self.latest = guards_of(values), found, requires_grad
        return found, requires_grad

    def run(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The outputs for these tensors and numbers; PyTorch does not record it."""
        return self.find(values)[0].run(values)


# How often a call is guarded anew: where forms alternate, guards are of no use, and take longer than a key.
_MOST_GUARDS = 8


def guards_of(values: Sequence[Any]) -> Any:
    """Guards of TorchDynamo's, which check in one call of C++ what a key has, in a sixth of the time.

    They check types, dtypes, devices, lengths, strides, whether gradients are required, whether a tensor is negative or
    has no memory, and the modes of PyTorch's dispatcher. None where this version of PyTorch has no such guards.
    """
    try:
        guards = torch._C._dynamo.guards.TensorGuards(
            *values,
            dynamic_dims_sizes=[list(value.shape) for value in values],
            dynamic_dims_strides=[list(value.stride()) for value in values],
        )
        return guards if guards.check(*values) is True else None
    except (AttributeError, TypeError, RuntimeError, SystemError):
        return None


class TensorCall:
    """What calls of an operation on values of the same forms have in common.

    `is_small` says whether the values are so few that a kept Jacobian is not worth a question, `are_tensors` whether no
    value is a number, and `is_plain` whether besides there is one output, which carries derivatives.
    """

    __slots__ = (
        "_decisions",
        "_device",
        "_direct",
        "_shapes",
        "are_tensors",
        "guarded",
        "is_plain",
        "is_small",
        "operation",
        "pullbacks",
    )

    def __init__(self, operation: Operation, values: Sequence[Any]) -> None:
        element = operation.element
        self.operation, self._device = operation, device_of(values, element.names)
        self._check(values)
        self.are_tensors, self.guarded = all(isinstance(value, Tensor) for value in values), 0
        # For calls with one output, by which arguments of `forward` need cotangents: the operation for these, and that
        # again if it is not all of them.
        self.pullbacks: dict[Any, tuple[Operation, tuple[bool, ...] | None]] = {}
        self._shapes: Shapes = None
        if operation.sums is not None:
            sums = operation.sums
            self._shapes = tuple([np.shape(values[each]) if isinstance(each, int) else each for each in sums])
        with on_stream(self._device):
            call = element.prepare("parts", self._arrays(values), (), operation.dtypes, self._shapes)
            is_direct = self._device.type == "cpu" and Direct.suits(call, values, self._shapes)
            self._direct = Direct(call, values, operation.kinds) if is_direct else None
        total, mode = call.plan.geometry.total, element.options.jacobian
        self.is_small = total == 0 or checkpoint_policy.decide_without_sizes(element, total, mode) is not None
        self.is_plain = (
            self.is_small and self.are_tensors and not operation.undifferentiable and len(operation.kinds) == 1
        )
        # Whether the Jacobian is kept, by the positions of the values to differentiate in.
        self._decisions: dict[tuple[int, ...], bool] = {}

    def run(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs for values of these forms; PyTorch does not record it."""
        try:
            if self._direct is not None:
                outputs = self._direct.run(values)
                if outputs is not None:
                    return outputs
            with on_stream(self._device):
                return self._run_arrays(values)
        except RuntimeError:  # a tensor without memory of its own
            if any(map(_is_batched, values)):
                return BatchedCall(self.operation).run(values)
            self._check(values)
            raise

    def _check(self, values: Sequence[Any]) -> None:
        """Refuse tensors whose elements do not lie in memory by strides."""
        for value, name in zip(values, self.operation.element.names, strict=True):
            if isinstance(value, Tensor):
                numpy_dtype(value, name)

    def _run_arrays(self, values: Sequence[Any]) -> tuple[Any, ...]:
        operation = self.operation
        parts = operation.element.parts(self._arrays(values), operation.dtypes, self._shapes)
        # One that is the same number everywhere is in memory once.
        return tuple(
            [
                constant(y, kind, self._device) if y.ndim and not any(y.strides) else tensor_of(y)
                for y, kind in zip(parts, operation.kinds, strict=True)
            ]
        )

    def value_and_jacobian(self, wrt: tuple[int, ...], values: Sequence[Any]) -> WithJacobian | None:
        """The outputs and the Jacobian in the values at `wrt`, if to keep it is expected to be faster; else None."""
        if self.is_small or self._shapes is not None or self._decisions.get(wrt) is False:
            return None
        with on_stream(self._device):
            return self._value_and_jacobian(wrt, self._arrays(values))

    def _value_and_jacobian(self, wrt: tuple[int, ...], arrays: tuple[Any, ...]) -> WithJacobian | None:
        operation = self.operation
        element, count = operation.element, len(operation.dtypes)
        if wrt not in self._decisions:
            call = element.prepare("value_and_jacobian", arrays, wrt)
            total, compute = call.plan.geometry.total, np.dtype(call.plan.operands.signature.compute)
            known = [None if isinstance(each, np.generic | int | float) else each for each in arrays]
            mode = element.options.jacobian
            decision = checkpoint_policy.decide_by_sizes(element, wrt, known, total, compute, mode)
            # The kernel would store other dtypes.
            self._decisions[wrt] = decision.keeps and call.spec.dtypes[:count] == operation.dtypes
            if not self._decisions[wrt]:
                return None
        key = wrt, forms_of(arrays)
        try:
            results, outputs = run_call(
                operation.paths, key, arrays, (), element.prepare, "value_and_jacobian", arrays, wrt
            )
        except MemoryError:
            return None
        blocks = {(place[0], place[1]): block for place, block in results.blocks.items()}
        numbers = {place: block.constant if block.stored is None else None for place, block in blocks.items()}
        places = tuple([place for place, block in blocks.items() if block.stored is not None])
        tensors = [tensor_of(outputs[block.stored]) for block in blocks.values() if block.stored is not None]
        return tuple([tensor_of(y) for y in outputs[:count]]), Kept(numbers, places, element.label), tensors

    def _arrays(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple([array_of(value) if isinstance(value, Tensor) else value for value in values])


class BatchedCall:
    """A call on values some of which are batches of `torch.autograd`, such as cotangents of `is_grads_batched=True`."""

    is_small, are_tensors, is_plain = True, False, False

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.pullbacks: dict[Any, tuple[Operation, tuple[bool, ...] | None]] = {}

    def run(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """The outputs, which are batches as well."""
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        dims = [0 if _is_batched(value) else None for value in values]
        plain = [torch._remove_batch_dim(value, level, 1, 0) if _is_batched(value) else value for value in values]
        size = max([value.shape[0] for value, dim in zip(plain, dims, strict=True) if dim is not None])
        batched, restore = batch(self.operation, plain, dims, size)
        return tuple([torch._add_batch_dim(y, 0, level) for y in restore(self.operation.run(batched))])


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


def _is_batched(value: Any) -> bool:
    return isinstance(value, Tensor) and torch._C._functorch.is_legacy_batchedtensor(value)


def batch(
    operation: Operation, values: Sequence[Any], dims: Sequence[int | None], size: int
) -> tuple[tuple[Any, ...], Any]:
    """The values with the batch as the first axis of what they broadcast to, and what makes the outputs of a call with
    these those of the batch. A batch is one more axis to broadcast over."""
    ranks = [getattr(value, "ndim", 0) - (dim is not None) for value, dim in zip(values, dims, strict=True)]
    rank = max(ranks)
    sums = operation.sums or ()
    summed = {at for at in sums if isinstance(at, int)}
    batched = []
    for at, (value, dim) in enumerate(zip(values, dims, strict=True)):
        if dim is not None:
            value = value.movedim(dim, 0)
        elif at in summed:
            if not isinstance(value, Tensor):  # a number, whose cotangent is one number for each member of the batch
                kind, beside = operation.kinds[sums.index(at)], next(filter(_is_tensor, values))
                value = beside.new_full((), value, dtype=kind)
            value = value.expand(size, *value.shape)
        else:
            batched.append(value)
            continue
        batched.append(value[(slice(None), *[None] * (rank - ranks[at]))])
    shapes = [(size, *batched[at].shape[1 + rank - ranks[at] :]) if isinstance(at, int) else None for at in sums]

    def restore(outputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if not shapes:
            return outputs
        return tuple([y if shape is None else y.reshape(shape) for y, shape in zip(outputs, shapes, strict=True)])

    return tuple(batched), restore


class Kept(NamedTuple):
    """A Jacobian that the forward pass keeps: by output and value the number that a block is everywhere, or None for
    one that is a tensor. The tensors are in the order of `places`."""

    numbers: dict[tuple[int, int], float | None]
    places: tuple[tuple[int, int], ...]
    label: str

    def pull(
        self,
        values: Sequence[Any],
        blocks: Sequence[Any],
        cotangents: Sequence[Any],
        wrt: tuple[int, ...],
        present: tuple[int, ...],
    ) -> tuple[Any, ...]:
        """The cotangents of the values at `wrt` from those of the outputs `present`; `blocks` are the tensors."""
        pattern = tuple([tuple([self.numbers[i, p] for p in wrt]) for i in present])
        stored = dict(zip(self.places, blocks, strict=True))
        taken = [stored[i, p] for i in present for p in wrt if (i, p) in stored]
        dtypes = tuple([numpy_dtype(values[at], "an argument") for at in wrt])
        shapes = tuple([tuple(values[at].shape) for at in wrt])
        return operation(contracted(pattern, self.label), dtypes, shapes).run((*taken, *cotangents))
