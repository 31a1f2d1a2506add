"""The timing of a formula: each system's forms are checked, its fastest is found, and the systems take turns."""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable
from statistics import median
from types import ModuleType
from typing import Any

import floor
import numpy as np
from constants import FAR, FLOOR, THREADS, TURNS

from bench.formulas.compare.case import Case, blocks
from bench.formulas.corpus import Formula
from dualbcast import differentiable_broadcast

__all__ = ["OURS", "PEERS", "Result", "measure"]

OURS = "dualbcast"
PEERS = ("jax", "torch", "drjit")
SECONDS = 0.25  # of a system's turn
PATIENCE = 20.0  # seconds, after which no further form of a system is tried if one is right
# What a formula's measurement is saved as: see `measure`.
Result = dict[str, Any]


def measure(
    formula: Formula, size: int, peers: tuple[str, ...], say: Callable[[str], None], *, timed: bool = True
) -> Result:
    """Check and time a formula in all systems.

    Parameters
    ----------
    formula : Formula
    size : int
        The number of elements.
    peers : tuple of str
        Names among `PEERS`. Those that cannot be imported are left out.
    say : callable
        Takes lines for the reader.
    timed : bool
        If not, results are only checked.

    Returns
    -------
    dict
        `seconds`: for each system and for the floor, the medians of its turns; a system that is far behind has one.
        `forms`: the form of each. `differences`: how far their results are from ours in float64, relative to the mean
        of each result. `left_out`: for a system without a time, why. `wrong`: what is wrong with a form.
    """
    case = Case(formula, size)
    result: Result = {
        "field": formula.field,
        "half": formula.half,
        "dtype": formula.dtype,
        "size": size,
        "outputs": case.plain.outputs,
        "wrt": len(formula.wrt),
        "seconds": {},
        "forms": {},
        "differences": {},
        "left_out": {},
        "wrong": {},
    }
    calls: dict[str, Callable[[], Any]] = {OURS: _ours(case, result)}
    for peer in peers:
        try:
            module = importlib.import_module(f"bench.formulas.compare.{peer}_forms")
        except ImportError as error:
            result["left_out"][peer] = f"cannot be imported: {error}"
            continue
        chosen = _fastest(peer, module, case, result)
        if chosen is not None:
            calls[peer] = chosen
    call = _floor(case, result) if timed else None
    if call is not None:
        calls[FLOOR] = call
    if timed:
        _turns(calls, result["seconds"])
    times = ", ".join(f"{name} {median(taken) * 1e3:.3g} ms" for name, taken in result["seconds"].items())
    say(f"{formula.name}: {times or ', '.join(calls)}")
    for form, what in result["wrong"].items():
        say(f"  {form}: {what}")
    for peer, why in result["left_out"].items():
        say(f"  {peer} is left out: {why}")
    return result


def _ours(case: Case, result: Result) -> Callable[[], Any]:
    function: Any = differentiable_broadcast(case.formula.function)
    arguments, wrt = case.arguments, case.formula.wrt

    def call() -> Any:
        return function.value_and_jacobian(*arguments, wrt=wrt)

    found = [np.asarray(block) for block in blocks(call())]
    result["differences"][OURS] = case.difference(found)
    wrong = case.wrong(found, as_rounded=0.0)
    if wrong:
        result["wrong"][OURS] = wrong
    result["forms"][OURS] = "value_and_jacobian"
    return call


def _fastest(peer: str, module: ModuleType, case: Case, result: Result) -> Callable[[], Any] | None:
    """The call of a system's fastest form that is right, or None."""
    problems: dict[str, str] = {}
    found: list[tuple[float, str, Callable[[], Any], float]] = []
    end = time.perf_counter() + PATIENCE
    for guarded in (False, True):
        problems_now: dict[str, str] = {}
        try:
            forms = module.forms(case, guarded=guarded)
        except NotImplementedError as error:
            result["left_out"][peer] = str(error)
            return None
        for form, make in forms.items():
            if found and time.perf_counter() > end:
                break
            form = f"{form}, guarded".removeprefix(", ") if guarded else form
            try:
                call = make()
                call()
                results = [module.host(part) for part in call()]  # of the second call, which uses a kept trace
                wrong = case.wrong(results)
            except Exception as error:
                first, *_ = str(error).strip().splitlines() or [""]
                wrong = f"{type(error).__name__}: {first}"[:300]
            if wrong:
                problems_now[f"{peer}, {form}"] = wrong
            else:
                found.append((_seconds(call), form, call, case.difference(results)))
        problems |= problems_now
        if not any("not finite" in what for what in problems_now.values()):
            break
    result["wrong"] |= problems
    if not found:
        result["left_out"][peer] = "; ".join(dict.fromkeys(problems.values()))
        return None
    _, form, call, result["differences"][peer] = min(found, key=lambda one: one[0])
    result["forms"][peer] = form
    return call


def _floor(case: Case, result: Result) -> Callable[[], Any] | None:
    """A call of a program that only reads and writes as many arrays; there is none without a C compiler."""
    reads = [a for a in case.arrays if isinstance(a, np.ndarray)]
    size = max(a.nbytes for a in reads)
    function: Any = differentiable_broadcast(case.formula.function)
    results = blocks(function.value_and_jacobian(*case.arguments, wrt=case.formula.wrt))
    written = sum(isinstance(block, np.ndarray) and block.strides == (block.itemsize,) for block in results)
    try:
        forms = floor.forms(sum(a.nbytes == size for a in reads), written, size)
    except ImportError:
        return None
    calls: dict[str, Callable[[], Any]] = {form: make() for form, make in forms.items()}
    form = min(calls, key=lambda one: _seconds(calls[one]))
    result["forms"][FLOOR] = f"{form}, {THREADS} threads"
    return calls[form]


def _seconds(call: Callable[[], Any], seconds: float = 0.1, fewest: int = 3) -> float:
    """The fastest of some calls: enough to tell forms apart."""
    return min(_timed(call, seconds, fewest))


def _timed(call: Callable[[], Any], seconds: float, fewest: int) -> list[float]:
    taken: list[float] = []
    while len(taken) < fewest or sum(taken) < seconds:
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return taken


def _turns(calls: dict[str, Callable[[], Any]], seconds: dict[str, list[float]]) -> None:
    """Time the systems one after the other, and then again, but for those that are far behind."""
    for call in calls.values():
        call()
    for _ in range(TURNS):
        for name, call in calls.items():
            fastest = min((taken[0] for other, taken in seconds.items() if other != FLOOR), default=math.inf)
            if name in seconds and name not in (OURS, FLOOR) and seconds[name][0] > FAR * fastest:
                continue
            call()
            seconds.setdefault(name, []).append(median(_timed(call, SECONDS, 5)))
