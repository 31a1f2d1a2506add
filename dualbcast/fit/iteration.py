"""Fits go on side by side, some thousands at a time, until each has converged; those that have leave the batch.

A pass over the data evaluates the cost and its derivatives of all fits of a batch, and the kernel of `step.py` makes
the next trial of each. A batch is so small that its data and the state of its fits stay in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.fit.problem import Bounds, Data, Problem, taken
from dualbcast.fit.step import RUNNING, State, advance, start
from dualbcast.program.results import Hessian, Jacobian
from dualbcast.runtime.cpu.policy import get_num_threads

# The cost, half its gradient and half its second derivatives (the packed lower triangle) of fits whose parameters and
# data are given.
Evaluate = Callable[[tuple[Any, ...], Data], tuple[Any, Sequence[Any], Sequence[Any]]]

# The elements of a batch for each thread, of which a pass takes some milliseconds; and the part of a batch that has to
# be still running, or else the others leave it.
_ELEMENTS, _RUNNING_PART = 1 << 19, 0.75


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
            if not is_number or not value >= 0 or (name == "max_iterations" and value != int(value)):
                kind = "a whole number" if name == "max_iterations" else "a number"
                raise ArgumentError(f"{name}={value!r} is not {kind} of 0 or more")
        return self


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
    limits = _limits(problem, bounds)
    size, count = len(problem.names), problem.count
    outcome = Outcome(
        tuple([np.empty(count) for _ in range(size)]),
        np.empty(count),
        tuple([np.empty(count) for _ in range(size * (size + 1) // 2)]),
        np.empty(count, np.int64),
        np.empty(count, np.int8),
        tuple([np.zeros(count, np.int8) for _ in range(size)]),
    )
    batch = max(2, _ELEMENTS * get_num_threads() // max(1, problem.points))
    with _shown(count, progress) as advanced:
        for begin in range(0, count, batch):
            rows = np.arange(begin, min(begin + batch, count))
            for state, ended in _batch(problem, evaluate, limits, tests, rows, is_curved):
                _store(outcome, state, ended, limits)
                advanced(len(np.unique(ended)))
    return outcome


def by_names(gradient: Jacobian, matrix: Hessian) -> tuple[list[Any], list[Any]]:
    """The parts of a gradient, and those of the lower triangle of a matrix."""
    names = gradient.wrt
    lower = [matrix[a, b] for at, a in enumerate(names) for b in names[: at + 1]]
    return [gradient[name] for name in names], lower


def _batch(
    problem: Problem, evaluate: Evaluate, limits: tuple[Any, ...], tests: Tests, rows: Any, is_curved: bool
) -> Iterator[tuple[State, Any]]:
    """The states of fits that have ended, with their numbers, until all of `rows` have."""
    rows = _at_least_two(problem, rows)
    data, bounds = problem.data, tuple([taken(limit, rows) for limit in limits])
    if problem.is_single:
        state = start(problem.starts, np.float64(0))
    else:
        data = data.of(rows)
        begin = tuple([np.ascontiguousarray(each[rows]) for each in problem.starts])
        state = start(begin, np.zeros_like(begin[0]))
    while True:
        cost, gradient, matrix = evaluate(state.trial, data)
        numbers = (*_flat(state), cost, *gradient, *matrix, *bounds, *tests)
        state = advance(*numbers, size=len(problem.names), curved=is_curved)
        is_running = np.reshape(state.status == RUNNING, -1)
        running = np.count_nonzero(is_running)
        if not running:
            yield state, rows
            return
        if running <= _RUNNING_PART * len(rows) and len(rows) > 2:
            yield _of(state, ~is_running), rows[~is_running]
            kept = _at_least_two(problem, np.flatnonzero(is_running))
            state, rows = _of(state, kept), rows[kept]
            data = data.of(kept)
            bounds = tuple([taken(limit, kept) for limit in bounds])


def _at_least_two(problem: Problem, rows: Any) -> Any:
    """One fit is computed twice: sums of two rows and of more have the same order, that of a single one has another."""
    return np.repeat(rows, 2) if len(rows) == 1 and not problem.is_single else rows


def _flat(state: State) -> list[Any]:
    return [each for part in state for each in (part if isinstance(part, tuple) else (part,))]


def _of(state: State, rows: Any) -> State:
    """The state of some fits."""
    return State(*[tuple([e[rows] for e in part]) if isinstance(part, tuple) else part[rows] for part in state])


def _store(outcome: Outcome, state: State, rows: Any, limits: tuple[Any, ...]) -> None:
    """Enter fits that have ended into the results."""
    size = len(outcome.parameters)
    for at, (number, array) in enumerate(zip(state.parameters, outcome.parameters, strict=True)):
        array[rows] = number = np.reshape(number, -1)
        lower, upper = (np.reshape(taken(limit, rows), -1) for limit in (limits[at], limits[size + at]))
        outcome.at_bound[at][rows] = (number == upper).astype(np.int8) - (number == lower)
    for number, array in zip(state.matrix, outcome.matrix, strict=True):
        array[rows] = np.reshape(number, -1)
    outcome.cost[rows] = np.reshape(np.where(np.isinf(state.cost), np.nan, state.cost), -1)
    outcome.iterations[rows] = np.reshape(state.iterations, -1)
    outcome.status[rows] = np.reshape(state.status, -1)


def _limits(problem: Problem, bounds: Bounds) -> tuple[Any, ...]:
    """The lower bounds of all parameters, then the upper ones; infinite where there are none."""
    given = dict(bounds or {})
    if unknown := [name for name in given if name not in problem.names]:
        raise ArgumentError(f"bounds= has {unknown[0]!r}; the parameters are {', '.join(problem.names)}")
    lower, upper = [], []
    for name, values in zip(problem.names, problem.starts, strict=True):
        pair = given.get(name, (None, None))
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ArgumentError(f"the bounds of {name} are a pair, (lower, upper), either of which may be None")
        low, high = (
            problem.per_fit(default if value is None else value, f"the bound of {name}")
            for value, default in zip(pair, (-np.inf, np.inf), strict=True)
        )
        if not np.all(low <= high):
            raise ArgumentError(f"a lower bound of {name} is above the upper one, or one of them is NaN")
        if np.any(values < low) or np.any(values > high):
            raise ArgumentError(f"a start value of {name} is outside its bounds; pass np.clip({name}, lower, upper)")
        lower.append(low)
        upper.append(high)
    return (*lower, *upper)


def _shown(count: int, progress: bool) -> Any:
    """What is to be told how many fits have ended."""
    if not progress:
        return nullcontext(lambda _: None)
    from dualbcast.fit.progress import counted

    return counted(count)
