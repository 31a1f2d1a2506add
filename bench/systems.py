"""The systems that are compared, two threads each: one module `with_….py` for each, absent ones skipped by name.

They take turns, so that a machine that is slower for a while slows all of them, and the spread of the turns shows it.

A module has `array(host)` and `host(result)`, and for each case a function of the arrays that gives the forms in which
one would write it there: a name, and a callable that prepares a call. `CANNOT` says which cases it cannot do, and why.
"""

from __future__ import annotations

import importlib
import itertools
import os
import time
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import floor
import numpy as np
import pytest
from constants import FAR, FLOOR, THREADS, TURNS

from dualbcast import Jacobian

SYSTEMS = ("dualbcast", "drjit", "jax", "torch", "warp", "numpy")
PACKAGES = ("drjit", "jax", "jaxlib", "torch", "warp-lang", "scipy")
Check = Callable[[list[Any]], None]

SLOW_TO_COMPILE = ("torch",)  # the form of a case is chosen at its first size only
_best: dict[tuple[str, str], str] = {}
# The comparison that is under way: its name, the time of each system, and the calls that are timed.
_group = ""
_times: dict[str, float] = {}
_calls: dict[tuple[str, str], tuple[str, Callable[[], Any]]] = {}


def turns(systems: Sequence[str]) -> pytest.MarkDecorator:
    """Parametrises a comparison, once all else is given: the systems one after the other, and then again."""
    return pytest.mark.parametrize(("turn", "system"), list(itertools.product(range(TURNS), systems)))


every = turns(SYSTEMS)
every_and_floor = turns((*SYSTEMS, FLOOR))  # where arrays are large enough for memory to be what limits a case


def settle() -> None:
    """Two cores for everybody, before any system has been imported; on the processor, where there is a GPU, too."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:THREADS])
    # glibc keeps large blocks (up to 32 MiB) once one has been freed. Without this line the cost of a system's
    # temporaries would depend on the blocks that this process happened to free before.
    np.empty(31 << 20, np.uint8)


def load(name: str, prefix: str = "with") -> ModuleType:
    """The module for a system, or a skip that says why there is none."""
    try:
        return importlib.import_module(f"{prefix}_{name}")
    except ImportError as error:
        pytest.skip(f"{name} cannot be imported: {error}")


def begin(benchmark: Any, group: str, name: str, turn: int) -> None:
    """Say which comparison this is, and skip the turns of a system that is too far behind."""
    global _group
    benchmark.group = group
    benchmark.extra_info["turn"] = turn
    if group != _group:
        _group = group
        _times.clear()
        _calls.clear()
    if turn and _is_far(name):
        pytest.skip(f"{name} took more than {FAR:g} times as long as the fastest")


def end(benchmark: Any, name: str, turn: int) -> None:
    """Note how long the system took."""
    if not turn and benchmark.stats is not None:
        _times[name] = benchmark.stats.stats.median


def _is_far(name: str) -> bool:
    return name in _times and _times[name] > FAR * min(_times.values())


def compare(
    benchmark: Any,
    group: str,
    name: str,
    case: str,
    host: list[Any],
    check: Check,
    label: str = "",
    outputs: int = 0,
    turn: int = 0,
    prefix: str = "with",
) -> None:
    """Check a system's results of a case and time its fastest form; in later turns, time it once more.

    Parameters
    ----------
    benchmark : fixture
    group : str
        The name of the comparison in the table.
    name, case : str
        The system, and the function of its module.
    host : list of NumPy arrays
    check : callable
        Raises if a flat list of results is wrong.
    label : str
        The name of the row in the table, if it is not the system's.
    outputs : int
        How many arrays of the broadcast shape are written, where the table shall say how that compares with the floor.
    turn : int
        From 0.
    prefix : str
        How the names of the systems' modules begin.
    """
    begin(benchmark, group, name, turn)
    if name == FLOOR:
        _floor(benchmark, host, outputs)
        return
    module = load(name, prefix)
    if reason := module.CANNOT.get(case):
        pytest.skip(f"{name}: {reason}")
    if turn and (name, case) in _calls:
        form, call = _calls[name, case]
    else:
        forms = getattr(module, case)([module.array(a) for a in host])
        form, call = fastest(
            forms, _best.get((name, case)), lambda result: check([module.host(a) for a in flat(result)])
        )
    if name in SLOW_TO_COMPILE:
        _best[name, case] = form
    moved = sum(a.nbytes for a in host) + outputs * _largest(host) if outputs else 0
    benchmark.extra_info.update(label=label or name, form=form, moved=moved)
    benchmark(call)
    if label:  # a row beside the comparison
        return
    end(benchmark, name, turn)
    if _is_far(name):
        _calls.pop((name, case), None)
    else:
        _calls[name, case] = form, call


def _floor(benchmark: Any, host: list[Any], outputs: int) -> None:
    """Time a program that only reads and writes as many arrays; inputs that repeat stay in the cache."""
    size = _largest(host)
    try:
        forms = floor.forms(sum(a.nbytes == size for a in host), outputs, size)
    except ImportError as error:
        pytest.skip(str(error))
    form, call = fastest(forms, None, lambda _: None)
    benchmark.extra_info.update(label=FLOOR, form=form)
    benchmark(call)


def _largest(host: list[Any]) -> int:
    return max(a.nbytes for a in host)


def forget(name: str, case: str) -> None:
    """Let the next size decide anew which form of a case is the fastest."""
    _best.pop((name, case), None)


def fastest(
    forms: dict[str, Callable[[], Callable[[], Any]]], known: str | None, check: Callable[[Any], None]
) -> tuple[str, Callable[[], Any]]:
    """The fastest form of a case, or the `known` one, and a call of it; all that are tried are checked."""
    found: list[tuple[float, str, Callable[[], Any]]] = []
    for form, make in forms.items():
        if known in (None, form):
            call = make()
            call()
            check(call())  # the second call, which uses a kept trace
            found.append((_seconds(call) if len(forms) > 1 and known is None else 0.0, form, call))
    _, form, call = min(found, key=lambda one: one[0])
    return form, call


def flat(result: Any) -> list[Any]:
    """The arrays in a result, row after row of a Jacobian."""
    if isinstance(result, Jacobian):
        return [result[output, name] for output in range(result.outputs) for name in result.wrt]
    if not isinstance(result, (list, tuple)):
        return [result]
    return [leaf for part in result for leaf in flat(part)]


def _seconds(call: Callable[[], Any]) -> float:
    """The fastest of some calls: enough to tell forms apart."""
    taken: list[float] = []
    while len(taken) < 5 or (sum(taken) < 0.1 and len(taken) < 200):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return min(taken)


def checker(expected: Callable[..., list[Any]], host: list[Any], tolerance: float, sums: bool = False) -> Check:
    """A function that holds results against a float64 reference, to `tolerance` times the largest of each.

    Arrays of more than 2^17 elements are compared at every k-th element, k odd, unless some were summed over.
    """
    shape = np.broadcast_shapes(*(a.shape for a in host))
    step = (int(np.prod(shape)) >> 17) | 1

    def some(array: Any) -> Any:
        return array if sums else np.broadcast_to(array, shape).ravel()[::step]

    wanted = expected(*(some(a).astype(np.float64) for a in host))

    def check(found: list[Any]) -> None:
        assert len(found) == len(wanted)
        for k, (result, exact) in enumerate(zip(found, wanted, strict=True)):
            judged = some(np.asarray(result).reshape(exact.shape if sums else shape))
            allowed = tolerance * (np.max(np.abs(exact)) or 1.0)
            np.testing.assert_allclose(judged, exact, rtol=0, atol=allowed, err_msg=f"result {k}")

    return check
