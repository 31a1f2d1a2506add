"""Derivatives of a BroadcastFunction beyond its Jacobian: products with tangents and cotangents, and Hessians."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dualbcast.api.binding import Wrt
from dualbcast.api.dispatch import Dispatch, wrt_key
from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError, DualbcastError, entry_point
from dualbcast.program.outputs import Shape
from dualbcast.program.results import Hessian, Jacobian

Tangents = Sequence[Any] | Mapping[str, Any]


class Pullback:
    """A function that carries cotangents of a function's outputs back to its arguments. `vjp` returns it.

    Attributes
    ----------
    shape : tuple of int
        The shape of the outputs, and of their cotangents.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import differentiable_broadcast
    >>> product = differentiable_broadcast(lambda x, y: x * y)
    >>> value, pullback = product.vjp(np.array([1.0, 2.0]), 3.0)
    >>> pullback(np.ones(2))
    (array([3., 3.]), np.float64(3.0))
    """

    def __init__(self, specialisation: Specialisation, values: tuple[Any, ...], shape: Shape) -> None:
        self._specialisation, self._values, self.shape = specialisation, values, shape

    @property
    def wrt(self) -> tuple[str, ...]:
        """The names of the arguments whose cotangents a call returns."""
        return self._specialisation.wrt_names

    def __repr__(self) -> str:
        return f"<Pullback of {self._specialisation.element.label} to ({', '.join(self.wrt)}), shape {self.shape}>"

    def __call__(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments.

        Parameters
        ----------
        *cotangents : array
            One for each output, of the output's shape; or one object with the structure that the function returns.
            Cotangents of integer and bool outputs are not used, and may be None.

        Returns
        -------
        tuple of array
            One for each argument in `wrt`, of its shape and dtype. A Python number has one of the result's dtype. If no
            output depends on an argument, its cotangent is a read-only view of one zero.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            The cotangents do not fit; nothing has run.
        """
        try:
            return self._specialisation.back("pullback", self._values, cotangents)
        except DualbcastError as error:  # as in `entry_point`, without its time
            error.hide_own_frames()
            raise


class Derivatives:
    """The methods of a BroadcastFunction that give derivatives beyond its Jacobian."""

    _dispatch: Dispatch

    @entry_point
    def jvp(self, primals: Sequence[Any], tangents: Tangents, /, **named: Any) -> tuple[Any, Any]:
        """The value and its tangent along given tangents of the arguments, from one launch.

        Parameters
        ----------
        primals : sequence of array
            The arguments by position; others follow by name.
        tangents : sequence of (array or None), or mapping of str to array
            A tangent for each of `primals`, of a shape that broadcasts to the argument's, or None for zero; or tangents
            by names of arguments and captured arrays. A tangent is converted to the dtype of its argument.

        Returns
        -------
        value, tangent : array, or structure of arrays
            Both in the structure that the function returns. An array of equal numbers may be a read-only view of one.

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
        wanted, given = directions_of(primals, tangents)
        specialisation, values = self._dispatch.find(tuple(primals), named, wanted)
        results, outputs = specialisation.forward("pushforward", values, given)
        parts, structure = results.parts(outputs), specialisation.element.function.structure
        return structure.pack(parts[: structure.count]), structure.pack(parts[structure.count :])

    @entry_point
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
            cotangents, and sums over the dimensions along which an argument was broadcast. No Jacobian is stored. The
            arguments must not be changed in between.

        Raises
        ------
        CompileError, ArgumentError, ShapeError, DTypeError
            As for a call; nothing has run.

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
        specialisation, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
        specialisation.require_pullback()
        results, outputs = specialisation.run("value", values)
        return results.value(outputs), Pullback(specialisation, values, results.shape)

    @entry_point
    def value_and_vjp(
        self, primals: Sequence[Any], cotangents: Any, /, wrt: Wrt = None, **named: Any
    ) -> tuple[Any, tuple[Any, ...]]:
        """The value and the cotangents of the arguments from one launch, for given cotangents of the outputs.

        If the cotangents of the outputs depend on the value, use `vjp`: its `Pullback` gives the same cotangents.

        Parameters
        ----------
        primals : sequence of array
            The arguments by position; others follow by name.
        cotangents : array, or structure of arrays
            A cotangent for each output, in the structure that the function returns. Cotangents of integer and bool
            outputs are not used, and may be None.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in; as for `value_and_jacobian`.

        Returns
        -------
        value : array, or structure of arrays
        gradients : tuple of array
            As a `Pullback` gives them.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            The arguments or cotangents do not fit; nothing has run.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def scaled(x, scale):
        ...     return x * scale
        >>> scaled.value_and_vjp((np.array([1.0, 2.0, 3.0]), np.array(10.0)), np.ones(3))
        (array([10., 20., 30.]), (array([10., 10., 10.]), np.float64(6.0)))
        """
        if not isinstance(primals, tuple | list):
            raise ArgumentError(
                "the primals are a tuple with one for each argument: f.value_and_vjp((x, y), cotangent)"
            )
        specialisation, values = self._dispatch.find(tuple(primals), named, self._dispatch.wrt_of(wrt))
        structure = specialisation.element.function.structure
        parts = specialisation.back("value_and_pullback", values, (cotangents,))
        return structure.pack(parts[: structure.count]), parts[structure.count :]

    @entry_point
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
        specialisation, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
        results, outputs = specialisation.run("hessian", values)
        return Hessian._of(results, outputs)

    @entry_point
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
            Its blocks have the value's shape. Only one of ∂²f/∂x∂y and ∂²f/∂y∂x is computed and stored.

        Raises
        ------
        CompileError, ArgumentError, ShapeError, DTypeError
            As for a call; nothing has run.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> cube = differentiable_broadcast(lambda x: x**3)
        >>> value, J, H = cube.value_jacobian_and_hessian(np.array([1.0, 2.0]))
        >>> value, J["x"], H["x", "x"]
        (array([1., 8.]), array([ 3., 12.]), array([ 6., 12.]))
        """
        specialisation, values = self._dispatch.find(arrays, named, self._dispatch.wrt_of(wrt))
        results, outputs = specialisation.run("value_jacobian_and_hessian", values)
        return results.value(outputs), Jacobian._of(results, outputs), Hessian._of(results, outputs)

    @entry_point
    def hvp(self, primals: Sequence[Any], tangents: Tangents, /, wrt: Wrt = None, **named: Any) -> Jacobian:
        """The product of every element's Hessian with tangents: the change of its gradient along them.

        Parameters
        ----------
        primals, tangents
            As for `jvp`.
        wrt : str, int, or sequence of them, optional
            The arguments in which the gradient is taken; by default those that have a tangent.

        Returns
        -------
        Jacobian
            Its block for an argument x is Σ ∂²f/∂x∂a · tangent of a, over the arguments a that have one.

        Raises
        ------
        CompileError, ArgumentError, ShapeError, DTypeError
            The arguments or tangents do not fit, or none has a tangent; nothing has run.

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
        wanted, given = directions_of(primals, tangents)
        specialisation, values = self._dispatch.find(
            tuple(primals), named, wanted, None if wrt is None else wrt_key(wrt)
        )
        results, outputs = specialisation.forward("tangent", values, given)
        return Jacobian._of(results, outputs)


def directions_of(primals: Sequence[Any], tangents: Tangents) -> tuple[tuple[str | int, ...], list[Any]]:
    """The arguments that have a tangent, and those tangents."""
    if not isinstance(primals, tuple | list):
        raise ArgumentError("the primals are a tuple with one for each argument: f.jvp((x, y), (x_tangent, y_tangent))")
    pairs: Iterable[tuple[str | int, Any]]
    if isinstance(tangents, Mapping):
        pairs = tangents.items()
    elif isinstance(tangents, tuple | list) and len(tangents) == len(primals):
        pairs = enumerate(tangents)
    else:
        raise ArgumentError("the tangents are a tuple with one for each of the primals, or None where one is zero")
    nonzero = [(at, tangent) for at, tangent in pairs if tangent is not None]
    return tuple(at for at, _ in nonzero), [tangent for _, tangent in nonzero]
