"""Jacobians, Hessians and products with Hessians of functions of whole arrays.

Comes in: a function of arrays. Goes out: a function that gives all its partial derivatives. Where few parameters are
differentiated in, one kernel gives all second derivatives of a sum over many elements.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from dualbcast.errors import DTypeError, entry_point
from dualbcast.graph.arrays import has_complex, leaves, map_leaves, namespace
from dualbcast.graph.backward import backward, check_results, key_of, name_of
from dualbcast.graph.frozen import thaw_on_failure
from dualbcast.graph.fused_region import REGION, Region, settle
from dualbcast.graph.lazy import Limits
from dualbcast.graph.primitives import arrays_of, probe, tracked_positions, zeros
from dualbcast.graph.recording import fresh_constant, performed
from dualbcast.graph.shapes import moveaxis, reshape, stack
from dualbcast.graph.tape import launched
from dualbcast.graph.transformations.arguments import check_callable, check_tangents
from dualbcast.graph.transformations.gradients import Level, Wrt, grad, heads_of_result, named_like, vjp
from dualbcast.graph.variable import Variable
from dualbcast.program.element import Element
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

    Raises
    ------
    ArgumentError, DTypeError
        An argument or the result carries no derivative, or is complex.

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
        _require_real("jacobian", level.trees, result)
        blocks = iter(_blocks(level, leaves(result), leaves(level.trees)))
        return map_leaves(lambda _path, _leaf: _packed(level, next(blocks), wrt), result)

    return named_like(transformed, "jacobian", function, wrt)


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

    Raises
    ------
    ArgumentError, DTypeError, ShapeError
        The result is not one number, or an argument carries no derivative, or is complex.

    Notes
    -----
    Where the number depends on the arguments through sums of element-wise operations over many elements, which take
    numbers alone from them, one kernel for each sum gives all its second derivatives in one pass over the elements.
    Else there is a backward pass for each element of the arguments.

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
        _require_real("hessian", level.trees)
        blocks = _of_sums(level, result, aliases) if heads and level.is_outermost else None
        if blocks is None:
            blocks = _blocks(level, _pulled(heads, aliases), aliases)
        numbers = iter(blocks)
        trees = [map_leaves(lambda _path, _leaf: _packed(level, next(numbers), wrt), tree) for tree in level.trees]
        return tuple(trees) if isinstance(wrt, list | tuple) else trees[0]

    return named_like(transformed, "hessian", function, wrt)


def _require_real(name: str, *trees: Any) -> None:
    if any(map(has_complex, trees)):
        raise DTypeError(
            f"{name}: there are complex numbers among the arguments or results, and no array holds all derivatives of "
            "a complex number. Differentiate a function of the parts, which are real: z.real and z.imag"
        )


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

    Raises
    ------
    ArgumentError, DTypeError, ShapeError
        The result is not one number, an argument carries no derivative, or the tangents do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.hvp(lambda x: np.sum(x**3), (np.array([1.0, 2.0]),), (np.array([1.0, 10.0]),))
    (array([  6., 120.]),)
    """
    check_callable(function, "hvp")
    check_tangents("hvp", primals, tangents)
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


def _backward(level: Level, outputs: Sequence[Variable], aliases: Sequence[Variable], stop: bool = False) -> list[_Row]:
    """The blocks by a backward pass for each element of the outputs; `stop` is as for `backward`."""
    blocks = []
    for output in outputs:
        pulled = [backward([(output, unit)], aliases, level.record, stop) for unit in _units(output)]
        blocks.append(
            [_stacked([row[at] for row in pulled], output.shape, alias, alias) for at, alias in enumerate(aliases)]
        )
    return blocks


def _forward(level: Level, outputs: Sequence[Variable], aliases: Sequence[Variable]) -> list[_Row]:
    """The same by a pass for each element of the aliases, through the pullback, which is linear: see `jvp`."""
    probes = [probe(output) for output in outputs]
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
        yield Variable._of(fresh_constant((places == place).astype(like.dtype)), False)


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
    return Variable._of(fresh_constant(namespace(alias).zeros((*shape, *alias.shape), dtype=alias.dtype)), False)


def _packed(level: Level, row: _Row, wrt: Wrt) -> Any:
    """A row of blocks as the caller gets it, in containers like the arguments."""
    blocks = iter([level.result(each, set()) for each in row])
    trees = [map_leaves(lambda _path, _leaf: next(blocks), tree) for tree in level.trees]
    return tuple(trees) if isinstance(wrt, list | tuple) else trees[0]


# --- Hessians of sums -------------------------------------------------------------------------------------------------


def _of_sums(level: Level, result: Variable, aliases: Sequence[Variable]) -> list[_Row] | None:
    """The Hessian of a number, by one kernel for each sum over many elements behind it; None where there is none, or
    where it depends on the aliases through other large arrays.

    For sums S(u) of numbers u(p), the number f(S, p) has the Hessian Jᵀ f'' J, where J has the rows of S' and of the
    identity, and for each sum f_S (u'ᵀ S'' u' + S' u''). All but S' and S'' are derivatives of few numbers.
    """
    sums = _sums_behind(result)
    if not sums or namespace(result, *aliases) is not np:
        return None
    inner = [*sums, *aliases]
    slopes = _pulled([(result, _ones(result))], inner, stop=True)
    parts: list[Any] = []
    for number, slope in zip(reversed(sums), reversed(slopes[: len(sums)]), strict=True):
        node = number.node
        assert node is not None
        at = tracked_positions(node.inputs)
        numbers = [node.inputs[position] for position in at]
        gradient, curvature = _derivatives(node.static["region"], number.index, at)
        way = _dense([_pulled([(each, _ones(each))], aliases) for each in numbers], aliases)
        seeds = [_seed(each, gradient, place) for place, each in enumerate(numbers)]
        bent = _blocks(level, _pulled(list(zip(numbers, seeds, strict=True)), aliases), aliases)
        parts += slope.array, gradient, curvature, way, _dense(bent, aliases)
    parts.append(_dense(_backward(level, slopes, inner, stop=True), inner))
    cuts = itertools.pairwise(itertools.accumulate([alias.size for alias in aliases], initial=0))
    likes = tuple([(alias.shape, alias.dtype, slice(*cut)) for alias, cut in zip(aliases, cuts, strict=True)])
    blocks = iter(performed(_combined, *parts, likes=likes))
    return [[Variable._of(next(blocks), False) for _ in aliases] for _ in aliases]


def _combined(*parts: Any, likes: tuple[tuple[tuple[int, ...], Any, slice], ...]) -> list[Any]:
    """The blocks of a Hessian, from f_S, S', S'', u' and S' u'' of each sum and the second derivatives of f."""
    count = likes[-1][2].stop
    total, first = np.zeros((count, count)), np.eye(count)
    for at in range(0, len(parts) - 1, 5):
        weight, gradient, curvature, way, bent = parts[at : at + 5]
        total += weight * (way.T @ curvature @ way + bent)
        first = np.concatenate([(gradient @ way)[None], first])
    total += first.T @ parts[-1] @ first
    return [
        total[rows, columns].reshape((*shape, *other)).astype(dtype)
        for shape, _, rows in likes
        for other, dtype, columns in likes
    ]


def _sums_behind(result: Variable) -> list[Variable]:
    """The sums of fused regions of many elements that a number depends on, if these regions take numbers only, and
    nothing else behind the number is large; nothing otherwise."""
    sums: dict[Any, Variable] = {}
    settle([result])
    pending, reached = [result], set[Any]()
    while pending:
        variable = pending.pop()
        node, key = variable.node, key_of(variable)
        if node is None or key in reached:
            continue
        reached.add(key)
        inputs = [node.inputs[at] for at in tracked_positions(node.inputs)]
        region = node.static["region"] if node.primitive is REGION else None
        if region is not None and math.prod(region.shape) >= Limits.elements:
            if region.sums[variable.index] is None or max(each.size for each in (variable, *inputs)) > 1:
                return []
            sums[key] = variable
        elif max(each.size for each in (variable, *inputs)) >= Limits.elements:
            return []
        pending += inputs
    return list(sums.values())


def _derivatives(region: Region, index: int, wrt: tuple[int, ...]) -> tuple[Any, Any]:
    """The gradient and the Hessian of a sum of a region in some of its leaves, which are numbers."""
    element = region.element.select((index,)).derive("value_jacobian_and_hessian", wrt)
    values = arrays_of(region.gathered.leaves)
    launched(element.label, "value", region.shape, len(values), len(element.function.outputs))
    gradient, curvature = performed(_derivatives_of, *values, element=element, size=len(wrt))
    return gradient, curvature


def _derivatives_of(*values: Any, element: Element, size: int) -> list[Any]:
    count = len(element.function.outputs)
    _, *sums = element.parts(values, (SUM_DTYPE,) * count, ((),) * count)
    curvature = np.zeros((size, size))
    curvature[np.triu_indices(size)] = sums[size:]
    return [np.array(sums[:size]), curvature + np.triu(curvature, 1).T]


def _ones(like: Variable) -> Variable:
    return Variable._of(fresh_constant(np.ones(like.shape, like.dtype)), False)


def _seed(like: Variable, gradient: Any, place: int) -> Variable:
    """The cotangent of a number: an element of a gradient."""
    return Variable._of(performed(_filled, gradient, place=place, shape=like.shape, dtype=like.dtype), False)


def _filled(gradient: Any, place: int, shape: tuple[int, ...], dtype: Any) -> Any:
    return np.full(shape, gradient[place], dtype)


def _pulled(heads: list[tuple[Variable, Variable]], targets: Sequence[Variable], stop: bool = False) -> _Row:
    """The cotangents of targets for cotangents of heads, recorded; zeros where nothing depends on a target."""
    pulled = backward(heads, targets, record=True, stop=stop)
    return [zeros(target) if each is None else each for each, target in zip(pulled, targets, strict=True)]


def _dense(rows: Sequence[_Row], aliases: Sequence[Variable]) -> Any:
    """Blocks as one matrix."""
    blocks = [block.array for row in rows for block in row]
    return performed(_matrix, *blocks, sizes=tuple([alias.size for alias in aliases]))


def _matrix(*blocks: Any, sizes: tuple[int, ...]) -> Any:
    rows = [blocks[at : at + len(sizes)] for at in range(0, len(blocks), len(sizes))]
    return np.block([[block.reshape(-1, size) for block, size in zip(row, sizes, strict=True)] for row in rows])
