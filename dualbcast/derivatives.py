"""Derivatives of a BroadcastFunction beyond its Jacobian: partials as functions, products with vectors, Hessians."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast.element import Element
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.hessian import Hessian
from dualbcast.jacobian import Jacobian
from dualbcast.products import Which
from dualbcast.runtime.operands import DType, Signature
from dualbcast.signature import Wrt
from dualbcast.structure import Structure

if TYPE_CHECKING:
    from dualbcast.api import BroadcastFunction
    from dualbcast.call import Call

__all__ = ["Derivatives", "Located", "Pullback", "gradient_dtypes"]

Tangents = Sequence[Any] | Mapping[str, Any]


class Located:
    """A call's element function with its arguments: the arrays and numbers, and the captured arrays.

    Attributes
    ----------
    element : Element
    values : tuple
    signature : Signature
    wrt : tuple of int
        The parameters to differentiate in.
    """

    __slots__ = ("element", "signature", "values", "wrt")

    def __init__(self, element: Element, values: tuple[Any, ...], signature: Signature, wrt: tuple[int, ...]) -> None:
        self.element, self.values, self.signature, self.wrt = element, values, signature, wrt


class Derivatives:
    """The methods of a BroadcastFunction that give derivatives; it supplies the three below."""

    def _locate(self, args: tuple[Any, ...], named: dict[str, Any], wrt: Wrt) -> Located:
        raise NotImplementedError

    def _prepare(self, which: Which, args: tuple[Any, ...], named: dict[str, Any], wrt: Wrt, out: Any = None) -> Call:
        raise NotImplementedError

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
        raise NotImplementedError

    def jvp(self, primals: Sequence[Any], tangents: Tangents, **named: Any) -> tuple[Any, Any]:
        """The value and its tangent along given tangents of the arguments, from one launch.

        Parameters
        ----------
        primals : sequence of array
            The arguments by position; others follow by name.
        tangents : sequence of (array or None), or mapping of str to array
            For each of `primals` its tangent, of a shape that broadcasts to its own; None where that is zero. A mapping
            names the arguments, or captured arrays, that have one.

        Returns
        -------
        value, tangent : array, or structure of arrays
            Both as the function returns them.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            The arguments or tangents do not fit; nothing has run.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def product(x, y):
        ...     return x * y
        >>> product.jvp((np.array([1.0, 2.0]), 3.0), (np.array([1.0, 1.0]), None))
        (array([3., 6.]), array([3., 3.]))
        """
        wanted, given = _directions(primals, tangents)
        found = self._locate(tuple(primals), named, wanted)
        element, values = found.element, found.values
        _check_tangents(found, given)
        structure = element.function.structure
        results = element.pushforward(found.wrt).parts((*values, *_like(found, given)))
        return structure.pack(results[: structure.count]), structure.pack(results[structure.count :])

    def vjp(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> tuple[Any, Pullback]:
        """The value, and the function that pulls cotangents of it back to the arguments.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in; as for `value_and_jacobian`.

        Returns
        -------
        value : array, or structure of arrays
        pullback : Pullback
            Called with cotangents it launches one kernel, which computes the derivatives anew, contracts them with the
            cotangents, and sums over the dimensions along which an argument was broadcast: no Jacobian is stored. The
            arguments must not be changed before.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def scaled(x, scale):
        ...     return x * scale
        >>> value, pullback = scaled.vjp(np.array([1.0, 2.0, 3.0]), np.array(10.0))
        >>> pullback(np.ones(3))
        (array([10., 10., 10.]), np.float64(6.0))
        """
        found = self._locate(arrays, named, wrt)
        call = self._prepare("value", arrays, named, None)
        call.run()
        structure = found.element.function.structure
        outputs = call.plan.finish()
        return structure.pack(outputs), Pullback(found, structure, call.shape, call.spec.dtypes)

    def hessian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> Hessian:
        """The second partial derivatives of every element, from one launch; see `value_jacobian_and_hessian`.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def f(x, y):
        ...     return x * x * y
        >>> H = f.hessian(np.array([1.0, 2.0]), 3.0)
        >>> H["x", "x"], H["y", "x"], H["y", "y"]
        (array([6., 6.]), array([2., 4.]), array([0., 0.]))
        """
        call = self._prepare("hessian", arrays, named, wrt)
        call.run()
        return _hessian(call, call.plan.finish())

    def value_jacobian_and_hessian(self, *arrays: Any, wrt: Wrt = None, **named: Any) -> tuple[Any, Jacobian, Hessian]:
        """The value, its first and its second partial derivatives, from one launch.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in; as for `value_and_jacobian`.

        Returns
        -------
        value : array, or structure of arrays
        jacobian : Jacobian
        hessian : Hessian
            Only one of ∂²f/∂x∂y and ∂²f/∂y∂x is computed and stored.
        """
        call = self._prepare("value_jacobian_and_hessian", arrays, named, wrt)
        call.run()
        outputs = call.plan.finish()
        values = call.spec.product.structure.pack(outputs[: call.spec.product.values])
        return values, call.jacobian(), _hessian(call, outputs)

    def hvp(self, primals: Sequence[Any], tangents: Tangents, wrt: Wrt = None, **named: Any) -> Jacobian:
        """The products of the Hessian of every element with tangents: how its gradient changes along them.

        Parameters
        ----------
        primals, tangents
            As for `jvp`.
        wrt : str, int, or sequence of them, optional
            The arguments whose gradient is meant; by default those that have a tangent.

        Returns
        -------
        Jacobian
            Its block for an argument x is Σ ∂²f/∂x∂a · tangent of a, over the arguments a that have one.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def f(x, y):
        ...     return x * x * y
        >>> f.hvp((np.array([1.0, 2.0]), 3.0), (1.0, None), wrt=("x", "y"))["y"]
        array([2., 4.])
        """
        wanted, given = _directions(primals, tangents)
        found = self._locate(tuple(primals), named, wanted)
        _check_tangents(found, given)
        positions = found.wrt if wrt is None else self._locate(tuple(primals), named, wrt).wrt
        values = (*found.values, *_like(found, given))
        call = found.element.tangent(found.wrt).prepare("jacobian", values, positions)
        call.run()
        call.plan.finish()
        return call.jacobian()


class Pullback:
    """Carries cotangents of a function's outputs back to its arguments; what `vjp` returns.

    Attributes
    ----------
    wrt : tuple of str
        The arguments that it gives cotangents of.
    shape : tuple of int
        What the cotangents of the outputs must have.
    """

    def __init__(
        self, located: Located, structure: Structure, shape: tuple[int, ...], dtypes: tuple[DType, ...]
    ) -> None:
        self._located, self._structure, self.shape, self._dtypes = located, structure, shape, dtypes
        self.wrt = tuple(located.element.names[at] for at in located.wrt)

    def __repr__(self) -> str:
        return f"<Pullback of {self._located.element.label} to ({', '.join(self.wrt)}), shape {self.shape}>"

    def __call__(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments.

        Parameters
        ----------
        *cotangents : array
            One for each output, of its shape; or one object such as the function returns, with them in it. Those of
            outputs that are integers or bools do not matter, and may be None.

        Returns
        -------
        tuple of array
            One for each argument in `wrt`, of its shape and dtype.
        """
        call = self.prepare(*cotangents)
        call.run()
        return call.results()

    def prepare(self, *cotangents: Any) -> Call:
        """The call that is about to run."""
        located, structure = self._located, self._structure
        if len(cotangents) == 1 and structure.holds(cotangents[0]):
            cotangents = structure.flatten(cotangents[0], "the cotangent")
        if len(cotangents) != structure.count:
            raise ArgumentError(f"{structure.count} cotangents are needed, one for each output; got {len(cotangents)}")
        given = []
        for at in located.element.floats:
            cotangent = cotangents[at]
            if cotangent is None:
                raise ArgumentError(f"the cotangent of output {at} is None; give zeros where it is zero")
            if np.shape(cotangent) != self.shape:
                raise ShapeError(f"a cotangent must have the output's shape {self.shape}, not {np.shape(cotangent)}")
            given.append(_as_dtype(cotangent, self._dtypes[at]))
        dtypes, shapes = gradient_dtypes(located), gradient_shapes(located)
        element = located.element.pullback(located.wrt)
        return element.prepare("parts", (*located.values, *given), (), dtypes, shapes)


def gradient_dtypes(located: Located) -> tuple[DType, ...]:
    """The dtypes of the cotangents of arguments: their own, and for Python numbers that of the result."""
    tokens = [located.signature.tokens[at] for at in located.wrt]
    return tuple(located.signature.result_dtype if isinstance(token, type) else token for token in tokens)


def gradient_shapes(located: Located) -> tuple[tuple[int, ...], ...]:
    """The shapes of the cotangents of arguments."""
    return tuple(np.shape(located.values[at]) for at in located.wrt)


def _directions(primals: Sequence[Any], tangents: Tangents) -> tuple[tuple[str | int, ...], list[Any]]:
    """The arguments that have a tangent, and those tangents."""
    if not isinstance(primals, tuple | list):
        raise ArgumentError("the primals are a tuple with one for each argument: f.jvp((x, y), (x_tangent, y_tangent))")
    if isinstance(tangents, Mapping):
        return tuple(tangents), list(tangents.values())
    if not isinstance(tangents, tuple | list) or len(tangents) != len(primals):
        raise ArgumentError("the tangents are a tuple with one for each of the primals, or None where one is zero")
    pairs = [(at, tangent) for at, tangent in enumerate(tangents) if tangent is not None]
    return tuple(at for at, _ in pairs), [tangent for _, tangent in pairs]


def _check_tangents(found: Located, given: list[Any]) -> None:
    if not given:
        raise ArgumentError("no argument has a tangent; give at least one")
    if len(found.wrt) != len(given):
        raise ArgumentError("an argument has two tangents")
    for at, tangent in zip(found.wrt, given, strict=True):
        own, shape = np.shape(found.values[at]), np.shape(tangent)
        extra = len(own) - len(shape)
        if extra < 0 or any(size not in (1, whole) for size, whole in zip(shape, own[extra:], strict=True)):
            raise ShapeError(f"the tangent of {found.element.names[at]} has shape {shape}; its own is {own}")


def _like(found: Located, given: list[Any]) -> list[Any]:
    """Tangents of the dtypes of their primals, so that they do not change that of the result."""
    dtypes = gradient_dtypes(found)
    return [_as_dtype(tangent, dtype) for tangent, dtype in zip(given, dtypes, strict=True)]


def _as_dtype(array: Any, dtype: DType) -> Any:
    if hasattr(array, "astype"):
        return array if array.dtype == dtype else array.astype(dtype)
    return np.asarray(array, dtype)


def _hessian(call: Call, outputs: tuple[Any, ...]) -> Hessian:
    names = call.operands.names
    blocks = {
        (place[0], names[place[1]], names[place[2]]): call.block(place, outputs)
        for place in call.spec.product.blocks
        if len(place) == 3
    }
    return Hessian(blocks, tuple(names[at] for at in call.spec.wrt), call.spec.product.structure, call.shape)
