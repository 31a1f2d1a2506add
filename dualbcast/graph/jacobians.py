"""Jacobians, Hessians and products with Hessians of functions of whole arrays.

Comes in: a function of arrays. Goes out: a function that gives all its partial derivatives. If a function is the sum of
one fused region, and its arguments are numbers, one kernel gives the whole Hessian.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, entry_point
from dualbcast.graph.arrays import lazy_adapter, leaves, map_leaves, namespace
from dualbcast.graph.backward import backward, check_results, key_of, name_of
from dualbcast.graph.frozen import thaw_on_failure
from dualbcast.graph.fused_region import REGION
from dualbcast.graph.indexing import GETITEM
from dualbcast.graph.primitives import arrays_of, tracked_positions, zeros
from dualbcast.graph.shapes import moveaxis, reshape, stack
from dualbcast.graph.tape import launched
from dualbcast.graph.transform import Level, Wrt, check_callable, grad, heads_of_result, named_like, vjp
from dualbcast.graph.variable import Variable
from dualbcast.program.outputs import SUM_DTYPE


@entry_point
def jacobian(function: Callable[..., Any], wrt: Wrt = 0) -> Callable[..., Any]:
    """The Jacobian of a function of arrays: all partial derivatives of its result.

    Parameters
    ----------
    function : callable
        It returns a Variable, or a container of them.
    wrt : int, str, or sequence of them
        The arguments to differentiate in, as for `grad`.

    Returns
    -------
    callable
        A function of the same arguments. For a result of shape S and an argument of shape T it returns an array of
        shape S + T; for containers, a container like the result, with containers like the argument in it; if `wrt` is a
        sequence, with tuples of these.

    Notes
    -----
    The function is evaluated once. Then there is a backward pass for each element of the result, or, if the arguments
    have fewer elements, one for each of these, through the pullback.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.jacobian(lambda x: np.sin(x) * x[0])(np.array([0.0, 1.0])).round(3)
    array([[0.   , 0.   ],
           [0.841, 0.   ]])
    """
    check_callable(function, "jacobian")

    @thaw_on_failure()
    def transformed(*args: Any, **named: Any) -> Any:
        level = Level((args, named))
        result = level.evaluate(function, wrt, args, named)
        check_results(result, name_of(function))
        blocks = iter(_blocks(level, leaves(result), leaves(level.trees)))
        return map_leaves(lambda _path, _leaf: _packed(level, next(blocks), wrt), result)

    return named_like(transformed, "jacobian", function)


@entry_point
def hessian(function: Callable[..., Any], wrt: Wrt = 0) -> Callable[..., Any]:
    """The Hessian of a function that returns a number: all second partial derivatives.

    Parameters
    ----------
    function, wrt
        As for `grad`.

    Returns
    -------
    callable
        A function of the same arguments. For an argument of shape T it returns an array of shape T + T; for containers
        and sequences, what `jacobian` returns of the gradient.

    Notes
    -----
    If the function is a sum of element-wise operations, and these take the arguments in `wrt` as numbers, one kernel
    computes all second derivatives in one pass. Else there is a backward pass for each element of the arguments.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> x = np.linspace(0.0, 1.0, 5000)
    >>> def loss(p):
    ...     return np.sum((p[0] * np.exp(-p[1] * x) - 1.0) ** 2)
    >>> graph.hessian(loss)(np.array([1.0, 0.0])).round(1)
    array([[10000. , -5000. ],
           [-5000. ,  3333.7]])
    """
    check_callable(function, "hessian")

    @thaw_on_failure()
    def transformed(*args: Any, **named: Any) -> Any:
        level = Level((args, named))
        result = level.evaluate(function, wrt, args, named)
        heads, aliases = heads_of_result(result, function, has_aux=False), leaves(level.trees)
        blocks = None if level.is_inner else _of_sum(result, aliases)
        gradient = aliases
        if blocks is None:
            pulled = backward(heads, aliases, record=True)
            gradient = [zeros(alias) if each is None else each for each, alias in zip(pulled, aliases, strict=True)]
            blocks = _blocks(level, gradient, aliases)
        numbers = iter(blocks)
        trees = [map_leaves(lambda _path, _leaf: _packed(level, next(numbers), wrt), tree) for tree in level.trees]
        return tuple(trees) if isinstance(wrt, list | tuple) else trees[0]

    return named_like(transformed, "hessian", function)


@entry_point
def hvp(function: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """The product of the Hessian of a function that returns a number with tangents, without the Hessian.

    Parameters
    ----------
    function : callable
        It returns one number, as for `grad`.
    primals, tangents : sequence
        As for `jvp`.

    Returns
    -------
    tuple
        The product for each argument, in a container like the argument: the change of the gradient along the tangents.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
    (array([  6., 120.]),)
    """
    check_callable(function, "hvp")
    for each, name in ((primals, "primals"), (tangents, "tangents")):
        if not isinstance(each, list | tuple):
            raise ArgumentError(f"hvp: the {name} are a tuple with one for each argument: hvp(f, (x,), (x_tangent,))")
    if len(primals) != len(tangents):
        raise ArgumentError(f"hvp: there are {len(primals)} primals and {len(tangents)} tangents")
    given = [
        map_leaves(lambda _, leaf: np.zeros_like(leaf), primal) if tangent is None else tangent
        for primal, tangent in zip(primals, tangents, strict=True)
    ]
    # The Hessian is symmetric, so the pullback of the gradient is the product.
    _, pullback = vjp(grad(function, tuple(range(len(primals)))), *primals)
    products: tuple[Any, ...] = pullback(tuple(given))
    return products


# The partial derivatives of an array, in each array that is differentiated in.
_Row = list[Variable]


def _blocks(level: Level, outputs: Sequence[Any], aliases: Sequence[Variable]) -> list[_Row]:
    """The partial derivatives of each output in each of the Variables that a level differentiates in."""
    at = tracked_positions(outputs)
    variables = [outputs[position] for position in at]
    is_forward = sum(alias.size for alias in aliases) < sum(each.size for each in variables)
    rows = dict(zip(at, (_forward if is_forward else _backward)(level, variables, aliases), strict=True))
    nothing = [[_zeros(getattr(each, "shape", ()), alias) for alias in aliases] for each in outputs]
    return [rows.get(position, row) for position, row in enumerate(nothing)]


def _backward(level: Level, outputs: Sequence[Variable], aliases: Sequence[Variable]) -> list[_Row]:
    """The blocks by a backward pass for each element of the outputs."""
    blocks = []
    for output in outputs:
        pulled = [backward([(output, unit)], aliases, level.record) for unit in _units(output)]
        blocks.append(
            [_stacked([row[at] for row in pulled], output.shape, alias, alias) for at, alias in enumerate(aliases)]
        )
    return blocks


def _forward(level: Level, outputs: Sequence[Variable], aliases: Sequence[Variable]) -> list[_Row]:
    """The same by a pass for each element of the aliases, through the pullback, which is linear: see `jvp`."""
    probes = [Variable(zeros(output)) for output in outputs]
    with np.errstate(invalid="ignore"):
        pulled: list[Any] = backward(list(zip(outputs, probes, strict=True)), aliases, record=True)
    blocks: list[_Row] = [[] for _ in outputs]
    for at, alias in enumerate(aliases):
        is_reached = bool(tracked_positions(pulled[at : at + 1]))
        units = _units(alias) if is_reached else ()
        columns = [backward([(pulled[at], unit)], probes, level.record) for unit in units]
        for position, output in enumerate(outputs):
            column = [each[position] for each in columns]
            blocks[position].append(_stacked(column, output.shape, alias, output))
    return blocks


def _units(like: Variable) -> Iterator[Variable]:
    """Arrays like a Variable, each with a 1 in one place and 0 elsewhere."""
    xp = namespace(like)
    places = xp.reshape(xp.arange(like.size), like.shape)
    for place in range(like.size):
        yield Variable._of(xp.astype(places == place, like.dtype), False)


def _stacked(parts: Sequence[Variable | None], shape: tuple[int, ...], alias: Variable, like: Variable) -> Variable:
    """The derivatives of an output of a shape in an alias, from those of each element of the output, which are `like`
    the alias, or in each element of the alias, `like` the output."""
    if all(part is None for part in parts):
        return _zeros(shape, alias)
    whole = stack([zeros(like) if part is None else part for part in parts])
    if like is not alias:
        whole = moveaxis(whole, 0, -1)
    return reshape(whole, (*shape, *alias.shape))


def _zeros(shape: tuple[int, ...], alias: Variable) -> Variable:
    return Variable._of(namespace(alias).zeros((*shape, *alias.shape), dtype=alias.dtype), False)


def _packed(level: Level, row: _Row, wrt: Wrt) -> Any:
    """A row of blocks as the caller gets it, in containers like the arguments."""
    blocks = iter([level.result(each, set()) for each in row])
    trees = [map_leaves(lambda _path, _leaf: next(blocks), tree) for tree in level.trees]
    return tuple(trees) if isinstance(wrt, list | tuple) else trees[0]


# --- sums of one fused region -----------------------------------------------------------------------------------------


def _of_sum(result: Any, aliases: Sequence[Variable]) -> list[_Row] | None:
    """The second derivatives of the sum of a fused region that has the aliases, or elements of them, as numbers; None
    where it is another result."""
    node, index = result.node, result.index
    while node is not None and node.primitive.name in ("reshape", "squeeze"):
        node, index = node.inputs[0].node, node.inputs[0].index
    if node is None or node.primitive is not REGION:
        return None
    region = node.static["region"]
    leaves_of_region, begins = (
        region.gathered.leaves,
        list(itertools.accumulate([each.size for each in aliases], initial=0)),
    )
    first = dict(zip(map(key_of, aliases), begins, strict=False))
    wrt = tracked_positions(leaves_of_region)
    places = [_place(leaves_of_region[at], first) for at in wrt]
    values = arrays_of(leaves_of_region)
    if region.sums[index] is None or None in places or lazy_adapter(values):
        return None
    element = region.element.select((index,)).derive("value_jacobian_and_hessian", wrt)
    count = len(element.function.outputs)
    launched(element.label, "value", region.shape, len(values), count)
    sums = element.parts(values, (SUM_DTYPE,) * count, ((),) * count)[1 + len(wrt) :]
    matrix = np.zeros((begins[-1], begins[-1]))
    for (p, q), each in zip(itertools.combinations_with_replacement(range(len(wrt)), 2), sums, strict=True):
        matrix[places[p], places[q]] += float(each)
        if p != q:
            matrix[places[q], places[p]] += float(each)
    xp, cuts = namespace(*aliases), list(itertools.pairwise(begins))
    return [
        [
            Variable._of(
                xp.reshape(xp.asarray(matrix[slice(*i), slice(*j)], dtype=b.dtype), (*a.shape, *b.shape)), False
            )
            for b, j in zip(aliases, cuts, strict=True)
        ]
        for a, i in zip(aliases, cuts, strict=True)
    ]


def _place(leaf: Variable, first: dict[Any, int]) -> int | None:
    """The place of a number among the elements of all aliases, if it is one of these; `first` has the aliases' own."""
    if leaf.size != 1:
        return None
    if key_of(leaf) in first:
        return first[key_of(leaf)]
    node = leaf.node
    if node is None or node.primitive is not GETITEM or key_of(node.inputs[0]) not in first:
        return None
    whole = node.inputs[0]
    return first[key_of(whole)] + int(np.arange(whole.size).reshape(whole.shape)[node.static["key"]].item())
