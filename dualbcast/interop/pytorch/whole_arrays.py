"""Calls with whole arrays on PyTorch's tensors: autograd records each as one operation.

A call with its tensors comes in. Out go tensors that know where they come from.
"""

from __future__ import annotations

from typing import Any

import torch

from dualbcast.errors import ArgumentError
from dualbcast.interop.bridge import Bridge, Pullback, Pushforward
from dualbcast.interop.pytorch.memory import array_of, device_of, on_stream, tensor_of

_PROXY = torch._C._TorchDispatchModeKey.PROXY


class Bridged(torch.autograd.Function):  # type: ignore[misc]
    """A call, or a derivative of one, in PyTorch's autograd."""

    @staticmethod
    def forward(call: Bridge, *tensors: Any) -> tuple[Any, ...]:
        for tensor in tensors:
            if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
                raise ArgumentError(
                    f"a call with whole arrays is on {type(tensor).__name__}, which has no memory; it cannot be traced"
                )
        if torch._ops._get_dispatch_mode_pre_dispatch(_PROXY) or torch._C._get_dispatch_mode(_PROXY):
            raise ArgumentError(
                "a call with whole arrays cannot be traced: make_fx, torch.func.linearize and the like would take its "
                "result for a constant"
            )
        device = device_of(tensors, [f"tensor {at} of a call with whole arrays" for at in range(len(tensors))])
        with on_stream(device):
            return tuple([tensor_of(array) for array in call.evaluate(*map(array_of, tensors))])

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        ctx.call, *tensors = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*[each for each in output if not each.is_floating_point()])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> tuple[Any, ...]:
        tensors, call = ctx.saved_tensors, ctx.call
        wanted = tuple([at for at, is_needed in enumerate(ctx.needs_input_grad[1:]) if is_needed])
        given = [cotangents[at] for at in call.floats]
        pulled = iter(Bridged.apply(Pullback(call, wanted, len(tensors)), *tensors, *given))
        return (None, *[next(pulled) if at in wanted else None for at in range(len(tensors))])

    @staticmethod
    def jvp(ctx: Any, _call: None, *tangents: Any) -> tuple[Any, ...]:
        tensors, call = ctx.saved_tensors, ctx.call
        wanted = tuple([at for at, tangent in enumerate(tangents) if tangent is not None])
        given = [tangents[at] for at in wanted]
        pushed = iter(Bridged.apply(Pushforward(call, wanted, len(tensors)), *tensors, *given))
        return tuple([next(pushed) if at in call.floats else None for at in range(max(call.floats, default=-1) + 1)])

    @staticmethod
    def vmap(info: Any, in_dims: Any, call: Bridge, *tensors: Any) -> tuple[Any, Any]:
        """One call after the other: the elements of a batch may have whole arrays of their own."""
        pairs = list(zip(tensors, in_dims[1:], strict=True))
        calls = [
            Bridged.apply(call, *[each if dim is None else each.select(dim, at) for each, dim in pairs])
            for at in range(info.batch_size)
        ]
        return tuple(map(torch.stack, zip(*calls, strict=True))), (0,) * len(calls[0])
