"""Runs calls: a typed product with its arguments, on the backend of these, or a fast path of an earlier call; and makes
results of the outputs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.errors import ArgumentError, BackendError
from dualbcast.ir.nodes import Function
from dualbcast.kernel_spec import KernelSource
from dualbcast.program.jacobian import Frame, Hessian, Jacobian, everywhere
from dualbcast.program.typed_product import Backend, TypedProduct
from dualbcast.runtime import interpreter
from dualbcast.runtime.arguments import DType, Operands, beside, no_derivative
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu.kernel import CpuFastPath, CpuKernel
from dualbcast.runtime.iteration_space import Shapes
from dualbcast.runtime.launch_plan import FastPath, Plan, Recent, scalars

if TYPE_CHECKING:
    from dualbcast.runtime.cuda.kernel import CudaKernel


Shape = tuple[int, ...]
# The rule that makes results of outputs, and the outputs.
Ran = tuple["Results", Sequence[Any]]


class Results:
    """Makes the results of a call from the outputs of its kernel, in the same way for all calls of one form.

    It has no reference to the arrays of the call.

    Attributes
    ----------
    shape : tuple of int
        The shape that the arguments broadcast to.
    limit : Limit or None
        The meaning of the last output of the kernel, which is none of the results.
    """

    def __init__(self, spec: TypedProduct, planned: Plan, parts: tuple[DType, ...] | None, sums: Shapes) -> None:
        product, operands = spec.product, planned.operands
        self.shape, self.limit = planned.geometry.shape, spec.limit
        self._spec, self._total, self._module = spec, planned.geometry.total, operands.module
        self._parts, self._sums = parts, sums
        # Not the product's, which may be that of an equal one: a dtype is equal to the type of its numbers.
        self._signature = operands.signature
        self._arguments = {spec.names[at]: operands.arrays[at].shape for at in spec.wrt}
        # Where the outputs of the kernel that are no values begin, and those that are second partials.
        self._partials, self._seconds = product.values, product.values + product.jacobian
        # Fresh outputs of shape () become scalars, as those of NumPy's own functions do. CuPy's stay arrays, so that
        # nothing waits for the device.
        given = planned.given if spec.limit is None else planned.given[:-1]
        self._given = None if self.shape or self._module != "numpy" else given

    def value(self, outputs: Sequence[Any]) -> Any:
        """The structure that the function returns, with arrays."""
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return self._spec.product.structure.pack(outputs[: self._partials])

    def jacobian(self, outputs: Sequence[Any]) -> Jacobian:
        """The first partial derivatives."""
        return Jacobian(self._first_frame, outputs[self._partials : self._seconds])

    def hessian(self, outputs: Sequence[Any]) -> Hessian:
        """The second partial derivatives."""
        if self._given is not None:
            outputs = scalars(tuple(outputs), self._given)
        return Hessian(self._second_frame, outputs[self._seconds :])

    def parts(self, outputs: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a product of "parts": stored arrays, and views of one number where a part is constant."""
        if self._are_stored:
            return tuple(outputs)
        parts = [
            self._constant(place[0], block.constant, outputs) if block.stored is None else outputs[block.stored]
            for place, block in self._spec.product.blocks.items()
        ]
        if self._module == "numpy" and (self._given is not None or self._sums is not None):
            return tuple([y if y.shape else y[()] for y in parts])
        return tuple(parts)

    @cached_property
    def _are_stored(self) -> bool:
        """Whether the parts are the arrays that the kernel writes, as they are."""
        stored = [block.stored for block in self._spec.product.blocks.values()]
        shapes = [self.shape if shape is None else shape for shape in self._sums or (None,)]
        return stored == list(range(len(stored))) and (self._module != "numpy" or () not in shapes)

    def _constant(self, at: int, number: float, outputs: Sequence[Any]) -> Any:
        shape = None if self._sums is None else self._sums[at]
        # The number of elements that are summed into one.
        terms = 1 if shape is None else self._total // max(1, math.prod(shape))
        dtype = self._parts[at] if self._parts else self._signature.result_dtype
        with beside(outputs):
            return everywhere(number * terms, dtype, self.shape if shape is None else shape, self._module)

    @cached_property
    def _first_frame(self) -> Frame:
        return self._frame(2, self._partials)

    @cached_property
    def _second_frame(self) -> Frame:
        return self._frame(3, self._seconds)

    def _frame(self, depth: int, first: int) -> Frame:
        """The frame of the blocks whose keys have `depth` parts; `first` is the kernel's output they begin with."""
        spec, signature = self._spec, self._signature
        wrt = tuple([spec.names[at] for at in spec.wrt])
        places = []
        for place, block in spec.product.blocks.items():
            if len(place) == depth:
                key = place[0], *[spec.names[at] for at in place[1:]]
                places.append((key, None if block.stored is None else block.stored - first, block.constant))
        others = {
            name: f"for {name} give wrt={(*wrt, name)}" if kind == "float" else no_derivative(name, token)
            for name, kind, token in zip(spec.names, signature.kinds, signature.tokens, strict=False)
            if name not in wrt
        }
        structure, dtype = spec.product.structure, signature.result_dtype
        return Frame(wrt, structure, self.shape, self._arguments, tuple(places), dtype, self._module, others)


@dataclass(slots=True)
class Call:
    """A call that is ready to run.

    Attributes
    ----------
    spec, operands, plan
        The product, its arguments, and the loops over them.
    parts : tuple of numpy.dtype, optional
        For a product of "parts", the dtype that each is stored in.
    sums : tuple of (tuple of int or None), optional
        For a product of "parts", the shape that each is summed to.
    """

    spec: TypedProduct
    operands: Operands
    plan: Plan
    parts: tuple[DType, ...] | None = None
    sums: tuple[Shape | None, ...] | None = None

    @property
    def shape(self) -> Shape:
        """The shape that the arguments broadcast to."""
        return self.plan.geometry.shape

    @property
    def library(self) -> Any:
        """NumPy or CuPy, whichever the arrays are of."""
        return np if self.operands.module == "numpy" else sys.modules["cupy"]

    @property
    def results(self) -> Results:
        """The rule that makes results of the outputs."""
        return Results(self.spec, self.plan, self.parts, self.sums)

    def run(self) -> tuple[Any, ...]:
        """Run the kernel, compiled if there is none yet; the outputs."""
        backend, planned, limit = self._backend(), self.plan, self.spec.limit
        if planned.geometry.total and planned.targets:
            self._launch(backend)
        outputs = planned.written()
        return outputs if limit is None else limit.check(outputs)

    def _launch(self, backend: Backend) -> None:
        planned = self.plan
        if backend == "cpu":
            kernel, geometry = self.cpu_kernel(), planned.geometry
            parts = geometry.packing, geometry.split
            cpu_kernel.launch(kernel, geometry.total, geometry.ints, planned.pointers, None, *parts)
        elif backend == "cuda":
            from dualbcast.runtime.cuda import launch as cuda_launch

            on_gpu = self.cuda_kernel(None)
            given: list[Any] = list(planned.pointers)
            for at in on_gpu.source.layout.values:
                given[at] = cuda_launch.by_value(self.operands.arrays[at])
            cuda_launch.launch(on_gpu, planned.geometry.sizes, planned.geometry.strides, given)
        else:
            interpreted = self.spec.kernel(
                "python", planned.geometry.layout, lambda _, write: interpreter.PythonKernel(write())
            )
            arrays = (*self.operands.arrays, *planned.targets)
            interpreted.launch(planned.geometry.total, planned.geometry.ints, arrays, planned.geometry.split)

    def _backend(self) -> Backend:
        backend = self.spec.options.backend
        module = self.operands.module
        if backend == "auto":
            backend = "cuda" if module == "cupy" else "cpu"
        if (backend == "cuda") != (module == "cupy"):
            kind = "CuPy" if module == "cupy" else "NumPy"
            raise BackendError(
                f"the {backend} backend cannot use {kind} arrays; convert them, or choose backend='auto'"
            )
        return backend

    def fast_path(self, values: tuple[Any, ...], earlier: FastPath | None = None) -> FastPath | None:
        """The fast path of later calls whose arguments have the forms of `values`, the arguments of this one; or None.

        `earlier` is a fast path that did not serve this call.
        """
        planned, backend = self.plan, self._backend()
        if backend == "python" or planned.geometry.total == 0 or not planned.targets:
            return None
        if backend == "cuda":
            from dualbcast.runtime.cuda.launch import CudaFastPath, fits

            wide, form = self.spec.wide(planned.geometry.layout), (planned.geometry.sizes, planned.geometry.strides)
            if fits(wide, *form, ()) and not fits(wide, *form, planned.pointers):
                return None  # only the alignment does not suit, and other arrays of these forms may have it
            return CudaFastPath.of(planned, values, self.cuda_kernel(None), self.results, earlier)
        return CpuFastPath.of(planned, values, self.cpu_kernel(), self.results)

    def passes(self, cc: tuple[int, int] | None = None) -> list[tuple[str, Function]]:
        """The passes of the kernel, each with the IR after it; of the CUDA kernel if `cc` is given."""
        target, layout = self._backend() if cc is None else "cuda", self.plan.geometry.layout
        trace: list[tuple[str, Function]] = []
        self.spec.source(self.spec.wide(layout) if target == "cuda" else layout, target, trace)
        return trace

    def cpu_kernel(self) -> CpuKernel:
        """The CPU kernel of the call."""
        fastmath = self.spec.options.fastmath
        kernel: CpuKernel = self.spec.kernel(
            "cpu", self.plan.geometry.layout, lambda key, write: cpu_kernel.compile_program(key, write, fastmath)
        )
        return kernel

    def cuda_kernel(self, cc: tuple[int, int] | None) -> CudaKernel:
        """The CUDA kernel of the call, for a compute capability or else the current device."""
        from dualbcast.runtime.cuda import kernel as cuda_kernel
        from dualbcast.runtime.cuda import launch as cuda_launch

        if cc is None:
            with beside(self.operands.arrays):
                cc = cuda_launch.current_cc()
        if not (isinstance(cc, tuple) and len(cc) == 2 and all(isinstance(part, int) for part in cc)):
            raise ArgumentError(f"cc={cc!r} is no compute capability; give it as (major, minor): cc=(9, 0)")
        planned, fastmath = self.plan, self.spec.options.fastmath
        layout = self.spec.wide(planned.geometry.layout)
        if not cuda_launch.fits(layout, planned.geometry.sizes, planned.geometry.strides, planned.pointers):
            layout = planned.geometry.layout
        if self.operands.numbers:
            layout = layout._replace(values=self.operands.numbers)

        def compiled(key: str, write: Callable[[], KernelSource]) -> CudaKernel:
            return cuda_kernel.compile_program(key, write, cc, fastmath)

        kernel: CudaKernel = self.spec.kernel("cuda", layout, compiled, cc)
        # A thread has fewer elements if the registers do not suffice.
        while kernel.stack and layout.lanes > 1:
            layout = layout._replace(lanes=layout.lanes // 2)
            kernel = self.spec.kernel("cuda", layout, compiled, cc)
        return kernel


def run_call(
    paths: Recent[FastPath],
    key: Any,
    values: tuple[Any, ...],
    out: tuple[Any, ...],
    prepare: Callable[..., Call],
    *details: Any,
) -> Ran:
    """Make a call by the fast path of an earlier one, or else in full, which leaves a fast path.

    Parameters
    ----------
    paths : Recent
        The fast paths of earlier calls.
    key
        It tells the product, and the forms of `values` and of `out`.
    values : tuple
        The arguments.
    out : tuple of array
        The arrays of `out=`, all of one kind.
    prepare, *details
        A function and its arguments; it makes the call ready to run.
    """
    path = paths.get(key)
    if path is not None:
        outputs = path.run(values, out)
        if outputs is not None:
            results = path.results
            return results, outputs if results.limit is None else results.limit.check(outputs)
    with beside((*values, *out)):
        call = prepare(*details)
        outputs = call.run()
        path = call.fast_path(values, path)
    if path is None:
        return call.results, outputs
    return paths.keep(key, path).results, outputs
