"""Derivatives inside kernels: the partials of a function that a kernel differentiates.

Comes in: the function in IR. Goes out: a function that gives its partials in all parameters, and the guards of the
rules and custom derivatives that they depend on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dualbcast.autodiff.differentiate import dualize
from dualbcast.frontend.rule_bodies import guards_of
from dualbcast.ir.nodes import TEMPORARY, ZERO, Function, Names, Output
from dualbcast.rules.guards import Capture

__all__ = ["with_partials"]


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
