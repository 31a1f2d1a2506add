"""What a call's `out=` says, as the arrays that its kernel writes to."""

from __future__ import annotations

from typing import Any

from dualbcast.api.dispatch import Specialisation
from dualbcast.errors import ArgumentError
from dualbcast.program.matrices import checked_matrix, new_matrix, new_values, stored_parts
from dualbcast.program.outputs import Results
from dualbcast.program.products import Which
from dualbcast.program.results import Jacobian
from dualbcast.runtime.arguments import beside
from dualbcast.runtime.launch_plan import scalars

_BOTH: Which = "value_and_jacobian"


def value_arrays(specialisation: Specialisation, out: Any) -> tuple[Any, ...]:
    """The arrays for the value, in the order of the outputs; None stands for one to be allocated."""
    structure = specialisation.element.function.structure
    if structure.holds(out):
        return structure.flatten(out, "out=")
    # Another structure is refused later, where arrays are checked.
    return tuple(out) if isinstance(out, tuple | list) else (out,)


def value_and_jacobian_into(specialisation: Specialisation, values: tuple[Any, ...], out: Any) -> tuple[Any, Jacobian]:
    """The value and the Jacobian of a call, written to the arrays of `out=`, or the Jacobian to a new matrix."""
    if isinstance(out, str) and out == "matrix":
        return _in_new_matrix(specialisation, values)
    if not (isinstance(out, tuple) and len(out) == 2):
        raise ArgumentError('out= must be the pair (value, Jacobian) that an earlier call returned, or "matrix"')
    first, second = specialisation.element.function.structure.flatten(out[0], "the value in out="), out[1]
    if not isinstance(second, Jacobian):
        matrix = checked_matrix(second, _rule(specialisation, values))
    elif second._matrix is None:
        results, outputs = specialisation.run(_BOTH, values, (*first, *second._stored))
        return results.value(outputs), Jacobian.of(results, outputs)
    else:
        matrix = second._matrix
    stored = stored_parts(matrix, _rule(specialisation, values))
    results, outputs = specialisation.run(_BOTH, values, (*first, *stored))
    return results.value(outputs), _of_parts(matrix, results, outputs)


def _in_new_matrix(specialisation: Specialisation, values: tuple[Any, ...]) -> tuple[Any, Jacobian]:
    rule = _rule(specialisation, values)
    if rule.limit is not None:
        # The limit's own output is always new, and calls with both new and given arrays have no fast path.
        results, outputs = specialisation.run(_BOTH, values)
        return results.value(outputs), Jacobian.of(results, outputs)
    with beside(values):
        matrix, first = new_matrix(rule), new_values(rule, specialisation.dtypes)
        stored = stored_parts(matrix, rule)
    results, outputs = specialisation.run(_BOTH, values, (*first, *stored))
    jacobian = _of_parts(matrix, results, outputs)
    if not rule.shape and rule.module == "numpy":
        outputs = scalars(tuple(outputs), (False,) * len(outputs))
    return results.value(outputs), jacobian


def _of_parts(matrix: Any, results: Results, outputs: Any) -> Jacobian:
    jacobian = Jacobian.of(results, outputs)
    jacobian._matrix = matrix
    return jacobian


def _rule(specialisation: Specialisation, values: tuple[Any, ...]) -> Results:
    """The rule that makes a value and a Jacobian of a kernel's outputs, the same for all calls of a specialisation."""
    if specialisation.rule is None:
        with beside(values):
            specialisation.rule = specialisation.prepare(_BOTH, values).results
    return specialisation.rule
