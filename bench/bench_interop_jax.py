"""The HM-LSTM cell inside one `jax.jit`, float32: our kernel, called by XLA, beside `where` of JAX's own operations.

The two take turns. `python bench/bench_interop_jax.py` prints the ratios of their least times.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.special import sigmoid

SIZES = (4, 64, 512, 1024, 2048)
CASES = ("value", "value and gradient", "value and pullback")
WAYS = ("dualbcast", "where")
TURNS = 3


@differentiable_broadcast
def cell_update(c: float, f: float, i: float, g: float, z: float, zb: float) -> float:
    """The hidden state of a hierarchical multiscale LSTM: flush, copy or update."""
    if z == 1:
        return sigmoid(i) * math.tanh(g)
    if zb == 0:
        return c
    return sigmoid(f) * c + sigmoid(i) * math.tanh(g)


def prepared(case: str, way: str, n: int, control: str = "rows") -> Callable[[], Any]:
    """A call of a compiled function, which waits for its results."""
    jax = pytest.importorskip("jax")
    import jax.numpy as jnp

    def cell_where(c: Any, f: Any, i: Any, g: Any, z: Any, zb: Any) -> Any:
        fresh = jax.nn.sigmoid(i) * jnp.tanh(g)
        return jnp.where(z == 1, fresh, jnp.where(zb == 0, c, jax.nn.sigmoid(f) * c + fresh))

    cell = cell_update if way == "dualbcast" else cell_where

    def gradient(*given: Any) -> Any:
        return jax.value_and_grad(lambda *arrays: jnp.sum(cell(*arrays) ** 2), (0, 1, 2, 3))(*given[:6])

    def pullback(*given: Any) -> Any:
        value, pull = jax.vjp(lambda *gates: cell(*gates, *given[4:6]), *given[:4])
        return value, pull(given[6])

    random = np.random.default_rng(0)
    controls = (random.random((2, n, 1 if control == "rows" else n)) > 0.5).astype(np.float32)
    gates = random.standard_normal((5, n, n), dtype=np.float32)
    arrays = [jnp.asarray(each) for each in (*gates[:4], *controls, gates[4])]
    function = {"value": lambda *given: cell(*given[:6]), CASES[1]: gradient, CASES[2]: pullback}[case]
    compiled = jax.jit(function)
    return lambda: jax.block_until_ready(compiled(*arrays))


@pytest.mark.parametrize(("turn", "way"), [(turn, way) for turn in range(TURNS) for way in WAYS])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n", SIZES)
def bench_cell(benchmark: Any, n: int, case: str, turn: int, way: str) -> None:
    """One row: both give the same before they are timed."""
    call = prepared(case, way, n)
    if turn == 0 and way == WAYS[0]:
        jax = pytest.importorskip("jax")
        pairs = zip(jax.tree.leaves(call()), jax.tree.leaves(prepared(case, WAYS[1], n)()), strict=True)
        for mine, its in pairs:
            np.testing.assert_allclose(mine, its, rtol=1e-3, atol=1e-4)
    benchmark.group = f"HM-LSTM inside jax.jit, {case}, control by rows, n = {n}"
    benchmark.extra_info.update(label=way, turn=turn)
    benchmark(call)


def print_ratios(control: str, seconds: float) -> None:
    """The least times of both ways, which take turns for so many seconds a row."""
    for case in CASES:
        for n in SIZES:
            calls = [prepared(case, way, n, control) for way in WAYS]
            least = [math.inf, math.inf]
            for call in calls:
                call()
            repeats, end = max(1, 40_000 // (n * n)), time.perf_counter() + seconds
            while time.perf_counter() < end:
                for at, call in enumerate(calls):
                    began = time.perf_counter()
                    for _ in range(repeats):
                        call()
                    least[at] = min(least[at], (time.perf_counter() - began) / repeats)
            ours, theirs = (1e6 * each for each in least)
            print(f"{case:20} {control:9} n = {n:4}  {ours:9.1f} µs  where {theirs:9.1f} µs  {theirs / ours:5.2f}")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    for each in sys.argv[2:] or ["rows", "elements"]:
        print_ratios(each, float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
