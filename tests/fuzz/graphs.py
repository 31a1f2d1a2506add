"""Random graphs of a campaign: those of `tests/graph/test_random_graphs.py`, by seed, with arrays of mixed dtypes.

All are held against JAX, not jitted, to second order; smooth ones also against differences.
"""

from __future__ import annotations

import functools
import importlib
import random
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from examine import Mismatch, Tally
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.database import InMemoryExampleDatabase

from dualbcast import graph
from dualbcast.graph.lazy import Limits

__all__ = ["described", "examine_graph"]

BYTES = 1 << 12
# Relative to the largest number of an array: float64 against JAX, and what float32 leaves of numbers on the way.
CLOSE, CLOSE_SINGLE = 1e-9, 2e-4
DTYPES = ("float64", "float64", "float32", "float32", "int64")


@functools.cache
def _shared() -> Any:
    """The tests whose programs these are."""
    sys.path.append(str(Path(__file__).parents[1] / "graph"))
    return importlib.import_module("test_random_graphs")


@functools.cache
def _strategies() -> tuple[Any, Any, Any]:
    return _shared().programs(kinks=False), _shared().programs(kinks=True), _shared().written()


def drawn(seed: int) -> tuple[list[Any], list[Any]]:
    """The steps and arguments of a seed. Odd ones have kinks."""
    steps, args = _drawn(_strategies()[seed % 2], seed)
    return steps, args


def _drawn(strategy: Any, seed: int) -> Any:
    found: list[Any] = []
    quiet = settings(
        database=InMemoryExampleDatabase(),
        phases=(Phase.reuse,),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    wanted = quiet(given(strategy)(lambda program: found.append(program)))
    wanted.hypothesis.fuzz_one_input(random.Random(seed).randbytes(BYTES))
    return found[0]


def _cast(args: Sequence[Any], seed: int) -> list[Any]:
    """The arguments with other dtypes; one stays of floats."""
    generator = random.Random(seed)
    dtypes = [generator.choice(DTYPES) for _ in args]
    if all(dtype == "int64" for dtype in dtypes):
        dtypes[0] = "float32"
    return [(3 * x if dtype == "int64" else x).astype(dtype) for x, dtype in zip(args, dtypes, strict=True)]


def described(seed: int) -> str:
    """A program as text."""
    steps, args = drawn(seed)
    limits = list(_shared().LIMITS)[seed % len(_shared().LIMITS)]
    lines = [f"x{at} = np.array({arg.tolist()!r}, {_cast(args, seed)[at].dtype})" for at, arg in enumerate(args)]
    lines += [f"x{at} = {step!r}" for at, step in enumerate(steps, len(args))]
    writes = _drawn(_strategies()[2], seed)
    return "\n".join([*lines, f"# {limits}", f"# and with writes: {writes!r}"])


def examine_graph(seed: int, tally: Tally) -> None:
    """Raise an error where the program of a seed has another value, gradient or second derivative than it should."""
    graphs = _shared()
    steps, args = drawn(seed)
    before = Limits.elements, Limits.statements, Limits.arrays
    Limits.elements, Limits.statements, Limits.arrays = graphs.LIMITS[list(graphs.LIMITS)[seed % len(graphs.LIMITS)]]
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if seed % 2 == 0:
                graphs.check_against_differences(steps, args)
                tally.differenced += 1
            _against_jax(steps, args, CLOSE, tally, "")
            _against_jax(steps, _cast(args, seed), CLOSE_SINGLE, tally, " of mixed dtypes")
            done, refused = graphs.check_writes(*_drawn(_strategies()[2], seed))
            tally.comparisons["writes without an effect"] += done
            tally.comparisons["writes refused"] += refused
    finally:
        Limits.elements, Limits.statements, Limits.arrays = before
    tally.programs += 1


def _against_jax(steps: Any, args: list[Any], close: float, tally: Tally, which: str) -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    with jax.disable_jit():  # which jax.numpy does inside, too; and most of the time was that
        _compare(jax, steps, args, close, tally, which)


def _compare(jax: Any, steps: Any, args: list[Any], close: float, tally: Tally, which: str) -> None:
    graphs = _shared()
    wrt = tuple(at for at, arg in enumerate(args) if arg.dtype.kind == "f")
    tangents = [tangent.astype(args[at].dtype) for at, tangent in enumerate(graphs.tangents_of(args)) if at in wrt]
    exact = [arg.astype(np.float64) for arg in args]
    peer = jax.value_and_grad(graphs.runner(steps, jax.numpy), wrt)

    def slopes_of(gradient: Any, of: list[Any]) -> Any:
        def at_floats(*floats: Any) -> Any:
            moved = dict(zip(wrt, floats, strict=True))
            return gradient(*[moved.get(at, arg) for at, arg in enumerate(of)])

        return at_floats

    expected, slopes = peer(*exact)
    if not np.isfinite(float(expected)) or abs(float(expected)) > 1e8:
        tally.skipped["not finite or large" + which] += 1
        return
    f = graphs.runner(steps)
    found, gradient = graph.value_and_grad(f, wrt)(*args)
    _hold("value" + which, [found], [expected], close, tally)
    _hold("gradient" + which, gradient, slopes, close, tally)
    seconds = jax.jvp(
        slopes_of(lambda *inputs: peer(*inputs)[1], exact),
        tuple(exact[at] for at in wrt),
        tuple(tangent.astype(np.float64) for tangent in tangents),
    )[1]
    products = graph.jvp(slopes_of(graph.grad(f, wrt), args), [args[at] for at in wrt], tangents)[1]
    _hold("second derivatives" + which, products, seconds, close, tally)


def _hold(what: str, found: Sequence[Any], wanted: Sequence[Any], close: float, tally: Tally) -> None:
    scale = 1 + max(float(np.abs(each).max()) for each in wanted)
    for each, right in zip(found, wanted, strict=True):
        each, right = np.asarray(each), np.asarray(right)
        if each.shape != right.shape:
            raise Mismatch(f"{what} has shape {each.shape}, and should have {right.shape}")
        error = np.abs(each - right)
        if not (error <= close * (np.abs(right) + scale)).all():
            raise Mismatch(f"{what} is\n{each}, and should be\n{right} within {close * scale:.1e}")
        tally.comparisons[what] += right.size
