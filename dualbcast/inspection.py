"""Looking inside a call without running it: its explanation, and the text of each stage down to machine code."""

from __future__ import annotations

from typing import Any

from dualbcast.call import Call
from dualbcast.compiler.ir import dump
from dualbcast.explain import Explanation, explain_kernel
from dualbcast.runtime import cpu, cuda
from dualbcast.signature import Wrt

__all__ = ["Inspectable"]


class Inspectable:
    """The methods of a BroadcastFunction that compile and show; it supplies the three below."""

    def _inspected(self, args: tuple[Any, ...], wrt: Wrt, jacobian: bool, named: dict[str, Any] | None = None) -> Call:
        raise NotImplementedError

    def _cpu_kernel(self, call: Call) -> cpu.CpuKernel:
        raise NotImplementedError

    def _cuda_kernel(self, call: Call, cc: tuple[int, int] | None) -> cuda.CudaKernel:
        raise NotImplementedError

    def explain(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None, **named: Any
    ) -> Explanation:
        """What a call will run: its dtypes, layout, operations and bytes.

        Parameters
        ----------
        *arrays, **named
            Arguments as for a call, or dtypes that stand for contiguous arrays.
        wrt
            As for `value_and_jacobian`.
        jacobian : bool
            Whether the call is `value_and_jacobian` or that of the value alone.
        cc : (int, int), optional
            A compute capability to compile for, which needs no GPU; adds registers, spills and occupancy.
        """
        call = self._inspected(arrays, wrt, jacobian, named)
        kernel = None if cc is None else self._cuda_kernel(call, cc)
        return explain_kernel(call.spec.product.function, call.plan, call.spec.dtypes, call.spec.compute, kernel)

    def inspect_ir(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, **named: Any) -> str:
        """The intermediate representation of a product."""
        return dump(self._inspected(arrays, wrt, jacobian, named).spec.product.function)

    def inspect_source(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, **named: Any) -> str:
        """The Python text of a product, which Numba compiles: the element function and the loops around it."""
        call = self._inspected(arrays, wrt, jacobian, named)
        return call.spec.source(call.plan.layout, "cpu").text

    def inspect_llvm(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, **named: Any) -> str:
        """The optimised LLVM IR of the CPU kernel."""
        return self._cpu_kernel(self._inspected(arrays, wrt, jacobian, named)).llvm()

    def inspect_asm(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, **named: Any) -> str:
        """The assembly of the CPU kernel."""
        return self._cpu_kernel(self._inspected(arrays, wrt, jacobian, named)).asm()

    def inspect_ptx(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None, **named: Any
    ) -> str:
        """The PTX of the CUDA kernel; needs no GPU where `cc` is given."""
        return self.cuda_resources(*arrays, wrt=wrt, jacobian=jacobian, cc=cc, **named).ptx()

    def inspect_sass(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None, **named: Any
    ) -> str:
        """The machine code of the CUDA kernel, disassembled; needs no GPU where `cc` is given."""
        return self.cuda_resources(*arrays, wrt=wrt, jacobian=jacobian, cc=cc, **named).sass()

    def cuda_resources(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None, **named: Any
    ) -> cuda.CudaKernel:
        """The compiled CUDA kernel, with its registers and spills; needs no GPU where `cc` is given."""
        return self._cuda_kernel(self._inspected(arrays, wrt, jacobian, named), cc)
