"""Every rule, alias and operator over the whole range of the formats: values, slopes and curvatures against mpmath.

A few forms at a few hundred points by default, others in every run; all of them at all points with `--slow`.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from probability_oracles import PARAMETRIC
from range_exceptions import EXCEPTIONS, Exceptional
from range_grid import BOUNDS, DTYPES, Grid, Wrong, all_forms, compare, points, units_off
from range_grid import Exact as ExactResults
from range_oracles import FORMS
from rule_oracles import ALIASES

from dualbcast.rules.table import RULES, add_later_rows

add_later_rows()

# The default run takes some ten seconds.
FORMS_AT_A_TIME, POINTS_AT_A_TIME = 16, 200
PAGE = Path(__file__).parents[2] / "docs" / "reference" / "accuracy.md"


def shown(wrong: list[Wrong]) -> str:
    return "\n".join(map(str, wrong[:40])) + f"\n{len(wrong):,} in all"


def test_a_slice_of_the_grid() -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    draw = random.Random(seed)
    print(f"seed {seed}")
    total, wrong = Grid(), []
    for name, dtype in draw.sample([*all_forms()], FORMS_AT_A_TIME):
        size = points(FORMS[name], dtype)[0].size
        # A multiple of all widths of vectors, in which the kernel computes the whole grid.
        grid, found = compare(name, dtype, [draw.randrange(size) for _ in range(POINTS_AT_A_TIME)])
        total.add(grid)
        wrong += found
    print(total)
    assert not wrong, f"seed {seed}\n{shown(wrong)}"


# float16 is computed in float32 and rounded once: a third of the functions will do.
GRIDS = [(name, dtype) for at, (name, dtype) in enumerate(sorted(all_forms())) if dtype != "float16" or at % 3 == 0]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "dtype"), GRIDS)
def test_the_whole_grid(name: str, dtype: str) -> None:
    grid, wrong = compare(name, dtype)
    print(grid)
    assert not wrong, shown(wrong)


@pytest.mark.slow
@pytest.mark.parametrize("row", EXCEPTIONS, ids=lambda row: f"{row.forms[0]}, {row.where}")
def test_an_exception_is_needed(row: Exceptional) -> None:
    dtypes = ("float32", "float64")
    assert any(compare(name, dtype)[0].excepted[row] for name in row.forms for dtype in dtypes)


def test_every_row_and_alias_is_in_the_grid() -> None:
    names = {name.partition(" ")[0] for name in FORMS} | {*FORMS}
    # A divided power is a part of a power's slope, where its last argument is the power.
    assert {name for name, row in RULES.items() if not row.by_user} - names == {
        *("divided_power", "cosine", "sine", "over_length"),
        *PARAMETRIC,
    }
    assert not {*ALIASES} - names


def test_the_exceptions_are_few_and_documented() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert len(EXCEPTIONS) <= 40
    for row in EXCEPTIONS:
        assert row.line() in text, "run: python docs/generate_accuracy.py --exceptions"
    assert {name for row in EXCEPTIONS for name in row.forms} <= {*FORMS}


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_unit_is_that_of_the_last_place(dtype: str) -> None:
    info = np.finfo(dtype)
    one, half = float(info.eps), float(info.smallest_subnormal)
    exact = ExactResults.of([1.0, 1.0, 3 * half, 0.0, float(info.max), np.inf, np.inf, np.nan, np.nan, None, -1.0])
    got = np.array(
        [1 + one, 1 - one, 0.0, half, np.inf, np.inf, -np.inf, np.nan, 1.0, 5.0, np.nan],
        dtype,
    )
    wanted = [1.0, 1.0, 3.0, 1.0, 1.0, 0.0, np.inf, 0.0, np.inf, 0.0, np.inf]
    np.testing.assert_array_equal(units_off(got, exact), wanted)


def test_the_bounds_are_small() -> None:
    assert all(max(bounds) <= 20 for bounds in BOUNDS.values())
