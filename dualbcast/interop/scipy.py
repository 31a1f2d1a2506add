"""Functions for SciPy's solvers, with exact derivatives: a scalar function comes in, `fun` and `jac` go out.

SciPy asks for a function and for its derivatives one after the other, at the same point. Here `fun` computes both from
one launch, and a `jac` that follows at that point returns what is there already.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from inspect import Parameter
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.interop.parameters import (
    Arguments,
    LastPoint,
    broadcast_function,
    parameters_of,
    real_numbers,
    shape_of,
)
from dualbcast.ir.nodes import NUMBER
from dualbcast.program.outputs import Shape, sum_to
from dualbcast.program.results import Jacobian

__all__ = ["Curve", "Objective", "Residuals", "RightHandSide"]


def __dir__() -> list[str]:
    """The public names, for completion at the prompt."""
    return __all__


class Problem:
    """A scalar function of data and of unknowns, which SciPy has in one vector `x`."""

    def __init__(
        self,
        function: Callable[..., Any],
        data: Mapping[str, Any] | None = None,
        *,
        parameters: Sequence[str] | None = None,
        shapes: Mapping[str, int | Shape] | None = None,
    ) -> None:
        self._arguments = Arguments(function, {} if data is None else data, parameters, shapes or {})
        self._last = LastPoint()

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names of the unknowns, in the order of `x`."""
        return self._arguments.parameters


class Residuals(Problem):
    """Residuals and their Jacobian, for `scipy.optimize.least_squares` and `scipy.optimize.root`.

    Parameters
    ----------
    function : BroadcastFunction, or function
        A scalar function of data and parameters. It returns a residual, or a tuple of residuals.
    data : mapping of str to array, optional
        The arguments that are known, by name. The arrays broadcast together.
    parameters : sequence of str, optional
        The names of the unknowns, in the order in which SciPy has them in `x`. By default all arguments without a
        default that are not in `data`, in the order of the function's signature.
    shapes : mapping of str to int or tuple of int, optional
        The shapes of parameters that are arrays. They broadcast with the data, and their elements stand in `x` one
        after the other. All other parameters are numbers.
    sparse : bool, optional
        Whether `jac` gives a `scipy.sparse.csr_array`, which pays if parameters are arrays.

    Notes
    -----
    All residuals are in one vector: those of the first output for all elements, then those of the second. The data are
    copied.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from scipy.optimize import least_squares
    >>> from dualbcast import differentiable_broadcast
    >>> from dualbcast.interop.scipy import Residuals
    >>> @differentiable_broadcast
    ... def misfit(t, y, amplitude, rate):
    ...     return amplitude * math.exp(-rate * t) - y
    >>> t = np.linspace(0, 3, 50)
    >>> residuals = Residuals(misfit, {"t": t, "y": 2 * np.exp(-0.5 * t)})
    >>> least_squares(residuals.fun, [1.0, 1.0], jac=residuals.jac).x.round(6)
    array([2. , 0.5])
    """

    def __init__(
        self,
        function: Callable[..., Any],
        data: Mapping[str, Any] | None = None,
        *,
        parameters: Sequence[str] | None = None,
        shapes: Mapping[str, int | Shape] | None = None,
        sparse: bool = False,
    ) -> None:
        super().__init__(function, data, parameters=parameters, shapes=shapes)
        self._sparse, self._are_numbers = sparse, not any(self._arguments.shapes)

    def fun(self, x: Any) -> Any:
        """The residuals, of shape (outputs * elements,)."""
        value, jacobian = self._compute(x)
        self._last.keep(x, jacobian)
        return _ravelled(jacobian, value)

    def jac(self, x: Any) -> Any:
        """Their derivatives in `x`, of shape (outputs * elements, elements of all parameters)."""
        jacobian = self._last.take(x)
        if jacobian is None:
            _, jacobian = self._compute(x)
        if self._sparse:
            return jacobian.sparse()
        return jacobian.matrix() if self._are_numbers else jacobian.sparse().toarray()

    def _compute(self, x: Any) -> tuple[Any, Jacobian]:
        args, named = self._arguments.of(x)
        out = "matrix" if self._are_numbers and not self._sparse else None
        return self._arguments.function.value_and_jacobian(*args, wrt=self.parameters, out=out, **named)


class Objective(Problem):
    """The sum of a function over all elements, its gradient and its Hessian, for `scipy.optimize.minimize`.

    Parameters
    ----------
    function : BroadcastFunction, or function
        A scalar function of data and parameters that returns a number, such as a loss or a negative log-likelihood.
    data, parameters, shapes
        As for `Residuals`.

    Examples
    --------
    >>> from scipy.optimize import minimize
    >>> from dualbcast.interop.scipy import Objective
    >>> rosenbrock = Objective(lambda x, y: (1 - x) ** 2 + 100 * (y - x * x) ** 2)
    >>> minimize(rosenbrock.fun, [-1.2, 1.0], jac=rosenbrock.jac, method="BFGS").x.round(4)
    array([1., 1.])
    >>> start = {"x0": [-1.2, 1.0], "jac": rosenbrock.jac}
    >>> minimize(rosenbrock.fun, **start, hess=rosenbrock.hess, method="trust-exact").x.round(4)
    array([1., 1.])
    >>> minimize(rosenbrock.fun, **start, hessp=rosenbrock.hessp, method="trust-ncg").x.round(4)
    array([1., 1.])
    """

    # The cotangent of each element.
    _ones: Any = None

    def fun(self, x: Any) -> float:
        """The sum of the function's values."""
        value, gradient = self.fun_and_jac(x)
        self._last.keep(x, gradient)
        return value

    def jac(self, x: Any) -> Any:
        """Its gradient, of the shape of `x`."""
        gradient = self._last.take(x)
        return self.fun_and_jac(x)[1] if gradient is None else gradient

    def fun_and_jac(self, x: Any) -> tuple[float, Any]:
        """Both, for `minimize(…, jac=True)`."""
        args, named = self._arguments.of(x)
        if self._ones is None:
            value = self._arguments.function(*args, **named)
            if not isinstance(value, np.ndarray | np.generic):
                raise ArgumentError(f"{self._arguments.label} must return one number, whose sum is to be minimized")
            self._ones = np.broadcast_to(1.0, value.shape)
        value, gradients = self._arguments.function.value_and_vjp(args, self._ones, wrt=self.parameters, **named)
        return float(np.sum(value)), np.concatenate([np.ravel(gradient) for gradient in gradients])

    def hess(self, x: Any) -> Any:
        """The matrix of its second derivatives."""
        args, named = self._arguments.of(x)
        blocks = self._arguments.function.hessian(*args, wrt=self.parameters, **named)
        places, size = dict(zip(self.parameters, self._arguments.places(), strict=True)), self._arguments.size
        hessian = np.zeros(size * size)
        for p, q in itertools.product(self.parameters, repeat=2):
            entries = places[p] * size + places[q]
            if np.ndim(entries):
                entries = np.broadcast_to(entries, blocks.shape).ravel()
                hessian += np.bincount(entries, np.ravel(blocks[p, q]), size * size)
            else:
                hessian[entries] = np.sum(blocks[p, q])
        return hessian.reshape(size, size)

    def hessp(self, x: Any, p: Any) -> Any:
        """The product of that matrix with a vector, computed without the matrix."""
        args, named = self._arguments.of(x)
        tangents = dict(zip(self.parameters, self._arguments.split(p), strict=True))
        blocks = self._arguments.function.hvp(args, tangents, wrt=self.parameters, **named)
        shapes = self._arguments.shapes
        products = [sum_to(blocks[name], shape) for name, shape in zip(self.parameters, shapes, strict=True)]
        return np.concatenate([np.ravel(product) for product in products])


class Curve:
    """A curve and its Jacobian in the parameters, for `scipy.optimize.curve_fit`.

    Parameters
    ----------
    function : BroadcastFunction, or function
        A scalar function of the independent variables and then the parameters.
    variables : int, optional
        The number of independent variables. If there are several, `xdata` has one in each row.

    Notes
    -----
    `xdata` must not be changed between a call of `f` and one of `jac` at the same point.

    Examples
    --------
    >>> import math
    >>> import numpy as np
    >>> from scipy.optimize import curve_fit
    >>> from dualbcast.interop.scipy import Curve
    >>> decay = Curve(lambda t, amplitude, rate: amplitude * math.exp(-rate * t))
    >>> t = np.linspace(0, 3, 50)
    >>> optimum, covariance = curve_fit(decay.f, t, 2 * np.exp(-0.5 * t), jac=decay.jac)
    >>> optimum.round(6)
    array([2. , 0.5])
    """

    def __init__(self, function: Callable[..., Any], variables: int = 1) -> None:
        self._function, self._variables, self._last = broadcast_function(function), variables, LastPoint()
        self._named = parameters_of(self._function, {}, None)[variables:]
        if not self._named:
            raise ArgumentError(f"{self._function.__name__}() has no parameters beside {variables} variables")

    @cached_property
    def f(self) -> Callable[..., Any]:
        """The curve as `curve_fit` calls it, `f(xdata, *parameters)`."""

        def f(xdata: Any, *parameters: Any) -> Any:
            value, jacobian = self._compute(xdata, parameters)
            self._last.keep(parameters, jacobian, xdata)
            return value

        # From this curve_fit knows the number of parameters.
        names = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("xdata", *self._named)]
        f.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
        return f

    def jac(self, xdata: Any, *parameters: Any) -> Any:
        """Its derivatives in the parameters, of shape (elements, parameters)."""
        jacobian = self._last.take(parameters, xdata)
        if jacobian is None:
            _, jacobian = self._compute(xdata, parameters)
        return jacobian.matrix()

    def _compute(self, xdata: Any, parameters: tuple[Any, ...]) -> tuple[Any, Jacobian]:
        xdata = real_numbers(xdata, "xdata")
        variables = tuple(xdata) if self._variables > 1 else (xdata,)
        if len(variables) != self._variables:
            raise ShapeError(
                f"xdata has {len(variables)} rows; it must have one for each of {self._variables} variables"
            )
        if len(parameters) != len(self._named):
            raise ArgumentError(f"{len(parameters)} parameters are given; the curve has ({', '.join(self._named)})")
        named = dict(zip(self._named, real_numbers(parameters, "a parameter"), strict=True))
        return self._function.value_and_jacobian(*variables, wrt=self._named, out="matrix", **named)


class RightHandSide:
    """The right-hand side of differential equations and its Jacobian, for `scipy.integrate.solve_ivp`.

    Parameters
    ----------
    function : BroadcastFunction, or function
        A scalar function of time, the state variables and parameters. It returns the time derivatives of the state
        variables, in their order, as a tuple; for one state variable, a number.
    data : mapping of str to array, optional
        The parameters, by name. All arguments after the first that have no default and are not in `data` are state
        variables.
    shape : int or tuple of int, optional
        For many independent systems side by side, which are solved with the same time steps: the shape of each state
        variable, with which the parameters broadcast. In `y` they stand one after the other: `y.reshape(-1, *shape)`
        has one in each row. The Jacobian is then sparse, as methods BDF and Radau take it.

    Examples
    --------
    >>> from scipy.integrate import solve_ivp
    >>> from dualbcast.interop.scipy import RightHandSide
    >>> def oscillator(t, x, v, damping):
    ...     return v, damping * (1 - x * x) * v - x
    >>> system = RightHandSide(oscillator, {"damping": 100.0})
    >>> solution = solve_ivp(system.fun, (0, 200), [2.0, 0.0], method="BDF", jac=system.jac)
    >>> solution.success
    True
    """

    def __init__(
        self, function: Callable[..., Any], data: Mapping[str, Any] | None = None, *, shape: int | Shape = ()
    ) -> None:
        self._shape = shape_of(shape)
        function, data = broadcast_function(function), {} if data is None else data
        time, *states = parameters_of(function, data, None) or ("",)
        if next(iter(function.__signature__.parameters), None) != time:
            raise ArgumentError(f"the first argument of {function.__name__}() must be the time; data= cannot have it")
        self._states, self._shapes = tuple(states), dict.fromkeys(states, self._shape)
        self._arguments = Arguments(function, data, [time, *states], self._shapes)

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the state variables, in the order of `y`."""
        return self._states

    def fun(self, t: float, y: Any) -> Any:
        """The time derivatives of `y`."""
        args, named = self._arguments.of(_with_time(t, y))
        value = self._arguments.function(*args, **named)
        values = value if isinstance(value, tuple | list) else (value,)
        self._check(len(values), np.shape(values[0]))
        return np.concatenate([np.ravel(each) for each in values])

    def jac(self, t: float, y: Any) -> Any:
        """The derivatives of `fun(t, y)` in `y`: a matrix, and a sparse one for systems side by side."""
        args, named = self._arguments.of(_with_time(t, y))
        jacobian = self._arguments.function.jacobian(*args, wrt=self._states, **named)
        self._check(jacobian.outputs, jacobian.shape)
        return jacobian.sparse() if self._shape else jacobian.matrix()

    def _check(self, outputs: int, shape: Shape) -> None:
        label, states = self._arguments.label, ", ".join(self._states)
        if outputs != len(self._states):
            raise ArgumentError(
                f"{label} returns {outputs} of the derivatives of {len(self._states)} state variables ({states}); "
                "give its parameters in data="
            )
        if shape != self._shape:
            raise ShapeError(f"the result of {label} has shape {shape}; give shape={shape}, or other data")


def _with_time(t: float, y: Any) -> Any:
    """The vector of time and state variables."""
    y = real_numbers(y, "y")
    if y.ndim != 1:
        raise ShapeError(f"y has shape {y.shape}; it is one vector, so leave vectorized=True out of solve_ivp")
    return np.concatenate(([t], y))


def _ravelled(jacobian: Jacobian, value: Any) -> Any:
    """The elements of all outputs in one vector, in the order of the rows of `jacobian.matrix()`."""
    if jacobian.structure == NUMBER:
        return np.ravel(value)
    return np.concatenate([np.ravel(output) for output in jacobian.structure.flatten(value)])
