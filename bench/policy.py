"""Which way back is faster, keeping the Jacobian or computing it anew, and which one `auto` picks: a table.

python bench/policy.py [--rounds N]
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from dualbcast import derivative, differentiable_broadcast, graph, special
from dualbcast.cli import measure
from dualbcast.runtime.cpu.policy import get_num_threads

MODES = ("recompute", "cache")
# The ratio up to which two times count as the same.
TIE = 0.1


@differentiable_broadcast
def cell(c, f, i, g, z, zb):
    """The HM-LSTM update."""
    if z == 1:
        return special.sigmoid(i) * math.tanh(g)
    if zb == 0:
        return c
    return special.sigmoid(f) * c + special.sigmoid(i) * math.tanh(g)


@differentiable_broadcast
def kepler(mean_anomaly, eccentricity):
    """The eccentric anomaly, by Newton's method."""

    def equation(x):
        return x - eccentricity * math.sin(x) - mean_anomaly

    x = mean_anomaly + eccentricity * math.sin(mean_anomaly)
    for _ in range(50):
        step = equation(x) / derivative(equation)(x)
        x -= step
        if abs(step) < 1e-14:
            break
    return x


@differentiable_broadcast
def call_price(spot, strike, rate, volatility, time):
    """Black and Scholes."""
    spread = volatility * math.sqrt(time)
    d = (math.log(spot / strike) + rate * time) / spread + 0.5 * spread
    return 0.5 * spot * math.erfc(-d / math.sqrt(2)) - 0.5 * strike * math.exp(-rate * time) * math.erfc(
        (spread - d) / math.sqrt(2)
    )


@differentiable_broadcast
def orbit(x, r):
    """Forty steps of the logistic map."""
    for _ in range(40):
        x = r * x * (1 - x)
    return x


@differentiable_broadcast
def product(*xs):
    """A product of tanh, of as many arguments as there are."""
    return math.prod(math.tanh(x if x > 0.5 else -x) for x in xs)


def operators(f: Any, c: Any, i: Any, g: Any) -> Any:
    """A cell in plain operators."""
    return c / (1 + np.exp(-f)) + np.tanh(g) / (1 + np.exp(-i))


@dataclass(frozen=True)
class Case:
    """A function with its arguments."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


def cases() -> list[Case]:
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape, np.float32)

    def uniform(low: float, high: float, size: int) -> Any:
        return random.uniform(low, high, size)

    def update(n: int) -> tuple[Any, ...]:
        control = tuple(random.integers(0, 2, (n, 1)).astype(np.float32) for _ in range(2))
        return tuple(normal(n, n) for _ in range(4)) + control

    million = 1 << 20
    market = [uniform(80, 120, million), uniform(80, 120, million), uniform(0, 0.1, million)]
    market += [uniform(0.1, 0.5, million), uniform(0.1, 2, million)]
    return [
        Case("HM-LSTM update, 1024 by 1024", cell, update(1024)),
        Case("HM-LSTM update, 2048 by 2048", cell, update(2048)),
        Case("LSTM cell in plain operators, 1024 by 1024", operators, tuple(normal(1024, 1024) for _ in range(4))),
        Case("tanh(x·w + b), row and column, 2048 by 2048", lambda x, w, b: np.tanh(x * w + b),
             (normal(2048, 2048), normal(2048), normal(2048, 1))),
        Case("x·y + z, 2048 by 2048", lambda x, y, z: x * y + z, tuple(normal(2048, 2048) for _ in range(3))),
        Case("product of 8 tanh, 1024 by 1024", product, tuple(normal(1024, 1024) for _ in range(8))),
        Case("Black and Scholes, 2^20, float64", call_price, tuple(market)),
        Case("Kepler by Newton, 2^18, float64", kepler, (uniform(0, 6, 1 << 18), uniform(0, 0.9, 1 << 18))),
        Case("logistic map, 40 steps, 2^20, float64", orbit, (uniform(0.1, 0.9, million), uniform(3, 3.5, million))),
        Case("log Γ, 2^19, float64", lambda x: differentiable_lgamma(x), (uniform(0.5, 20, 1 << 19),)),
        Case("x**y, 2^20, float64", lambda x, y: x**y, (uniform(0.5, 2, million), uniform(-2, 2, million))),
        Case("sin(x)·exp(-x²), 2^22", lambda x: np.sin(x) * np.exp(-x * x), (normal(1 << 22),)),
    ]  # fmt: skip


@differentiable_broadcast
def differentiable_lgamma(x):
    """log Γ."""
    return math.lgamma(x)


def both_passes(case: Case, mode: Any) -> None:
    with graph.jacobian_policy(mode):
        value, pullback = graph.vjp(case.function, *case.arguments)
        pullback(np.ones_like(value))


def decision(case: Case) -> str:
    """The choice of `auto`."""
    with graph.launches() as kernels:
        both_passes(case, "auto")
    return "cache" if "value_and_jacobian" in [kernel.product for kernel in kernels] else "recompute"


@click.command()
@click.option("--rounds", default=9, help="How often each way is timed; they take turns, and the fastest counts.")
def main(rounds: int) -> None:
    """Print the table, in Markdown."""
    print(f"{measure.cpu_model()}, {get_num_threads()} threads\n")
    print("| case | computed anew | kept | ratio | auto |\n|---|---:|---:|---:|---|")
    right = 0
    chosen = cases()
    for case in chosen:
        times: dict[str, list[float]] = {mode: [] for mode in MODES}
        for turn in range(rounds + 1):
            for mode in MODES:
                started = time.perf_counter()
                both_passes(case, mode)
                if turn:
                    times[mode].append(time.perf_counter() - started)
        again, kept = (min(times[mode]) for mode in MODES)
        picked = decision(case)
        chosen_time, other = (kept, again) if picked == "cache" else (again, kept)
        is_right = chosen_time <= (1 + TIE) * other
        right += is_right
        mark = picked if is_right else f"{picked} (wrong)"
        print(f"| {case.name} | {again * 1e3:.2f} ms | {kept * 1e3:.2f} ms | {kept / again:.2f} | {mark} |", flush=True)
    print(f"\nauto picks the faster way, or one within {TIE:.0%} of it, in {right} of {len(chosen)}.")


if __name__ == "__main__":
    main()
