"""A search for cliffs: no time grows more than three times as fast as the operations that are counted.

All times that are compared are of one process, one after the other, and of the processor; a ratio that is too high is
measured again, and the least of all times for each program counts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cliffs
import numpy as np
import pytest

from dualbcast.compiler.rules import RULES

PRODUCTS = ("value", "value_and_jacobian", "vjp")
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64")
RULE_NAMES = [name for name, row in RULES.items() if not row.by_user]
ATTEMPTS = 4

# What grows faster, or takes longer, and why; the parts of a case are joined by blanks, and any may begin with these.
KNOWN: dict[str, str] = {}


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "1")


def ratios_within(measure: Callable[[], dict[str, float]], *case: str) -> None:
    """Assert that all ratios stay below the bound, in one of several attempts, or that this is known and why."""
    too_high: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        too_high = {what: round(ratio, 1) for what, ratio in measure().items() if ratio > cliffs.MOST}
        if not too_high:
            return
    unknown = [what for what in too_high if not any(" ".join((*case, what)).startswith(known) for known in KNOWN)]
    assert not unknown, {what: too_high[what] for what in unknown}
    pytest.xfail(f"known: {too_high}")


def grown(family: cliffs.Family, product: str, dtype: str, folder: Path) -> Callable[[], dict[str, float]]:
    """Measures how much faster than the operations times grow, with the least times so far."""
    least: dict[int, cliffs.Cost] = {}

    def measure() -> dict[str, float]:
        for size in family.sizes:
            now = cliffs.cost(family, size, product, dtype, folder)
            least[size] = cliffs.Cost(*map(min, now, least.get(size, now)))
        return cliffs.growth(family, least)

    return measure


def warm(folder: Path, product: str) -> None:
    """Import and make all that a first call of a process waits for."""
    cliffs.cost(cliffs.FAMILIES["elif with exp and sin"], 3, product, "float64", folder)


@pytest.mark.parametrize("product", PRODUCTS)
def test_chains_of_branches_compile_in_time_of_their_length(product: str, tmp_path: Path) -> None:
    family = cliffs.FAMILIES["elif"]._replace(sizes=(10, 80))
    warm(tmp_path, product)
    ratios_within(grown(family, product, "float64", tmp_path), "elif", product)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", cliffs.FAMILIES)
def test_what_grows_alone(name: str, product: str, dtype: str, tmp_path: Path) -> None:
    warm(tmp_path, product)
    ratios_within(grown(cliffs.FAMILIES[name], product, dtype, tmp_path), name, product, dtype)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elif", "ifs one after another", "choices", "products", "terms", "helpers"])
def test_what_grows_alone_to_second_order(name: str, tmp_path: Path) -> None:
    family = cliffs.FAMILIES[name]
    warm(tmp_path, "hessian")
    family = family._replace(sizes=(10, 40, 100))
    ratios_within(grown(family, "hessian", "float64", tmp_path), name, "hessian")


# --- values ----------------------------------------------------------------------------------------------------------


def ranges(dtype: str, ordinary: np.ndarray[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """Numbers of one kind each, as many as the ordinary ones."""
    format_ = np.finfo(dtype)
    signs = np.where(np.arange(ordinary.size) % 2 == 0, 1.0, -1.0).astype(dtype)
    spread = np.linspace(0.25, 0.75, ordinary.size, dtype=dtype)
    return {
        "zero": signs * 0,
        "subnormal": signs * spread * format_.tiny,
        "tiny": signs * spread * format_.tiny * 8,
        "huge": signs * spread * format_.max,
        "negative": -abs(ordinary),
        "infinite": signs * np.inf,
        "nan": signs * np.nan,
        "one infinite": np.where(np.arange(ordinary.size) % 64 == 5, np.inf, ordinary).astype(dtype),
    }


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", ["value", "value_and_jacobian"])
@pytest.mark.parametrize("name", RULE_NAMES)
def test_ranges_of_values(name: str, product: str, dtype: str, tmp_path: Path) -> None:
    row = RULES[name]
    module, _, function = spelling(name).rpartition(".")
    params = [f"x{at}" for at in range(row.arity) if at not in row.integer]
    args = ["1" if at in row.integer else f"x{at}" for at in range(row.arity)]
    text = f"import {module}\ndef f({', '.join(params)}):\n    return C * {module}.{function}({', '.join(args)})\n"
    f = cliffs.load(text, tmp_path)
    random = np.random.default_rng(0)
    positions = [at for at in range(row.arity) if at not in row.integer]
    domains = [np.clip(row.domain[at], -20, 20) for at in positions]
    ordinary = [random.uniform(low, high, cliffs.ELEMENTS).astype(dtype) for low, high in domains]
    cases = {"": ordinary}
    for at, each in enumerate(ordinary):
        for kind, array in ranges(dtype, each).items():
            cases[f"{kind} {params[at]}"] = [*ordinary[:at], array, *ordinary[at + 1 :]]
    least: dict[str, float] = {}

    def measure() -> dict[str, float]:
        for case, arrays in cases.items():
            if case and least.get(case, np.inf) < cliffs.MOST * least[""]:
                continue
            now = cliffs.element_time(cliffs.call(f, product, arrays))
            least[case] = min(now, least.get(case, now))
        return {case: time / least[""] for case, time in least.items()}

    ratios_within(measure, name, product, dtype)


def spelling(name: str) -> str:
    """A callable's name that imports."""
    for each in (*RULES[name].spellings, f"dualbcast.special.{name}", f"dualbcast.arithmetic.{name}"):
        module, _, function = each.rpartition(".")
        named = module in ("math", "numpy", "dualbcast.special", "dualbcast.arithmetic")
        if named and hasattr(importlib.import_module(module), function):
            return each
    pytest.skip(f"{name} has no name of its own: it stands for an expression")


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("body", ["x * y + x", "math.tanh(x) * y"])
@pytest.mark.parametrize("one", DTYPES)
def test_dtypes(one: str, body: str, product: str, tmp_path: Path) -> None:
    """Each pair of dtypes, beside float64 alone: more than that no element has to be computed in."""
    f = cliffs.load(f"import math\ndef f(x, y):\n    return ({body}) * C\n", tmp_path)
    numbers = np.random.default_rng(0).integers(0, 2, (2, cliffs.ELEMENTS))
    pairs = {"float64": ("float64", "float64")} | {f"with {other}": (one, other) for other in DTYPES}
    least: dict[str, float] = {}

    def measure() -> dict[str, float]:
        for pair, dtypes in pairs.items():
            arrays = [each.astype(dtype) for each, dtype in zip(numbers, dtypes, strict=True)]
            now = cliffs.element_time(cliffs.call(f, product, arrays))
            least[pair] = min(now, least.get(pair, now))
        return {pair: time / least["float64"] for pair, time in least.items()}

    ratios_within(measure, one, body, product)


def test_the_search_finds_what_grows_with_the_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the square of its size is beyond the bound."""
    family = cliffs.Family(str, (4, 16))
    costs = {size: cliffs.Cost(1e-3 * size * size, 1e-9 * size) for size in family.sizes}
    assert [*cliffs.growth(family, costs)] == ["first 4 to 16", "element 4 to 16"]
    assert cliffs.growth(family, costs)["first 4 to 16"] == pytest.approx(4.0)
    monkeypatch.setattr(cliffs, "cost", lambda *case: costs[case[1]])
    with pytest.raises(AssertionError, match="first 4 to 16"):
        ratios_within(grown(family, "value", "float64", tmp_path), "square", "value")
