"""What TorchDynamo, the tracer of `torch.compile`, traces in place of our methods. It would else trace our compiler.

TorchDynamo looks for the attribute `_torchdynamo_inline` of a function, so nothing here needs PyTorch until it traces.
It wants functions without closures and defaults, and knows modules only from import statements.
"""

from __future__ import annotations

from typing import Any

from dualbcast.api.dispatch import Dispatch
from dualbcast.api.function import BroadcastFunction


def _call(self: BroadcastFunction, *arguments: Any, **named: Any) -> Any:
    from dualbcast.interop.pytorch.dynamo import call

    return call(self, "__call__", arguments, named)


def _jvp(self: BroadcastFunction, *arguments: Any, **named: Any) -> Any:
    from dualbcast.interop.pytorch.dynamo import call

    return call(self, "jvp", arguments, named)


def _value_and_vjp(self: BroadcastFunction, *arguments: Any, **named: Any) -> Any:
    from dualbcast.interop.pytorch.dynamo import call

    return call(self, "value_and_vjp", arguments, named)


def _find(self: Dispatch, *arguments: Any, **named: Any) -> Any:  # noqa: ARG001
    # All other methods begin with it.
    from dualbcast.interop.pytorch.dynamo import refuse

    refuse()


for _method, _in_its_place in (
    (BroadcastFunction.__call__, _call),
    (BroadcastFunction.jvp, _jvp),
    (BroadcastFunction.value_and_vjp, _value_and_vjp),
    (Dispatch.find, _find),
):
    setattr(_method, "_torchdynamo_inline", _in_its_place)  # noqa: B010 (types know no such attribute)
