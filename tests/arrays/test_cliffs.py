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

from dualbcast.errors import CompileError
from dualbcast.rules.table import RULES

PRODUCTS = ("value", "value_and_jacobian", "vjp")
DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint64", "float16", "float32", "float64")
OPERATORS = ("x0 ** x1", "x0 ** math.floor(x1)", "x0 / x1", "x0 % x1", "x0 // x1", "min(x0, x1)", "abs(x0)")
RULE_NAMES = [name for name, row in RULES.items() if not row.by_user]
ATTEMPTS = 4

# What takes more than three times as long in some range of values, the most that it may take, and why.
_ONE_BY_ONE = "beyond the range of the function for vectors, one element after the other goes through another"
_FAR = "an argument is reduced by more digits of pi than a format has, element by element"
_REFLECTED = "negative arguments take the reflection, which computes a sine of pi and a logarithm besides"
_LONG_DIVISION = "the remainder of a quotient beyond 2^53 takes several exact steps, each for some fifty of its bits"
KNOWN: dict[str, tuple[float, str]] = {
    **dict.fromkeys(("exp2", "log10", "log1p", "logaddexp2", "pow", "xlog1py"), (9.0, _ONE_BY_ONE)),
    **dict.fromkeys(("asin", "acos", "tan", "atan2", "hypot", "sinh", "cosh"), (10.0, _ONE_BY_ONE)),
    **dict.fromkeys(("asinh", "acosh", "atanh", "polygamma"), (6.0, _ONE_BY_ONE)),
    **dict.fromkeys(("sin", "cos", "sinc"), (50.0, _FAR)),
    "lgamma": (25.0, _REFLECTED),
    **dict.fromkeys(("fmod", "modulo", "ieee_remainder", "floor_divide"), (25.0, _LONG_DIVISION)),
    **dict.fromkeys(("x0 % x1", "x0 // x1"), (25.0, _LONG_DIVISION)),
    **dict.fromkeys(("x0 ** x1", "x0 ** math.floor(x1)"), (9.0, _ONE_BY_ONE)),
}


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "1")


def ratios_within(measure: Callable[[], dict[str, float]], most: float = cliffs.MOST) -> None:
    """Assert that all ratios stay below a bound, in one of several attempts."""
    too_high: dict[str, float] = {}
    for _ in range(ATTEMPTS):
        too_high = {what: round(ratio, 1) for what, ratio in measure().items() if ratio > most}
        if not too_high:
            return
    pytest.fail(f"more than {most} times: {too_high}")


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
    ratios_within(grown(family, product, "float64", tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", cliffs.FAMILIES)
def test_what_grows_alone(name: str, product: str, dtype: str, tmp_path: Path) -> None:
    warm(tmp_path, product)
    ratios_within(grown(cliffs.FAMILIES[name], product, dtype, tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elif", "ifs one after another", "choices", "products", "terms", "helpers"])
def test_what_grows_alone_to_second_order(name: str, tmp_path: Path) -> None:
    family = cliffs.FAMILIES[name]
    warm(tmp_path, "hessian")
    family = family._replace(sizes=(10, 40, 100))
    ratios_within(grown(family, "hessian", "float64", tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", ["terms", "turns", "elif", "what a loop carries"])
def test_sizes_of_arrays(name: str, product: str, dtype: str, tmp_path: Path) -> None:
    """From one size to the double a call takes at most three times the double."""
    f = cliffs.load(cliffs.FAMILIES[name].text(4), tmp_path)
    arrays = cliffs.inputs(f, dtype, 1 << 16)
    least: dict[int, float] = {}

    def measure() -> dict[str, float]:
        for size in (1 << power for power in range(17)):
            now = cliffs.element_time(cliffs.call(f, product, [each[:size] for each in arrays]), size) * size
            least[size] = min(now, least.get(size, now))
        return {f"{size} to {2 * size}": least[2 * size] / (2 * least[size]) for size in list(least)[:-1]}

    ratios_within(measure)


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
@pytest.mark.parametrize("name", [*OPERATORS, *RULE_NAMES])
def test_ranges_of_values(name: str, product: str, dtype: str, tmp_path: Path) -> None:
    if name in OPERATORS:
        head, expression, domains = "import math", name, {at: (0.1, 20.0) for at in (0, 1) if f"x{at}" in name}
    else:
        head, expression, domains = rule(name)
    params = [f"x{at}" for at in domains]
    f = cliffs.load(f"{head}\ndef f({', '.join(params)}):\n    return C * {expression}\n", tmp_path)
    random = np.random.default_rng(0)
    ordinary = [random.uniform(low, high, cliffs.ELEMENTS).astype(dtype) for low, high in domains.values()]
    cases = {"": ordinary}
    for at, each in enumerate(ordinary):
        for kind, array in ranges(dtype, each).items():
            cases[f"{kind} {params[at]}"] = [*ordinary[:at], array, *ordinary[at + 1 :]]
    least: dict[str, float] = {}
    most, _ = KNOWN.get(name, (cliffs.MOST, ""))

    def measure() -> dict[str, float]:
        for case, arrays in cases.items():
            if case and least.get(case, np.inf) < most * least[""]:
                continue
            now = cliffs.element_time(cliffs.call(f, product, arrays))
            least[case] = min(now, least.get(case, now))
        return {case: time / least[""] for case, time in least.items()}

    ratios_within(measure, most)


def rule(name: str) -> tuple[str, str, dict[int, tuple[float, float]]]:
    """An import, a call of a rule's function, and where its arguments are from that are no integers."""
    row = RULES[name]
    args = ", ".join("1" if at in row.integer else f"x{at}" for at in range(row.arity))
    domains = {at: tuple(np.clip(row.domain[at], -20, 20)) for at in range(row.arity) if at not in row.integer}
    for each in (*row.spellings, f"dualbcast.special.{name}", f"dualbcast.arithmetic.{name}"):
        module, _, function = each.rpartition(".")
        named = module in ("math", "numpy", "dualbcast.special", "dualbcast.arithmetic")
        if named and hasattr(importlib.import_module(module), function):
            return f"import {module}", f"{each}({args})", domains
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

    ratios_within(measure)


def test_the_search_finds_what_grows_with_the_square(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that takes the square of its size is beyond the bound."""
    family = cliffs.Family(str, (4, 16))
    costs = {size: cliffs.Cost(1e-3 * size * size, 1e-9 * size) for size in family.sizes}
    assert [*cliffs.growth(family, costs)] == ["first 4 to 16", "element 4 to 16"]
    assert cliffs.growth(family, costs)["first 4 to 16"] == pytest.approx(4.0)
    monkeypatch.setattr(cliffs, "cost", lambda *case: costs[case[1]])
    with pytest.raises(pytest.fail.Exception, match="first 4 to 16"):
        ratios_within(grown(family, "value", "float64", tmp_path))


@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("count", [200, 290])
def test_a_chain_compiles_or_is_refused_at_its_line(count: int, product: str, tmp_path: Path) -> None:
    f = cliffs.load(cliffs.FAMILIES["elif"].text(count), tmp_path)
    run, refused = cliffs.call(f, product, cliffs.inputs(f, "float64")), None
    try:
        run()
    except CompileError as error:
        refused = error
    if refused is not None:
        assert count > 200, refused
        assert "nested too deeply" in refused.message
        assert (Path(refused.filename).parent, refused.lineno) == (tmp_path, 2)
