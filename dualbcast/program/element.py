"""Element functions: IR that broadcasts over arrays, the functions derived from it, and calls of their products.

Comes in: values in the order of the parameters. Goes out: arrays that a kernel has written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Literal

from dualbcast.errors import ArgumentError, BackendError, CompileError, nested_too_deeply
from dualbcast.ir.nodes import Function
from dualbcast.ir.traversal import floats, statements, whole_arrays
from dualbcast.kernel_spec import Layout
from dualbcast.program import products
from dualbcast.program.outputs import Results, is_sound
from dualbcast.program.products import Backend, Check, Cores, Options, TypedProduct, Which
from dualbcast.runtime import interpreter
from dualbcast.runtime.arguments import DType, Signature, beside, classify, forms_of
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu.kernel import CpuFastPath, CpuKernel
from dualbcast.runtime.iteration_space import Shapes
from dualbcast.runtime.launch_plan import FastPath, Plan, Recent, plan

if TYPE_CHECKING:
    from dualbcast.runtime.cuda.kernel import CudaKernel

# Those of whose outputs the sums are asked for: all results of a product, or the terms of normal equations.
Summed = Literal["value_and_jacobian", "value_jacobian_and_hessian", "normal_equations", "weighted_normal_equations"]
Derivation = Literal["partial", "select", "pushforward", "tangent", "pullback", "value_and_pullback"] | Summed
# The rule that makes results of outputs, and the outputs.
Ran = tuple[Results, Sequence[Any]]


class Element:
    """A function of numbers in IR that broadcasts over arrays.

    Its `names` of the parameters and its `label` are for messages; `length` is how many statements it has, and `floats`
    has the positions of the outputs that are floats. `cores` are those whose elements it is a function of.
    """

    def __init__(
        self, function: Function, names: tuple[str, ...], label: str, options: Options, cores: Cores | None = None
    ) -> None:
        self.function, self.names, self.label, self.options, self.cores = function, names, label, options, cores
        self.length, self.floats = 1 + sum(1 for _ in statements(function.body)), floats(function)
        self._products: dict[tuple[Any, ...], TypedProduct] = {}
        self._derived: dict[tuple[Derivation, tuple[int, ...]], Element] = {}
        self._paths: Recent[FastPath] = Recent()

    def __reduce__(self) -> tuple[Any, ...]:
        return _of_content, (self._content,)

    @cached_property
    def _content(self) -> bytes:
        """All that the element function is made of, without what it has compiled."""
        import pickle
        import zlib

        parts = self.function, self.names, self.label, self.options, self.cores
        return zlib.compress(pickle.dumps(parts, protocol=5))

    @cached_property
    def whole(self) -> tuple[int, ...]:
        """The places of the parameters that are whole arrays of which the function reads elements."""
        names = whole_arrays(self.function)
        return tuple([at for at, param in enumerate(self.function.params) if param.name in names])

    def derive(self, derivation: Derivation, wrt: tuple[int, ...]) -> Element:
        """A function derived from this one, as an element function again; `wrt` has positions of parameters.

        From the same parameters: the "partial" of every output in one parameter, or "select", the outputs at `wrt`.
        From the parameters and then the tangents of those at `wrt`: the "tangent" of every output, or "pushforward",
        the outputs and then their tangents. From the parameters and then the cotangents of the float outputs: the
        "pullback", the cotangents of the parameters at `wrt`, or "value_and_pullback", the outputs and then those.
        From the parameters, and with weights those of all outputs: the functions that are `Summed`.
        """
        element = self._derived.get((derivation, wrt))
        if element is None:
            # Imported here, since most processes derive nothing.
            from dualbcast.ir.compose import restrict
            from dualbcast.ir.simplification import simplify
            from dualbcast.program.derived_functions import normal_equations_of, partial_of, pullback_of, pushforward_of

            with plain_errors(self.function):
                match derivation:
                    case "partial":
                        function = partial_of(self.function, *wrt)
                    case "select":
                        function = simplify(restrict(self.function, wrt))
                    case "pushforward" | "tangent":
                        function = pushforward_of(self.function, wrt, values=derivation == "pushforward")
                    case "value_and_jacobian" | "value_jacobian_and_hessian":
                        function, _ = products.every_result(self.function, derivation, wrt)
                    case "normal_equations" | "weighted_normal_equations":
                        function = normal_equations_of(self.function, wrt, weighted=derivation[0] == "w")
                    case _:
                        function = pullback_of(self.function, wrt, values=derivation == "value_and_pullback")
            more = tuple(param.name for param in function.params[len(self.names) :])
            label = self.label
            if derivation != "select":
                label += f": {derivation.replace('_', ' ')} in {', '.join(self.names[at] for at in wrt)}"
            # Those of the parameters, and of outputs where they are the same ones.
            cores = self.cores if derivation in ("partial", "tangent") else None
            element = Element(function, (*self.names, *more), label, self.options, cores)
            self._derived[derivation, wrt] = element
        return element

    def select(self, outputs: tuple[int, ...]) -> Element:
        """Some of the outputs only."""
        return self if outputs == tuple(range(len(self.function.outputs))) else self.derive("select", outputs)

    @cached_property
    def _identity(self) -> str:
        return products.identity(self.function)

    def prepare(
        self,
        which: Which,
        values: tuple[Any, ...],
        wrt: tuple[int, ...] = (),
        parts: tuple[DType, ...] | None = None,
        shapes: Shapes = None,
        signature: Signature | None = None,
        out: tuple[Any, ...] | None = None,
    ) -> Call:
        """A product with arguments, ready to run; `which` and `wrt` are as for `make_product`.

        For "parts" there is for each output in `parts` the dtype that it is stored in, which otherwise the arguments
        decide, and in `shapes` None, or the shape of an array that broadcasts to the result's shape; the output is
        summed over the dimensions that the array does not span. The `signature` is that of the values, if it is known.
        The arrays of `out` are in the order in which the kernel stores them, with None for one to be allocated.
        """
        operands = classify(values, self.names, signature)
        spec = self.typed(which, wrt, operands.signature, parts)
        sums = None
        if shapes is not None:
            blocks = spec.product.blocks.items()
            sums = tuple([shapes[place[0]] for place, block in blocks if block.stored is not None])
        if spec.checks is not None:
            sums = None if sums is None else (*sums, None)
            out = None if out is None else (*out, None)
        is_interpreted = self.options.backend == "python"
        return Call(spec, plan(operands, spec.dtypes, out, sums, spec.product.work, is_interpreted), shapes)

    def typed(
        self, which: Which, wrt: tuple[int, ...], signature: Signature, parts: tuple[DType, ...] | None
    ) -> TypedProduct:
        """A product for arguments of these dtypes; see `prepare`."""
        key = which, wrt, signature, parts
        spec = self._products.get(key)
        if spec is None:
            with plain_errors(self.function):
                spec = TypedProduct(
                    self.function, *key, self.names, self.label, self.options, self.cores, self._identity
                )
            self._products[key] = spec
        return spec

    def parts(
        self, values: tuple[Any, ...], dtypes: tuple[DType, ...] | None = None, shapes: Shapes = None
    ) -> tuple[Any, ...]:
        """The outputs for these arguments, from one launch; see `prepare`. One that is the same number everywhere is a
        read-only view of that number.
        """
        key = dtypes, shapes, forms_of(values)
        results, outputs = run_call(self._paths, key, values, (), self.prepare, "parts", values, (), dtypes, shapes)
        return results.parts(outputs)

    def path_of_parts(
        self, values: tuple[Any, ...], dtypes: tuple[DType, ...] | None, shapes: Shapes
    ) -> FastPath | None:
        """The fast path of such calls, if there is one."""
        self.parts(values, dtypes, shapes)
        return self._paths.get((dtypes, shapes, forms_of(values)))


@lru_cache(maxsize=1024)
def _of_content(content: bytes) -> Element:
    """The element function of a pickle. However often the pickle comes, a process makes one, which has the kernels."""
    import pickle
    import zlib

    return Element(*pickle.loads(zlib.decompress(content)))


@contextmanager
def plain_errors(function: Function) -> Iterator[None]:
    """A block in which the compiler works on a function: its errors leave it without the compiler's own frames, which
    would only hide the user's lines."""
    try:
        yield
    except CompileError as error:
        raise error.with_traceback(None) from None
    except RecursionError:
        raise nested_too_deeply(function.location) from None


# --- calls ------------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Call:
    """A product with its arguments and the loops over them, ready to run; `sums` are as for `Results`."""

    spec: TypedProduct
    plan: Plan
    sums: Shapes = None

    @property
    def results(self) -> Results:
        """The rule that makes results of the outputs."""
        return Results(self.spec, self.plan, self.sums)

    def run(self) -> Sequence[Any]:
        """Run the kernel, compiled if there is none yet; the outputs."""
        outputs, checks = self._run(), self.spec.checks
        outputs = outputs if checks is None else checks.check(outputs)
        check = self.spec.options.check
        if check is not None and not is_sound(outputs, check):
            self.refuse(outputs, check)
        return outputs

    def _run(self) -> tuple[Any, ...]:
        backend, planned = self.backend(), self.plan
        if planned.geometry.total and planned.targets:
            if backend == "cpu":
                geometry = planned.geometry
                pieces = geometry.packing, geometry.split
                cpu_kernel.launch(self.cpu_kernel(), geometry.total, geometry.ints, planned.pointers, None, *pieces)
            elif backend == "cuda":
                self._launch_cuda()
            else:
                self.interpret("python")
        return planned.written()

    def refuse(self, outputs: Sequence[Any], check: Check) -> None:
        """Raise a `NonFiniteError` for outputs of the kernel, unless they come from arguments that are no better."""
        from dualbcast.program.finite import error_of, error_of_sums  # needed for errors only

        spec, arrays = self.spec, self.plan.operands.arrays
        with beside(outputs):
            if self.plan.shapes is None:
                error = error_of(spec, arrays, outputs, check)
            else:
                is_interpreted = spec.options.backend == "python"
                whole = plan(self.plan.operands, spec.dtypes, None, None, 0.0, is_interpreted)
                terms = Call(spec, whole)._run()[: len(outputs)]
                error = error_of(spec, arrays, terms, check)
                if error is None and is_sound(terms, check):  # NaN is the sum of infinities of both signs
                    error = error_of(spec, arrays, terms, "finite") or error_of_sums(spec, check)
        if error is not None:
            raise error

    def _launch_cuda(self) -> None:
        from dualbcast.runtime.cuda import launch as cuda_launch

        planned, kernel = self.plan, self.cuda_kernel(None)
        given: list[Any] = list(planned.pointers)
        for at in kernel.source.layout.values:
            given[at] = cuda_launch.by_value(planned.operands.arrays[at])
        cuda_launch.launch(kernel, planned.geometry.sizes, planned.geometry.strides, given)

    def interpret(self, target: str, **options: bool) -> None:
        """Run the kernel in Python; `target` tells apart those that `PythonKernel` makes with other options."""
        geometry = self.plan.geometry
        kernel = self.spec.kernel(
            target, geometry.layout, lambda _, write: interpreter.PythonKernel(write(), **options)
        )
        arrays = (*self.plan.operands.arrays, *self.plan.targets)
        kernel.launch(geometry.total, geometry.ints, arrays, geometry.split)

    def backend(self) -> Backend:
        """The backend that runs the call; a BackendError where the chosen one cannot use the arrays."""
        backend = self.spec.options.backend
        module = self.plan.operands.module
        if backend == "auto":
            backend = "cuda" if module == "cupy" else "cpu"
        if (backend == "cuda") != (module == "cupy"):
            kind = "CuPy" if module == "cupy" else "NumPy"
            raise BackendError(
                f"the {backend} backend cannot use {kind} arrays; convert them, or choose backend='auto'"
            )
        return backend

    @property
    def takes_addresses(self) -> bool:
        """Whether the addresses of arrays suffice: a kernel of the CPU runs in one piece, and nothing is checked."""
        geometry = self.plan.geometry
        is_whole = geometry.total > 0 and geometry.split is None and geometry.packing is None
        is_unchecked = self.spec.checks is None and self.spec.options.check is None
        return self.backend() == "cpu" and is_whole and is_unchecked

    def fast_path(self, values: tuple[Any, ...], earlier: FastPath | None = None) -> FastPath | None:
        """The fast path of later calls whose arguments have the forms of `values`, the arguments of this one; or None.

        `earlier` is a fast path that did not serve this call.
        """
        planned, backend = self.plan, self.backend()
        if backend == "python" or planned.geometry.total == 0 or not planned.targets:
            return None
        if backend == "cpu":
            return CpuFastPath.of(planned, values, self.cpu_kernel(), self.results)
        from dualbcast.runtime.cuda.launch import CudaFastPath, fits

        wide, form = self.spec.wide(planned.geometry.layout), (planned.geometry.sizes, planned.geometry.strides)
        if fits(wide, *form, ()) and not fits(wide, *form, planned.pointers):
            return None  # only the alignment does not suit, and other arrays of these forms may have it
        return CudaFastPath.of(planned, values, self.cuda_kernel(None), self.results, earlier)

    def cpu_kernel(self) -> CpuKernel:
        """The CPU kernel of the call."""
        make = partial(cpu_kernel.compile_program, fastmath=self.spec.options.fastmath)
        kernel: CpuKernel = self.spec.kernel("cpu", self.plan.geometry.layout, make)
        return kernel

    def cuda_kernel(self, cc: tuple[int, int] | None) -> CudaKernel:
        """The CUDA kernel of the call, for a compute capability or else the current device."""
        from dualbcast.runtime.cuda import launch as cuda_launch

        planned, operands = self.plan, self.plan.operands
        if cc is None:
            with beside(operands.arrays):
                cc = cuda_launch.current_cc()
        if not (isinstance(cc, tuple) and len(cc) == 2 and all(isinstance(part, int) for part in cc)):
            raise ArgumentError(f"cc={cc!r} is no compute capability; give it as (major, minor): cc=(9, 0)")
        layout = self.spec.wide(planned.geometry.layout)
        if not cuda_launch.fits(layout, planned.geometry.sizes, planned.geometry.strides, planned.pointers):
            layout = planned.geometry.layout
        if operands.numbers:
            layout = layout._replace(values=operands.numbers)
        return cuda_kernel_for(self.spec, layout, cc)


def cuda_kernel_for(spec: TypedProduct, layout: Layout, cc: tuple[int, int]) -> CudaKernel:
    """The CUDA kernel for a layout; a thread has fewer elements than that says if the registers do not suffice."""
    from dualbcast.runtime.cuda import kernel as cuda_kernel

    options = cc, spec.options.fastmath
    while True:
        kernel: CudaKernel = spec.kernel(
            "cuda", layout, lambda key, write: cuda_kernel.compile_program(key, write, *options), cc
        )
        if not kernel.stack or layout.lanes == 1:
            return kernel
        layout = layout._replace(lanes=layout.lanes // 2)


def run_call(
    paths: Recent[FastPath],
    key: Any,
    values: tuple[Any, ...],
    out: tuple[Any, ...],
    prepare: Callable[..., Call],
    *details: Any,
) -> Ran:
    """Make a call by the fast path of an earlier one, or else in full, which leaves a fast path in `paths`.

    The `key` tells the product, and the forms of the arguments `values` and of `out`, the arrays of `out=`, all of one
    kind. `prepare` makes the call ready to run from the `details`.
    """
    path = paths.get(key)
    if path is not None:
        outputs = path.run(values, out)
        if outputs is not None:
            results = path.results
            if results.is_checked:
                outputs = outputs if results.checks is None else results.checks.check(outputs)
                if results.check is not None and not is_sound(outputs, results.check):
                    with beside((*values, *out)):
                        prepare(*details).refuse(outputs, results.check)
            return results, outputs
    with beside((*values, *out)):
        call = prepare(*details)
        outputs = call.run()
        path = call.fast_path(values, path)
    if path is None:
        return call.results, outputs
    return paths.keep(key, path).results, outputs
