"""Calls of functions with core dimensions by the addresses of NumPy's arrays: no view is made of the elements of cores.

Comes in: a call whose arrays have known forms. Goes out: the results of calls on other arrays of these forms.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Sequence
from typing import Any, Self

from numpy import ndarray

from dualbcast.api.cores.targets import CoreTargets, Found
from dualbcast.api.specialisation import Specialisation
from dualbcast.runtime.arguments import host_addresses
from dualbcast.runtime.cpu.address_call import AddressCall

Arrays = tuple[Any, ...]


class CoreDirect:
    """The calls of one product on arrays of the same forms as those of one call."""

    def __init__(
        self, specialisation: Specialisation, targets: CoreTargets, call: AddressCall, places: Sequence[tuple[int, int]]
    ) -> None:
        self._program, self._targets, self._call = specialisation.program, targets, call
        # For each array of the kernel: of which of the caller's and the new arrays it is a part, and how many bytes
        # behind its beginning it lies.
        self._places = places

    @classmethod
    def of(cls, specialisation: Specialisation, targets: CoreTargets, arrays: Arrays, values: Arrays) -> Self | None:
        """The calls like that of some arrays with the elements `values`; None where these take more than addresses."""
        program = specialisation.program
        is_alone = not program.speaks and not program.whole and program.captured(values) == ()
        if not (is_alone and targets.writes_new and are_arrays((*arrays, *values))):
            return None
        new, blocks = targets.new()
        parts = targets.parts(new, blocks)
        call = specialisation.prepare(targets.which, values, parts)
        pointers = host_addresses((*values, *parts))
        if not call.takes_addresses or pointers != tuple(call.plan.pointers):
            return None
        # The elements of an argument follow each other, and so do those of an output; the parts of a complex argument
        # are of one array.
        names = [name.partition("[")[0].partition(".")[0] for name in specialisation.element.names]
        owners = list(itertools.accumulate(map(operator.ne, names[1:], names), initial=0))
        if owners[-1] != len(arrays) - 1:
            return None
        owners += [len(arrays) + at for at in targets.owners()]
        begins = host_addresses((*arrays, *new, *blocks))
        places = [(owner, pointer - begins[owner]) for owner, pointer in zip(owners, pointers, strict=True)]
        itemsizes = tuple([array.itemsize for array in call.plan.operands.arrays])
        return cls(
            specialisation, targets, AddressCall(call.cpu_kernel(), call.plan.geometry, itemsizes, len(parts)), places
        )

    def run(self, arrays: Arrays) -> Found | None:
        """The results, as `CoreTargets` gives them; None where the function has changed or an array is misaligned, and
        nothing has run."""
        if self._program.captured(()) is None:
            return None
        new, blocks = self._targets.new()
        begins = host_addresses((*arrays, *new, *blocks))
        if not self._call.run([begins[owner] + offset for owner, offset in self._places]):
            return None
        return self._targets.packed(new, blocks)


def are_arrays(values: Arrays) -> bool:
    """Whether all are arrays of NumPy's, and of no class made from it."""
    return all(type(value) is ndarray for value in values)
