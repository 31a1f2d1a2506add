"""Derivatives of a function as functions: with its partials or tangents, pushforward, pullback, second derivatives, and
the derivatives that a kernel itself asks for.

They can be compiled, composed, and differentiated again. Tangents and cotangents are parameters after the arguments.

Comes in: the function in IR. Goes out: a function that gives its partials in all parameters, and the guards of the
rules and custom derivatives that they depend on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dualbcast.autodiff.eliminate import ReverseMode
from dualbcast.autodiff.linearize import Direction, Dual, ForwardMode
from dualbcast.autodiff.loop_jacobians import LoopJacobians, is_shorter
from dualbcast.errors import Location
from dualbcast.frontend.lower import guards_of
from dualbcast.ir.constant_fold import fold
from dualbcast.ir.nodes import (
    NOWHERE,
    ONE,
    TEMPORARY,
    ZERO,
    Assign,
    Atom,
    Block,
    Const,
    Expr,
    Function,
    If,
    Names,
    Op,
    Output,
    Stmt,
    Var,
)
from dualbcast.ir.structure import Structure
from dualbcast.ir.traversal import among, assigned, floats, free_names, hold, read_counts, use_counts
from dualbcast.ir.value_numbering import simplify
from dualbcast.rules.guards import Capture
from dualbcast.rules.table import RULES


def dualize(
    function: Function,
    seeds: Sequence[int],
    names: Names | None = None,
    *,
    reverse: bool = False,
    flagged: bool = False,
) -> Dual:
    """The function that returns the outputs of `function` and their partials in the parameters at `seeds`.

    Parameters
    ----------
    function : Function
        As the front end gives it: operations on atoms.
    seeds : sequence of int
        Positions of float parameters.
    names : Names, optional
        The names of the function that the result becomes part of; those of `function` if not given.
    reverse : bool
        Whether to use reverse mode, where `eliminate.is_shorter` holds.
    flagged : bool
        Whether the caller reads the flags of the `Dual`: where one is false, the tangent may be any number.
    """
    directions = {seed: Direction(function.params[seed].name, {seed: ONE}) for seed in seeds}
    mode = ReverseMode if reverse else LoopJacobians if is_shorter(function) else ForwardMode
    return mode(function, directions, names).run(flagged=flagged)


def push(function: Function, tangents: Mapping[int, Atom]) -> Dual:
    """The function that returns the outputs of `function` and their tangents for those of its parameters.

    Parameters
    ----------
    function : Function
        As the front end gives it; `tangents` may be parameters of it.
    tangents : mapping of int to Atom
        By the positions of float parameters; the one direction is 0 in the result.
    """
    return ForwardMode(function, {0: Direction("ot", tangents)}, None).run()


# A cotangent, a partial, and the flag that says whether the output depends on the direction, if there is one.
_Term = tuple[Var, Expr, Var | None]
# The output that holds ∂²output/∂parameter∂parameter, by (output, parameter, parameter), the parameters in order.
Hessian = dict[tuple[int, int, int], str]


def partial_of(function: Function, position: int) -> Function:
    """The function of the same arguments that gives the partial of each output in one parameter."""
    dual = dualize(function, (position,))
    named = {output.name: output for output in dual.function.outputs}
    outputs = []
    for at, output in enumerate(function.outputs):
        partial = dual.partials.get((at, position))
        outputs.append(replace(output, value=ZERO if partial is None else named[partial].value))
    return simplify(replace(dual.function, outputs=tuple(outputs)))


def pushforward_of(function: Function, wrt: Sequence[int], *, values: bool = True) -> Function:
    """The outputs, with `values`, and then their tangents, from the arguments and the tangents of those at `wrt`."""
    taken = _names(function)
    seeds = {seed: Var(taken.fresh(f"{function.params[seed].name}_dot"), "float") for seed in wrt}
    dual = push(replace(function, params=(*function.params, *seeds.values())), seeds)
    names, count = _names(dual.function), len(function.outputs)
    named = {output.name: output for output in dual.function.outputs}
    tangents = []
    for at, output in enumerate(function.outputs):
        tangent = dual.partials.get((at, 0))
        tangents.append(named[tangent] if tangent is not None else Output(names.fresh(f"{output.name}_dot"), ZERO))
    if not values:
        return simplify(replace(dual.function, outputs=tuple(tangents)))
    structure = Structure(tuple, (function.structure, function.structure))
    outputs = (*dual.function.outputs[:count], *tangents)
    return simplify(replace(dual.function, outputs=outputs, structure=structure))


def pullback_of(function: Function, wrt: Sequence[int], *, values: bool = False) -> Function:
    """The cotangents of the parameters at `wrt`, from the arguments and then the cotangents of the float outputs.

    The partials are computed anew and contracted where they are: no Jacobian is stored. With `values` the result is a
    pair of the outputs and the cotangents.
    """
    dual = dualize(function, wrt, flagged=True)
    names = _names(dual.function)
    partials = {output.name: output.value for output in dual.function.outputs}
    cotangents = {at: Var(names.fresh(f"{function.outputs[at].name}_bar"), "float") for at in floats(function)}
    named = {seed: names.fresh(f"{function.params[seed].name}_bar") for seed in wrt}
    active = {seed for _, seed in dual.partials}
    totals = {seed: Var(names.fresh(TEMPORARY + named[seed]), "float") for seed in wrt if seed in active}
    where = function.location

    def contracted() -> Block:
        stmts: list[Stmt] = []
        for seed, target in totals.items():
            terms = [
                (cotangent, partials[dual.partials[at, seed]], dual.flags.get((at, seed)))
                for at, cotangent in cotangents.items()
                if (at, seed) in dual.partials
            ]
            stmts.append(Assign(target, _contracted(terms, names, stmts, where), where))
        return tuple(stmts)

    reads = use_counts(dual.function) + Counter(flag.name for flag in dual.flags.values())
    body = _append_in_branches(dual.function.body, contracted, reads)
    exact = {*assigned(dual.function.body)}.difference(dual.function.derived)
    outputs = tuple(Output(name, totals.get(seed, ZERO)) for seed, name in named.items())
    params = (*function.params, *cotangents.values())
    structure = Structure(tuple, (Structure(),) * len(outputs))
    if values:
        outputs = (*dual.function.outputs[: len(function.outputs)], *outputs)
        structure = Structure(tuple, (function.structure, structure))
    both = replace(dual.function, params=params, body=body, outputs=outputs, structure=structure)
    both = replace(both, derived=among({*assigned(body)} - exact, body))
    return simplify(both)


def hessian_of(function: Function, wrt: Sequence[int], *, reverse: bool = False) -> tuple[Dual, Hessian]:
    """Values, partials and second partials in one function; `reverse` as for `dualize`, for the first ones.

    Returns
    -------
    Dual
        Its function has outputs for the values, the partials that are not zero everywhere, and then the second ones.
    dict
        For (i, p, q), p at or before q in `wrt`, the name of the output that is ∂²output i/∂p∂q.
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


def contraction_of(pattern: Sequence[Sequence[float | None]]) -> Function:
    """The contraction of cotangents with a stored Jacobian, as a function of its blocks and the cotangents.

    Parameters
    ----------
    pattern : sequence of sequence of (float or None)
        For each output, and in that for each argument, a number where the block is that number everywhere; None where
        it is an array, and so a parameter. These come first, output by output, and then a cotangent for each output.
    """
    count = len(pattern)
    stored = [(i, p) for i, row in enumerate(pattern) for p, block in enumerate(row) if block is None]
    block_of = {place: Var(f"block{at}", "float") for at, place in enumerate(stored)}
    cotangents = [Var(f"bar{i}", "float") for i in range(count)]
    names = Names([*RULES, *(param.name for param in (*block_of.values(), *cotangents))])
    body: list[Stmt] = []
    outputs = []
    for p in range(len(pattern[0])):
        blocks = [(i, row[p]) for i, row in enumerate(pattern) if row[p] != 0]
        terms: list[_Term] = [
            (cotangents[i], block_of[i, p] if known is None else Const(known, "float"), None) for i, known in blocks
        ]
        total = _contracted(terms, names, body, NOWHERE)
        outputs.append(Output(names.fresh(f"x{p}_bar"), total))
    structure = Structure(tuple, (Structure(),) * len(outputs))
    params = (*block_of.values(), *cotangents)
    return Function("contraction", params, tuple(body), tuple(outputs), structure=structure)


def _contracted(terms: Iterable[_Term], names: Names, block: list[Stmt], where: Location) -> Expr:
    """The sum of products of cotangents and partials; the statements that compute it are appended to a block."""
    total: Expr = ZERO
    for cotangent, partial, flag in terms:
        term = hold(fold(Op("mul", (cotangent, partial), "float", where)), names, block, where)
        # An absent dependence gives no cotangent, not even where the output's is infinite or nan.
        if flag is not None:
            term = hold(fold(Op("select", (flag, term, ZERO), "float", where)), names, block, where)
        total = term if total == ZERO else hold(fold(Op("add", (total, term), "float", where)), names, block, where)
    return total


def _append_in_branches(block: Block, make: Callable[[], Block], reads: Counter[str]) -> Block:
    """The block with more statements at its end; if it ends with a branch, at the end of each side.

    More operands are known there. Copies of the branch's results move there, too. `reads` is how often each name is
    read before.
    """
    count = len(block)
    while count and _is_copy(block[count - 1]):
        count -= 1
    if not count or not isinstance(branch := block[count - 1], If):
        return (*block, *make())
    ends = _direct(block[count:], reads)
    then, orelse = (_append_in_branches((*side, *ends), make, reads) for side in (branch.then, branch.orelse))
    return (*block[: count - 1], replace(branch, then=then, orelse=orelse))


def _direct(block: Block, reads: Counter[str]) -> Block:
    """The copies without intermediate ones, of which each side of a chain of `elif` would have all."""
    sources: dict[str, Expr] = {}
    for stmt in block:
        assert isinstance(stmt, Assign)
        sources[stmt.target.name] = (
            sources.get(stmt.value.name, stmt.value) if isinstance(stmt.value, Var) else stmt.value
        )
    if any(isinstance(source, Var) and source.name in sources for source in sources.values()):
        return block
    within = read_counts(block)
    return tuple(
        [
            replace(stmt, value=sources[stmt.target.name])
            for stmt in block
            if isinstance(stmt, Assign) and reads[stmt.target.name] > within[stmt.target.name]
        ]
    )


def _is_copy(stmt: Stmt) -> bool:
    return isinstance(stmt, Assign) and isinstance(stmt.value, Const | Var)


def _names(function: Function) -> Names:
    """Names that are not in use in a function."""
    return free_names(function, [*(output.name for output in function.outputs), *RULES])


def with_partials(function: Function, names: Names, *, has_value: bool) -> tuple[Function, Sequence[Capture]]:
    """The function that gives the outputs of `function`, with `has_value`, and then its partials by parameter.

    Its variables have fresh names from `names`, so that its body can become part of the calling function.
    """
    guards = guards_of(function)  # before differentiation, which takes operations away
    dual = dualize(function, range(len(function.params)), names)
    count = len(function.outputs)
    value_of = {output.name: output.value for output in dual.function.outputs}
    wanted = [output.value for output in dual.function.outputs[:count]] if has_value else []
    for seed in range(len(function.params)):
        for position in range(count):
            name = dual.partials.get((position, seed))
            wanted.append(ZERO if name is None else value_of[name])
    outputs = tuple(Output(f"{TEMPORARY}{at}", value) for at, value in enumerate(wanted))
    return replace(dual.function, outputs=outputs), guards
