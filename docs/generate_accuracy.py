"""Measures the functions of the CPU backend and writes docs/reference/accuracy.md: python docs/generate_accuracy.py

Takes some forty minutes, or with `--derivatives`, for the sections on derivatives alone and without the grid, one. The
figures are those of the machine it runs on, which the page names.
"""

from __future__ import annotations

import platform
import random
import sys
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "tests" / folder) for folder in ("oracles", "derivatives")]

import accuracy  # noqa: E402
import range_exceptions  # noqa: E402
import range_grid  # noqa: E402
import rule_oracles  # noqa: E402
from accuracy import CASES, COUNT, FEW, PAIRS, STRIDE, Worst, computed_by  # noqa: E402
from test_range_planted_bugs import BUGS  # noqa: E402

from dualbcast import differentiable_broadcast  # noqa: E402
from dualbcast.cli.measure import cpu_model  # noqa: E402
from dualbcast.codegen import mathlib  # noqa: E402
from dualbcast.codegen.mathlib import tables  # noqa: E402
from dualbcast.rules.table import RULES, add_later_rows  # noqa: E402

add_later_rows()

PAGE = HERE / "reference" / "accuracy.md"

HEAD = """\
# How accurate functions are on the CPU

The tables have the largest error that was found for each function, in units in the last place of the exact value. A
correctly rounded result is off by at most 0.50. `fastmath=True` may add a few units.

{machine}

On a processor with fused multiply-add, the package has its own {inlined},
and functions made of them. They give the same bits in vectors and for single numbers. The first table is for such a
processor that has AVX-512 as well. The second has the functions that are computed in another way without it
([record 136](../decisions/136-tables-in-registers.md)). On processors without fused multiply-add the functions are the
C library's, which the third is for.

**Method.** float32 functions of one number are computed for every {stride}th of all 2³² bit patterns, for {count:,}
more, many of them near zeros, poles, thresholds and changes of method, and then for the million numbers around the
worst. They are screened against NumPy, SciPy or the C library in float64, and mpmath computes the 12 worst of each
batch. In float64 there are {count:,} points and a million around the worst, screened in the C library's long double,
or {few:,} points all computed by mpmath. Functions of two numbers have {count:,} points. So the figures are lower
bounds of the largest errors, and close ones for float32. NaN, infinities and signed zeros are tested in
`tests/codegen/test_cpu_math.py`.

"""
DERIVATIVES = """
## Derivatives

The table compares the partial derivatives of the rules with mpmath, at {points} points of the interval in
`tests/derivatives/test_rules.py`. Partials that are 0 or 1 are left out. The first figure is the error in units of the
last place of the exact partial. In the second the unit is never smaller than that of 1, because a derivative that is
much smaller than its terms has few correct digits. The first figure is large next to zeros, and for rules with a form
that is deliberately cheap (`1 - y * y` for tanh).

| function | partial in | float32 | of 1 at least | float64 | of 1 at least |
| --- | --- | ---: | ---: | ---: | ---: |
"""
POINTS = 100
# What looks numbers up.
LOOKED_UP = [
    *("acosh", "asinh", "atanh", "cosh", "erf", "erfc", "exp", "exp2", "expm1"),
    *("lgamma", "log", "log10", "log1p", "log2", "pow", "sinh", "tanh"),
]
RANGE = """
## Over the whole range

`tests/oracles/range_grid.py` compares every rule, alias and operator with mpmath over the whole range of float32
and float64, and functions of one argument also over that of float16. The points have all exponents and both
signs, and zeros, infinities, NaN, subnormal numbers and the edges of domains are among them. Two arguments are pairs
of these. Values are within {value:g} units of the last place (below the smallest normal number, in units of the
smallest subnormal one), slopes within {first:g} and curvatures within {second:g}. float16 is computed in float32 and
rounded once, so it is within 1 unit. At zeros, infinities and edges the result is the limit, or the convention of C,
PyTorch and JAX. In these cases results may be further off:

| functions | results | where | how far | why |
| --- | --- | --- | --- | --- |
{rows}

Outside a domain, where a value is NaN, its derivatives may be any number: that of log at -1 is -1, as in PyTorch and
JAX. For two kinds of results, nothing but the conventions of [rules.md](rules.md) is promised: the mixed curvature of
`x ** y` where x is 0 or infinite, and derivatives where two arguments are both 0 or infinite.

```text
python tests/oracles/range_grid.py                           all of it, on one core a quarter of an hour
pytest --slow tests/derivatives/test_range_grid.py -n 2   the same, as tests; without --slow a slice
pytest --slow tests/derivatives/test_range_planted_bugs.py   {bugs} planted bugs, each of which the grid finds
```

{counts}
"""


def column(names: list[str], dtype: str, **way: bool) -> dict[str, Worst]:
    with computed_by(**way):
        found = {}
        for name in names:
            found[name] = accuracy.thorough(name, dtype)
            print(dtype, way, name, found[name], flush=True)
        return found


def table(names: list[str], **way: bool) -> list[str]:
    """Rows of a function's errors in float32 and float64."""
    columns = [column(names, dtype, **way) for dtype in ("float32", "float64")]
    lines = ["| function | float32 | float64 | worst at | |", "| --- | ---: | ---: | --- | --- |"]
    for name in names:
        case = CASES.get(name) or PAIRS[name]
        errors = [found[name].error for found in columns]
        places = [found[name].at for found in columns]
        place = ", ".join(f"{x:.9g}" for x in places[errors.index(max(errors))])
        note = case.reason if max(errors) > 4 or case.scale else ""
        if case.scale:
            note = f"in units of the last place of {case.scale:g} where it is smaller: {note}"
        lines.append(f"| `{name}` | {' | '.join(f'{error:.2f}' for error in errors)} | {place} | {note} |")
    return lines


def derivative_rows() -> list[str]:
    """The errors of all partials of the table of rules."""
    lines = []
    for name, row in sorted(RULES.items()):
        if row.by_user or name not in rule_oracles.VALUES or row.integer:
            continue
        draw = random.Random(name)
        drawn = [tuple(draw.uniform(low, high) for low, high in row.domain) for _ in range(POINTS)]
        cells: list[list[str]] = [[] for _ in row.domain]
        for dtype in ("float32", "float64"):
            arrays = [np.array(values, dtype) for values in zip(*drawn, strict=True)]
            spelling = f"{row.function.__module__}.{row.function.__name__}" if row.function else row.spellings[0]
            function: Any = differentiable_broadcast(accuracy.written(spelling, len(arrays)))
            _, jacobian = function.value_and_jacobian(*arrays)
            for position in range(len(arrays)):
                got = np.broadcast_to(np.asarray(jacobian[f"x{position}"], dtype), arrays[0].shape)
                orders = tuple(int(position == other) for other in range(len(arrays)))
                pairs = [
                    (got[k], rule_oracles.derivative(name, tuple(float(a[k]) for a in arrays), orders))
                    for k in range(POINTS)
                ]
                for scale in (0.0, 1.0):
                    cells[position].append(f"{max(accuracy.units_off(*pair, scale) for pair in pairs):.3g}")
        for position, cell in enumerate(cells):
            if any(float(error) for error in cell):
                lines.append(f"| `{name}` | {position} | {' | '.join(cell)} |")
                print(lines[-1], flush=True)
    return lines


def page() -> str:
    """The text of docs/reference/accuracy.md."""
    names = [*CASES, *PAIRS]
    own = sorted(mathlib.FUNCTIONS)
    libraries = f"glibc {platform.libc_ver()[1]}" if platform.libc_ver()[0] == "glibc" else platform.platform()
    machine = (
        f"Measured on {cpu_model()} ({platform.machine()}) with {libraries}, NumPy {np.__version__}, "
        f"mpmath {mpmath.__version__}."
    )
    inlined = ", ".join(f"`{name}`" for name in own)
    head = HEAD.format(machine=machine, inlined=inlined, stride=STRIDE, count=COUNT, few=FEW)
    if not tables.available():
        raise SystemExit("the first table needs a processor with AVX-512")
    lines = table(names)
    lines += ["", "Without AVX-512:", "", *table(LOOKED_UP, in_tables=False)]
    lines += ["", "Without fused multiply-add:", "", *table([*own, "sigmoid", "softplus"], inlined=False)]
    return head + "\n".join(lines) + "\n"


def derivatives(counts: str) -> str:
    """The sections on derivatives; `counts` is the line with which the grid ends."""
    value, first, second = range_grid.BOUNDS["float64"]
    rows = "\n".join(row.line() for row in range_exceptions.EXCEPTIONS)
    over_range = RANGE.format(value=value, first=first, second=second, rows=rows, bugs=len(BUGS), counts=counts)
    return DERIVATIVES.format(points=POINTS) + "\n".join(derivative_rows()) + "\n" + over_range


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    if "--derivatives" in sys.argv:
        values, counts = text.partition("\n## Derivatives\n")[0], text.rstrip().rpartition("\n")[2]
    else:
        values, counts = page(), str(range_grid.main(range_grid.DTYPES))
    PAGE.write_text(values.rstrip() + "\n" + derivatives(counts), encoding="utf-8")
