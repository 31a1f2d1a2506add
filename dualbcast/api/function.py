"""The decorator, and the `BroadcastFunction` that it makes. A call compiles the product if needed, and launches it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any, Protocol, TypedDict, Unpack, cast, overload
from weakref import WeakValueDictionary

import numpy as np

from dualbcast.api.binding import Binder, Wrt
from dualbcast.api.derivative_methods import Derivatives
from dualbcast.api.dispatch import Dispatch, wrt_key
from dualbcast.api.given_outputs import value_and_jacobian_into, value_arrays
from dualbcast.api.inspection import Inspectable
from dualbcast.api.pickling import is_pickled_by_value, reduced
from dualbcast.api.sum_methods import Sums
from dualbcast.errors import ArgumentError, BackendError, DualbcastError, entry_point
from dualbcast.program.products import Backend, Check, Keeping, Options, checked_limit
from dualbcast.program.results import Jacobian

# All functions by their `id`, by which a graph of PyTorch's compiler names one.
FUNCTIONS: WeakValueDictionary[int, BroadcastFunction] = WeakValueDictionary()


class BroadcastFunction(Derivatives, Sums, Inspectable):
    """A scalar Python function that broadcasts over arrays and knows its exact derivatives.

    `differentiable_broadcast` makes it. A call on arrays gives the value. `value_and_jacobian` gives the value and the
    partial derivatives of every element from one kernel launch. Kernels are compiled at the first call for each
    combination of dtypes and memory layouts, and kept on disk.

    The arguments of every method are arrays (NumPy or CuPy, any strides), NumPy scalars or Python numbers, and for
    static parameters any hashable object. They bind as Python binds them, and broadcast as in NumPy, together with
    captured arrays. Arithmetic is in the promoted dtype of the arrays; float16 and bfloat16 are computed in float32.
    Lists and arrays of other libraries are arguments, too, and results are of the same kind: see docs/guides/arrays.md.
    """

    _bind_to: Callable[..., Binder] = Binder
    _with_cores: type[BroadcastFunction]  # the class of functions with core dimensions

    @entry_point
    def __init__(
        self,
        function: Callable[..., Any],
        *,
        wrt: Wrt = None,
        static: str | Sequence[str] = (),
        whole: str | Sequence[str] = (),
        fastmath: bool = False,
        backend: Backend = "auto",
        jacobian: Keeping = "auto",
        max_iterations: int | None = None,
        check: Check | None = None,
        debug: bool | None = None,
        signature: str | None = None,
    ) -> None:
        FUNCTIONS[id(self)] = self
        if backend not in ("auto", "python", "cpu", "cuda"):
            raise BackendError(f"there is no backend {backend!r}; choose auto, python, cpu or cuda")
        if jacobian not in ("auto", "cache", "recompute"):
            raise ArgumentError(f"jacobian={jacobian!r} is no policy; choose auto, cache or recompute")
        self._choices = Options(fastmath, backend, jacobian, checked_limit(max_iterations)).debugged(check, debug)
        self._more: dict[str, Any] = self._choices._asdict() | ({} if signature is None else {"signature": signature})
        if isinstance(function, BroadcastFunction):
            static, whole = static or tuple(function._binder.static), whole or tuple(function._binder.whole)
            if function._origin is not None:
                origin = type(self)(function._origin, wrt=wrt, static=static, whole=whole, **self._more)
                vars(self).update(vars(origin.partial(function._partials[-1])))
                return
            function = function._function
        # For a partial derivative: the arguments it is taken in, and the function it is the derivative of in the last.
        self._partials: tuple[str | int, ...] = ()
        self._origin: BroadcastFunction | None = None
        self._binder: Binder = self._bind_to(function, static, whole)
        self._wrt = wrt_key(wrt)
        self._binder.check_wrt(self._wrt)
        self._dispatch = Dispatch(self._binder, self._choices, self._wrt)
        # For a bound method: the object, and the name of the function in the class.
        self._instance: Any = None
        self._parts: dict[str | int, BroadcastFunction] = {}
        self._attribute, self._unbound = self._binder.name, self
        # The attributes of a function are copied, those of an object with `__call__` are not.
        functools.update_wrapper(self, function, updated=("__dict__",) if isinstance(function, FunctionType) else ())
        self._function: Callable[..., Any] = function
        self.__name__ = self._binder.name
        self.__qualname__: str = getattr(function, "__qualname__", self.__name__)
        self.__signature__ = self._binder.signature

    def __repr__(self) -> str:
        partials = "".join(f".partial({wrt!r})" for wrt in self._partials)
        return f"<BroadcastFunction {self.__qualname__}{partials}>"

    # --- as a method, and in a pickle ----------------------------------------------------------------------------

    def __set_name__(self, owner: type, name: str) -> None:
        self._attribute = name

    def __get__(self, instance: Any, owner: type | None = None) -> BroadcastFunction:
        if instance is None:
            return self
        if self._origin is not None:
            return self._origin.__get__(instance, owner).partial(self._partials[-1])
        # Kept in the object, to find its kernels again; under no attribute's name, as a copy has that of the original.
        attributes = getattr(instance, "__dict__", None)
        storage = attributes if isinstance(attributes, dict) else {}
        bound = storage.get(self.__qualname__ + "()")
        if isinstance(bound, BroadcastFunction) and bound._instance is instance and bound._unbound is self:
            return bound
        bound = type(self)(MethodType(self._function, instance), **self._options)
        bound._instance, bound._attribute, bound._unbound = instance, self._attribute, self
        storage[self.__qualname__ + "()"] = bound
        return bound

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._origin is not None:
            return BroadcastFunction.partial, (self._origin, self._partials[-1])
        if self._instance is not None:
            return getattr, (self._instance, self._attribute)
        return reduced(self, self._options, is_pickled_by_value())

    @property
    def _options(self) -> dict[str, Any]:
        """The options that make another BroadcastFunction like this one."""
        static, whole = (tuple(sorted(names)) for names in (self._binder.static, self._binder.whole))
        return {"wrt": self._wrt, "static": static, "whole": whole, **self._more}

    # --- products ------------------------------------------------------------------------------------------------

    def __call__(self, *arrays: Any, out: Any = None, **named: Any) -> Any:
        """The value of the function for every element.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        out : array, or structure or tuple of arrays, optional
            The arrays to write the result to, of exactly its shape and dtype, in the structure that the function
            returns or in a tuple with one array for each output. They may overlap the arguments.

        Returns
        -------
        array, or structure of arrays
            The structure that the function returns, with arrays for its numbers; scalars if all arguments are scalars.

        Raises
        ------
        CompileError
            The scalar function cannot be compiled.
        ArgumentError, ShapeError, DTypeError
            The arguments do not fit; nothing has run and `out` is untouched.
        """
        try:
            specialisation, values = self._dispatch.find(arrays, named, None)
            if specialisation.recorder is not None:
                # A graph records the call, and runs it when its value is needed.
                return specialisation.recorder(self, specialisation, values, out)
            given = None if out is None else value_arrays(specialisation, out)
            results, outputs = specialisation.run("value", values, given)
            return results.value(outputs)
        except DualbcastError as error:  # as in `entry_point`, which would take 2 % of a call on small arrays
            error.hide_own_frames()
            raise

    def value_and_jacobian(self, *arrays: Any, wrt: Wrt = None, out: Any = None, **named: Any) -> tuple[Any, Jacobian]:
        """The value and its partial derivatives, from one launch.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in, by name or position; by default all that have a float dtype. Captured
            arrays are differentiated in only if they are named.
        out : (value, Jacobian) or (value, matrix) or "matrix", optional
            The pair that an earlier call with the same shapes, dtypes and `wrt` returned. It is overwritten. With
            "matrix" the kernel writes all blocks into one new matrix, which `J.matrix()` returns. An array of that
            shape and of any strides may stand for the Jacobian, and is the matrix that is written to.

        Returns
        -------
        value : array, or structure of arrays
        jacobian : Jacobian
            Its blocks have the value's shape, and the dtype to which those of the arrays are promoted.

        Raises
        ------
        CompileError, ArgumentError, ShapeError, DTypeError
            As for a call. Nothing has run, and `out` is untouched.

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
        try:
            specialisation, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
            if out is not None:
                return value_and_jacobian_into(specialisation, values, out)
            results, outputs = specialisation.run("value_and_jacobian", values)
            return results.value(outputs), Jacobian._of(results, outputs)
        except DualbcastError as error:  # as in `__call__`
            error.hide_own_frames()
            raise

    @entry_point
    def jacobian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> Jacobian:
        """The partial derivatives without the value; see `value_and_jacobian` for the arguments.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> product = differentiable_broadcast(lambda x, y: x * y)
        >>> product.jacobian(np.array([1.0, 2.0]), 3.0, wrt="x")["x"]
        array([3., 3.])
        """
        specialisation, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
        results, outputs = specialisation.run("jacobian", values)
        return Jacobian._of(results, outputs)

    @entry_point
    def partial(self, wrt: str | int) -> BroadcastFunction:
        """∂f/∂x as a BroadcastFunction of the same arguments, which can be differentiated again.

        Parameters
        ----------
        wrt : str or int
            The argument to differentiate in, by name or position; or a captured array, by name.

        Returns
        -------
        BroadcastFunction
            It returns the same structure as the function, with partial derivatives in place of values. (To call the
            derivative inside another scalar function, use `dualbcast.derivative`.)

        Examples
        --------
        >>> import math
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def f(x, y):
        ...     return x**3 * math.sin(y)
        >>> f.partial("x").partial("x")(2.0, np.array([0.5 * np.pi]))
        array([12.])
        """
        if isinstance(wrt, bool) or not isinstance(wrt, str | int | np.integer):
            raise ArgumentError(f"partial takes the name or the position of one argument, not {wrt!r}")
        key: Any = wrt_key(wrt)
        self._binder.check_wrt(key)
        # One object for each argument, so that it is compiled once; with setdefault two threads get the same one.
        partial = self._parts.get(key)
        if partial is None:
            new = type(self)(self._function, **self._options)
            new._partials, new._origin = (*self._partials, key), self
            new._dispatch = Dispatch(new._binder, new._choices, new._wrt, new._partials)
            del vars(new)["__wrapped__"]  # it would be the function, and not its partial derivative
            partial = self._parts.setdefault(key, new)
        return partial


class DecoratorOptions(TypedDict, total=False):
    """The options of `differentiable_broadcast`."""

    wrt: Wrt
    static: str | Sequence[str]
    whole: str | Sequence[str]
    fastmath: bool
    backend: Backend
    jacobian: Keeping
    max_iterations: int | None
    check: Check | None
    debug: bool | None
    signature: str | None


class Decorator(Protocol):
    """The type of `differentiable_broadcast`: a function that has another one as an attribute."""

    @overload
    def __call__(self, function: Callable[..., Any], /, **options: Unpack[DecoratorOptions]) -> BroadcastFunction: ...
    @overload
    def __call__(self, **options: Unpack[DecoratorOptions]) -> Callable[[Callable[..., Any]], BroadcastFunction]: ...

    def from_source(
        self,
        source: str,
        name: str | None = None,
        *,
        namespace: Mapping[str, Any] | None = None,
        **options: Unpack[DecoratorOptions],
    ) -> BroadcastFunction:
        """See `dualbcast.from_source`."""


def _typed(function: Callable[..., Any]) -> Decorator:
    return cast(Decorator, function)


@_typed
@entry_point
def differentiable_broadcast(
    function: Callable[..., Any] | None = None,
    /,
    *,
    wrt: Wrt = None,
    static: str | Sequence[str] = (),
    whole: str | Sequence[str] = (),
    fastmath: bool = False,
    backend: Backend = "auto",
    jacobian: Keeping = "auto",
    max_iterations: int | None = None,
    check: Check | None = None,
    debug: bool | None = None,
    signature: str | None = None,
) -> BroadcastFunction | Callable[[Callable[..., Any]], BroadcastFunction]:
    """Make a scalar Python function broadcast over arrays, with exact derivatives.

    Parameters
    ----------
    function : function
        A function of numbers that returns a number, or a tuple or other structure of numbers, with ordinary ifs, loops
        and calls. A method, a `functools.partial`, an object with `__call__`, or a function compiled by Numba is
        accepted, too. Nothing is compiled yet.
    wrt : str, int, or sequence of them, optional
        The arguments to differentiate in if a call does not say so; by default all that have a float dtype. Captured
        arrays are differentiated in only if they are named: `wrt=("x", "WEIGHTS")`.
    static : str or sequence of str, optional
        Parameters that are hashable Python objects, known when a kernel is compiled. Each value has its own kernels.
    whole : str or sequence of str, optional
        Parameters that are whole arrays, which do not broadcast: the function reads ``table[i]`` at any integers, and
        ``len(table)`` or ``table.shape``. An index out of range is an error of the call, a `BoundsError`.
    fastmath : bool
        Allow faster arithmetic that may differ in the last digits; NaN and infinities keep their meaning.
    backend : {"auto", "python", "cpu", "cuda"}
        "auto" follows the arrays: calls with NumPy arrays run on the CPU, those with CuPy arrays on their GPU. "python"
        interprets the kernel, slowly.
    jacobian : {"auto", "cache", "recompute"}
        Whether a graph that records a call keeps the partial derivatives for the backward pass; see
        `graph.jacobian_policy`.
    max_iterations : int, optional
        How many iterations a loop may take for an element each time that the element enters it. If one would take
        more, the call raises `IterationError`, which names the first such element and the loop. With a limit, kernels
        also store a byte for each element. The call looks at these bytes, and so has to wait for a GPU.
    check : {"nan", "finite"}, optional
        Look at the results of each call, and raise `NonFiniteError` if one is NaN for an element whose arguments are
        not, or with "finite" if one is NaN or infinite for an element whose arguments are finite. It names the element,
        its arguments, and the line that the number comes from. The call has to wait for a GPU. A single call can have
        it as an argument, too: `f.jacobian(x, check="nan")`, if the function has no parameter of this name.
    debug : bool, optional
        Whether `print` and `assert` in the function run: by default on the arrays of a CPU, and not on those of a GPU,
        which would have to be waited for. It may be an argument of a call, as `check` may be.
    signature : str, optional
        Core dimensions as NumPy's ufuncs have them, such as "(3),(n,n)->(n)"; see `GeneralisedFunction`.

    Returns
    -------
    BroadcastFunction
        Without a function, as in `@differentiable_broadcast(wrt="x")`, the decorator that makes one.

    Raises
    ------
    ArgumentError, BackendError, CompileError
        An option is wrong, or Python has no source of the function. What is in it is compiled at the first call.

    See Also
    --------
    from_source : The same for a string of Python source; also `differentiable_broadcast.from_source`.

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
    options = Options(fastmath, backend, jacobian, max_iterations, check, debug)._asdict()
    options |= {"wrt": wrt, "static": static, "whole": whole, "signature": signature}
    kind = BroadcastFunction if signature is None else BroadcastFunction._with_cores
    if function is not None and not callable(function):
        raise ArgumentError("differentiable_broadcast decorates a function; give its options by keyword")
    return functools.partial(kind, **options) if function is None else kind(function, **options)
