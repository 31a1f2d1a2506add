"""Fits go on side by side, some thousands at a time, until each has converged; those that have leave the batch.

A pass over the data evaluates the cost and its derivatives of all fits of a batch, and the kernel of `step.py` makes
the next trial of each. A batch is so small that its data and the state of its fits stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.fit.problem import Bounds, Data, Problem, elements_of, real_array, taken
from dualbcast.fit.step import RUNNING, State, advance, start
from dualbcast.program.outputs import Results
from dualbcast.program.results import Hessian, Jacobian
from dualbcast.runtime.cpu.policy import get_num_threads

# The cost, half its gradient and half its second derivatives (the packed lower triangle) of fits whose parameters and
# data are given.
Evaluate = Callable[[tuple[Any, ...], Data], tuple[Any, Sequence[Any], Sequence[Any]]]

# The elements of a batch for each thread, of which a pass takes some milliseconds; and the part of a batch that has to
# be still running, or else the others leave it.
_ELEMENTS, _RUNNING_PART = 1 << 19, 0.5
# More than any fit takes, and a number that int64 holds.
_MOST_ITERATIONS = 1 << 53


class Tests(NamedTuple):
    """When a fit ends."""

    ftol: float
    xtol: float
    gtol: float
    max_iterations: int

    def checked(self) -> Tests:
        """The same; raises ArgumentError where a number makes no sense."""
        for name, value in self._asdict().items():
            is_number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
            if not is_number or not value >= 0 or (name == "max_iterations" and value % 1 != 0):
                kind = "a whole number" if name == "max_iterations" else "a number"
                raise ArgumentError(f"{name}={value!r} is not {kind} of 0 or more")
        return self._replace(max_iterations=min(int(self.max_iterations), _MOST_ITERATIONS))


class Outcome(NamedTuple):
    """How fits have ended: arrays with a place for each fit."""

    parameters: tuple[Any, ...]
    cost: Any
    matrix: tuple[Any, ...]
    iterations: Any
    status: Any
    # For each parameter -1 at its lower bound, 1 at its upper bound, and else 0.
    at_bound: tuple[Any, ...]


def run(
    problem: Problem, evaluate: Evaluate, bounds: Bounds, tests: Tests, *, is_curved: bool, progress: bool
) -> Outcome:
    """Fit all."""
    limits, size, count = _limits(problem, bounds), len(problem.names), problem.count
    parameters = tuple([np.empty(count) for _ in range(size)])
    matrix = tuple([np.empty(count) for _ in range(size * (size + 1) // 2)])
    cost, iterations, status = np.empty(count), np.empty(count, np.int64), np.empty(count, np.int8)
    batch = max(2, _ELEMENTS * get_num_threads() // max(1, problem.points))
    with _shown(count, progress) as advanced:
        for first in range(0, count, batch):
            rows = range(first, min(first + batch, count))
            for state, places, ended in _batch(problem, evaluate, limits, tests, rows, is_curved):
                arrays: tuple[Any, ...] = (*parameters, *matrix, cost, iterations, status)
                numbers = (*state.parameters, *state.matrix, state.cost, state.iterations, state.status)
                where = slice(rows.start, rows.stop) if len(ended) == len(rows) else ended
                for array, number in zip(arrays, numbers, strict=True):
                    array[where] = np.reshape(number, -1)[places]
                advanced(len({*ended.tolist()}) if progress else 0)
    cost[np.isinf(cost)] = np.nan
    # A parameter that is infinite is at no bound, and one whose bounds are equal is at the lower one.
    sides = [np.where(np.isfinite(limit), limit, np.nan).reshape(-1) for limit in limits]
    at_bound = [
        np.where(x == lower, np.int8(-1), (x == upper).astype(np.int8))
        for x, lower, upper in zip(parameters, sides[:size], sides[size:], strict=True)
    ]
    return Outcome(parameters, cost, matrix, iterations, status, tuple(at_bound))


def parts_of(results: Results, outputs: Sequence[Any]) -> tuple[Any, list[Any], list[Any]]:
    """Of sums of one output, the value, the parts of the gradient, and those of the lower triangle of the matrix."""
    gradient, matrix, count = Jacobian._of(results, outputs), Hessian._of(results, outputs), len(results.wrt)
    lower = [matrix[0, i, j] for i in range(count) for j in range(i + 1)]
    return outputs[0], [gradient[0, at] for at in range(count)], lower


def _batch(
    problem: Problem, evaluate: Evaluate, limits: tuple[Any, ...], tests: Tests, rows: range, is_curved: bool
) -> Iterator[tuple[State, Any, Any]]:
    """The states of fits, the places of those that have ended, and the numbers of these, until all of `rows` have."""
    numbers = _at_least_two(problem, np.arange(rows.start, rows.stop))
    begin: Any = numbers if len(numbers) > len(rows) else slice(rows.start, rows.stop)
    data, bounds = problem.data, tuple([taken(limit, begin) for limit in limits])
    if problem.is_single:
        state = start(problem.starts, np.float64(0))
    else:
        data, starts = data.of(begin), tuple([np.ascontiguousarray(each[begin]) for each in problem.starts])
        state = start(starts, np.zeros_like(starts[0]))
    while True:
        cost, gradient, matrix = evaluate(state.trial, data)
        given = (*_flat(state), cost, *gradient, *matrix, *bounds, *tests)
        state = advance(*given, size=len(problem.names), curved=is_curved)
        is_running = np.reshape(state.status == RUNNING, -1)
        running = np.count_nonzero(is_running)
        if not running:
            yield state, slice(None), numbers
            return
        if running <= _RUNNING_PART * len(numbers) and len(numbers) > 2:
            ended = np.flatnonzero(~is_running)
            yield state, ended, numbers[ended]
            kept = _at_least_two(problem, np.flatnonzero(is_running))
            state, numbers, data = _of(state, kept), numbers[kept], data.of(kept)
            bounds = tuple([taken(limit, kept) for limit in bounds])


def _at_least_two(problem: Problem, numbers: Any) -> Any:
    """One fit is computed twice: sums of two rows and of more have the same order, that of a single one has another."""
    return np.repeat(numbers, 2) if len(numbers) == 1 and not problem.is_single else numbers


def _of(state: State, places: Any) -> State:
    """The state of some fits."""
    parts: list[Any] = []
    for part in state:
        parts.append(
            tuple([each.take(places, 0) for each in part]) if isinstance(part, tuple) else part.take(places, 0)
        )
    return State(*parts)


def _flat(state: State) -> list[Any]:
    return [each for part in state for each in (part if isinstance(part, tuple) else (part,))]


def _limits(problem: Problem, bounds: Bounds) -> tuple[Any, ...]:
    """The lower bounds of all parameters, then the upper ones; infinite where there are none."""
    if not isinstance(bounds, Mapping | None):
        raise ArgumentError('bounds= is a mapping from names to pairs: {"rate": (0, 5)}')
    given = dict(bounds or {})
    if unknown := [name for name in given if name not in problem.wrt]:
        raise ArgumentError(f"bounds= has {unknown[0]!r}; the parameters are {', '.join(problem.wrt)}")
    pairs: list[Any] = []
    for each in problem.parameters:
        pair = given.get(each.name, (None, None))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ArgumentError(f"the bounds of {each.name} are a pair, (lower, upper), either of which may be None")
        both = [default if x is None else x for x, default in zip(pair, (-np.inf, np.inf), strict=True)]
        try:
            both = [real_array(bound) for bound in both]
        except (TypeError, ValueError):
            raise ArgumentError(
                f"the bounds of {each.name} are {pair!r}; give real numbers or arrays of them, or None"
            ) from None
        try:
            pairs += zip(*[elements_of(bound, each.shape) for bound in both], strict=True)
        except ValueError:
            shapes = " and ".join(str(np.shape(bound)) for bound in both)
            raise ShapeError(
                f"the bounds of {each.name} have the shapes {shapes}, whose last axes do not broadcast to {each.shape}"
            ) from None
    lower, upper = [], []
    for name, values, pair in zip(problem.names, problem.starts, pairs, strict=True):
        low, high = (problem.per_fit(bound, f"the bound of {name}") for bound in pair)
        if not np.all(low <= high):
            raise ArgumentError(f"a lower bound of {name} is above the upper one, or one of them is NaN")
        if np.any(values < low) or np.any(values > high):
            argument = name.partition("[")[0]
            raise ArgumentError(
                f"a start value of {name} is outside its bounds; pass np.clip({argument}, lower, upper)"
            )
        lower.append(low)
        upper.append(high)
    return (*lower, *upper)


def _shown(count: int, progress: bool) -> Any:
    """What is to be told how many fits have ended."""
    if not progress:
        return nullcontext(lambda _: None)
    from dualbcast.fit.progress import counted

    return counted(count)
