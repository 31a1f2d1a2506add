"""Derivatives of a function as functions: with its partials or tangents, pushforward, pullback, second derivatives, and
the derivatives that a kernel itself asks for.

They can be compiled, composed, and differentiated again. Tangents and cotangents are parameters after the arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from dualbcast.autodiff.eliminate import ReverseMode
from dualbcast.autodiff.linearize import Direction, Dual, ForwardMode, unit_directions, unused_names
from dualbcast.autodiff.loop_jacobians import LoopJacobians, is_shorter
from dualbcast.errors import Location
from dualbcast.frontend.lower import guards_of
from dualbcast.ir import nodes as ir
from dualbcast.ir.simplification import fold, simplify
from dualbcast.ir.traversal import among, assigned, floats, hold
from dualbcast.rules.guards import Capture
from dualbcast.rules.table import RULES


def dualize(
    function: ir.Function,
    seeds: Sequence[int],
    names: ir.Names | None = None,
    *,
    reverse: bool = False,
    flagged: bool = False,
) -> Dual:
    """The function that returns the outputs of `function` and their partials in the float parameters at `seeds`.

    `function` is as the front end gives it: operations on atoms. `names` are those of the function that the result
    becomes part of, if it does. Reverse mode is possible where `eliminate.is_shorter` holds. `flagged` says whether the
    caller reads the flags of the `Dual`: where one is false, the tangent may be any number.
    """
    mode = ReverseMode if reverse else LoopJacobians if is_shorter(function) else ForwardMode
    return mode(function, unit_directions(function.params, seeds), names).run(flagged=flagged)


# A cotangent, a partial, and the flag that says whether the output depends on the direction, if there is one.
_Term = tuple[ir.Var, ir.Expr, ir.Var | None]
# The output that holds ∂²output/∂parameter∂parameter, by (output, parameter, parameter), the parameters in order.
Hessian = dict[tuple[int, int, int], str]


def partial_of(function: ir.Function, position: int) -> ir.Function:
    """The function of the same arguments that gives the partial of each output in one parameter."""
    dual = dualize(function, (position,))
    partials = dual.tangents()
    outputs = [
        replace(output, value=partials.get((at, position), ir.ZERO)) for at, output in enumerate(function.outputs)
    ]
    return simplify(replace(dual.function, outputs=tuple(outputs)))


def pushforward_of(function: ir.Function, wrt: Sequence[int], *, values: bool = True) -> ir.Function:
    """The outputs, with `values`, and then their tangents, from the arguments and the tangents of those at `wrt`."""
    taken = unused_names(function)
    seeds = {seed: ir.Var(taken.fresh(f"{function.params[seed].name}_dot"), "float") for seed in wrt}
    given = replace(function, params=(*function.params, *seeds.values()))
    dual = ForwardMode(given, {0: Direction("ot", seeds)}, None).run()
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

    The partials are computed anew and contracted where they are: no Jacobian is stored. With `values` the result is a
    pair of the outputs and the cotangents.
    """
    dual = dualize(function, wrt, flagged=True)
    names = unused_names(dual.function)
    partials = dual.tangents()
    cotangents = {at: ir.Var(names.fresh(f"{function.outputs[at].name}_bar"), "float") for at in floats(function)}
    named = {seed: names.fresh(f"{function.params[seed].name}_bar") for seed in wrt}
    active = {seed for _, seed in partials}
    totals = {seed: ir.Var(names.fresh(ir.TEMPORARY + named[seed]), "float") for seed in wrt if seed in active}
    where = function.location

    def contracted() -> ir.Block:
        stmts: list[ir.Stmt] = []
        for seed, target in totals.items():
            terms = [
                (cotangent, partials[at, seed], dual.flags.get((at, seed)))
                for at, cotangent in cotangents.items()
                if (at, seed) in partials
            ]
            stmts.append(ir.Assign(target, _contracted(terms, names, stmts, where), where))
        return tuple(stmts)

    body = _append_in_branches(dual.function.body, contracted)
    exact = {*assigned(dual.function.body)}.difference(dual.function.derived)
    outputs = tuple(ir.Output(name, totals.get(seed, ir.ZERO)) for seed, name in named.items())
    params = (*function.params, *cotangents.values())
    structure = ir.numbers(len(outputs))
    if values:
        outputs = (*dual.function.outputs[: len(function.outputs)], *outputs)
        structure = ir.Structure(tuple, (function.structure, structure))
    both = replace(dual.function, params=params, body=body, outputs=outputs, structure=structure)
    both = replace(both, derived=among({*assigned(body)} - exact, body))
    return simplify(both)


def hessian_of(function: ir.Function, wrt: Sequence[int], *, reverse: bool = False) -> tuple[Dual, Hessian]:
    """Values, partials and second partials in one function; `reverse` as for `dualize`, for the first ones.

    The function of the `Dual` has outputs for the values, the partials that are not zero everywhere, and then the
    second ones, which the other result names: for (i, p, q), p at or before q in `wrt`, ∂²output i/∂p∂q.
    """
    first = dualize(function, wrt, reverse=reverse)
    inner = simplify(first.function)
    second = dualize(inner, wrt)
    position = {output.name: at for at, output in enumerate(inner.outputs)}
    seconds: Hessian = {}
    for (at, p), name in first.partials.items():
        for q in wrt[wrt.index(p) :]:
            twice = second.partials.get((position[name], q))
            if twice is not None:
                seconds[at, p, q] = twice
    wanted = {output.name for output in inner.outputs} | set(seconds.values())
    outputs = tuple(output for output in second.function.outputs if output.name in wanted)
    return Dual(replace(second.function, outputs=outputs), first.partials), seconds


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
    body: list[ir.Stmt] = []
    outputs = []
    for p in range(len(pattern[0])):
        blocks = [(i, row[p]) for i, row in enumerate(pattern) if row[p] != 0]
        terms: list[_Term] = [
            (cotangents[i], block_of[i, p] if known is None else ir.Const(known, "float"), None) for i, known in blocks
        ]
        total = _contracted(terms, names, body, ir.NOWHERE)
        outputs.append(ir.Output(names.fresh(f"x{p}_bar"), total))
    params = (*block_of.values(), *cotangents)
    return ir.Function("contraction", params, tuple(body), tuple(outputs), structure=ir.numbers(len(outputs)))


def _contracted(terms: Iterable[_Term], names: ir.Names, block: list[ir.Stmt], where: Location) -> ir.Expr:
    """The sum of products of cotangents and partials; the statements that compute it are appended to a block."""

    def emit(name: str, *args: ir.Expr) -> ir.Atom:
        return hold(fold(ir.Op(name, args, "float", where)), names, block, where)

    total: ir.Expr = ir.ZERO
    for cotangent, partial, flag in terms:
        term = emit("mul", cotangent, partial)
        # An absent dependence gives no cotangent, not even where the output's is infinite or nan.
        if flag is not None:
            term = emit("select", flag, term, ir.ZERO)
        total = term if total == ir.ZERO else emit("add", total, term)
    return total


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
    dual = dualize(function, range(len(function.params)), names)
    count, partials = len(function.outputs), dual.tangents()
    wanted = [output.value for output in dual.function.outputs[:count]] if has_value else []
    for seed in range(len(function.params)):
        wanted += [partials.get((position, seed), ir.ZERO) for position in range(count)]
    outputs = tuple(ir.Output(f"{ir.TEMPORARY}{at}", value) for at, value in enumerate(wanted))
    return replace(dual.function, outputs=outputs), guards
