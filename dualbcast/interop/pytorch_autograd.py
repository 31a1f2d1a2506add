"""Operations as PyTorch's autograd records them: backward, forward mode, and the transforms of `torch.func`.

An operation with its values comes in. Out go tensors that know where they come from. Every derivative is an operation
again, so derivatives of any order are recorded in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from dualbcast.interop.pytorch_memory import numpy_dtype
from dualbcast.interop.pytorch_operations import Kept, Operation, TensorCall, add_form, batch

Tensor, Parameter = torch.Tensor, torch.nn.Parameter
_is_transforming = torch._C._are_functorch_transforms_active
_dispatch_modes, _tracing_state = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_is_recording = torch.is_grad_enabled


def call(operation: Operation, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs of an operation for tensors and numbers, recorded where PyTorch records."""
    if _is_transforming():
        return _tuple(Transformed.apply(operation, *values))
    key: list[Any] = []
    requires_grad = False
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            key += value.shape
            key += value.stride()
            key.append(value.dtype)
            if not value.is_cpu:
                key.append(value.device)
            if value.is_neg():
                key.append("negative")
            if value.requires_grad:
                requires_grad = True
        elif isinstance(value, Tensor):
            return _dispatched(operation, values)
        else:
            add_form(key, value)
    if _dispatch_modes() or _tracing_state() is not None:
        return _dispatched(operation, values)
    prepared = operation.call(tuple(key), values)
    if (requires_grad and _is_recording()) or forward_ad._current_level >= 0:
        return _apply(prepared, operation, *values)
    return prepared.run(values)


def _dispatched(operation: Operation, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs by PyTorch's dispatcher: for subclasses of tensors, and where PyTorch traces or compiles."""
    from dualbcast.interop.pytorch_compile import dispatched

    return dispatched(operation, values)


class Recorded(torch.autograd.Function):
    """A call in PyTorch's autograd, outside the transforms of `torch.func`."""

    @staticmethod
    def forward(ctx: Any, prepared: TensorCall, operation: Operation, *values: Any) -> tuple[Any, ...]:  # type: ignore[override]
        ctx.set_materialize_grads(False)
        both = None
        if not prepared.is_small:
            wrt = tuple([at for at, is_needed in enumerate(ctx.needs_input_grad[2:]) if is_needed])
            both = prepared.value_and_jacobian(wrt, values) if wrt else None
        outputs, kept, blocks = both or (prepared.run(values), None, ())
        _save(ctx, operation, values, outputs, kept, blocks)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*[value for value in values if isinstance(value, Tensor)])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        return None, *_cotangents(ctx, ctx.needs_input_grad[1:], cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _tangents(ctx, tangents[2:])


# `Function.apply` would look for transforms again, which takes as long as a kernel on few elements.
_apply: Any = super(torch.autograd.Function, Recorded).apply


class Transformed(torch.autograd.Function):
    """A call under transforms of `torch.func`, each of which takes it apart."""

    @staticmethod
    def forward(operation: Operation, *values: Any) -> tuple[Any, ...]:  # type: ignore[override]
        if any(isinstance(value, Tensor) and type(value) not in (Tensor, Parameter) for value in values):
            return _dispatched(operation, values)
        return _dispatched(operation, values) if _dispatch_modes() else operation.run(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        operation, *values = inputs
        ctx.set_materialize_grads(False)
        _save(ctx, operation, values, output)
        ctx.save_for_forward(*[value for value in values if isinstance(value, Tensor)])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        return _cotangents(ctx, ctx.needs_input_grad, cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _tangents(ctx, tangents[1:])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], operation: Operation, *values: Any) -> tuple[Any, Any]:  # type: ignore[override]
        batched, restore = batch(operation, values, in_dims[1:], info.batch_size)
        outputs = restore(call(operation, batched))
        return outputs, (0,) * len(outputs)


def _save(
    ctx: Any,
    operation: Operation,
    values: Sequence[Any],
    outputs: Sequence[Any],
    kept: Kept | None = None,
    blocks: Sequence[Any] = (),
) -> None:
    """Keep what the backward pass needs. Tensors are saved by PyTorch, so that it sees if they are changed in place."""
    ctx.operation, ctx.kept = operation, kept
    tensors = [value for value in values if isinstance(value, Tensor)]
    # The other values in their positions, with None for tensors; or None where all are tensors.
    ctx.others = None
    if len(tensors) < len(values):
        ctx.others = [None if isinstance(value, Tensor) else value for value in values]
    ctx.save_for_backward(*tensors, *blocks)
    if operation.undifferentiable:
        ctx.mark_non_differentiable(*[outputs[at] for at in operation.undifferentiable])


def _values(ctx: Any) -> tuple[Any, ...]:
    """The values of the call, and then the tensors of the Jacobian that was kept."""
    saved: tuple[Any, ...] = ctx.saved_tensors
    if ctx.others is None:
        return saved
    remaining = iter(saved)
    return *[next(remaining) if value is None else value for value in ctx.others], *remaining


def _cotangents(ctx: Any, needed: Sequence[bool], cotangents: Sequence[Any]) -> tuple[Any, ...]:
    """The cotangents of an operation, which is no tensor, and of its values, from those of the outputs."""
    op: Operation = ctx.operation
    found: list[Any] = [None] * len(needed)
    present = tuple([at for at, cotangent in enumerate(cotangents) if cotangent is not None])
    wrt = tuple([at for at, is_needed in enumerate(needed[1:]) if is_needed])
    if present and wrt:
        count, values, given = len(needed) - 1, _values(ctx), [cotangents[at] for at in present]
        values, blocks = values[:count], values[count:]
        if ctx.kept is not None and not _is_recording():
            results = ctx.kept.pull(values, blocks, given, wrt, present)
        else:
            dtypes = tuple([numpy_dtype(values[at], "an argument") for at in wrt])
            results = call(op.pullback(wrt, present, dtypes), (*values, *given))
        for at, result in zip(wrt, results, strict=True):
            found[1 + at] = result
    return tuple(found)


def _tangents(ctx: Any, tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The tangents of the outputs from those of the values."""
    op: Operation = ctx.operation
    wrt = tuple([at for at, tangent in enumerate(tangents) if tangent is not None])
    count = len(op.dtypes)
    if not wrt:
        return (None,) * count
    values = _values(ctx)[: len(tangents)]
    results = call(op.tangent(wrt), (*values, *[tangents[at] for at in wrt]))
    return tuple([None if at in op.undifferentiable else result for at, result in enumerate(results)])


def _tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)
