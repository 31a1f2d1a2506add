"""The public face: the decorator, and the object it makes, which compiles products on demand and launches them."""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType
from typing import Any, overload

import numpy as np

from dualbcast.api.binding import Binder, Wrt, wrt_key
from dualbcast.api.derivative_methods import Derivatives
from dualbcast.api.dispatch import Dispatch
from dualbcast.api.inspection import Inspectable
from dualbcast.errors import ArgumentError, BackendError, CompileError
from dualbcast.program.jacobian import Jacobian
from dualbcast.program.typed_product import Backend, Keeping, Options

__all__ = ["BroadcastFunction", "differentiable_broadcast"]


class BroadcastFunction(Derivatives, Inspectable):
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
        jacobian: Keeping = "auto",
        max_iterations: int | None = None,
    ) -> None:
        if backend not in ("auto", "python", "cpu", "cuda"):
            raise BackendError(f"there is no backend {backend!r}; choose auto, python, cpu or cuda")
        # What is meant: the partial derivative in these, one after the other; and the function that it is the last of.
        self._partials: tuple[str | int, ...] = ()
        self._whole: BroadcastFunction | None = None
        if isinstance(function, BroadcastFunction):
            static, self._partials = static or tuple(function._binder.static), function._partials
            if function._whole is not None:
                options = Options(fastmath, backend, jacobian, max_iterations)._asdict()
                self._whole = BroadcastFunction(function._whole, wrt=wrt, static=static, **options)
            function = function._function
        try:
            self._binder: Binder = Binder(function, static)
        except CompileError as error:
            raise error.with_traceback(None) from None
        self._wrt = wrt_key(wrt)
        self._binder.check_wrt(self._wrt)
        if jacobian not in ("auto", "cache", "recompute"):
            raise ArgumentError(f"jacobian={jacobian!r} is no policy; choose auto, cache or recompute")
        self._choices = Options(fastmath, backend, jacobian, _checked(max_iterations))
        self._dispatch = Dispatch(self._binder, self._choices, self._wrt, self._partials)
        # A method's: the object, and the name that the class has for the function.
        self._instance: Any = None
        self._parts: dict[str | int, BroadcastFunction] = {}
        self._attribute, self._unbound = self._binder.name, self
        # Only a function's own attributes: an object's are its business.
        functools.update_wrapper(self, function, updated=("__dict__",) if isinstance(function, FunctionType) else ())
        self._function: Callable[..., Any] = function
        if self._partials:  # Whoever looks for the function that is meant must not take that for it.
            del vars(self)["__wrapped__"]
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
        if self._whole is not None:
            return self._whole.__get__(instance, owner).partial(self._partials[-1])
        # Kept with the object, for its kernels. The key is no attribute's, so that this is asked every time: a copy of
        # the object has a copy of the dictionary, with what is bound to the object that was copied.
        own = getattr(instance, "__dict__", None)
        kept = own if isinstance(own, dict) else {}
        bound = kept.get(self.__qualname__ + "()")
        if isinstance(bound, BroadcastFunction) and bound._instance is instance and bound._unbound is self:
            return bound
        bound = self._like(MethodType(self._function, instance))
        bound._instance, bound._attribute, bound._unbound = instance, self._attribute, self
        kept[self.__qualname__ + "()"] = bound
        return bound

    def __reduce__(self) -> str | tuple[Any, ...]:
        if self._whole is not None:
            return BroadcastFunction.partial, (self._whole, self._partials[-1])
        if self._instance is not None:
            return getattr, (self._instance, self._attribute)
        found: Any = sys.modules.get(self.__module__)
        for part in self.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is self:
            return str(self.__qualname__)
        return _rebuilt, (self._function, self._options)

    def __deepcopy__(self, memo: dict[int, Any]) -> BroadcastFunction:
        if self._whole is not None:
            return copy.deepcopy(self._whole, memo).partial(self._partials[-1])
        if isinstance(self._function, FunctionType):  # which is not copied either
            return self
        if self._instance is not None:
            copied: BroadcastFunction = getattr(copy.deepcopy(self._instance, memo), self._attribute)
            return copied
        return self._like(copy.deepcopy(self._function, memo))

    def _like(self, function: Callable[..., Any]) -> BroadcastFunction:
        """Another BroadcastFunction with these options."""
        return BroadcastFunction(function, **self._options)

    @property
    def _options(self) -> dict[str, Any]:
        static = tuple(sorted(self._binder.static))
        return {
            "wrt": self._wrt,
            "static": static,
            **self._choices._asdict(),
        }

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
        found, values = self._dispatch.find(arrays, named, None)
        if found.recorder is not None:
            # The graph makes the call its own way, and records it.
            return found.recorder(self, found, values, out)
        results, outputs = found.run("value", values, out)
        return results.value(outputs)

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
        found, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
        results, outputs = found.run("value_and_jacobian", values, out)
        return results.value(outputs), results.jacobian(outputs)

    def jacobian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> Jacobian:
        """The partial derivatives alone; see `value_and_jacobian`."""
        found, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
        results, outputs = found.run("jacobian", values)
        return results.jacobian(outputs)

    def partial(self, wrt: str | int) -> BroadcastFunction:
        """∂f/∂x as a BroadcastFunction of the same arguments, which can be differentiated again.

        Parameters
        ----------
        wrt : str or int
            The argument to differentiate in, by name or position; or a captured array, by name.

        Returns
        -------
        BroadcastFunction
            It returns what the function returns, with partial derivatives in the place of values. (Calling the
            derivative inside another scalar function is `dualbcast.derivative`.)

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
        key = None if isinstance(wrt, bool) or not isinstance(wrt, str | int | np.integer) else wrt_key(wrt)
        if not isinstance(key, str | int):
            raise ArgumentError(f"partial takes the name or the position of one argument, not {wrt!r}")
        self._binder.check_wrt(key)
        # Kept, so that asking again does not compile again; setdefault: two threads get one object.
        found = self._parts.get(key)
        if found is None:
            new = self._like(self._function)
            new._partials, new._whole = (*self._partials, key), self
            new._dispatch = Dispatch(new._binder, new._choices, new._wrt, new._partials)
            vars(new).pop("__wrapped__", None)
            found = self._parts.setdefault(key, new)
        return found


@overload
def differentiable_broadcast(function: Callable[..., Any], /) -> BroadcastFunction: ...
@overload
def differentiable_broadcast(
    *,
    wrt: Wrt = None,
    static: str | Sequence[str] = (),
    fastmath: bool = False,
    backend: Backend = "auto",
    jacobian: Keeping = "auto",
    max_iterations: int | None = None,
) -> Callable[[Callable[..., Any]], BroadcastFunction]: ...
def differentiable_broadcast(
    function: Callable[..., Any] | None = None,
    /,
    *,
    wrt: Wrt = None,
    static: str | Sequence[str] = (),
    fastmath: bool = False,
    backend: Backend = "auto",
    jacobian: Keeping = "auto",
    max_iterations: int | None = None,
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
    jacobian : {"auto", "cache", "recompute"}
        Whether a graph that records a call keeps the partial derivatives for the backward pass; see
        `graph.jacobian`.
    max_iterations : int, optional
        How many iterations each loop may take for an element, each time that the element comes to it. Where one would
        take more, the call raises `IterationError`, which names the first element and the loop. Kernels then also store
        and look at a byte for each element, for which a GPU is waited for.

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
    options = Options(fastmath, backend, jacobian, max_iterations)._asdict()
    if function is None:
        return lambda inner: BroadcastFunction(inner, wrt=wrt, static=static, **options)
    if not callable(function):
        raise ArgumentError("differentiable_broadcast decorates a function; give its options by keyword")
    return BroadcastFunction(function, wrt=wrt, static=static, **options)


def _checked(most: Any) -> int | None:
    if most is not None and (isinstance(most, bool) or not isinstance(most, int | np.integer) or most < 1):
        raise ArgumentError(f"max_iterations={most!r} is no number of iterations; give a positive integer, or None")
    return None if most is None else int(most)


def _rebuilt(function: Callable[..., Any], options: dict[str, Any]) -> BroadcastFunction:
    return BroadcastFunction(function, **options)
