"""Functions with tangents, and the directions that they are in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from dualbcast.autodiff.eliminate import Plan
from dualbcast.errors import Location
from dualbcast.ir import nodes as ir
from dualbcast.ir.traversal import free_names
from dualbcast.rules.table import RULES


@dataclass(frozen=True, slots=True)
class Dual:
    """A function of values and tangents; `partials[i, d]` names the output that is the tangent of i in direction d.

    The directions of a Jacobian are parameters. A missing pair is a structural zero. `plans` are the orders in which
    the regions were eliminated, with their places.
    """

    function: ir.Function
    partials: dict[tuple[int, int], str]
    plans: tuple[tuple[Location, Plan], ...] = field(default=(), compare=False)

    def tangents(self) -> dict[tuple[int, int], ir.Atom]:
        """The tangents by output and direction; a structural zero is missing."""
        values = {output.name: output.value for output in self.function.outputs if isinstance(output.value, ir.Atom)}
        return {place: values[name] for place, name in self.partials.items()}


class Direction(NamedTuple):
    """A direction to differentiate in: the tangents of the parameters that have one, and a label for the names."""

    label: str
    tangents: Mapping[int, ir.Atom]


def unused_names(function: ir.Function) -> ir.Names:
    """Names that are not in use in a function, and mean nothing else in a kernel."""
    return free_names(function, [*(output.name for output in function.outputs), *RULES])


def label_of(name: str) -> str:
    """The name of a source in those of derivatives."""
    return name.removeprefix(ir.TEMPORARY).replace("#", "_")


def unit_directions(params: Sequence[ir.Var], seeds: Iterable[int]) -> dict[int, Direction]:
    """The directions of the parameters at `seeds`."""
    return {seed: Direction(label_of(params[seed].name), {seed: ir.ONE}) for seed in seeds}
