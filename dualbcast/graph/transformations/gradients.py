"""Transformations: gradients, and products with Jacobians.

Comes in: a function of arrays, written in operations on Variables. Goes out: a function that gives derivatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any

import numpy as np

from dualbcast.adapters import is_lazy
from dualbcast.errors import ArgumentError, DTypeError, ShapeError, a_or_an, entry_point
from dualbcast.foreign_objects import is_plain, refused_result
from dualbcast.graph.arrays import is_array, is_complex, is_float, leaves, map_leaves, namespace, rebuild
from dualbcast.graph.backward import backward, check_results, evaluate, name_of
from dualbcast.graph.elementwise import astype
from dualbcast.graph.frozen import thaw_on_failure
from dualbcast.graph.primitives import alias, constant, probe, stop_gradient, tracked_positions, zeros
from dualbcast.graph.recording import fresh_constant
from dualbcast.graph.tape import STATE
from dualbcast.graph.transformations.arguments import check_callable, check_tangents, positions_of
from dualbcast.graph.variable import Variable

Wrt = int | str | Sequence[int | str]


@entry_point
def grad(of: Any, wrt: Any = 0, *, has_aux: bool = False, record: bool = False) -> Any:
    """The gradient of a function, or of a number that has been computed.

    Parameters
    ----------
    of : callable or Variable
        A function that returns one number (a Variable of no dimensions); or such a number, computed from Variables.
    wrt : int, str, or sequence of them; or Variable, or container of them
        For a function, the positions or names of the arguments to differentiate in: arrays of a float dtype, Python
        floats, Variables, or nested containers of these (dicts, lists, tuples, dataclasses, and objects of classes
        that are registered with optree). For a number, the Variables to differentiate in.
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
    check_callable(of, "grad")
    both = value_and_grad(of, wrt, has_aux=has_aux)

    def gradient(*args: Any, **named: Any) -> Any:
        value, gradients = both(*args, **named)
        return (gradients, value[1]) if has_aux else gradients

    return named_like(gradient, "grad", of, wrt)


@entry_point
def value_and_grad(function: Callable[..., Any], wrt: Wrt = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """The value of a function together with its gradient; see `grad`.

    Parameters
    ----------
    function, wrt, has_aux
        As for `grad`.

    Returns
    -------
    callable
        It returns the pair of value and gradient. With `has_aux` the value is the pair that the function returns.

    Raises
    ------
    ArgumentError, DTypeError, ShapeError
        As for `grad`.

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
    check_callable(function, "value_and_grad")
    many = isinstance(wrt, list | tuple)

    @thaw_on_failure()
    def transformed(*args: Any, **named: Any) -> Any:
        level = Level((args, named))
        result = level.evaluate(function, wrt, args, named)
        heads = heads_of_result(result, function, has_aux)
        value = level.leave(result)
        del result  # so the backward pass can free values as it goes
        gradients = level.gradients(heads)
        return value, gradients if many else gradients[0]

    return named_like(transformed, "value_and_grad", function, wrt)


@entry_point
@thaw_on_failure()
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

    Raises
    ------
    ArgumentError, DTypeError, ShapeError
        An argument or the result carries no derivative; or, of the pullback, a cotangent does not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> value, pullback = graph.vjp(lambda a, x: a @ x, np.eye(2), np.array([1.0, 2.0]))
    >>> pullback(np.array([1.0, 10.0]))
    (array([[ 1.,  2.],
           [10., 20.]]), array([ 1., 10.]))
    """
    check_callable(function, "vjp")
    level = Level(args)
    result = evaluate(function, *[level.enter(arg, f"argument {at}") for at, arg in enumerate(args)])
    check_results(result, name_of(function))
    outputs = leaves(result)

    @entry_point
    @thaw_on_failure()
    def pullback(cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments."""
        given = _matched(cotangents, result, outputs, "cotangent")
        heads = [(outputs[at], given[at]) for at in tracked_positions(outputs)]
        return Level((cotangents,), level.is_inner, level.trees).gradients(heads)

    return level.leave(result), pullback


@entry_point
@thaw_on_failure()
def jvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of a function, and its tangent along tangents of the arguments.

    Parameters
    ----------
    function : callable
        It returns a Variable, or a container of them.
    primals : sequence
        All its arguments, which may be the same as for `grad`.
    tangents : sequence
        A tangent for each argument, in a container like the argument; or None for zero.

    Returns
    -------
    value, tangent
        Both as the function returns them.

    Raises
    ------
    ArgumentError, DTypeError, ShapeError
        An argument or the result carries no derivative, or the tangents do not fit.

    Notes
    -----
    The pullback is linear in the cotangent, so its own pullback gives the product with the tangents: J. Townsend, "A
    new trick for calculating Jacobian vector products" (2017). It costs about three evaluations, and keeps the same
    arrays as `vjp`.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.jvp(np.sin, (np.array([0.0, 1.0]),), (np.array([1.0, 0.0]),))[1]
    array([1., 0.])
    """
    check_callable(function, "jvp")
    check_tangents("jvp", primals, tangents)
    level = Level((primals, tangents))
    given: list[Any] = []
    for at, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        tree = level.enter(primal, f"argument {at}")
        inputs = leaves(tree)
        given.extend([None] * len(inputs) if tangent is None else _matched(tangent, tree, inputs, "tangent"))
    result = evaluate(function, *level.trees)
    check_results(result, name_of(function))
    outputs = leaves(result)
    # The pullback is linear, so the values of these cotangents do not matter.
    probes = {at: probe(outputs[at]) for at in tracked_positions(outputs)}
    heads = [(outputs[at], probe) for at, probe in probes.items()]
    with np.errstate(invalid="ignore"):
        pulled: list[Any] = backward(heads, leaves(level.trees), record=True)
    owned = set() if level.is_inner else {id(each.array) for each in given if each is not None}
    heads = [(pulled[at], given[at]) for at in tracked_positions(pulled) if given[at] is not None]
    products = dict(zip(probes, backward(heads, list(probes.values()), record=level.record), strict=True))
    found = [products.get(at) for at in range(len(outputs))]
    along = [zeros(constant(like)) if each is None else each for each, like in zip(found, outputs, strict=True)]
    return level.leave(result), rebuild(result, [level.result(each, owned) for each in along])


class Level:
    """One application of a transformation to arguments, inside others or not."""

    def __init__(self, arguments: Any, is_inner: bool = False, trees: Sequence[Any] = ()) -> None:
        has_variables = True in [isinstance(each, Variable) for each in leaves(arguments)]
        # Whether results are Variables: some argument is one, or this is inside another transformation.
        self.is_inner = is_inner or STATE.depth > 0 or has_variables or STATE.is_compiling
        # Whether nobody differentiates the results: arrays are given, or this is the outermost of a compiled function.
        is_compiled = STATE.is_compiling and STATE.depth == 0 and not tracked_positions(leaves(arguments))
        self.is_outermost = not self.is_inner or is_compiled
        # Whether the backward pass is recorded, for derivatives from outside.
        self.record = self.is_inner and STATE.is_recording and not is_compiled
        # The arguments to differentiate in, with a Variable in place of each array, in this application only.
        self.trees = [*trees]

    def enter(self, tree: Any, name: str) -> Any:
        """A container like an argument, with a Variable to differentiate in for each array."""
        self.trees.append(map_leaves(alias, tree, name))
        return self.trees[-1]

    def evaluate(self, function: Any, wrt: Wrt, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The result of a function, recorded from the arguments in `wrt` on."""
        given: dict[Any, Any] = {**dict(enumerate(args)), **named}
        positions = positions_of(function, wrt, args, named)
        trees = [self.enter(given[position], f"argument {position}") for position in positions]
        given.update(zip(positions, trees, strict=True))
        return evaluate(function, *[given[at] for at in range(len(args))], **{name: given[name] for name in named})

    def leave(self, tree: Any) -> Any:
        """A container as the caller gets it: of arrays, or of Variables that depend on no more than they should."""
        return map_leaves(lambda _, leaf: self.result(leaf) if isinstance(leaf, Variable) else leaf, tree)

    def result(self, leaf: Variable, owned: set[int] | None = None) -> Any:
        """A Variable as the caller gets it; a derivative if `owned` has the ids of the caller's own arrays."""
        if self.is_inner:
            return leaf if self.record else stop_gradient(leaf)
        if owned is not None:
            array = _own_array(leaf, owned)
        else:
            # A pullback may still need an array of the graph, so it is read-only. The user's own arrays are copied.
            array = leaf.value if leaf.frozen is None else leaf.array.copy()
        return array[()] if array.ndim == 0 else array  # NumPy's functions return scalars, too

    def gradients(self, heads: list[tuple[Variable, Variable]]) -> tuple[Any, ...]:
        """The cotangents in containers like the arguments, from outputs with their cotangents."""
        owned = set() if self.is_inner else {id(cotangent.array) for _, cotangent in heads}
        aliases = leaves(self.trees)
        pairs = zip(backward(heads, aliases, self.record), aliases, strict=True)
        results = iter([self.result(zeros(alias) if each is None else each, owned) for each, alias in pairs])
        return tuple([map_leaves(lambda _path, _leaf: next(results), tree) for tree in self.trees])


def _own_array(gradient: Variable, owned: set[int]) -> Any:
    """A gradient as an array that the user may change: no view, and no array that has been given to anybody."""
    array = gradient.array
    if is_lazy(array):
        return array
    # The base of a view is an array. The base of an array with memory of the pool is its lease, which nobody else has.
    is_shared = gradient.frozen is not None or is_array(array.base) or id(array) in owned
    if is_shared or (isinstance(array, np.ndarray) and not array.flags.writeable):  # CuPy has no read-only arrays
        array = array.copy()
    owned.add(id(array))
    return array


def _matched(given: Any, like: Any, outputs: list[Any], kind: str) -> list[Variable]:
    """Cotangents or tangents as Variables, whose shapes must be those of the arrays that they are for."""
    values = leaves(given)
    if len(values) != len(outputs):
        raise ArgumentError(f"{len(outputs)} {kind}s are needed, one for each array of {like!r}; got {len(values)}")
    matched = []
    for each, output in zip(values, outputs, strict=True):
        value = constant(each)
        if isinstance(output, Variable):
            if value.shape != output.shape:
                raise ShapeError(f"a {kind} has shape {value.shape}, and the array it is for {output.shape}")
            value = astype(value, output.dtype) if output.tracked else value
        matched.append(value)
    return matched


def heads_of_result(result: Any, function: Any, has_aux: bool) -> list[tuple[Variable, Variable]]:
    """The number that a function returned, with its cotangent; see `_heads`."""
    name = name_of(function)
    if has_aux:
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ArgumentError(
                f"with has_aux, {name} must return a pair: the number and a second value, which is handed on"
            )
        result = result[0]
    if not (isinstance(result, Variable | tuple | list | dict | NoneType) or is_plain(result)):
        raise refused_result(result, name)
    return _heads(result, f"the result of {name}")


def _heads(number: Any, name: str) -> list[tuple[Variable, Variable]]:
    """The number to differentiate with its cotangent, which is one; nothing if it carries no derivative."""
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
        hint = "; take its .real, its .imag or abs() of it" if is_complex(number) else ""
        raise DTypeError(f"{name} is of dtype {number.dtype}, which carries no derivative{hint}")
    if not tracked_positions((number,)):
        return []
    return [(number, Variable._of(fresh_constant(namespace(number).ones((), dtype=number.dtype)), False))]


@thaw_on_failure()
def _gradient_of(number: Variable, variables: Any, record: bool) -> Any:
    """The gradient of a number that has been computed."""
    heads = _heads(number, "this Variable")
    if not heads:
        raise ArgumentError(
            "this Variable was not recorded, so it depends on nothing: it comes from constants only, or was computed "
            "under no_grad()"
        )

    def check(name: str, leaf: Any) -> Any:
        if not isinstance(leaf, Variable):
            raise ArgumentError(f"{name or 'wrt'} is no Variable but of type {type(leaf).__name__}; see graph.grad")
        if not leaf.tracked:
            raise DTypeError(f"{name or 'wrt'} carries no derivative: its dtype is {leaf.dtype}, or it is a constant")
        return leaf

    map_leaves(check, variables, "")
    return Level((), is_inner=record, trees=(variables,)).gradients(heads)[0]


def named_like(transformed: Any, what: str, function: Any, wrt: Wrt = ()) -> Callable[..., Any]:
    """A transformed function with a name; and for `compile`, in which arguments it differentiates."""
    name = getattr(function, "__name__", "function")
    transformed.__name__ = transformed.__qualname__ = f"{what}_of_{name}"
    transformed.__doc__ = f"{what} of {name}()."
    transformed.differentiated = function, wrt
    return entry_point(transformed)  # type: ignore[no-any-return]
