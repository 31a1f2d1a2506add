"""The backward pass, node by node and without recursion.

Comes in: outputs with their cotangents, and targets. Goes out: the cotangents of the targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias
from weakref import ref

import numpy as np

from dualbcast.errors import DualbcastError
from dualbcast.graph.arrays import as_array
from dualbcast.graph.fused_region import REGION, reopen, settle
from dualbcast.graph.lazy import LIMITS
from dualbcast.graph.operations.elementwise import apply, astype
from dualbcast.graph.operations.indexing import GETITEM, is_injective
from dualbcast.graph.tape import STATE, Node, setting
from dualbcast.graph.variable import Variable

# The identity of a Variable: the node that it is an output of and its position there, or the Variable itself.
_Key = tuple[int, int]
# By the identity of a Variable, its cotangent if nothing else refers to that.
_Scattered: TypeAlias = "dict[_Key, ref[Variable]]"


def backward(
    heads: list[tuple[Variable, Variable]], targets: Sequence[Variable], record: bool, stop: bool = False
) -> list[Variable | None]:
    """Carry cotangents back.

    Parameters
    ----------
    heads : list of (Variable, Variable)
        Outputs with their cotangents. The list is emptied, so that arrays which only it holds are freed on the way.
    targets : sequence of Variable
        The Variables whose cotangents are wanted.
    record : bool
        Whether the operations of the pass are recorded, to be differentiated again.
    stop : bool
        Whether a target counts as independent of the other targets: the pass does not go on from it.

    Returns
    -------
    list of (Variable or None)
        For each target its cotangent; None where no output depends on it.
    """
    # Variables that wait have no nodes yet.
    settle([*targets, *[output for output, _ in heads]])
    order = _order([output for output, _ in heads], targets, stop)
    wanted = {key_of(target) for target in targets}
    cotangents: dict[_Key, Variable] = {}
    scattered: _Scattered = {}
    with setting(is_recording=record, depth=STATE.depth + 1):
        while heads:
            _accumulate(cotangents, key_of(heads[-1][0]), heads.pop()[1])
        while order:
            # This frees the node of the last iteration, with the arrays that only it refers to.
            node, needed = order.pop()
            keys = [(id(node), index) for index in range(len(node.types))]
            seeds = tuple([cotangents.get(key) if key in wanted else cotangents.pop(key, None) for key in keys])
            if True in [seed is not None for seed in seeds]:
                _through(node, seeds, needed, cotangents, scattered)
    return [cotangents.get(key_of(target)) for target in targets]


def key_of(variable: Variable) -> _Key:
    """The identity of a Variable: two that stand for the same output of a node have the same."""
    return (id(variable), -1) if variable.node is None else (id(variable.node), variable.index)


def _order(outputs: list[Variable], targets: Sequence[Variable], stop: bool) -> list[tuple[Node, tuple[bool, ...]]]:
    """The nodes between targets and outputs, inputs first; for each input whether its cotangent is needed."""
    # A node that is older than all targets depends on none of them.
    oldest = min([target.serial for target in targets], default=0)
    wanted = {key_of(target) for target in targets}
    # These targets may have been computed inside a kernel.
    inner = {target.source.key: target for target in targets if target.source is not None}
    on_the_way: dict[Node, bool] = {}
    order: list[tuple[Node, tuple[bool, ...]]] = []
    pending: list[tuple[Node, bool]] = [(output.node, False) for output in outputs if output.node is not None]
    while pending:
        node, is_explored = pending.pop()
        if is_explored:
            needed = tuple(
                [
                    isinstance(each, Variable)
                    and each.tracked
                    and (key_of(each) in wanted or (each.node is not None and on_the_way.get(each.node, False)))
                    for each in node.inputs
                ]
            )
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
    node: Node,
    seeds: tuple[Variable | None, ...],
    needed: tuple[bool, ...],
    cotangents: dict[_Key, Variable],
    scattered: _Scattered,
) -> None:
    """Pull cotangents back through one node, and add them to those of its inputs.

    `scattered` has the cotangents that others may be added into in place.
    """
    if node.primitive is GETITEM and not STATE.is_recording and is_injective(node.static["key"]):
        _scatter(node, seeds[0], cotangents, scattered)
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


def _scatter(node: Node, seed: Variable | None, cotangents: dict[_Key, Variable], scattered: _Scattered) -> None:
    """Pull a cotangent back through an index.

    The cotangents of many parts of one array go into one array. If each part had an array of the size of the whole, a
    loop over steps or layers would take time in the square of their number.
    """
    assert seed is not None
    primal, key = key_of(node.inputs[0]), node.static["key"]
    present, added = cotangents.get(primal), scattered.get(primal)
    if present is not None and added is not None and added() is present:
        with np.errstate(over="ignore", invalid="ignore"):  # a kernel does not warn either
            present.array[key] += seed.array
        return
    (part,) = node.primitive.pullback(node, (seed,), (True,))
    assert part is not None
    if present is None and part.dtype.itemsize > 2:  # a kernel rounds a sum of half precision once
        scattered[primal] = ref(part)
    _accumulate(cotangents, primal, part)


def _accumulate(cotangents: dict[_Key, Any], key: _Key, cotangent: Variable) -> None:
    present = cotangents.get(key)
    if present is not None:
        if present.size < LIMITS.elements and not STATE.is_recording and type(present.array) is np.ndarray:
            # The result is that of `apply`, which takes much longer; a recurrent model adds at every step.
            cotangent = Variable._of(as_array(present.array + cotangent.array), False)
        else:
            cotangent = apply("add", present, cotangent)
    cotangents[key] = cotangent
