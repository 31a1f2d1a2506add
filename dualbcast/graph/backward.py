"""The backward pass, node by node and without recursion; and checkpointed functions, which it calls again.

Comes in: outputs with their cotangents, and targets. Goes out: the cotangents of the targets.

`checkpoint` makes a function of Variables record a single node, whose pullback calls the function again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np

from dualbcast.errors import ArgumentError, DualbcastError
from dualbcast.foreign_objects import is_plain, refused_result
from dualbcast.graph.arrays import as_array, is_array, leaves, map_leaves, rebuild
from dualbcast.graph.batched import batched, is_at, level_of
from dualbcast.graph.elementwise import apply, astype
from dualbcast.graph.frozen import Frozen, freeze
from dualbcast.graph.fused_region import REGION, reopen, settle
from dualbcast.graph.indexing import GETITEM, is_injective, scatter_parts
from dualbcast.graph.lazy import Limits
from dualbcast.graph.primitives import alias, record, tracked_positions, zeros
from dualbcast.graph.recording import changed
from dualbcast.graph.shapes import broadcast_to, stack
from dualbcast.graph.tape import STATE, Cotangents, Node, Primitive, next_serial, observe, setting
from dualbcast.graph.variable import Variable

Function = TypeVar("Function", bound=Callable[..., Any])
# The identity of a Variable: the node that it is an output of and its position there, or the Variable itself.
_Key = tuple[int, int]
# By the identity of an array, the nodes that took parts of it, with the cotangents of the parts; or the first node with
# the sum of them. If each had an array of the whole's size, a loop over parts would take quadratic time.
_Parts: TypeAlias = dict[_Key, list[tuple[Node, Variable]]]


def backward(
    heads: list[tuple[Variable, Variable]], targets: Sequence[Variable], record: bool, stop: bool = False
) -> list[Variable | None]:
    """Carry cotangents back from outputs: for each target its cotangent, or None where no output depends on it.

    The heads are emptied, so that arrays which only they hold are freed on the way. With `record` the pass is recorded,
    to be differentiated again. With `stop` it does not go on from a target to other targets.
    """
    if STATE.batches:
        level = level_of([*targets, *[each for head in heads for each in head]])
        if level:
            return _of_batches(heads, targets, record, stop, level)
    # Variables that wait have no nodes yet.
    settle([*targets, *[output for output, _ in heads]])
    order = _order([output for output, _ in heads], targets, stop)
    wanted = {key_of(target) for target in targets}
    cotangents: dict[_Key, Variable] = {}
    parts: _Parts = {}
    with setting(is_recording=record, depth=STATE.depth + 1):
        while heads:
            _accumulate(cotangents, key_of(heads[-1][0]), heads.pop()[1])
        while order:
            # This frees the node of the last iteration, with the arrays that only it refers to.
            node, needed = order.pop()
            keys = [(id(node), index) for index in range(len(node.types))]
            for key in keys if parts else ():
                _add_parts(cotangents, parts, key)
            seeds = tuple([cotangents.get(key) if key in wanted else cotangents.pop(key, None) for key in keys])
            if True in [seed is not None for seed in seeds]:
                _through(node, seeds, needed, cotangents, parts)
        for key in wanted & parts.keys() if parts else ():
            _add_parts(cotangents, parts, key)
    return [cotangents.get(key_of(target)) for target in targets]


def _of_batches(
    heads: list[tuple[Variable, Variable]], targets: Sequence[Variable], record: bool, stop: bool, level: int
) -> list[Variable | None]:
    """The same inside `vmap`, where some of the Variables are batched."""
    given = list(zip(*heads, strict=True)) if heads else [(), ()]
    heads.clear()
    outputs, seeds = given
    if all(is_at(target, level) for target in targets):
        # No other output depends on them.
        inner = []
        for output, seed in zip(outputs, seeds, strict=True):
            if is_at(output, level):
                whole = (output.inner.shape[0], *seed.shape)
                inner.append((output.inner, seed.inner if is_at(seed, level) else broadcast_to(seed, whole)))
        found = backward(inner, [target.inner for target in targets], record, stop)  # type: ignore[attr-defined]
        return [None if each is None else batched(each, level) for each in found]
    if any(is_at(each, level) for each in (*outputs, *targets)):
        raise ArgumentError(
            "inside vmap a derivative is taken in arguments: pass a transformation the function, and to that the "
            "Variable to differentiate in"
        )
    # The cotangents alone are batched.
    size = next(seed.inner.shape[0] for seed in seeds if is_at(seed, level))
    passes = []
    for index in range(size):
        own = [seed.inner[index] if is_at(seed, level) else seed for seed in seeds]
        passes.append(backward(list(zip(outputs, own, strict=True)), targets, record, stop))
    columns = zip(*passes, strict=True)
    return [
        batched(stack([zeros(target) if each is None else each for each in column]), level)
        for target, column in zip(targets, columns, strict=True)
    ]


def key_of(variable: Variable) -> _Key:
    """The identity of a Variable: two that stand for the same output of a node have the same."""
    return (id(variable), -1) if variable.node is None else (id(variable.node), variable.index)


def _order(outputs: list[Variable], targets: Sequence[Variable], stop: bool) -> list[tuple[Node, tuple[bool, ...]]]:
    """The nodes between targets and outputs, inputs first; for each input whether its cotangent is needed."""
    # A node that is older than all targets depends on none of them.
    oldest = min([target.serial for target in targets], default=0)
    wanted = {key_of(target) for target in targets}
    # These targets may have been computed inside a kernel.
    inner = {target.source: target for target in targets if target.source is not None}
    on_the_way: dict[Node | None, bool] = {}
    order: list[tuple[Node, tuple[bool, ...]]] = []
    pending: list[tuple[Node, bool]] = [(output.node, False) for output in outputs if output.node is not None]

    def is_needed(each: Any) -> bool:
        return (
            isinstance(each, Variable) and each.tracked and (key_of(each) in wanted or on_the_way.get(each.node, False))
        )

    while pending:
        node, is_explored = pending.pop()
        if is_explored:
            needed = tuple(map(is_needed, node.inputs))
            on_the_way[node] = any(needed)
            if on_the_way[node]:
                order.append((node, needed))
        elif node not in on_the_way:
            on_the_way[node] = False
            if inner and node.primitive is REGION:
                reopen(node, inner)
                wanted = {key_of(target) for target in targets}
            pending.append((node, True))
            for each in node.inputs:
                if isinstance(each, Variable) and each.tracked and not (stop and key_of(each) in wanted):
                    before = each.node
                    if before is not None and before.serial >= oldest and before not in on_the_way:
                        pending.append((before, False))
    return order


def _through(
    node: Node, seeds: tuple[Any, ...], needed: tuple[bool, ...], cotangents: dict[_Key, Variable], parts: _Parts
) -> None:
    """Pull cotangents back through one node, and add them to those of its inputs."""
    if node.primitive is GETITEM and is_injective(node.static["key"]):
        (seed,), (whole,), key = seeds, node.inputs, node.static["key"]
        present = parts.setdefault(key_of(whole), [])
        if _waits(seed):
            present.append((node, seed))
        elif not present:
            present.append((node, scatter_parts([seed], [key], whole.shape)))
        else:
            with np.errstate(over="ignore", invalid="ignore"):  # a kernel does not warn either
                total = present[0][1]
                total._value = changed(_add_at, total.array, seed.array, key=key)
        return
    pulled = node.primitive.pullback(node, seeds, needed)
    for primal, cotangent, is_needed in zip(node.inputs, pulled, needed, strict=True):
        if not is_needed or cotangent is None:
            continue
        if cotangent.shape != primal.shape:
            raise DualbcastError(
                f"the derivative of {node.primitive.name} has shape {cotangent.shape} for an input of shape "
                f"{primal.shape}; this is a fault of dualbcast's, please report it"
            )
        if cotangent.dtype != primal.dtype:
            cotangent = astype(cotangent, primal.dtype)
        _accumulate(cotangents, key_of(primal), cotangent)


def _add_at(total: Any, term: Any, key: Any) -> Any:
    total[key] += term
    return total


def _add_parts(cotangents: dict[_Key, Variable], parts: _Parts, key: _Key) -> None:
    """Add the cotangents of parts of an array to that of the array."""
    if key in parts:
        nodes, seeds = zip(*parts.pop(key), strict=True)
        total = seeds[0]
        if _waits(total):
            total = scatter_parts(seeds, [node.static["key"] for node in nodes], nodes[0].inputs[0].shape)
        _accumulate(cotangents, key, total)


def _waits(seed: Variable) -> bool:
    """Whether the cotangent of a part waits for those of the other parts. A sum of half precision is rounded once."""
    return STATE.is_recording or seed.dtype.itemsize == 2


def _accumulate(cotangents: dict[_Key, Any], key: _Key, cotangent: Variable) -> None:
    present = cotangents.get(key)
    if present is not None:
        is_small = present.size < Limits.elements and not STATE.is_recording and STATE.recorder is None
        if is_small and type(present.array) is np.ndarray:
            # The result is that of `apply`, which takes much longer; a recurrent model adds at every step.
            cotangent = Variable._of(as_array(present.array + cotangent.array), False)
        else:
            cotangent = apply("add", present, cotangent)
    cotangents[key] = cotangent


def evaluate(function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    """Call the function that is differentiated, and record its operations."""
    with setting(is_recording=True, depth=STATE.depth + 1):
        return function(*args, **named)


def check_results(result: Any, name: str) -> None:
    """Refuse a result that is no container of Variables, arrays, numbers and texts; `name` is the function's."""

    def check(path: str, leaf: Any) -> Any:
        if not (isinstance(leaf, Variable) or is_plain(leaf) or type(leaf) in (str, bytes)):
            raise refused_result(leaf, name, path)
        return leaf

    map_leaves(check, result, "result")


def name_of(function: Any) -> str:
    """The name of a function in messages."""
    return f"{getattr(function, '__name__', repr(function))}()"


def checkpoint(function: Function) -> Function:
    """The same function without its intermediate values: the backward pass calls it again to compute them.

    This saves memory, and takes the time of one more evaluation.

    Parameters
    ----------
    function : callable
        It returns Variables, and must compute the same again from the same arguments. Variables that it captures are
        differentiated in, too. Arrays that it captures are read-only until the backward pass. CuPy's arrays cannot be
        read-only: pass those that may change in the meantime as arguments.

    Returns
    -------
    callable
        A function of the same arguments with the same results.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> layer = graph.checkpoint(lambda x: np.exp(np.log(x) * 2))
    >>> graph.grad(lambda x: np.sum(layer(layer(x))))(np.array([1.0, 2.0])).round(9)
    array([ 4., 32.])
    """

    @functools.wraps(function)
    def checkpointed(*args: Any, **named: Any) -> Any:
        if not STATE.is_recording or STATE.batches:
            return function(*args, **named)
        given = leaves((args, named))
        positions = tracked_positions(given)
        arguments = [given[at] for at in positions]
        # The node refers to the structure of the arguments, and to their leaves that carry no derivative.
        structure = rebuild((args, named), [False] * len(given))
        captured: dict[_Key, Variable] = {}
        frozen: set[Frozen | None] = set()
        constants = [None if at in positions else _constant(leaf, frozen) for at, leaf in enumerate(given)]

        def call(inputs: Sequence[Variable]) -> Any:
            """The function, with other Variables in the place of the arguments that carry derivatives."""
            values = dict(zip(positions, inputs, strict=True))
            again, options = rebuild(structure, [values.get(at, leaf) for at, leaf in enumerate(constants)])
            return function(*again, **options)

        note = _observer(captured, frozen)
        with setting(observer=note, is_recording=False):
            result = call([Variable(each, tracked=False) for each in arguments])
        note(leaves(result))  # a captured Variable may be a result as it is
        check_results(result, name_of(function))
        inputs = (*arguments, *captured.values())
        observe(inputs)
        tracked = bool(inputs)
        outputs = [Variable(leaf, tracked) if isinstance(leaf, Variable) else leaf for leaf in leaves(result)]
        if tracked:
            static = {"call": call, "count": len(arguments), "frozen": frozen}
            record(_CHECKPOINT, inputs, static, [leaf for leaf in outputs if isinstance(leaf, Variable)])
        return rebuild(result, outputs)

    return checkpointed  # type: ignore[return-value]


def _constant(leaf: Any, frozen: set[Frozen | None]) -> Any:
    """An argument that carries no derivative. If it is an array, it is frozen, and `frozen` gets the need of that."""
    if is_array(leaf) and not isinstance(leaf, np.generic):
        leaf, need = freeze(leaf)
        frozen.add(need)
    return leaf


def _observer(captured: dict[_Key, Variable], frozen: set[Frozen | None]) -> Callable[[Sequence[Any]], None]:
    """A function that notes older tracked Variables and older arrays of the user among the inputs of operations."""
    since, before = next_serial(), STATE.observer

    def note(inputs: Sequence[Any]) -> None:
        for each in inputs:
            if isinstance(each, Variable):
                frozen.add(each.frozen)
                if each.tracked and each.serial < since:
                    settle([each])  # one that waits has no node yet, and would get another key with that
                    captured.setdefault(key_of(each), each)
        if before is not None:
            before(inputs)

    return note


def _pullback_of_checkpoint(node: Node, cotangents: Cotangents, _wanted: tuple[bool, ...]) -> Cotangents:
    count, call = node.static["count"], node.static["call"]
    is_recorded = STATE.is_recording
    # Aliases stand for the arguments, and captured Variables for themselves; the inner backward pass ends at both.
    aliases = [alias("", each) for each in node.inputs[:count]]
    outputs = [leaf for leaf in leaves(evaluate(call, aliases)) if isinstance(leaf, Variable)]
    heads = [
        (output, cotangent)
        for output, cotangent in zip(outputs, cotangents, strict=True)
        if cotangent is not None and output.tracked
    ]
    del outputs
    return backward(heads, [*aliases, *node.inputs[count:]], is_recorded, stop=True)


_CHECKPOINT = Primitive("checkpoint", None, _pullback_of_checkpoint)
