"""The public face: the decorator, and the object it makes, which compiles products on demand and launches them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import numpy as np

from dualbcast.abi import KernelSource
from dualbcast.call import Call, Specialised, flatten_out, stand_in, wrt_key
from dualbcast.compiler.ir import dump
from dualbcast.compiler.source import find_source
from dualbcast.errors import ArgumentError, BackendError, CompileError
from dualbcast.explain import Explanation, explain_kernel
from dualbcast.jacobian import Jacobian
from dualbcast.products import Which, make_product
from dualbcast.runtime import cpu, cuda, python
from dualbcast.runtime.broadcast import plan
from dualbcast.runtime.operands import Operands, classify

__all__ = ["BroadcastFunction", "differentiable_broadcast"]

Backend = Literal["auto", "python", "cpu", "cuda"]
Wrt = str | int | Sequence[str | int] | None


class BroadcastFunction:
    """A scalar Python function that broadcasts over arrays and knows its exact derivatives.

    Made by `differentiable_broadcast`. Called on arrays it gives the value; `value_and_jacobian` gives the value and
    the partial derivatives of every element from one kernel launch. Kernels are compiled at the first call for each
    combination of dtypes and memory layouts, and kept on disk.

    The arguments of every method are arrays (NumPy or CuPy, any strides), NumPy scalars or Python numbers; they
    broadcast as in NumPy. Arithmetic is in the promoted dtype of the arrays; float16 and bfloat16 are computed in
    float32.
    """

    def __init__(self, function: Callable[..., Any], *, wrt: Wrt, fastmath: bool, backend: Backend) -> None:
        if backend not in ("auto", "python", "cpu", "cuda"):
            raise BackendError(f"there is no backend {backend!r}; choose auto, python, cpu or cuda")
        function = getattr(function, "__wrapped__", function) if isinstance(function, BroadcastFunction) else function
        functools.update_wrapper(self, function)
        self._function, self._wrt, self._fastmath, self._backend = function, wrt, fastmath, backend
        try:
            spec = find_source(function).node.args
            self._names = tuple(parameter.arg for parameter in (*spec.posonlyargs, *spec.args))
            self._vararg = spec.vararg.arg if spec.vararg else None
        except CompileError as error:
            raise error.with_traceback(None) from None
        self._specialised: dict[tuple[Any, ...], Specialised] = {}

    def __repr__(self) -> str:
        return f"<BroadcastFunction {self._function.__qualname__}>"

    # --- products ------------------------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The value.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        out : array or tuple of arrays, optional
            Where to put the result: exactly of its shape and dtype. It may overlap the arguments.

        Returns
        -------
        array or tuple of arrays
            One for each output of the scalar function. Scalars where all arguments are scalars.

        Raises
        ------
        CompileError
            The scalar function cannot be compiled.
        ArgumentError, ShapeError, DTypeError
            The arguments do not fit; nothing has run and `out` is untouched.
        """
        call = self._prepare("value", self._positional(arrays, named), None, out)
        self._launch(call)
        results = call.plan.finish()
        return call.spec.product.structure.pack(results)

    def value_and_jacobian(self, *arrays: Any, wrt: Wrt = None, out: Any = None, **named: Any) -> tuple[Any, Jacobian]:
        """The value and its partial derivatives, from one launch.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in, by name or position; by default all that are of a float dtype.
        out : (value, Jacobian), optional
            What an earlier call with the same shapes, dtypes and `wrt` returned, to be overwritten.

        Returns
        -------
        value : array or tuple of arrays
        jacobian : Jacobian
            Its blocks have the value's shape.

        Examples
        --------
        >>> import math
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def f(x, y):
        ...     return x * math.exp(y) if x > 0 else y
        >>> value, J = f.value_and_jacobian(np.array([[2.0], [-1.0]]), np.array([0.0, 1.0]))
        >>> J["x"].round(3)
        array([[1.   , 2.718],
               [0.   , 0.   ]])
        """
        given = None if out is None else flatten_out(out)
        call = self._prepare("value_and_jacobian", self._positional(arrays, named), wrt, given)
        self._launch(call)
        results = call.plan.finish()
        values = results[: call.spec.product.values]
        jacobian = call.jacobian()
        return call.spec.product.structure.pack(values), jacobian

    def jacobian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> Jacobian:
        """The partial derivatives alone; see `value_and_jacobian`."""
        call = self._prepare("jacobian", self._positional(arrays, named), wrt, None)
        self._launch(call)
        call.plan.finish()
        return call.jacobian()

    # --- looking inside ------------------------------------------------------------------------------------------

    def explain(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None
    ) -> Explanation:
        """What a call will run: its dtypes, layout, operations and bytes.

        Parameters
        ----------
        *arrays
            Arguments as for a call, or dtypes that stand for contiguous arrays.
        wrt
            As for `value_and_jacobian`.
        jacobian : bool
            Whether the call is `value_and_jacobian` or that of the value alone.
        cc : (int, int), optional
            A compute capability to compile for, which needs no GPU; adds registers, spills and occupancy.
        """
        call = self._inspected(arrays, wrt, jacobian)
        kernel = None if cc is None else self._cuda_kernel(call, cc)
        return explain_kernel(call.spec.product.function, call.plan, call.spec.dtypes, call.spec.compute, kernel)

    def inspect_ir(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True) -> str:
        """The intermediate representation of a product."""
        return dump(self._inspected(arrays, wrt, jacobian).spec.product.function)

    def inspect_source(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True) -> str:
        """The Python text of a product, which Numba compiles: the element function and the loops around it."""
        call = self._inspected(arrays, wrt, jacobian)
        return call.spec.source(call.plan.layout, "cpu").text

    def inspect_llvm(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True) -> str:
        """The optimised LLVM IR of the CPU kernel."""
        return self._cpu_kernel(self._inspected(arrays, wrt, jacobian)).llvm()

    def inspect_asm(self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True) -> str:
        """The assembly of the CPU kernel."""
        return self._cpu_kernel(self._inspected(arrays, wrt, jacobian)).asm()

    def inspect_ptx(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None
    ) -> str:
        """The PTX of the CUDA kernel; needs no GPU where `cc` is given."""
        return self.cuda_resources(*arrays, wrt=wrt, jacobian=jacobian, cc=cc).ptx()

    def inspect_sass(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None
    ) -> str:
        """The machine code of the CUDA kernel, disassembled; needs no GPU where `cc` is given."""
        return self.cuda_resources(*arrays, wrt=wrt, jacobian=jacobian, cc=cc).sass()

    def cuda_resources(
        self, *arrays: Any, wrt: Wrt = None, jacobian: bool = True, cc: tuple[int, int] | None = None
    ) -> cuda.CudaKernel:
        """The compiled CUDA kernel, with its registers and spills; needs no GPU where `cc` is given."""
        return self._cuda_kernel(self._inspected(arrays, wrt, jacobian), cc)

    # --- the way of a call ---------------------------------------------------------------------------------------

    def _prepare(self, which: Which, arrays: tuple[Any, ...], wrt: Wrt, out: Any) -> Call:
        names = self._argument_names(len(arrays))
        operands = classify(arrays, names)
        spec = self._specialise(which, operands, self._wrt if wrt is None else wrt)
        return Call(spec, operands, plan(operands, spec.dtypes, out))

    def _launch(self, call: Call) -> None:
        backend = self._backend
        module = call.operands.module
        if backend == "auto":
            backend = "cuda" if module == "cupy" else "cpu"
        if (backend == "cuda") != (module == "cupy"):
            kind = "CuPy" if module == "cupy" else "NumPy"
            raise BackendError(
                f"the {backend} backend cannot use {kind} arrays; convert them, or choose backend='auto'"
            )
        planned = call.plan
        if planned.total == 0 or not planned.targets:
            return
        if backend == "cpu":
            cpu.launch(self._cpu_kernel(call), planned.total, planned.ints, planned.pointers)
        elif backend == "cuda":
            kernel = self._cuda_kernel(call, None)
            cuda.launch(kernel, planned.total, planned.sizes, planned.strides, planned.pointers)
        else:
            interpreted = call.spec.kernel("python", planned.layout, python.compile_kernel)
            arrays = (*call.operands.arrays, *planned.targets)
            python.launch(interpreted, planned.total, planned.ints, arrays)

    def _cpu_kernel(self, call: Call) -> cpu.CpuKernel:
        kernel: cpu.CpuKernel = call.spec.kernel("cpu", call.plan.layout, self._compile_cpu)
        return kernel

    def _compile_cpu(self, source: KernelSource) -> cpu.CpuKernel:
        return cpu.compile_kernel(source, self._fastmath)

    def _cuda_kernel(self, call: Call, cc: tuple[int, int] | None) -> cuda.CudaKernel:
        if cc is None:
            cc = cuda.current_cc()
        if not (isinstance(cc, tuple) and len(cc) == 2 and all(isinstance(part, int) for part in cc)):
            raise ArgumentError(f"cc={cc!r} is no compute capability; give it as (major, minor): cc=(9, 0)")
        kernel: cuda.CudaKernel = call.spec.kernel(
            "cuda", call.plan.layout, lambda source: cuda.compile_kernel(source, cc, self._fastmath), cc
        )
        return kernel

    def _inspected(self, arrays: tuple[Any, ...], wrt: Wrt, jacobian: bool) -> Call:
        stand_ins = tuple(stand_in(array) for array in arrays)
        return self._prepare("value_and_jacobian" if jacobian else "value", stand_ins, wrt if jacobian else None, None)

    def _positional(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """All arguments in the order of the parameters."""
        if not named:
            return arrays
        name = self._function.__name__
        for key in named:
            if key not in self._names:
                raise ArgumentError(f"{name}() has no parameter {key!r}; it has {', '.join(self._names)}")
            if self._names.index(key) < len(arrays):
                raise ArgumentError(f"{name}() gets two values for {key!r}")
        missing = [key for key in self._names[len(arrays) :] if key not in named]
        if missing:
            raise ArgumentError(f"{name}() lacks a value for {', '.join(missing)}")
        return (*arrays, *(named[key] for key in self._names[len(arrays) :]))

    def _argument_names(self, count: int) -> tuple[str, ...]:
        fixed = len(self._names)
        if count < fixed or (count > fixed and self._vararg is None) or count == 0:
            wanted = f"at least {max(fixed, 1)}" if self._vararg else str(fixed)
            parameters = ", ".join([*self._names, *([f"*{self._vararg}"] if self._vararg else [])])
            name = self._function.__name__
            raise ArgumentError(f"{name}({parameters}) takes {wanted} arrays, and {count} are given")
        if self._vararg is None:
            return self._names
        return (*self._names, *(f"{self._vararg}_{position}" for position in range(count - fixed)))

    def _specialise(self, which: Which, operands: Operands, wrt: Wrt) -> Specialised:
        wanted = wrt_key(wrt)
        key = (which, operands.signature, len(operands.arrays), wanted)
        spec = self._specialised.get(key)
        if spec is not None and all(guard.holds() for guard in spec.product.guards):
            return spec
        positions = () if which == "value" else self._positions(wanted, operands)
        try:
            product = make_product(self._function, which, operands.kinds, positions)  # type: ignore[arg-type]
        except CompileError as error:
            # The user's own lines are in the message; the compiler's frames would only hide them.
            raise error.with_traceback(None) from None
        by_kind = {"float": operands.result_dtype, "int": np.dtype(np.int64), "bool": np.dtype(np.bool_)}
        dtypes = tuple(by_kind[kind] for kind in product.kinds)
        within = f" in {', '.join(operands.names[at] for at in positions)}" if positions else ""
        title = f"{self._function.__name__}: {which.replace('_', ' ')}{within}; {operands.compute}"
        result = operands.result_dtype
        spec = Specialised(product, positions, dtypes, result, operands.compute, operands.storages, title)
        self._specialised[key] = spec
        return spec

    def _positions(self, wrt: Any, operands: Operands) -> tuple[int, ...]:
        """The positions of the arguments to differentiate in."""
        names, kinds = operands.names, operands.kinds
        if wrt is None:
            return tuple(position for position, kind in enumerate(kinds) if kind == "float")
        found: list[int] = []
        for item in wrt if isinstance(wrt, tuple) else (wrt,):
            if isinstance(item, str) and item == self._vararg:
                found.extend(range(len(self._names), len(names)))
            elif isinstance(item, str) and item in names:
                found.append(names.index(item))
            elif isinstance(item, int) and not isinstance(item, bool) and -len(names) <= item < len(names):
                found.append(item % len(names))
            else:
                raise ArgumentError(f"wrt={item!r} is no argument of this call; they are {', '.join(names)}")
        for position in found:
            if kinds[position] != "float":
                raise ArgumentError(
                    f"{names[position]} is of dtype {operands.storages[position]}, which carries no derivative; "
                    "convert it to a float dtype, or leave it out of wrt"
                )
        return tuple(dict.fromkeys(found))


@overload
def differentiable_broadcast(function: Callable[..., Any], /) -> BroadcastFunction: ...
@overload
def differentiable_broadcast(
    *, wrt: Wrt = None, fastmath: bool = False, backend: Backend = "auto"
) -> Callable[[Callable[..., Any]], BroadcastFunction]: ...
def differentiable_broadcast(
    function: Callable[..., Any] | None = None,
    /,
    *,
    wrt: Wrt = None,
    fastmath: bool = False,
    backend: Backend = "auto",
) -> BroadcastFunction | Callable[[Callable[..., Any]], BroadcastFunction]:
    """Make a scalar Python function broadcast over arrays, with exact derivatives.

    Parameters
    ----------
    function : function
        From numbers to a number or a tuple of numbers, with ordinary ifs, loops and calls. Nothing is compiled yet.
    wrt : str, int, or sequence of them, optional
        The arguments that Jacobians are taken in unless a call says otherwise; by default all of a float dtype.
    fastmath : bool
        Allow faster arithmetic that may differ in the last digits; NaN and infinities keep their meaning.
    backend : {"auto", "python", "cpu", "cuda"}
        "auto" follows the arrays: NumPy's run on the CPU, CuPy's on their GPU. "python" interprets, slowly.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> @differentiable_broadcast
    ... def softsign_or_tanh(x):
    ...     if x > 0:
    ...         return x / (1 + x)
    ...     return math.tanh(x)
    >>> y, J = softsign_or_tanh.value_and_jacobian(np.array([-1.0, 1.0]))
    >>> y.round(4), J["x"].round(4)
    (array([-0.7616,  0.5   ]), array([0.42, 0.25]))
    """
    if function is None:
        return lambda inner: BroadcastFunction(inner, wrt=wrt, fastmath=fastmath, backend=backend)
    if not callable(function):
        raise ArgumentError("differentiable_broadcast decorates a function; give its options by keyword")
    return BroadcastFunction(function, wrt=wrt, fastmath=fastmath, backend=backend)
