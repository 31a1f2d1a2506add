"""The public face: the decorator, and the object it makes, which compiles products on demand and launches them."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, Literal, overload

import numpy as np

from dualbcast.abi import KernelSource
from dualbcast.call import Call, Specialised, Variant, flatten_out, is_dtype, stand_in
from dualbcast.compiler.templates import lower
from dualbcast.errors import ArgumentError, BackendError, CompileError
from dualbcast.inspection import Inspectable
from dualbcast.jacobian import Jacobian
from dualbcast.products import Which, make_product
from dualbcast.runtime import cpu, cuda, python
from dualbcast.runtime.broadcast import plan
from dualbcast.runtime.operands import Kind, Operands, array_kind, classify, sign
from dualbcast.signature import Binder, Form, Wrt, directions, wrt_key

__all__ = ["BroadcastFunction", "differentiable_broadcast"]

Backend = Literal["auto", "python", "cpu", "cuda"]


class BroadcastFunction(Inspectable):
    """A scalar Python function that broadcasts over arrays and knows its exact derivatives.

    Made by `differentiable_broadcast`. Called on arrays it gives the value; `value_and_jacobian` gives the value and
    the partial derivatives of every element from one kernel launch. Kernels are compiled at the first call for each
    combination of dtypes and memory layouts, and kept on disk.

    The arguments of every method are arrays (NumPy or CuPy, any strides), NumPy scalars or Python numbers, and for
    static parameters any hashable object. They bind as Python binds them, and broadcast as in NumPy, together with the
    arrays that the function captures. Arithmetic is in the promoted dtype of the arrays; float16 and bfloat16 are
    computed in float32.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        wrt: Wrt = None,
        static: str | Sequence[str] = (),
        fastmath: bool = False,
        backend: Backend = "auto",
    ) -> None:
        if backend not in ("auto", "python", "cpu", "cuda"):
            raise BackendError(f"there is no backend {backend!r}; choose auto, python, cpu or cuda")
        if isinstance(function, BroadcastFunction):
            static, function = static or tuple(function._binder.static), function.__wrapped__
        try:
            self._binder: Binder = Binder(function, static)
        except CompileError as error:
            raise error.with_traceback(None) from None
        self._wrt = wrt_key(wrt)
        self._binder.check_wrt(self._wrt)
        self._fastmath, self._backend = fastmath, backend
        self._variants: dict[tuple[Form, tuple[Kind, ...]], Variant] = {}
        # A method's: the object, and the name that the class has for the function.
        self._instance: Any = None
        self._attribute, self._unbound = self._binder.name, self
        # Only a function's own attributes: an object's are its business.
        functools.update_wrapper(self, function, updated=("__dict__",) if isinstance(function, FunctionType) else ())
        self.__wrapped__: Callable[..., Any] = function
        self.__name__ = self._binder.name
        self.__qualname__: str = getattr(function, "__qualname__", self.__name__)
        self.__signature__ = self._binder.signature

    def __repr__(self) -> str:
        return f"<BroadcastFunction {self.__qualname__}>"

    # --- as a method, and in a pickle ----------------------------------------------------------------------------

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, instance: Any, owner: type | None = None) -> BroadcastFunction:
        if instance is None:
            return self
        # Kept with the object, for its kernels. The key is no attribute's, so that this is asked every time: a copy of
        # the object has a copy of the dictionary, with what is bound to the object that was copied.
        own = getattr(instance, "__dict__", None)
        kept = own if isinstance(own, dict) else {}
        bound = kept.get(self.__qualname__ + "()")
        if isinstance(bound, BroadcastFunction) and bound._instance is instance and bound._unbound is self:
            return bound
        bound = BroadcastFunction(MethodType(self.__wrapped__, instance), **self._options)
        bound._instance, bound._attribute, bound._unbound = instance, self._attribute, self
        kept[self.__qualname__ + "()"] = bound
        return bound

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._instance is not None:
            return getattr, (self._instance, self._attribute)
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self:
            return str(self.__qualname__)
        return _rebuilt, (self.__wrapped__, self._options)

    def __deepcopy__(self, memo: dict[int, Any]) -> BroadcastFunction:
        if isinstance(self.__wrapped__, FunctionType):  # which is not copied either
            return self
        if self._instance is not None:
            copied: BroadcastFunction = getattr(copy.deepcopy(self._instance, memo), self._attribute)
            return copied
        return BroadcastFunction(copy.deepcopy(self.__wrapped__, memo), **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        static = tuple(sorted(self._binder.static))
        return {"wrt": self._wrt, "static": static, "fastmath": self._fastmath, "backend": self._backend}

    # --- products ------------------------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The value.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        out : array, or structure or tuple of arrays, optional
            Where to put the result: arrays exactly of its shape and dtype, in what the function returns or in a tuple
            with one for each output. They may overlap the arguments.

        Returns
        -------
        array, or structure of arrays
            What the function returns, with arrays for its numbers. Scalars where all arguments are scalars.

        Raises
        ------
        CompileError
            The scalar function cannot be compiled.
        ArgumentError, ShapeError, DTypeError
            The arguments do not fit; nothing has run and `out` is untouched.
        """
        call = self._prepare("value", arrays, named, None, out)
        self._launch(call)
        return call.spec.product.structure.pack(call.plan.finish())

    def value_and_jacobian(self, *arrays: Any, wrt: Wrt = None, out: Any = None, **named: Any) -> tuple[Any, Jacobian]:
        """The value and its partial derivatives, from one launch.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in, by name or position; by default all that are of a float dtype. A captured
            array goes by its name, and is differentiated in only where it is named.
        out : (value, Jacobian), optional
            What an earlier call with the same shapes, dtypes and `wrt` returned, to be overwritten.

        Returns
        -------
        value : array, or structure of arrays
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
        call = self._prepare("value_and_jacobian", arrays, named, wrt, out)
        self._launch(call)
        values = call.plan.finish()[: call.spec.product.values]
        return call.spec.product.structure.pack(values), call.jacobian()

    def jacobian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> Jacobian:
        """The partial derivatives alone; see `value_and_jacobian`."""
        call = self._prepare("jacobian", arrays, named, wrt)
        self._launch(call)
        call.plan.finish()
        return call.jacobian()

    # --- the way of a call ---------------------------------------------------------------------------------------

    def _prepare(self, which: Which, args: tuple[Any, ...], named: dict[str, Any], wrt: Wrt, out: Any = None) -> Call:
        wanted = None if which == "value" else self._wrt if wrt is None else wrt_key(wrt)
        form, values = self._binder.bind(args, named, wanted)
        return self._ready(which, form, values, wanted, out)

    @property
    def vararg(self) -> str:
        """The name of the `*args` parameter; empty where there is none."""
        return self._binder.vararg

    def form_of(self, args: tuple[Any, ...], named: dict[str, Any], wrt: Wrt) -> tuple[Form, tuple[Any, ...]]:
        """How a call fills the parameters, and its arrays and numbers."""
        return self._binder.bind(args, named, wrt_key(wrt))

    def _inspected(self, args: tuple[Any, ...], wrt: Wrt, jacobian: bool, named: dict[str, Any] | None = None) -> Call:
        which: Which = "value_and_jacobian" if jacobian else "value"
        wanted = None if not jacobian else self._wrt if wrt is None else wrt_key(wrt)
        form, values = self._binder.bind(args, named or {}, wanted)
        if not any(map(is_dtype, values)):
            return self._ready(which, form, values, wanted, None)
        # Dtypes stand for arrays of the kind and shape that the others have, captured ones among them.
        call = self._ready(which, form, tuple(stand_in(value) for value in values), wanted, None)
        shape = call.plan.geometry.shape if call.plan.total != 1 else (2,)
        arrays = tuple(stand_in(value, shape, call.operands.module) for value in values)
        return self._ready(which, form, arrays, wanted, None)

    def _ready(self, which: Which, form: Form, values: tuple[Any, ...], wanted: Any, out: Any) -> Call:
        signature = sign(values, form.names)
        variant = self._variants.get((form, signature.kinds))
        captured: tuple[Any, ...] | None = None
        if variant is not None and variant.holds():
            captured = variant.captured() if variant.captures else ()
        if variant is None or captured is None:
            variant, captured = self._lower(form, signature.kinds)
        names = variant.names
        if captured:
            values = (*values, *captured)
            signature = sign(values, names)
        operands = classify(values, names, signature)
        spec = variant.products.get((which, signature, wanted))
        if spec is None:
            spec = self._specialise(which, variant, form, operands, wanted)
        if out is not None:
            out = flatten_out(which, out, spec.product.structure)
        return Call(spec, operands, plan(operands, spec.dtypes, out))

    def _lower(self, form: Form, kinds: tuple[Kind, ...]) -> tuple[Variant, tuple[Any, ...]]:
        """The function lowered anew, and the captured arrays that were found."""
        remaining = iter(kinds)
        arguments = [next(remaining) if slot is None else slot for slot in form.slots]
        try:
            lowered = lower(self._binder.function, arguments, array_kind)
        except CompileError as error:
            # The user's own lines are in the message; the compiler's frames would only hide them.
            raise error.with_traceback(None) from None
        variant = self._variants[form, kinds] = Variant(lowered, form.names)
        return variant, tuple(capture.value for capture in lowered.arrays.values())

    def _specialise(self, which: Which, variant: Variant, form: Form, operands: Operands, wanted: Any) -> Specialised:
        signature = operands.signature
        positions = () if which == "value" else directions(wanted, form, operands.names, signature, self._binder)
        try:
            product = make_product(variant.function, which, positions)
        except CompileError as error:
            raise error.with_traceback(None) from None
        by_kind = {"float": signature.result_dtype, "int": np.dtype(np.int64), "bool": np.dtype(np.bool_)}
        dtypes = tuple(by_kind[kind] for kind in product.kinds)
        within = f" in {', '.join(operands.names[at] for at in positions)}" if positions else ""
        title = f"{self._binder.name}: {which.replace('_', ' ')}{within}; {signature.compute}"
        spec = Specialised(
            product, positions, dtypes, signature.result_dtype, signature.compute, signature.storages, title
        )
        variant.products[which, signature, wanted] = spec
        return spec

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
            kernel = self._cpu_kernel(call)
            cpu.launch(kernel, planned.total, planned.ints, planned.pointers, blocks=planned.blocks)
        elif backend == "cuda":
            cuda.launch(self._cuda_kernel(call, None), planned.total, planned.sizes, planned.strides, planned.pointers)
        else:
            interpreted = call.spec.kernel("python", planned.layout, python.compile_kernel)
            arrays = (*call.operands.arrays, *planned.targets)
            python.launch(interpreted, planned.total, planned.ints, arrays, planned.blocks)

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


@overload
def differentiable_broadcast(function: Callable[..., Any], /) -> BroadcastFunction: ...
@overload
def differentiable_broadcast(
    *, wrt: Wrt = None, static: str | Sequence[str] = (), fastmath: bool = False, backend: Backend = "auto"
) -> Callable[[Callable[..., Any]], BroadcastFunction]: ...
def differentiable_broadcast(
    function: Callable[..., Any] | None = None,
    /,
    *,
    wrt: Wrt = None,
    static: str | Sequence[str] = (),
    fastmath: bool = False,
    backend: Backend = "auto",
) -> BroadcastFunction | Callable[[Callable[..., Any]], BroadcastFunction]:
    """Make a scalar Python function broadcast over arrays, with exact derivatives.

    Parameters
    ----------
    function : function
        From numbers to a number, or a tuple or other structure of numbers, with ordinary ifs, loops and calls. A
        method, a `functools.partial`, an object with `__call__`, or a function compiled by Numba will do, too. Nothing
        is compiled yet.
    wrt : str, int, or sequence of them, optional
        The arguments that Jacobians are taken in unless a call says otherwise; by default all of a float dtype.
        Captured arrays are differentiated in where they are named: `wrt=("x", "WEIGHTS")`.
    static : str or sequence of str, optional
        Parameters that are no arrays but hashable Python objects, known when a kernel is compiled: each of their
        values gets kernels of its own.
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
        return lambda inner: BroadcastFunction(inner, wrt=wrt, static=static, fastmath=fastmath, backend=backend)
    if not callable(function):
        raise ArgumentError("differentiable_broadcast decorates a function; give its options by keyword")
    return BroadcastFunction(function, wrt=wrt, static=static, fastmath=fastmath, backend=backend)


def _rebuilt(function: Callable[..., Any], options: dict[str, Any]) -> BroadcastFunction:
    return BroadcastFunction(function, **options)
