"""Processor times of the programs and numbers of `tests/arrays/test_cliffs.py`, which counts work: a table of cliffs.

    python bench/cliff_times.py [growth] [arrays] [values] [dtypes]

A row is a time that grows more than three times as fast as the operations counted. All times that are compared are of
one process, one after the other, and the least of several attempts counts. All of it takes an hour.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).parents[1] / "tests" / "oracles"))

import cliffs

PRODUCTS = ("value", "value_and_jacobian", "vjp")
ATTEMPTS = 4

# What takes more than three times as long in some range of values, the most that it has taken, and why.
_RARE = "rare arguments take a branch of their own, for the whole vector"
_SEARCH = "a search takes more steps where its function has a pole"
_FAR = "an argument is reduced by more digits of pi than a format has, element by element"
_REFLECTED = "negative arguments take the reflection, which computes a sine of pi and a logarithm besides"
_LONG_DIVISION = "the remainder of a quotient beyond 2^53 takes several exact steps, each for some fifty of its bits"
KNOWN: dict[str, tuple[float, str]] = {
    **dict.fromkeys(("sin", "cos", "tan", "sinc", "cosm1"), (50.0, _FAR)),
    **dict.fromkeys(("j0", "j1", "jn", "y0", "y1", "yn", "si", "ci"), (25.0, _FAR)),
    **dict.fromkeys(("sindg", "cosdg", "tandg"), (5.0, _FAR)),
    **dict.fromkeys(("pow", "x0 ** x1", "x0 ** math.floor(x1)", "atan2", "polygamma", "ndtri_exp"), (5.0, _RARE)),
    **dict.fromkeys(("betaincinv", "betainccinv"), (50.0, _SEARCH)),
    **dict.fromkeys(("lgamma", "betaln"), (25.0, _REFLECTED)),
    **dict.fromkeys(("fmod", "modulo", "ieee_remainder", "floor_divide"), (25.0, _LONG_DIVISION)),
    **dict.fromkeys(("x0 % x1", "x0 // x1"), (25.0, _LONG_DIVISION)),
}

Ratios = Callable[[], dict[str, float]]


def call_time(run: Callable[[], Any], attempts: int = 5) -> float:
    """The processor time of a call, the least of several attempts."""
    with np.errstate(all="ignore"):
        run()
        times: list[float] = []
        calls = 1
        while len(times) < attempts:
            began = time.thread_time()
            for _ in range(calls):
                run()
            took = time.thread_time() - began
            if took < 1e-3:
                calls *= 2
            else:
                times.append(took / calls)
    return min(times)


def grown(family: cliffs.Family, product: str, dtype: str, folder: Path) -> dict[str, float]:
    """How much faster than the operations times grow; the time to compile is the least of two."""
    costs = {}
    for size in family.sizes:
        first = []
        for _ in range(2):
            function = cliffs.load(family.text(size), folder)
            run = cliffs.call(function, product, cliffs.inputs(function, dtype))
            began = time.process_time()
            run()
            first.append(time.process_time() - began)
        costs[size] = cliffs.Cost(min(first), call_time(run) / cliffs.ELEMENTS)
    return cliffs.growth(family, costs)


def growth(folder: Path) -> Iterator[tuple[str, Ratios, float]]:
    """Programs that grow in one respect."""
    for name, product, dtype in itertools.product(cliffs.FAMILIES, PRODUCTS, ("float64", "float32")):
        family = cliffs.FAMILIES[name]
        yield f"{name}, {product}, {dtype}", lambda f=family, p=product, d=dtype: grown(f, p, d, folder), cliffs.MOST


def arrays(folder: Path) -> Iterator[tuple[str, Ratios, float]]:
    """Arrays from one element to 2^16."""
    names = ("terms", "iterations", "elif", "what a loop carries")
    for case in itertools.product(names, PRODUCTS, ("float64", "float32")):
        yield ", ".join(case), lambda case=case: cliffs.growth_with_arrays(*case, folder, call_time), cliffs.MOST


def values(folder: Path) -> Iterator[tuple[str, Ratios, float]]:
    """Numbers that are zero, subnormal, huge, infinite or NaN."""
    names = [*cliffs.OPERATORS, *filter(cliffs.is_named, cliffs.RULE_NAMES)]
    for case in itertools.product(names, PRODUCTS[:2], ("float64", "float32")):
        most, _ = KNOWN.get(case[0], (cliffs.MOST, ""))
        yield ", ".join(case), lambda case=case: cliffs.growth_with_values(*case, folder, call_time), most


def dtypes(folder: Path) -> Iterator[tuple[str, Ratios, float]]:
    """Pairs of dtypes."""
    for case in itertools.product(cliffs.DTYPES, ("x * y + x", "math.tanh(x) * y"), PRODUCTS):
        yield ", ".join(case), lambda case=case: cliffs.growth_with_dtypes(*case, folder, call_time), cliffs.MOST


SEARCHES = {search.__name__: search for search in (growth, arrays, values, dtypes)}


def too_high(measure: Ratios, most: float) -> dict[str, float]:
    """The ratios beyond a bound in each of several attempts, the least of each."""
    least: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        least = {what: min(ratio, least.get(what, ratio)) for what, ratio in measure().items()}
        if max(least.values()) <= most:
            break
    return {what: ratio for what, ratio in least.items() if ratio > most}


def main(chosen: list[str]) -> None:
    """Search, and print each cliff when it is found."""
    os.environ["DUALBCAST_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        os.environ["DUALBCAST_CACHE_DIR"] = str(Path(folder) / "kernels")
        for product in PRODUCTS:  # import and make all that a first call of a process waits for
            grown(cliffs.FAMILIES["elif with exp and sin"]._replace(sizes=(3, 4)), product, "float64", Path(folder))
        for name in chosen:
            for what, measure, most in SEARCHES[name](Path(folder)):
                for case, ratio in too_high(measure, most).items():
                    print(f"{ratio:8.1f}  {what}: {case} (at most {most:g})", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(SEARCHES))
