"""Transformations: gradients, and products with Jacobians.

Comes in: a function of arrays, written in operations on Variables. Goes out: a function that gives derivatives.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, DTypeError, ShapeError, a_or_an
from dualbcast.foreign_objects import is_plain, refused_result
from dualbcast.graph.arrays import is_float, leaves, map_leaves, namespace, rebuild
from dualbcast.graph.backward import backward
from dualbcast.graph.frozen import thaw_on_failure
from dualbcast.graph.nesting import Level, check_results, evaluate, is_tracked, name_of, or_zeros
from dualbcast.graph.operations.elementwise import astype
from dualbcast.graph.primitives import zeros
from dualbcast.graph.variable import Variable

Wrt = int | str | Sequence[int | str]


def grad(of: Any, wrt: Any = 0, *, has_aux: bool = False, record: bool = False) -> Any:
    """The gradient of a function, or of a number that has been computed.

    Parameters
    ----------
    of : callable or Variable
        A function that returns one number (a Variable of no dimensions); or such a number, for its gradient in
        Variables from which it was computed.
    wrt : int, str, or sequence of them; or Variable, or container of them
        Of a function the arguments to differentiate in, by position or name: arrays of a float dtype, Python floats,
        Variables, or nested containers of these (dicts, lists, tuples, dataclasses). Of a Variable, the Variables.
    has_aux : bool
        Whether the function returns a pair of the number and an auxiliary value, which is handed on.
    record : bool
        For a Variable: whether the gradient is recorded, and so a Variable that can be differentiated again.

    Returns
    -------
    callable
        For a function, another function of the same arguments. It returns the gradient in a container like the
        argument; if `wrt` is a sequence, a tuple of gradients; with `has_aux`, the pair of these and the auxiliary
        value. From arrays it returns arrays. Called with Variables, or inside another transformation, it returns
        Variables and is recorded itself.
    array, Variable, or container of them
        For a Variable: its gradient.

    Raises
    ------
    ArgumentError, DTypeError, ShapeError
        There is no gradient: the result is not one number, or an argument has an integer dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> def f(x):
    ...     return np.sum(x**3)
    >>> graph.grad(f)(np.array([1.0, 2.0]))
    array([ 3., 12.])
    >>> graph.grad(lambda x: np.sum(graph.grad(f)(x)))(np.array([1.0, 2.0]))
    array([ 6., 12.])

    Of a number that was computed:

    >>> w, b = graph.Variable([1.0, 2.0]), graph.Variable(0.5)
    >>> loss = (np.sum(w * np.array([3.0, 4.0])) + b) ** 2
    >>> graph.grad(loss, {"w": w, "b": b})
    {'w': array([69., 92.]), 'b': np.float64(23.0)}
    """
    if isinstance(of, Variable):
        return _gradient_of(of, wrt, record)
    _check_callable(of, "grad")
    both = value_and_grad(of, wrt, has_aux=has_aux)

    @_named_after(of, "grad")
    def gradient(*args: Any, **named: Any) -> Any:
        value, gradients = both(*args, **named)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


def value_and_grad(function: Callable[..., Any], wrt: Wrt = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """The value of a function together with its gradient; see `grad`.

    Returns
    -------
    callable
        It returns the pair of the value and the gradient. With `has_aux` the value is the pair that the function
        returns.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> def loss(parameters, x):
    ...     return np.mean((x @ parameters["w"] + parameters["b"]) ** 2)
    >>> value, gradient = graph.value_and_grad(loss)({"w": np.ones(2), "b": 0.0}, np.eye(2))
    >>> print(value, gradient)
    1.0 {'w': array([1., 1.]), 'b': np.float64(2.0)}
    """
    _check_callable(function, "value_and_grad")
    many = isinstance(wrt, list | tuple)

    @_named_after(function, "value_and_grad")
    @thaw_on_failure
    def transformed(*args: Any, **named: Any) -> Any:
        level = Level((args, named))
        given: dict[Any, Any] = {**dict(enumerate(args)), **named}
        positions = [_position(function, each, args, named) for each in (wrt if many else [wrt])]  # type: ignore[union-attr]
        trees = [level.enter(given[position], f"argument {position}") for position in positions]
        given.update(zip(positions, trees, strict=True))
        result = evaluate(function, *[given[at] for at in range(len(args))], **{name: given[name] for name in named})
        heads = _heads(_number(result, function, has_aux))
        value = level.leave(result)
        del result  # so the backward pass can free values as it goes
        gradients = _like_trees(trees, level.gradients(heads))
        return value, gradients if many else gradients[0]

    return transformed


@thaw_on_failure
def vjp(function: Callable[..., Any], *args: Any) -> tuple[Any, Callable[..., Any]]:
    """The value of a function, and its pullback, which carries cotangents of the value back to the arguments.

    Parameters
    ----------
    function : callable
        It returns a Variable, or a container of them.
    *args
        All its arguments. The function is differentiated in each of them; they may be the same as for `grad`.

    Returns
    -------
    value
        The result of the function.
    pullback : callable
        It takes a cotangent for each array in the value, in a container like the value, and returns a tuple with the
        cotangent of each argument. It may be called many times, and keeps all arrays that the derivative needs.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> value, pullback = graph.vjp(lambda a, x: a @ x, np.eye(2), np.array([1.0, 2.0]))
    >>> pullback(np.array([1.0, 10.0]))
    (array([[ 1.,  2.],
           [10., 20.]]), array([ 1., 10.]))
    """
    _check_callable(function, "vjp")
    level = Level(args)
    trees = [level.enter(arg, f"argument {at}") for at, arg in enumerate(args)]
    result = evaluate(function, *trees)
    check_results(result, name_of(function))
    outputs = leaves(result)

    @thaw_on_failure
    def pullback(cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments."""
        inner = level.also((cotangents,))
        given = _matched(cotangents, result, outputs, "cotangent")
        heads = [(output, each) for output, each in zip(outputs, given, strict=True) if is_tracked(output)]
        return _like_trees(trees, inner.gradients(heads))

    return level.leave(result), pullback


@thaw_on_failure
def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of a function, and its tangent along tangents of the arguments.

    Parameters
    ----------
    function : callable
        It returns a Variable, or a container of them.
    primals : sequence
        All its arguments, which may be the same as for `grad`.
    tangents : sequence
        For each argument a tangent, in a container like it; or None where it is zero.

    Returns
    -------
    value, tangent
        Both as the function returns them.

    Notes
    -----
    The pullback is linear in the cotangent, and the pullback of that is the product with the tangents: J. Townsend, "A
    new trick for calculating Jacobian vector products" (2017). It costs about three evaluations, and keeps the same
    arrays as `vjp`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.jvp(np.sin, (np.array([0.0, 1.0]),), (np.array([1.0, 0.0]),))[1]
    array([1., 0.])
    """
    _check_callable(function, "jvp")
    for each, name in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(each, list | tuple):
            raise ArgumentError(f"jvp: the {name} are a tuple with one for each argument: jvp(f, (x,), (x_tangent,))")
    if len(primals) != len(tangents):
        raise ArgumentError(f"jvp: there are {len(primals)} primals and {len(tangents)} tangents")
    level = Level((primals, tangents))
    trees: list[Any] = []
    given: list[Variable | None] = []
    for at, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        trees.append(level.enter(primal, f"argument {at}"))
        inputs = leaves(trees[-1])
        given.extend([None] * len(inputs) if tangent is None else _matched(tangent, trees[-1], inputs, "tangent"))
    result = evaluate(function, *trees)
    check_results(result, name_of(function))
    outputs = leaves(result)
    # The pullback is linear, so the values of these cotangents do not matter.
    probes = [Variable(zeros(each)) for each in outputs if is_tracked(each)]
    with np.errstate(invalid="ignore"):
        heads = list(zip(filter(is_tracked, outputs), probes, strict=True))
        pulled = backward(heads, level.aliases, record=True)
    owned = {id(each.array) for each in given if each is not None}
    pairs = zip(pulled, given, strict=True)
    heads = [(each, tangent) for each, tangent in pairs if is_tracked(each) and tangent is not None]
    products = iter(backward(heads, probes, record=level.record))
    along = [or_zeros(next(products) if is_tracked(each) else None, each) for each in outputs]
    return level.leave(result), rebuild(result, level.own(along, owned))


def _like_trees(trees: list[Any], values: list[Any]) -> tuple[Any, ...]:
    """Containers like these, whose leaves are the values in their order."""
    remaining = iter(values)
    return tuple([rebuild(tree, [next(remaining) for _ in leaves(tree)]) for tree in trees])


# --- cotangents and tangents that are given ---------------------------------------------------------------------------


def _matched(given: Any, like: Any, outputs: list[Any], kind: str) -> list[Variable]:
    """Cotangents or tangents as Variables, whose shapes must be those of the arrays that they are for."""
    values = leaves(given)
    if len(values) != len(outputs):
        raise ArgumentError(f"{len(outputs)} {kind}s are needed, one for each array of {like!r}; got {len(values)}")
    matched = []
    for each, output in zip(values, outputs, strict=True):
        value = each if isinstance(each, Variable) else Variable(each, tracked=False)
        if not isinstance(output, Variable):
            matched.append(value)
            continue
        if value.shape != output.shape:
            raise ShapeError(f"a {kind} has shape {value.shape}, and the array it is for {output.shape}")
        matched.append(astype(value, output.dtype) if output.tracked else value)
    return matched


# --- the number to differentiate --------------------------------------------------------------------------------------


def _number(result: Any, function: Any, has_aux: bool) -> Any:
    name = name_of(function)
    if has_aux:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ArgumentError(
                f"with has_aux, {name} must return a pair: the number and a second value, which is handed on"
            )
        result = result[0]
    if not (isinstance(result, Variable | tuple | list | dict | NoneType) or is_plain(result)):
        raise refused_result(result, name)
    return _check_number(result, f"the result of {name}")


def _check_number(number: Any, name: str) -> Any:
    """Refuse a result that has no gradient."""
    if isinstance(number, tuple | list | dict | NoneType):
        raise ArgumentError(
            f"a gradient is of one number, and {name} is {a_or_an(type(number).__name__)}; for a pair of a number and "
            "something else, pass has_aux=True"
        )
    shape = getattr(number, "shape", ())
    if shape:
        raise ShapeError(
            f"a gradient is of one number, and {name} has shape {shape}. Sum it, for example with np.sum(…); for "
            "cotangents of your own use vjp"
        )
    if isinstance(number, Variable) and not is_float(number.dtype):
        raise DTypeError(f"{name} is of dtype {number.dtype}, which carries no derivative")
    return number


def _heads(number: Any) -> list[tuple[Variable, Variable]]:
    if not is_tracked(number):
        return []
    return [(number, Variable._of(namespace(number).ones((), dtype=number.dtype), False))]


@thaw_on_failure
def _gradient_of(number: Variable, variables: Any, record: bool) -> Any:
    """The gradient of a number that has been computed."""
    _check_number(number, "this Variable")
    if not number.tracked:
        raise ArgumentError(
            "this Variable was not recorded, so it depends on nothing: it comes from constants only, or was computed "
            "under no_grad()"
        )

    def check(name: str, leaf: Any) -> None:
        if not isinstance(leaf, Variable):
            raise ArgumentError(f"{name or 'wrt'} is no Variable but of type {type(leaf).__name__}; see graph.grad")
        if not leaf.tracked:
            raise DTypeError(f"{name or 'wrt'} carries no derivative: its dtype is {leaf.dtype}, or it is a constant")

    map_leaves(check, variables, "")
    level = Level((), is_inner=record)
    level.aliases = leaves(variables)
    return rebuild(variables, level.gradients(_heads(number)))


# --- arguments --------------------------------------------------------------------------------------------------------


def _position(function: Any, wrt: Any, args: tuple[Any, ...], named: dict[str, Any]) -> int | str:
    """The position of an argument to differentiate in, or its name if it is passed by name."""
    if isinstance(wrt, str):
        if wrt in named:
            return wrt
        names = list(inspect.signature(function).parameters)
        if wrt in names and names.index(wrt) < len(args):
            return names.index(wrt)
    elif isinstance(wrt, int | np.integer) and -len(args) <= wrt < len(args):
        return int(wrt) % len(args)
    raise ArgumentError(f"wrt={wrt!r} is none of the arguments given: {len(args)} by position, {[*named]} by name")


def _check_callable(function: Any, name: str) -> None:
    if not callable(function):
        choice = "a function, or a Variable" if name == "grad" else "a function"
        raise ArgumentError(f"{name} takes {choice}; this is {a_or_an(type(function).__name__)}, of unknown origin")


def _named_after(function: Any, what: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(transformed: Callable[..., Any]) -> Callable[..., Any]:
        name = getattr(function, "__name__", "function")
        transformed.__name__ = transformed.__qualname__ = f"{what}_of_{name}"
        transformed.__doc__ = f"{what} of {name}()."
        return transformed

    return decorate
