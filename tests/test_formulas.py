"""The corpus of published formulas: values and partials against mpmath, and the forms made for other systems."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from formula_oracle import leaves, value_and_partials
from suites import sampled

from bench.formulas.compare.array_ops import NumpyOps
from bench.formulas.compare.case import Case, blocks
from bench.formulas.compare.report import fastest_peer, ratio, table
from bench.formulas.corpus import FORMULAS, formula, load
from dualbcast import differentiable_broadcast

CORPUS = load()
POINTS = 3
# Relative to a result and its mean over the points; a partial in float32 loses digits where terms cancel.
TOLERANCE = {"float32": 2e-3, "float64": 1e-8}


def results(function: Any, arguments: list[Any], wrt: tuple[str, ...], size: int) -> list[Any]:
    compiled: Any = differentiable_broadcast(function)
    return [
        np.broadcast_to(block, (size,)).astype(np.float64)
        for block in blocks(compiled.value_and_jacobian(*arguments, wrt=wrt))
    ]


@pytest.mark.parametrize("name", sampled(CORPUS, 2))
def test_values_and_partials_are_those_of_mpmath(name: str) -> None:
    entry = CORPUS[name]
    arguments = entry.arguments(POINTS, seed=1)
    positions = [list(entry.ranges).index(parameter) for parameter in entry.wrt]
    exact = []
    for point in range(POINTS):
        scalars = [a[point] if isinstance(a, np.ndarray) else a for a in arguments]
        values, partials = value_and_partials(entry.function, scalars, positions)
        exact.append([float(x) for x in (*values, *(x for row in partials for x in row))])
    found = results(entry.function, arguments, entry.wrt, POINTS)
    assert len(found) == len(exact[0])
    for position, (judged, wanted) in enumerate(zip(found, np.array(exact).T, strict=True)):
        allowed = TOLERANCE[entry.dtype] * (np.abs(wanted) + np.mean(np.abs(wanted)))
        assert np.all(np.abs(judged - wanted) <= allowed), (position, judged, wanted)


@pytest.mark.parametrize("name", sampled(CORPUS, 2))
def test_results_are_finite_and_arrays_have_their_dtype(name: str) -> None:
    entry = CORPUS[name]
    size = 4096
    arguments = entry.arguments(size)
    function: Any = differentiable_broadcast(entry.function)
    for block in blocks(function.value_and_jacobian(*arguments, wrt=entry.wrt)):
        assert np.all(np.isfinite(block))
        assert np.asarray(block).dtype == entry.dtype
    for array, spec in zip(arguments, entry.ranges.values(), strict=True):
        if isinstance(array, np.ndarray):
            low, high = spec[1:3] if spec[0] == "int" else spec[:2]
            assert array.dtype.kind == "i" if spec[0] == "int" else array.dtype == entry.dtype
            assert np.all((array >= np.asarray(low, array.dtype)) & (array <= np.asarray(high, array.dtype)))


def test_entries_name_their_sources() -> None:
    assert len(CORPUS) >= 30
    for entry in CORPUS.values():
        assert re.search(r"\b1[789]\d\d\b|\b20[0-2]\d\b", entry.source), entry.name
        assert entry.function.__doc__, entry.name
    assert {entry.half for entry in CORPUS.values()} == {"tune", "report"}
    assert CORPUS["lstm_cell"].half == "report"  # by a hash that may not change
    assert CORPUS["nfw_lensing"].half == "tune"


def test_arguments_are_reproducible() -> None:
    entry = CORPUS["sabr_volatility"]
    first, second, other = entry.arguments(10), entry.arguments(10), entry.arguments(10, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first[0], other[0])


def test_entries_that_do_not_fit_are_refused() -> None:
    def area(width: float, height: float) -> float:
        return width * height

    with pytest.raises(ValueError, match="parameters"):
        formula(source="x", dtype="float64", width=(0.0, 1.0))(area)
    with pytest.raises(ValueError, match="wrt='depth'"):
        formula(source="x", dtype="float64", wrt="depth", width=(0.0, 1.0), height=2.0)(area)
    with pytest.raises(ValueError, match="does not name"):
        formula(source="x", dtype="float64", width=("int", 0, 1), height=2.0)(area)
    area.__name__ = "lstm_cell"
    with pytest.raises(ValueError, match="two formulas"):
        formula(source="x", dtype="float64", width=(0.0, 1.0), height=2.0)(area)
    assert "area" not in FORMULAS


# --- the forms for other systems -------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize("name", sampled(CORPUS, 4))
def test_formulas_of_whole_arrays_give_the_values(name: str, guarded: bool) -> None:
    """The text, with NumPy's operations, against the plain function, one point after the other."""
    size = 64
    case = Case(CORPUS[name], size, seed=2)
    function = case.guarded if guarded else case.plain
    arrays = [a.astype(np.float64) if a.dtype == np.float32 else a for a in map(np.asarray, case.arrays)]
    with np.errstate(all="ignore"):
        found = function.bind(NumpyOps("float64", size).namespace)(*arrays)
    for point in range(size):
        scalars = [a[point].item() if isinstance(a, np.ndarray) else a for a in case.arguments]
        wanted = leaves(case.formula.function(*scalars))
        np.testing.assert_allclose([result[point] for result in found], wanted, rtol=1e-9, atol=1e-12)


# Branches; a loop that ends where the data says; loops that are counted; several outputs; integers; lgamma.
SAMPLE = ("fresnel_reflectances", "radial_velocity", "luminosity_distance", "lstm_cell", "discretised_logistic")


@pytest.mark.parametrize("name", sampled(SAMPLE, 3))
def test_forms_of_jax_give_values_and_partials(name: str) -> None:
    jax = pytest.importorskip("jax")
    jax.config.update("jax_enable_x64", True)
    from bench.formulas.compare import jax_forms

    case = Case(CORPUS[name], 256)
    found: dict[str, str] = {}
    for guarded in (False, True):
        for form, make in jax_forms.forms(case, guarded=guarded).items():
            if any(part in form for part in ("chunks", "unrolled", "jvp, fori_loop")):
                continue  # the size has no chunks, and the others compile for long
            found[f"{form}, {guarded}"] = case.wrong([jax_forms.host(part) for part in make()()])
    right = [form for form, wrong in found.items() if not wrong]
    assert right
    assert all("not finite" in wrong for wrong in found.values() if wrong), found
    assert any(form.endswith("True") for form in right)


def test_wrong_results_are_found() -> None:
    case = Case(CORPUS["lstm_cell"], 64)
    right = [np.asarray(a) for a in results(case.formula.function, case.arguments, case.formula.wrt, 64)]
    assert case.wrong(right) == ""
    assert "instead of" in case.wrong(right[:-1])
    assert "not finite" in case.wrong([right[0] * np.nan, *right[1:]])
    assert case.wrong([*right[:2], right[2] * 1.01, *right[3:]]).startswith("d output 0 / d cell is wrong")


def test_ratios_are_medians_over_turns() -> None:
    seconds = {"dualbcast": [1e-3, 2e-3, 1e-3], "jax": [2e-3, 2e-3, 3e-3], "drjit": [9e-4], "floor": [5e-4, 1e-3, 5e-4]}
    result = {"field": "optics", "half": "tune", "outputs": 1, "wrt": 2, "seconds": seconds}
    result |= {"differences": {"dualbcast": 0.0, "drjit": 1e-7}, "forms": {"drjit": "backward"}}
    result |= {"left_out": {"torch": "cannot be imported"}, "wrong": {}}
    assert ratio(result, "jax") == 2.0
    assert ratio(result, "drjit") == pytest.approx(0.9)
    assert fastest_peer(result) == ("drjit", pytest.approx(0.9))
    text = table({"lens": result})
    assert "1 behind the fastest peer, 0 at least 1.3 times as fast, geometric mean 0.90" in text
    assert "lens, torch: cannot be imported" in text
