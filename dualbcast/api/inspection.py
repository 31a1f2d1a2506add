"""Looking inside a call without running it: its explanation, and the text of each stage down to machine code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

from dualbcast.api.binding import Wrt
from dualbcast.errors import ArgumentError
from dualbcast.ir.printer import dump
from dualbcast.program.launch import Call

if TYPE_CHECKING:
    from dualbcast.program.explain import Explanation
    from dualbcast.runtime.cuda.kernel import CudaKernel

__all__ = ["PRODUCTS", "Inspectable", "Show", "check_product", "is_derived"]

# The products of a BroadcastFunction that can be looked at: its own, and those of what is derived from it.
_Own = Literal["value", "jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian"]
_Derived = Literal["jvp", "vjp", "value_and_vjp", "hvp"]
Show = _Own | _Derived
Capability = tuple[int, int] | None
PRODUCTS: tuple[str, ...] = (*get_args(_Own), *get_args(_Derived))


def check_product(product: str) -> None:
    """Refuse a product that there is not."""
    if product not in PRODUCTS:
        raise ArgumentError(f"product={product!r} is none of {', '.join(PRODUCTS)}")


def is_derived(product: str) -> bool:
    """Whether a product is computed by a function that is derived from the one that is looked at."""
    return product in get_args(_Derived)


class Inspectable:
    """The methods of a BroadcastFunction that compile and show; it supplies the one below."""

    def _inspected(self, args: tuple[Any, ...], wrt: Wrt, product: Show, named: dict[str, Any] | None = None) -> Call:
        raise NotImplementedError

    def explain(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        product: Show = "value_and_jacobian",
        cc: Capability = None,
        passes: bool = False,
        **named: Any,
    ) -> Explanation:
        """What a call will run: its dtypes, layout, operations and bytes.

        Parameters
        ----------
        *arrays, **named
            Arguments as for a call, or dtypes that stand for contiguous arrays.
        wrt
            As for `value_and_jacobian`.
        product : str
            What is computed: "value", "jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian",
            "value_and_vjp", "vjp" (the pullback that `vjp` returns), or "jvp" and "hvp" with tangents of all arguments
            in `wrt`.
        cc : (int, int), optional
            A compute capability to compile for, which needs no GPU; adds registers, spills and occupancy.
        passes : bool
            Also show the IR after each pass of the compiler.
        """
        # With what it tells of, much of the compiler is imported.
        from dualbcast.program.explain import explain_kernel

        call = self._inspected(arrays, wrt, product, named)
        kernel = None if cc is None else call.cuda_kernel(cc)
        function = call.spec.product.function if cc is None else call.spec.product.forward
        trace = call.passes(cc) if passes else None
        return explain_kernel(function, call.plan, call.spec.dtypes, call.spec.compute, kernel, trace)

    def inspect_ir(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The intermediate representation of a product."""
        return dump(self._inspected(arrays, wrt, product, named).spec.product.function)

    def inspect_source(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The Python text of a product, which is compiled: the element function and the loops around it."""
        call = self._inspected(arrays, wrt, product, named)
        return call.spec.source(call.plan.layout, "cpu").text

    def inspect_llvm(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The optimised LLVM IR of the CPU kernel."""
        return self._inspected(arrays, wrt, product, named).cpu_kernel().llvm()

    def inspect_asm(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The assembly of the CPU kernel."""
        return self._inspected(arrays, wrt, product, named).cpu_kernel().asm()

    def inspect_ptx(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        product: Show = "value_and_jacobian",
        cc: Capability = None,
        **named: Any,
    ) -> str:
        """The PTX of the CUDA kernel; needs no GPU where `cc` is given."""
        return self.cuda_resources(*arrays, wrt=wrt, product=product, cc=cc, **named).ptx()

    def inspect_sass(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        product: Show = "value_and_jacobian",
        cc: Capability = None,
        **named: Any,
    ) -> str:
        """The machine code of the CUDA kernel, disassembled; needs no GPU where `cc` is given."""
        return self.cuda_resources(*arrays, wrt=wrt, product=product, cc=cc, **named).sass()

    def cuda_resources(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        product: Show = "value_and_jacobian",
        cc: Capability = None,
        **named: Any,
    ) -> CudaKernel:
        """The compiled CUDA kernel, with its registers and spills; needs no GPU where `cc` is given."""
        return self._inspected(arrays, wrt, product, named).cuda_kernel(cc)
