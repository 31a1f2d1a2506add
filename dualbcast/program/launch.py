"""A call on its way: a product for given dtypes with its kernels, and with arrays, ready to run or after it has run."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError, BackendError, nested_too_deeply
from dualbcast.garbage import collected_later
from dualbcast.ir.nodes import Function
from dualbcast.kernel_spec import KernelSource, Layout
from dualbcast.program import product_cache
from dualbcast.program.iteration_limit import Limit, Limited
from dualbcast.program.products import Product
from dualbcast.program.results import Results
from dualbcast.runtime import interpreter
from dualbcast.runtime.arguments import DType, Operands
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu.fast_path import Recent, Route, Way
from dualbcast.runtime.cpu.kernel import CpuKernel
from dualbcast.runtime.cuda.memory import beside
from dualbcast.runtime.launch_plan import Plan

if TYPE_CHECKING:
    from dualbcast.runtime.cuda.kernel import CudaKernel

__all__ = ["Backend", "Call", "Keeping", "Options", "Ran", "Specialised", "beside", "run"]

Backend = Literal["auto", "python", "cpu", "cuda"]
# Whether a graph keeps the Jacobian of a recorded call for the backward pass.
Keeping = Literal["auto", "cache", "recompute"]
Shape = tuple[int, ...]


class Options(NamedTuple):
    """How kernels are made, where they run, and whether a graph keeps their Jacobians, as the decorator was told."""

    fastmath: bool = False
    backend: Backend = "auto"
    jacobian: Keeping = "auto"
    max_iterations: int | None = None

    def runs_like(self, other: Options) -> bool:
        """Whether kernels of both can be one."""
        return self._replace(jacobian=other.jacobian) == other


@dataclass(slots=True)
class Specialised:
    """A product for given dtypes, with the kernels made of it so far, by target, variant of it and layout.

    Attributes
    ----------
    product, wrt, dtypes, result, compute, inputs, title, options
        What is computed; the parameters differentiated in; the dtypes of outputs, of floats among the results, of the
        arithmetic, and of the inputs as they are stored; what it is called in the kernel's text; how it is made.
    names : tuple of str
        All parameters.
    identity : str
        What tells the product's IR from any other; see `kept`.
    limit : Limit or None
        What the last output says, where loops end after some iterations.
    within : tuple of str
        The names of those in `wrt`.
    """

    product: Product
    wrt: tuple[int, ...]
    dtypes: tuple[DType, ...]
    result: DType
    compute: str
    inputs: tuple[str, ...]
    title: str
    options: Options
    names: tuple[str, ...]
    identity: str
    limit: Limit | None = None
    within: tuple[str, ...] = field(init=False)
    kernels: dict[tuple[str, Any, Layout], Any] = field(default_factory=dict)
    widened: dict[Layout, Layout] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.within = tuple([self.names[at] for at in self.wrt])

    def source(self, layout: Layout, target: str) -> KernelSource:
        """The text of a kernel, with comments from the user's file as it is now."""
        return self._source(layout, target, None)

    def passes(self, layout: Layout, target: str) -> list[tuple[str, Function]]:
        """The passes of a kernel, each with the IR after it."""
        trace: list[tuple[str, Function]] = []
        self._source(layout, target, trace)
        return trace

    def _source(self, layout: Layout, target: str, trace: list[tuple[str, Function]] | None) -> KernelSource:
        from dualbcast.program.pipeline import kernel_source

        function = self.product.forward if target == "cuda" else self.product.function
        try:
            return kernel_source(function, layout, *self._said(target), trace)
        except RecursionError:
            raise nested_too_deeply(function.location) from None

    def _said(self, target: str) -> tuple[str, tuple[str, ...], tuple[str, ...], str, str, bool]:
        outputs = tuple([dtype.name for dtype in self.dtypes])
        return self.compute, self.inputs, outputs, target, self.title, self.options.fastmath

    def wide(self, layout: Layout) -> Layout:
        """The layout with as many elements for a CUDA thread as pay."""
        found = self.widened.get(layout)
        if found is None:
            from dualbcast.program.pipeline import elements_a_thread

            lanes = elements_a_thread(self.product.forward, layout, self.compute)
            found = self.widened[layout] = layout._replace(lanes=lanes)
        return found

    def kernel(self, target: str, layout: Layout, make: Callable[[KernelSource], Any], variant: Any = None) -> Any:
        """The kernel for a layout, compiled by `make` where this product has none yet for the target's variant."""
        key = target, variant, layout
        kernel = self.kernels.get(key)
        if kernel is None:
            kernel = self.kernels[key] = self._made(target, layout, make)
        return kernel

    @collected_later
    def _made(self, target: str, layout: Layout, make: Callable[[KernelSource], Any]) -> Any:
        # Where it is Python that runs the text, it is shown in tracebacks, too.
        identity = self.identity if target in ("cpu", "cuda") else ""
        return make(product_cache.source(identity, layout, self._said(target), lambda: self.source(layout, target)))


@dataclass(slots=True)
class Call:
    """A call that is ready to run, or has run.

    Attributes
    ----------
    spec, operands, plan
        The product, its arguments, and how they are walked.
    parts : tuple of numpy.dtype, optional
        For a product of "parts", what each is stored as.
    sums : tuple of (tuple of int or None), optional
        For a product of "parts", the shape that each is summed to.
    """

    spec: Specialised
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
        """What is made of the outputs."""
        return Results(self)

    def run(self) -> tuple[Any, ...]:
        """Run the kernel, compiled if there is none yet; the outputs."""
        limit = self.spec.limit
        return self._run() if limit is None else limit.check(self._run())

    def _run(self) -> tuple[Any, ...]:
        backend, planned = self._backend(), self.plan
        if planned.total == 0 or not planned.targets:
            return planned.written()
        if backend == "cpu":
            cpu_kernel.launch(self.cpu_kernel(), planned.total, planned.ints, planned.pointers, blocks=planned.blocks)
        elif backend == "cuda":
            from dualbcast.runtime.cuda import kernel as cuda_kernel

            kernel = self.cuda_kernel(None)
            given: list[Any] = list(planned.pointers)
            for at in kernel.source.layout.values:
                given[at] = cuda_kernel.by_value(self.operands.arrays[at])
            cuda_kernel.launch(kernel, planned.total, planned.sizes, planned.strides, given)
        else:
            interpreted = self.spec.kernel("python", planned.layout, interpreter.compile_kernel)
            arrays = (*self.operands.arrays, *planned.targets)
            interpreter.launch(interpreted, planned.total, planned.ints, arrays, planned.blocks)
        return planned.written()

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

    def route(self, values: tuple[Any, ...], earlier: Way | None = None) -> Way | None:
        """What serves the next call with arguments of the same forms as `values`, which were those of this one;
        `earlier` is what did not serve this one."""
        found, limit = self._route(values, earlier), self.spec.limit
        return found if found is None or limit is None else Limited(found, limit)

    def _route(self, values: tuple[Any, ...], earlier: Way | None) -> Way | None:
        planned, backend = self.plan, self._backend()
        if backend == "python" or planned.total == 0 or not planned.targets:
            return None
        if backend == "cuda":
            from dualbcast.runtime.cuda.fast_path import CudaRoute
            from dualbcast.runtime.cuda.launch import fits

            wide, form = self.spec.wide(planned.layout), (planned.sizes, planned.strides)
            if fits(wide, *form, ()) and not fits(wide, *form, planned.pointers):
                return None  # for want of alignment alone, which other arrays of these forms may have
            return CudaRoute.of(planned, values, self.cuda_kernel(None), self.results, earlier)
        return Route.of(planned, values, self.cpu_kernel(), self.results)

    def passes(self, cc: tuple[int, int] | None = None) -> list[tuple[str, Function]]:
        """The passes of its kernel, each with the IR after it; of the CUDA kernel if `cc` is given."""
        target, layout = self._backend() if cc is None else "cuda", self.plan.layout
        return self.spec.passes(self.spec.wide(layout) if target == "cuda" else layout, target)

    def cpu_kernel(self) -> CpuKernel:
        """The CPU kernel of the call."""
        kernel: CpuKernel = self.spec.kernel("cpu", self.plan.layout, self._compile_cpu)
        return kernel

    def _compile_cpu(self, source: KernelSource) -> CpuKernel:
        return cpu_kernel.compile_kernel(source, self.spec.options.fastmath)

    def cuda_kernel(self, cc: tuple[int, int] | None) -> CudaKernel:
        """The CUDA kernel of the call, for a compute capability or else the current device."""
        from dualbcast.runtime.cuda import kernel as cuda_kernel

        if cc is None:
            with beside(self.operands.arrays):
                cc = cuda_kernel.current_cc()
        if not (isinstance(cc, tuple) and len(cc) == 2 and all(isinstance(part, int) for part in cc)):
            raise ArgumentError(f"cc={cc!r} is no compute capability; give it as (major, minor): cc=(9, 0)")
        planned = self.plan
        layout = self.spec.wide(planned.layout)
        if not cuda_kernel.fits(layout, planned.sizes, planned.strides, planned.pointers):
            layout = planned.layout
        if self.operands.numbers:
            layout = layout._replace(values=self.operands.numbers)
        kernel: CudaKernel = self.spec.kernel("cuda", layout, lambda source: self._compile_cuda(source, cc), cc)
        return kernel

    def _compile_cuda(self, source: KernelSource, cc: tuple[int, int]) -> CudaKernel:
        """The kernel; of fewer elements a thread than its layout says if registers do not suffice for them."""
        from dualbcast.runtime.cuda import kernel as cuda_kernel

        kernel = cuda_kernel.compile_kernel(source, cc, self.spec.options.fastmath)
        layout = source.layout
        if kernel.stack and layout.lanes > 1:
            narrower = layout._replace(lanes=layout.lanes // 2)
            return self._compile_cuda(self.spec.source(narrower, "cuda"), cc)
        return kernel


# How the results are made, and the outputs that they are made of.
Ran = tuple[Results, Sequence[Any]]


def run(
    routes: Recent[Way],
    key: Any,
    values: tuple[Any, ...],
    prepare: Callable[..., Call],
    arguments: tuple[Any, ...],
    out: tuple[Any, ...] = (),
) -> Ran:
    """Make a call: by the route that an earlier one has left, else prepared for itself, which leaves one.

    Parameters
    ----------
    routes : Recent
        Those of earlier calls.
    key
        It must say what is computed, and the forms of `values`.
    values : tuple
        The arguments.
    prepare : callable
        Makes the call ready, given `arguments` and then `values`.
    arguments : tuple
    out : tuple of array
        The arrays of `out=`, all of one kind; `key` says their forms, too.
    """
    route = routes.get(key)
    if route is not None:
        outputs = route.run(values, out)
        if outputs is not None:
            return route.results, outputs
    with beside((*values, *out)):
        call = prepare(*arguments, values)
        outputs = call.run()
        route = call.route(values, route)
    if route is None:
        return call.results, outputs
    return routes.keep(key, route).results, outputs
