"""A product of a scalar function as the CPU's code generator takes it: IR, and how the kernel is called."""

from __future__ import annotations

from typing import NamedTuple

from dualbcast.ir.nodes import Function
from dualbcast.kernel_spec import KernelSpec


class KernelProgram(NamedTuple):
    """All that a CPU kernel is compiled from."""

    spec: KernelSpec
    # Its parameters are read by `Load` expressions, and its outputs are stored, in the order of the kernel's pointers.
    function: Function
    # The functions of the rules that it calls, by the names of their operations, callees before callers.
    helpers: dict[str, Function]

    @property
    def identity(self) -> str:
        """All of it that compiled code can depend on: source locations are not in it."""
        return repr(self)
