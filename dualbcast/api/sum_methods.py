"""Sums of a BroadcastFunction over the elements, with their derivatives, and normal equations of residuals: one launch
reads the arrays once, and stores nothing of their size.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, overload

import numpy as np

from dualbcast.api.binding import Wrt
from dualbcast.api.dispatch import Dispatch
from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError, entry_point
from dualbcast.program.element import Ran, Summed
from dualbcast.program.results import Hessian, Jacobian

DERIVATIONS: dict[Any, Summed | None] = {
    0: None,
    1: "value_and_jacobian",
    2: "value_jacobian_and_hessian",
}


class SumAndGradient(NamedTuple):
    """A sum over the elements and its gradient: what `f.sum(…, order=1)` returns.

    Attributes
    ----------
    value : object
        The sum of each output: a number or an array, in the structure that the function returns.
    gradient : Jacobian
        Its derivatives, by name: `gradient["mu"]`.
    """

    value: Any
    gradient: Jacobian


class SumGradientAndHessian(NamedTuple):
    """A sum over the elements, its gradient and its Hessian: what `f.sum(…, order=2)` returns.

    Attributes
    ----------
    value : object
        The sum of each output.
    gradient : Jacobian
        Its derivatives.
    hessian : Hessian
        Its second derivatives, by two names: `hessian["mu", "sigma"]`. `np.asarray(hessian)` is the matrix.
    """

    value: Any
    gradient: Jacobian
    hessian: Hessian


class NormalEquations(NamedTuple):
    """Sums over the elements of residuals r with the Jacobian J and the weights w: see `f.normal_equations`.

    Attributes
    ----------
    sum_of_squares : object
        ∑ w r², a number or an array.
    gradient : Jacobian
        Jᵀ w r, by name: `gradient["slope"]`. It is half the gradient of the sum of squares.
    matrix : Hessian
        Jᵀ w J, by two names: `matrix["slope", "offset"]`. `np.asarray(matrix)` is the matrix.
    """

    sum_of_squares: Any
    gradient: Jacobian
    matrix: Hessian


class Sums:
    """The methods of a BroadcastFunction that sum over the elements."""

    _dispatch: Dispatch

    @overload
    def sum(self, *arrays: Any, wrt: Wrt = None, order: Literal[0] = 0, **named: Any) -> Any: ...
    @overload
    def sum(self, *arrays: Any, wrt: Wrt = None, order: Literal[1], **named: Any) -> SumAndGradient: ...
    @overload
    def sum(self, *arrays: Any, wrt: Wrt = None, order: Literal[2], **named: Any) -> SumGradientAndHessian: ...
    @entry_point
    def sum(self, *arrays: Any, wrt: Wrt = None, order: int = 0, **named: Any) -> Any:
        """The sum of the function over all elements, with its gradient and its Hessian, from one launch.

        Every sum has the shape of the arguments in `wrt`, over which the others are broadcast. For numbers that is the
        sum over all elements. For parameters of shape (rows, 1) beside data of shape (rows, points) or (points,) there
        is one sum for each row.

        Parameters
        ----------
        *arrays, **named
            The arguments, by position or by name.
        wrt : str, int, or sequence of them, optional
            The arguments to differentiate in, which have one shape; by default those of the decorator's `wrt`, or else
            all that are a number or an array of shape ().
        order : int
            0 for the sum alone, 1 with its gradient, 2 with its Hessian, too.

        Returns
        -------
        array, or structure of arrays
            For order 0, the sum of each output. Sums of floats are float64 (under JAX of a dtype that it has), and
            those of integers and bools int64.
        SumAndGradient
            For order 1: `value` and `gradient`.
        SumGradientAndHessian
            For order 2: `value`, `gradient` and `hessian`.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            The arguments do not fit, or those in `wrt` have several shapes; nothing has run.

        Notes
        -----
        Terms are added in float64, those of float64 arrays with compensation (Knuth's two-sum). The order of the
        additions depends on shapes and the processor, but not on the number of threads: nor does a bit of a sum.

        Examples
        --------
        >>> import math
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def log_density(x, mu, sigma):
        ...     z = (x - mu) / sigma
        ...     return -0.5 * z * z - math.log(sigma)
        >>> x = np.array([1.0, 2.0, 3.0, 6.0])
        >>> value, gradient, hessian = log_density.sum(x, 2.0, 1.0, order=2)
        >>> value, gradient["mu"], hessian["mu", "mu"]
        (np.float64(-9.0), np.float64(4.0), np.float64(-4.0))
        >>> step = np.linalg.solve(hessian, gradient)         # of Newton's method
        >>> log_density.sum(x, np.array([[2.0], [3.0]]), 1.0, wrt="mu", order=1).gradient["mu"]
        array([[4.],
               [0.]])
        """
        _, (results, outputs) = self._sums(arrays, named, wrt, order)
        value = results.value(outputs)
        if not order:
            return value
        gradient = Jacobian._of(results, outputs)
        if order == 1:
            return SumAndGradient(value, gradient)
        return SumGradientAndHessian(value, gradient, Hessian._of(results, outputs))

    @entry_point
    def normal_equations(self, *arrays: Any, wrt: Wrt = None, weights: Any = None, **named: Any) -> NormalEquations:
        """The normal equations of a function that returns residuals: ∑ r², Jᵀr and JᵀJ, from one launch.

        J has a row for each residual, and a column for each argument in `wrt`. For parameters of shape (rows, 1) beside
        data of shape (rows, points) or (points,) there is one system for each row: see `sum` for the shapes.

        Parameters
        ----------
        *arrays, **named, wrt
            As for `sum`.
        weights : array, or structure of arrays, optional
            The weight of each residual, of a shape that broadcasts to the residuals'; 1 if not given. If the function
            returns several residuals, a structure of weights like what it returns, or one array for all.

        Returns
        -------
        NormalEquations
            `sum_of_squares`, `gradient` and `matrix`, in float64. Several residuals are summed over, too.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            The arguments or weights do not fit, those in `wrt` have several shapes, or a residual is no float; nothing
            has run.

        Notes
        -----
        A step of Gauss and Newton is `-np.linalg.solve(matrix, gradient[..., None])[..., 0]`. Forming JᵀJ squares the
        condition number of J: A. Björck, *Numerical Methods for Least Squares Problems* (1996), section 2.2.

        Examples
        --------
        >>> import numpy as np
        >>> from dualbcast import differentiable_broadcast
        >>> @differentiable_broadcast
        ... def residual(x, y, slope, offset):
        ...     return slope * x + offset - y
        >>> x, y = np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 5.0])
        >>> squares, gradient, matrix = residual.normal_equations(x, y, 0.0, 0.0)
        >>> squares, np.asarray(matrix)
        (np.float64(35.0), array([[5., 3.],
               [3., 3.]]))
        >>> -np.linalg.solve(matrix, gradient)                # the slope and the offset
        array([2., 1.])
        """
        _, (results, outputs) = self._equations(arrays, named, wrt, weights)
        return NormalEquations(results.value(outputs), Jacobian._of(results, outputs), Hessian._of(results, outputs))

    def _equations(
        self, arrays: tuple[Any, ...], named: dict[str, Any], wrt: Wrt, weights: Any, *, flat: bool = False
    ) -> tuple[Specialisation, Ran]:
        """The specialisation for a call of `normal_equations`, and what it has computed. `flat` weights have no core
        dimensions."""
        wanted = self._dispatch.wrt_of(wrt)
        if wanted is None:
            wanted = self._numbers(arrays, named)
        specialisation, values = self._dispatch.find(arrays, named, wanted)
        element = specialisation.element
        if len(element.floats) < element.function.structure.count:
            raise ArgumentError("residuals are floats, and the function returns an integer or a bool; return float(…)")
        if weights is not None and not flat:
            weights = self._flat_weights(specialisation, weights)
        derivation: Summed = "normal_equations" if weights is None else "weighted_normal_equations"
        return specialisation, specialisation.sums(derivation, values, weights)

    def _flat_weights(self, specialisation: Specialisation, weights: Any) -> Any:  # noqa: ARG002
        """The weights as `Specialisation.sums` takes them."""
        return weights

    def _sums(self, arrays: tuple[Any, ...], named: dict[str, Any], wrt: Wrt, order: int) -> tuple[Specialisation, Ran]:
        """The specialisation for a call of `sum`, and what it has computed."""
        if not isinstance(order, int | float | np.integer) or isinstance(order, bool) or order not in DERIVATIONS:
            raise ArgumentError(f"order={order!r} is none of 0, 1 and 2, which stand for the highest derivatives")
        wanted = self._dispatch.wrt_of(wrt)
        if wanted is None:
            wanted = self._numbers(arrays, named) if order else ()
        specialisation, values = self._dispatch.find(arrays, named, wanted)
        return specialisation, specialisation.sums(DERIVATIONS[order], values)

    def _numbers(self, arrays: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, ...]:
        """The arguments of a float dtype and of shape ()."""
        specialisation, values = self._dispatch.find(arrays, named, None)
        return specialisation.numbers(values)
