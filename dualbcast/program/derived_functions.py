"""Derivatives of a function as functions: its partials, pushforward, pullback and second derivatives, and the
derivatives that a kernel itself asks for.

They can be compiled, composed, and differentiated again. Tangents and cotangents are parameters after the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce

from dualbcast.autodiff.differentiate import differentiate
from dualbcast.autodiff.dual import Direction, Dual, unit_directions, unused_names
from dualbcast.errors import Location
from dualbcast.frontend.lower import guards_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.builder import Builder
from dualbcast.ir.simplification import simplify
from dualbcast.ir.traversal import floats
from dualbcast.program.marked_functions import refuse_marked
from dualbcast.rules.guards import Capture
from dualbcast.rules.table import RULES

# The output that holds ∂²output/∂parameter∂parameter, by (output, parameter, parameter), the parameters in order.
Hessian = dict[tuple[int, int, int], str]


def jacobian_of(
    function: ir.Function, wrt: Sequence[int], names: ir.Names | None = None, *, at_once: bool = False
) -> Dual:
    """The function that returns the outputs of `function` and their partials in the float parameters at `wrt`.

    It is differentiated in all float parameters, so that the bits of a partial do not depend on `wrt`. `names` are
    those of the function that the result becomes part of, if it does; `at_once` is as for `differentiate`.
    """
    refuse_marked(function, wrt)
    every = [at for at, param in enumerate(function.params) if param.kind == "float"]
    dual = differentiate(function, unit_directions(function.params, every), names, at_once=at_once)
    partials = {(at, seed): name for (at, seed), name in dual.partials.items() if seed in wrt}
    unwanted = {*dual.partials.values()}.difference(partials.values())
    outputs = tuple([output for output in dual.function.outputs if output.name not in unwanted])
    return replace(dual, function=replace(dual.function, outputs=outputs), partials=partials)


def partial_of(function: ir.Function, position: int) -> ir.Function:
    """The function of the same arguments that gives the partial of each output in one parameter."""
    dual = jacobian_of(function, (position,))
    partials = dual.tangents()
    outputs = [
        replace(output, value=partials.get((at, position), ir.ZERO)) for at, output in enumerate(function.outputs)
    ]
    return simplify(replace(dual.function, outputs=tuple(outputs)))


def pushforward_of(function: ir.Function, wrt: Sequence[int], *, values: bool = True) -> ir.Function:
    """The outputs, with `values`, and then their tangents, from the arguments and the tangents of those at `wrt`."""
    refuse_marked(function, wrt)
    taken = unused_names(function)
    seeds = {seed: ir.Var(taken.fresh(f"{function.params[seed].name}_dot"), "float") for seed in wrt}
    given = replace(function, params=(*function.params, *seeds.values()))
    dual = differentiate(given, {0: Direction("ot", seeds)})
    names, tangents = unused_names(dual.function), dual.tangents()
    outputs = tuple(
        ir.Output(dual.partials.get((at, 0)) or names.fresh(f"{output.name}_dot"), tangents.get((at, 0), ir.ZERO))
        for at, output in enumerate(function.outputs)
    )
    structure = function.structure
    if values:
        outputs = (*dual.function.outputs[: len(function.outputs)], *outputs)
        structure = ir.Structure(tuple, (structure, structure))
    return simplify(replace(dual.function, outputs=outputs, structure=structure))


def pullback_of(function: ir.Function, wrt: Sequence[int], *, values: bool = False) -> ir.Function:
    """The cotangents of the parameters at `wrt`, from the arguments and then the cotangents of the float outputs.

    They are the partials of the contraction of outputs and cotangents: no Jacobian is stored. With `values` the result
    is a pair of the outputs and the cotangents.
    """
    refuse_marked(function, wrt)
    names, where = unused_names(function), function.location
    bars = [ir.Var(names.fresh(f"{function.outputs[at].name}_bar"), "float") for at in floats(function)]
    contraction = ir.Var(names.fresh(ir.TEMPORARY), "float")
    outputs = [function.outputs[at].value for at in floats(function)]

    def contracted() -> ir.Block:
        builder = Builder(names)
        builder.assign(contraction, _contracted([*zip(bars, outputs, strict=True)], builder, where), where)
        return tuple(builder.block)

    given = replace(
        function,
        params=(*function.params, *bars),
        body=_append_in_branches(function.body, contracted),
        outputs=(*function.outputs, ir.Output(names.fresh("contraction"), contraction)),
    )
    every = [at for at, param in enumerate(function.params) if param.kind == "float"]
    dual = differentiate(given, unit_directions(given.params, every))
    count, partials = len(function.outputs), dual.tangents()
    taken = unused_names(dual.function)
    cotangents = tuple(
        ir.Output(taken.fresh(f"{function.params[at].name}_bar"), partials.get((count, at), ir.ZERO)) for at in wrt
    )
    structure = ir.numbers(len(cotangents))
    if values:
        structure = ir.Structure(tuple, (function.structure, structure))
        cotangents = (*dual.function.outputs[:count], *cotangents)
    return simplify(replace(dual.function, outputs=cotangents, structure=structure))


def normal_equations_of(function: ir.Function, wrt: Sequence[int], *, weighted: bool = False) -> ir.Function:
    """The terms of normal equations, where the outputs r are residuals with the Jacobian J in the parameters at `wrt`.

    They are r², the products of r with each column of J, and those of each column with itself and the later ones; each
    is summed over the outputs. With `weighted` there is a weight of each output, in parameters after the arguments.
    """
    dual, where = jacobian_of(function, wrt), function.location
    partials, names = dual.tangents(), unused_names(dual.function)
    builder, residuals = Builder(names), [output.value for output in function.outputs]
    weights = [ir.Var(names.fresh(f"{output.name}_weight"), "float") for output in function.outputs if weighted]
    # A parameter may have the name r, too.
    columns = [("r", residuals)]
    columns += [
        (function.params[p].name, [partials.get((at, p), ir.ZERO) for at in range(len(residuals))]) for p in wrt
    ]
    outputs = []
    for position, (left, column) in enumerate(columns):
        if weighted:
            pairs = zip(column, weights, strict=True)
            column = [each if each == ir.ZERO else builder.operate("mul", each, w, where=where) for each, w in pairs]
        for right, other in columns[position:]:
            terms = [(a, b) for a, b in zip(column, other, strict=True) if ir.ZERO not in (a, b)]
            outputs.append(ir.Output(names.fresh(f"{left}_{right}"), _contracted(terms, builder, where)))
    params, body = (*dual.function.params, *weights), (*dual.function.body, *builder.block)
    structure = ir.numbers(len(outputs))
    return simplify(replace(dual.function, params=params, body=body, outputs=tuple(outputs), structure=structure))


def hessian_of(function: ir.Function, wrt: Sequence[int], *, at_once: bool = False) -> tuple[Dual, Hessian]:
    """Values, partials and second partials in one function.

    The function of the `Dual` has outputs for the values, the partials that are not zero everywhere, and then the
    second ones, which the other result names: for (i, p, q), p at or before q in `wrt`, ∂²output i/∂p∂q.
    """
    first = jacobian_of(function, wrt, at_once=at_once)
    inner = simplify(first.function)
    second = jacobian_of(inner, wrt, at_once=at_once)
    position = {output.name: at for at, output in enumerate(inner.outputs)}
    seconds: Hessian = {}
    for (at, p), name in first.partials.items():
        for q in wrt[wrt.index(p) :]:
            twice = second.partials.get((position[name], q))
            if twice is not None:
                seconds[at, p, q] = twice
    wanted = {output.name for output in inner.outputs} | set(seconds.values())
    outputs = tuple(output for output in second.function.outputs if output.name in wanted)
    plans = first.plans + second.plans
    return Dual(replace(second.function, outputs=outputs), first.partials, plans), seconds


def contraction_of(pattern: Sequence[Sequence[float | None]]) -> ir.Function:
    """The contraction of cotangents with a stored Jacobian, as a function of its blocks and the cotangents.

    For each output and argument, `pattern` has a number where the block is that number everywhere, and None where it is
    an array, which is then a parameter. These come first, output by output, then a cotangent for each output.
    """
    count = len(pattern)
    stored = [(i, p) for i, row in enumerate(pattern) for p, block in enumerate(row) if block is None]
    block_of = {place: ir.Var(f"block{at}", "float") for at, place in enumerate(stored)}
    cotangents = [ir.Var(f"bar{i}", "float") for i in range(count)]
    names = ir.Names([*RULES, *(param.name for param in (*block_of.values(), *cotangents))])
    builder, outputs = Builder(names), []
    for p in range(len(pattern[0])):
        blocks = [(i, row[p]) for i, row in enumerate(pattern) if row[p] != 0]
        terms = [(cotangents[i], block_of[i, p] if known is None else ir.Const(known, "float")) for i, known in blocks]
        total = _contracted(terms, builder, ir.NOWHERE)
        outputs.append(ir.Output(names.fresh(f"x{p}_bar"), total))
    params = (*block_of.values(), *cotangents)
    return ir.Function("contraction", params, tuple(builder.block), tuple(outputs), structure=ir.numbers(len(outputs)))


def _contracted(terms: Sequence[tuple[ir.Expr, ir.Expr]], builder: Builder, where: Location) -> ir.Expr:
    """The sum of products; the statements that compute it are appended to a block."""
    products = [builder.operate("mul", *term, where=where) for term in terms]
    return reduce(lambda total, term: builder.operate("add", total, term, where=where), products) if terms else ir.ZERO


def _append_in_branches(block: ir.Block, make: Callable[[], ir.Block]) -> ir.Block:
    """The block with more statements at its end; if it ends with a branch, at the end of each side.

    More operands are known there. Copies of the branch's results move there, too.
    """
    count = len(block)
    while count and _is_copy(block[count - 1]):
        count -= 1
    if not count or not isinstance(branch := block[count - 1], ir.If):
        return (*block, *make())
    then, orelse = (_append_in_branches((*side, *block[count:]), make) for side in (branch.then, branch.orelse))
    return (*block[: count - 1], replace(branch, then=then, orelse=orelse))


def _is_copy(stmt: ir.Stmt) -> bool:
    return isinstance(stmt, ir.Assign) and isinstance(stmt.value, ir.Atom)


def with_partials(function: ir.Function, names: ir.Names, *, has_value: bool) -> tuple[ir.Function, Sequence[Capture]]:
    """The function that gives the outputs of `function`, with `has_value`, and then its partials by parameter.

    Its variables have fresh names from `names`, so that its body can become part of the calling function.
    """
    guards = guards_of(function)  # before differentiation, which takes operations away
    dual = jacobian_of(function, range(len(function.params)), names)
    count, partials = len(function.outputs), dual.tangents()
    wanted = [output.value for output in dual.function.outputs[:count]] if has_value else []
    for seed in range(len(function.params)):
        wanted += [partials.get((position, seed), ir.ZERO) for position in range(count)]
    outputs = tuple(ir.Output(f"{ir.TEMPORARY}{at}", value) for at, value in enumerate(wanted))
    return replace(dual.function, outputs=outputs), guards
