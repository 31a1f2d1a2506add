"""What a call's `out=` says, as the arrays that its kernel writes to."""

from __future__ import annotations

from typing import Any

from dualbcast.api.specialisation import Specialisation
from dualbcast.errors import ArgumentError
from dualbcast.program.outputs import OUT_FORMS, Results, another_wrt
from dualbcast.program.products import Which
from dualbcast.program.results import Jacobian
from dualbcast.runtime.arguments import beside
from dualbcast.runtime.launch_plan import scalars

_BOTH: Which = "value_and_jacobian"
_NEW_MATRIX = "matrix"


def value_arrays(specialisation: Specialisation, out: Any) -> tuple[Any, ...]:
    """The arrays for the value, in the order of the outputs; None stands for one to be allocated."""
    structure = specialisation.element.function.structure
    if structure.holds(out):
        return structure.flatten(out, "out=")
    # Another structure is refused later, where arrays are checked.
    return tuple(out) if isinstance(out, tuple | list) else (out,)


def value_and_jacobian_into(specialisation: Specialisation, values: tuple[Any, ...], out: Any) -> tuple[Any, Jacobian]:
    """The value and the Jacobian of a call, written to the arrays of `out=`, or the Jacobian to a new matrix."""
    if isinstance(out, str) and out == _NEW_MATRIX:
        return _in_new_matrix(specialisation, values)
    if not (isinstance(out, tuple) and len(out) == 2):
        raise ArgumentError(OUT_FORMS)
    first, second = specialisation.element.function.structure.flatten(out[0], "the value in out="), out[1]
    if isinstance(second, Jacobian) and second._results.positions != specialisation.wrt:
        raise another_wrt(second.wrt, [specialisation.element.names[at] for at in specialisation.wrt])
    if isinstance(second, Jacobian) and second._matrix is None:
        results, outputs = specialisation.run(_BOTH, values, (*first, *second._stored))
        return results.value(outputs), Jacobian._of(results, outputs)
    matrix, results = second, specialisation.results(values)
    if isinstance(second, Jacobian):
        matrix = second._matrix
    results.check_matrix(matrix)
    results, outputs = specialisation.run(_BOTH, values, (*first, *results.stored_parts(matrix)))
    return results.value(outputs), _of_parts(matrix, results, outputs)


def _in_new_matrix(specialisation: Specialisation, values: tuple[Any, ...]) -> tuple[Any, Jacobian]:
    results = specialisation.results(values)
    if results.checks is not None:
        # The output of checks is always new, and calls with both new and given arrays have no fast path.
        results, outputs = specialisation.run(_BOTH, values)
        return results.value(outputs), Jacobian._of(results, outputs)
    with beside(values):
        matrix, parts = results.new_matrix()
        given = (*results.new_values(specialisation.dtypes), *parts)
    results, outputs = specialisation.run(_BOTH, values, given, forms=_NEW_MATRIX)
    jacobian = _of_parts(matrix, results, outputs)
    if not results.shape and results.module == "numpy":
        outputs = scalars(tuple(outputs), (False,) * len(outputs))
    return results.value(outputs), jacobian


def _of_parts(matrix: Any, results: Results, outputs: Any) -> Jacobian:
    jacobian = Jacobian._of(results, outputs)
    jacobian._matrix = matrix
    return jacobian
