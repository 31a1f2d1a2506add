"""Operations as PyTorch's autograd records them: backward, forward mode, and the transforms of `torch.func`.

An operation with its values comes in. Out go tensors that know where they come from. Every derivative is an operation
again, so derivatives of any order are recorded in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from dualbcast.interop.pytorch.memory import numpy_dtype
from dualbcast.interop.pytorch.operations import Kept, Operation, Symbol, TensorCall, batch
from dualbcast.interop.pytorch.operator import dispatched, joined, library, operation_of

Tensor, Parameter = torch.Tensor, torch.nn.Parameter
_is_transforming = torch._C._are_functorch_transforms_active
_dispatch_modes, _tracing_state = torch._C._len_torch_dispatch_stack, torch._C._get_tracing_state
_is_in_force, _PRE_DISPATCH = torch._C._dispatch_tls_is_dispatch_key_included, torch._C.DispatchKey.PreDispatch
_is_recording, _unwrap_if_dead = torch.is_grad_enabled, torch._C._functorch.unwrap_if_dead


def call(operation: Operation, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The outputs of an operation for tensors and numbers, recorded where PyTorch records."""
    guards, prepared, requires_grad = operation.latest
    traced = is_traced()  # which the guards do not see
    if guards is None or traced or not guards.check(*values):
        if _is_transforming():
            return _tuple(Transformed.apply(operation, *values))
        values = tuple(map(_alive, values))
        if traced or any(map(_is_special, values)):
            return dispatched(operation, values)
        prepared, requires_grad = operation.find(values)
    if (requires_grad and _is_recording()) or forward_ad._current_level >= 0:
        return _apply(prepared, *values)  # type: ignore[no-any-return]
    return prepared.run(values)  # type: ignore[no-any-return]


def is_traced() -> bool:
    """Whether PyTorch notes the operations that it dispatches, or `torch.jit.trace` does."""
    return _dispatch_modes() or _is_in_force(_PRE_DISPATCH) or _tracing_state() is not None


def _alive(value: Any) -> Any:
    """A value without the wrappers of transforms that have ended, as those that `torch.func.vjp` has saved in."""
    while isinstance(value, Tensor) and (inner := _unwrap_if_dead(value)) is not value:
        value = inner
    return value


def _is_special(value: Any) -> bool:
    """Whether a value is of a subclass of tensors, with a meaning of its own."""
    kind = type(value)
    return kind is not Tensor and kind is not Parameter and isinstance(value, Tensor | Symbol)


class Recorded(torch.autograd.Function):  # type: ignore[misc]
    """A call in PyTorch's autograd, outside the transforms of `torch.func`."""

    @staticmethod
    def forward(ctx: Any, prepared: TensorCall, *values: Any) -> tuple[Any, ...]:
        is_dual = forward_ad._current_level >= 0
        if prepared.is_plain and not is_dual:
            # What `_save` does, in half the time. The cotangent of a single output is never None.
            ctx.save_for_backward(*values)
            ctx.state = prepared, prepared.operation, None, None
            return prepared.run(values)
        ctx.set_materialize_grads(False)
        if is_dual:
            ctx.save_for_forward(*[value for value in values if isinstance(value, Tensor)])
        both = None
        if not prepared.is_small:
            wrt = tuple([at for at, is_needed in enumerate(ctx.needs_input_grad[1:]) if is_needed])
            both = prepared.value_and_jacobian(wrt, values) if wrt else None
        outputs, kept, blocks = both or (prepared.run(values), None, ())
        _save(ctx, prepared, prepared.operation, values, outputs, kept, blocks)
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        prepared, _, others, _ = ctx.state
        if others is None and len(cotangents) == 1 and cotangents[0] is not None:
            known = prepared.pullbacks.get(ctx.needs_input_grad)
            if known is not None:
                pullback, gaps = known
                results = call(pullback, (*ctx.saved_tensors, *cotangents))
                return (None, *results) if gaps is None else _spread(results, gaps)
        return _cotangents(ctx, cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _tangents(ctx, tangents[1:])


# `Function.apply` would look for transforms again, which takes as long as a kernel on few elements.
_apply: Any = super(torch.autograd.Function, Recorded).apply


class Dispatched(torch.autograd.Function):  # type: ignore[misc]
    """A call by PyTorch's dispatcher, in autograd."""

    @staticmethod
    def forward(ctx: Any, operation: Operation, *values: Any) -> tuple[Any, ...]:
        ctx.set_materialize_grads(False)
        with torch._C._AutoDispatchBelowAutograd():
            outputs = dispatched(operation, values)
        _save(ctx, None, operation, values, outputs)
        if forward_ad._current_level >= 0:
            ctx.save_for_forward(*[value for value in values if isinstance(value, Tensor)])
        return outputs

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        return _cotangents(ctx, cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _tangents(ctx, tangents[1:])


class Transformed(torch.autograd.Function):  # type: ignore[misc]
    """A call under transforms of `torch.func`, each of which takes it apart."""

    @staticmethod
    def forward(operation: Operation, *values: Any) -> tuple[Any, ...]:
        if any(isinstance(value, Tensor) and type(value) not in (Tensor, Parameter) for value in values):
            return dispatched(operation, values)
        return dispatched(operation, values) if is_traced() else operation.run(values)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        operation, *values = inputs
        ctx.set_materialize_grads(False)
        _save(ctx, None, operation, values, output)
        ctx.save_for_forward(*[value for value in values if isinstance(value, Tensor)])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        return _cotangents(ctx, cotangents)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> tuple[Any, ...]:
        return _tangents(ctx, tangents[1:])

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], operation: Operation, *values: Any) -> tuple[Any, Any]:
        batched, restore = batch(operation, values, in_dims[1:], info.batch_size)
        outputs = restore(call(operation, batched))
        return outputs, (0,) * len(outputs)


def _save(
    ctx: Any,
    prepared: TensorCall | None,
    operation: Operation,
    values: Sequence[Any],
    outputs: Sequence[Any],
    kept: Kept | None = None,
    blocks: Sequence[Any] = (),
) -> None:
    """Keep what derivatives need. Tensors are saved by PyTorch, which then sees if they are changed in place."""
    others = None
    if prepared is not None and prepared.are_tensors and kept is None:
        ctx.save_for_backward(*values)
    else:
        tensors = [value for value in values if isinstance(value, Tensor)]
        # The other values in their positions, with None for tensors.
        others = [None if isinstance(value, Tensor) else value for value in values]
        ctx.save_for_backward(*tensors, *blocks)
    ctx.state = prepared, operation, others, kept
    if operation.undifferentiable:
        ctx.mark_non_differentiable(*[outputs[at] for at in operation.undifferentiable])


def _values(saved: tuple[Any, ...], others: list[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The values of the call, and the tensors of the Jacobian that was kept."""
    remaining = iter(saved)
    return tuple([next(remaining) if value is None else value for value in others]), tuple(remaining)


def _cotangents(ctx: Any, cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
    """The cotangents of the arguments of `forward`, the first of which is no tensor, from those of the outputs."""
    prepared, op, others, kept = ctx.state
    needed: tuple[bool, ...] = ctx.needs_input_grad
    values, blocks = ctx.saved_tensors, ()
    if others is not None:
        values, blocks = _values(values, others)
    present = tuple([at for at, cotangent in enumerate(cotangents) if cotangent is not None])
    wrt = tuple([at for at, is_needed in enumerate(needed[1:]) if is_needed])
    if not present or not wrt:
        return (None,) * len(needed)
    given = cotangents if len(present) == len(cotangents) else [cotangents[at] for at in present]
    if kept is not None and not _is_recording():
        results = kept.pull(values, blocks, given, wrt, present)
    else:
        pullback = op.pullback(wrt, present, tuple([numpy_dtype(values[at], "an argument") for at in wrt]))
        results = call(pullback, (*values, *given))
        if prepared is not None and len(cotangents) == 1:
            prepared.pullbacks[needed] = pullback, None if all(needed[1:]) else needed
    return _spread(results, needed)


def _spread(results: Sequence[Any], needed: tuple[bool, ...]) -> tuple[Any, ...]:
    """The results in the places that are needed, and None in the others."""
    remaining = iter(results)
    return tuple([next(remaining) if is_needed else None for is_needed in needed])


def _tangents(ctx: Any, tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The tangents of the outputs from those of the values."""
    _, op, others, _ = ctx.state
    wrt = tuple([at for at, tangent in enumerate(tangents) if tangent is not None])
    if not wrt:
        return (None,) * len(op.dtypes)
    values = ctx.saved_tensors if others is None else _values(ctx.saved_tensors, others)[0]
    results = call(op.tangent(wrt), (*values, *[tangents[at] for at in wrt]))
    return tuple([None if at in op.undifferentiable else result for at, result in enumerate(results)])


def _tuple(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


# --- the operator -----------------------------------------------------------------------------------------------------


def _recorded(key: str, *parts: Any) -> list[Any]:
    """The operator as autograd records it."""
    apply: Any = super(torch.autograd.Function, Dispatched).apply
    return list(apply(operation_of(key), *joined(*parts)))


def _batched(info: Any, in_dims: tuple[Any, ...], key: str, *parts: Any) -> tuple[list[Any], list[int]]:
    """The operator on a batch, for `torch.vmap`."""
    operation, values = operation_of(key), joined(*parts)
    kinds, dims = parts[0], iter(in_dims[2])
    of_values = [next(dims) if kind == "t" else None for kind in kinds]
    batched, restore = batch(operation, values, of_values, info.batch_size)
    outputs = restore(dispatched(operation, batched))
    return list(outputs), [0] * len(outputs)


library.impl("apply", _recorded, "Autograd")
torch.library.register_vmap("dualbcast::apply", _batched, lib=library)
