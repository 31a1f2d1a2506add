"""Looking inside a call: its explanation, the text of each stage down to machine code, and the steps of one element."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import numpy as np

from dualbcast.adapters import adapter_of
from dualbcast.api.binding import Wrt
from dualbcast.api.complex_arguments import split
from dualbcast.api.dispatch import Dispatch
from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError, DTypeError, entry_point
from dualbcast.foreign_objects import plain_arrays
from dualbcast.ir.nodes import dump
from dualbcast.program.element import Call, Derivation, Summed, plain_errors
from dualbcast.program.explain import Explanation, explain_call
from dualbcast.program.products import Which
from dualbcast.program.trace import Trace
from dualbcast.runtime.arguments import beside, classify, is_array

# The products that can be shown: those of the function itself, and those of a function derived from it.
_Own = Literal["value", "jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian"]
_OfSums = Literal["sum", "sum_and_gradient", "sum_gradient_and_hessian", "normal_equations"]
Show = Literal[_Own, "jvp", "vjp", "value_and_vjp", "hvp", _OfSums]
Capability = tuple[int, int] | None
PRODUCTS: tuple[str, ...] = get_args(Show)
_DERIVATIONS: dict[str, Derivation] = {
    "jvp": "pushforward",
    "vjp": "pullback",
    "value_and_vjp": "value_and_pullback",
    "hvp": "tangent",
}
_SUMMED: dict[str, Summed | None] = {
    "sum": None,
    "sum_and_gradient": "value_and_jacobian",
    "sum_gradient_and_hessian": "value_jacobian_and_hessian",
    "normal_equations": "normal_equations",
}


class Inspectable:
    """The methods of a BroadcastFunction that compile and show."""

    _dispatch: Dispatch

    def _inspected(
        self,
        args: tuple[Any, ...],
        wrt: Wrt,
        product: Show,
        named: dict[str, Any] | None = None,
        is_counted: bool = False,
    ) -> Call:
        """The call of a product, where dtypes may stand for arrays, unless its launch is to be counted."""
        if product not in PRODUCTS:
            raise ArgumentError(f"product={product!r} is none of {', '.join(PRODUCTS)}")
        derivation = _DERIVATIONS.get(product)
        which = cast(Which, product) if product in get_args(_Own) else "value"
        dispatch = self._dispatch
        wanted = None if product == "value" else dispatch.wrt_of(wrt)
        if product == "sum" and wanted is None:
            wanted = ()
        form, given = dispatch.binder.bind(args, named or {}, dispatch.asked(wanted))
        given = plain_arrays(given, form.names)
        adapter = adapter_of(given, form.names)
        if is_counted:
            _check_countable(given, form.names, adapter is not None)
        if adapter is not None:
            form, given = split(form, given)
            given = adapter.stand_ins(given, form.names)
        placed = tuple(map(_stand_in, given))
        specialisation, values = dispatch.specialise(*split(form, placed), wanted)
        with beside(values):
            call = specialisation.prepare(which, values)
            if any(new is not old for new, old in zip(placed, given, strict=True)):
                # Dtypes stand for arrays of the kind and shape that the others have, captured ones among them.
                shape = call.plan.geometry.shape if call.plan.geometry.total != 1 else (2,)
                given = tuple(_stand_in(value, shape, call.plan.operands.module) for value in given)
                specialisation, values = dispatch.specialise(*split(form, given), wanted)
                call = specialisation.prepare(which, values)
            if product in _SUMMED:
                if wanted is None:
                    specialisation, values = dispatch.specialise(*split(form, given), specialisation.numbers(values))
                return specialisation.prepare_sums(_SUMMED[product], values)
            return call if derivation is None else _derived_call(specialisation, derivation, call, values, is_counted)

    @entry_point
    def explain(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        product: Show = "value_and_jacobian",
        cc: Capability = None,
        passes: bool = False,
        counted: bool = False,
        **named: Any,
    ) -> Explanation:
        """The kernel that a call will run: its dtypes, layout, operations and bytes.

        Parameters
        ----------
        *arrays, **named
            Arguments as for a call, or dtypes that stand for contiguous arrays.
        wrt
            As for `value_and_jacobian`.
        product : str
            The result: "value", "jacobian", "value_and_jacobian", "hessian", "value_jacobian_and_hessian",
            "value_and_vjp", "vjp" (the pullback that `vjp` returns), or "jvp" and "hvp" with tangents of all arguments
            in `wrt`; or "sum", "sum_and_gradient", "sum_gradient_and_hessian" (of `sum`) or "normal_equations".
        cc : (int, int), optional
            A compute capability to compile for, which needs no GPU. This adds registers, spills and occupancy.
        passes : bool
            Also show the IR after each pass of the compiler.
        counted : bool
            Also count what a GPU with the capability `cc` would do for this launch, in all and by line of the
            function: instructions of warps, active lanes, divergent branches, and sectors of memory. No GPU is needed,
            and nothing is timed. The kernel is run on this machine, thread by thread, because the elements decide which
            branches are taken. So the arguments must be NumPy's arrays and numbers. It takes a C compiler (gcc or
            clang), and a second for ten million elements of a short function; more than 2**26 are refused. Tangents and
            cotangents are ones.

        Raises
        ------
        ArgumentError
            With `counted=True`: there is no `cc`, a dtype or another library's array is among the arguments, or there
            are no elements, or too many.
        MissingDependencyError
            With `cc`: the CUDA compilers are not installed; with `counted=True` also: there is no C compiler.

        Examples
        --------
        >>> from dualbcast import differentiable_broadcast
        >>> product = differentiable_broadcast(lambda x, y: x * y)
        >>> explanation = product.explain("float64", "float32")
        >>> explanation.operations, explanation.dtype, explanation.bytes_read
        ({'mul': 1}, 'float64', 24)
        """
        if counted and cc is None:
            raise ArgumentError("counted=True counts what a GPU would do; say for which one, as in cc=(9, 0)")
        return explain_call(self._inspected(arrays, wrt, product, named, counted), cc, passes, counted)

    @entry_point
    def inspect_ir(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The intermediate representation of a product, before the passes for a target.

        It takes the arguments of `explain`, and so do the other `inspect_` methods.

        Examples
        --------
        >>> from dualbcast import differentiable_broadcast
        >>> product = differentiable_broadcast(lambda x, y: x * y)
        >>> print(product.inspect_ir("float64", "float64", product="value").rstrip())
        function <lambda>(x: float, y: float)
            %value: float = mul(x, y)  # line 1
            output out = %value
        """
        return dump(self._inspected(arrays, wrt, product, named).spec.product.function)

    @entry_point
    def inspect_source(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The element function of a product as Python text, after the passes for the CPU, with what it calls."""
        call = self._inspected(arrays, wrt, product, named)
        return call.spec.source(call.plan.geometry.layout, "cpu").text

    @entry_point
    def inspect_llvm(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The optimised LLVM IR of the CPU kernel."""
        return self._inspected(arrays, wrt, product, named).cpu_kernel().llvm()

    @entry_point
    def inspect_asm(self, *arrays: Any, wrt: Wrt = None, product: Show = "value_and_jacobian", **named: Any) -> str:
        """The assembly of the CPU kernel."""
        return self._inspected(arrays, wrt, product, named).cpu_kernel().asm()

    @entry_point
    def inspect_ptx(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        product: Show = "value_and_jacobian",
        cc: Capability = None,
        **named: Any,
    ) -> str:
        """The PTX of the CUDA kernel. If a compute capability `cc` is given, no GPU is needed."""
        return self._inspected(arrays, wrt, product, named).cuda_kernel(cc).ptx()

    @entry_point
    def inspect_sass(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        product: Show = "value_and_jacobian",
        cc: Capability = None,
        **named: Any,
    ) -> str:
        """The disassembled machine code of the CUDA kernel. If a compute capability `cc` is given, no GPU is needed."""
        return self._inspected(arrays, wrt, product, named).cuda_kernel(cc).sass()

    @entry_point
    def trace(
        self,
        *arrays: Any,
        wrt: Wrt = None,
        index: int | Sequence[int] | None = None,
        limit: int = 200,
        **named: Any,
    ) -> Trace:
        """What the scalar function does for one element: the value and the partial derivatives of every step.

        The steps are evaluated in Python, with the arithmetic and the dtype that kernels have for these arguments.

        Parameters
        ----------
        *arrays, **named
            The numbers of one element; or arrays, and the `index` of an element.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in; as for `value_and_jacobian`.
        index : int or sequence of int, optional
            The index of the element in the shape that the arguments broadcast to.
        limit : int
            The most rows to keep. Of more steps, as a long loop has, the first and the last ones are kept.

        Returns
        -------
        Trace
            `str` of it is a table, and so is what a notebook shows; `rows` is for programs.

        Raises
        ------
        ArgumentError
            The arguments have several elements, and there is no `index`; or it is none of theirs.

        Examples
        --------
        >>> import math
        >>> from dualbcast import from_source
        >>> rate = from_source('''
        ... def rate(t, energy):
        ...     x = energy / t
        ...     if x > 700:
        ...         return 0.0
        ...     return math.exp(-x)
        ... ''', namespace={"math": math})
        >>> print(rate.trace(300.0, 1200.0))
        rate(t=300, energy=1200), computed in float64
        line  source                name    value         ∂/∂t            ∂/∂energy
           2  def rate(t, energy):  t       300           1               0
           2                        energy  1200          0               1
           3  x = energy / t        x       4             -0.0133333333   0.00333333333
           4  if x > 700:           if      False
           6  return math.exp(-x)   return  0.0183156389  0.000244208519  -6.10521296e-05
        """
        # Imported here, since most processes trace nothing.
        from dualbcast.program.evaluation import arguments_at
        from dualbcast.program.tracing import trace_of

        dispatch = self._dispatch
        if dispatch.partials:
            raise ArgumentError("a partial derivative has no lines of its own; trace the function itself")
        if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 1:
            raise ArgumentError(f"limit={limit!r} is no number of rows; give a positive integer")
        specialisation, values = dispatch.find(arrays, named, dispatch.wrt_of(wrt))
        if specialisation.recorder is not None:
            raise ArgumentError("trace takes numbers, and arrays of NumPy's and CuPy's with an index=")
        element, signature = specialisation.element, specialisation.signature
        # The derivatives that a kernel refuses are refused here, too.
        wrt_places = specialisation._without_whole()
        element.typed("value_and_jacobian", wrt_places, signature, None)
        place, function = _checked_index(index, specialisation.shape_of(values)), specialisation.program.noted()
        arrays = classify(values, element.names, signature).arrays
        with beside(values), plain_errors(function):
            given = arguments_at(function, arrays, place, signature.compute)
            return trace_of(function, element.names, element.label, wrt_places, given, signature.compute, int(limit))


def _checked_index(index: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The index of an element of a shape, whose numbers are not negative."""
    if index is None:
        if any(length != 1 for length in shape):
            example = (0,) * len(shape)
            raise ArgumentError(f"the arguments have shape {shape}; say which element, as in index={example}")
        return (0,) * len(shape)
    items = tuple(index) if isinstance(index, tuple | list) else (index,)
    is_integer = all(isinstance(at, int | np.integer) and not isinstance(at, bool) for at in items)
    if not is_integer or len(items) != len(shape):
        raise ArgumentError(f"index={index!r} is no index of an element; the arguments have shape {shape}")
    if any(not -length <= at < length for at, length in zip(items, shape, strict=True)):
        raise ArgumentError(f"index={index!r} is outside the arguments, which have shape {shape}")
    return tuple([int(at) % length for at, length in zip(items, shape, strict=True)])


def _check_countable(given: tuple[Any, ...], names: tuple[str, ...], is_foreign: bool) -> None:
    """Refuse arguments whose elements this machine does not have."""
    for value, name in zip(given, names, strict=True):
        if isinstance(value, str | type | np.dtype):
            raise ArgumentError(
                f"counted=True runs the kernel, and the dtype given for {name} has no elements; give an array, such as "
                f"numpy.ones((1024, 1024), {np.dtype(value).name!r})"
            )
        if is_foreign or is_array(value, "cupy"):
            raise ArgumentError(
                "counted=True runs the kernel on this machine, on NumPy's arrays and numbers; convert the others "
                "first, as by numpy.asarray or cupy.asnumpy"
            )


def _derived_call(
    specialisation: Specialisation, derivation: Derivation, call: Call, values: tuple[Any, ...], is_counted: bool
) -> Call:
    """The call of a derived function with tangents or cotangents, which are ones if it is to be counted, else empty;
    `call` is that of the value."""
    shapes, dtypes = [getattr(values[at], "shape", ()) for at in specialisation.wrt], specialisation.tangent_dtypes
    if derivation.endswith("pullback"):
        floats = specialisation.element.floats
        shapes, dtypes = (
            [call.plan.geometry.shape for _ in floats],
            (specialisation.signature.result_dtype,) * len(floats),
        )
    library: Any = sys.modules[call.plan.operands.module]
    make = library.ones if is_counted else library.empty
    seeds = [make(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=True)]
    return specialisation.prepare_derived(derivation, (*values, *seeds))


def _stand_in(value: Any, shape: tuple[int, ...] | None = None, module: str = "numpy") -> Any:
    """A contiguous array in place of a dtype, or without a shape a number; anything else as it is."""
    if not isinstance(value, str | type | np.dtype):
        return value
    try:
        if value == "bfloat16":
            import ml_dtypes  # registers the name with NumPy

            value = ml_dtypes.bfloat16
        if shape is None:
            return np.zeros((), value)[()]
        return sys.modules[module].empty(shape, value)
    except TypeError:
        raise DTypeError(f"{value!r} is no dtype; give arrays, or dtypes such as 'float32'") from None
