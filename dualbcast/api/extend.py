"""The extension interface: rules for functions of your own, custom partials, and where differentiation ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from dualbcast.rules.registration import customise
from dualbcast.rules.table import Interval

Scalar = TypeVar("Scalar", bound=Callable[..., Any])


def custom_partials(
    partials: Callable[..., Any], *, domain: tuple[Interval, ...] | None = None
) -> Callable[[Scalar], Scalar]:
    """Give a scalar function partial derivatives of your own; its value is still computed by its body.

    Python calls the function as before. Wherever a kernel calls it, its result is a float that has these partials,
    whatever its body does. `dualbcast.testing.check_partials` compares them with the automatic ones.

    Parameters
    ----------
    partials : function
        From the arguments and then the result `y` to the tuple of partial derivatives, one for each argument, in the
        scalar language. A literal 0 says that the function never depends on that argument; nothing is computed for it.
        Its result for an argument that is an integer is not used.
    domain : tuple of (float, float), optional
        For each argument the closed interval in which `check_partials` takes points; [-20, 20] if not given.

    Raises
    ------
    ArgumentError
        The decorated object is no Python function, or the numbers of arguments differ.

    Examples
    --------
    A step that passes derivatives straight through:

    >>> import numpy as np
    >>> import dualbcast
    >>> @dualbcast.differentiable_broadcast
    ... @dualbcast.custom_partials(lambda x, y: (1.0,))
    ... def step(x):
    ...     return 1.0 if x > 0.5 else 0.0
    >>> y, J = step.value_and_jacobian(np.array([0.2, 0.7]))
    >>> y, J["x"]
    (array([0., 1.]), array([1., 1.]))
    """

    def decorate(function: Scalar) -> Scalar:
        customise(function, partials, domain, "custom_partials")
        return function

    return decorate


def not_differentiable(function: Scalar) -> Scalar:
    """Mark a scalar function as not differentiable: a Jacobian that needs its derivative is an error.

    Without the mark a function of comparisons and rounding has a derivative of zero. The value, and derivatives that
    do not pass through it, compile as ever; `stop_derivative` asks for the zero.

    Examples
    --------
    >>> import numpy as np
    >>> import dualbcast
    >>> @dualbcast.not_differentiable
    ... def level(x):
    ...     return int(4 * x)
    >>> f = dualbcast.differentiable_broadcast(lambda x, y: y * level(x))
    >>> x, y = np.array([0.3, 0.6]), 10.0
    >>> f(x, y), f.jacobian(x, y, wrt="y")["y"]
    (array([10., 20.]), array([1., 2.]))
    >>> f.jacobian(x, y)                                   # doctest: +ELLIPSIS
    Traceback (most recent call last):
      ...
    dualbcast.errors.CompileError: ...: level() is marked as not differentiable, and its derivative is needed here
    ...
    """
    customise(function, None, None, "not_differentiable")
    return function


@custom_partials(lambda x, y: (0,))  # noqa: ARG005
def stop_derivative(x: Any) -> Any:
    """The value of `x` with a derivative of zero.

    Works on plain numbers too. Integers pass through as they are.

    Examples
    --------
    >>> import numpy as np
    >>> import dualbcast
    >>> @dualbcast.differentiable_broadcast
    ... def f(x):
    ...     return x * dualbcast.stop_derivative(x)
    >>> f.jacobian(np.array([3.0]))["x"]
    array([3.])
    """
    return x
