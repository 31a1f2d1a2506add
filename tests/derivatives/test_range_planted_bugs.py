"""Bugs planted in rules and special forms, each of which the grid over the whole range must find."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "dualbcast"


@dataclass(frozen=True)
class Bug:
    """A fragment of a file, which must be there once, what it is replaced by, and the form that shows it."""

    what: str
    file: str
    right: str
    wrong: str
    form: str


ROWS, CURVATURES = "rules/library.py", "rules/curvatures.py"
BUGS = [
    Bug("a product for a quotient", ROWS, '"sqrt", lambda x, y: (0.5 / y,)', '"sqrt", lambda x, y: (0.5 * y,)', "sqrt"),
    Bug("a divisor that overflows", ROWS, "1.0 / LN10 / x", "1.0 / (x * LN10)", "log10"),
    Bug("a difference without digits", ROWS, '(math.exp(x),), "math.expm1 ', '(y + 1.0,), "math.expm1 ', "expm1"),
    Bug("a wrong sign", ROWS, '"cos", lambda x, y: (-math.sin(x),)', '"cos", lambda x, y: (math.sin(x),)', "cos"),
    Bug("a sum for a difference", ROWS, "(1.0 + y * y,)", "(1.0 - y * y,)", "tan"),
    Bug(
        "a hypotenuse that overflows",
        ROWS,
        "0.0 if y == 0 else curvatures.cosine(a, b)",
        "0.0 if y == 0 else a / y",
        "hypot",
    ),
    Bug("a wrong divisor", ROWS, "else a / (1.0 + b)", "else a / (1.0 - b)", "xlog1py"),
    Bug("a wrong constant", ROWS, "(-0.5 * y / (x + 0.0),)", "(-0.25 * y / (x + 0.0),)", "inverse_root"),
    Bug(
        "two arguments confused",
        ROWS,
        "(curvatures.logistic(gap(a, b)), curvatures.logistic(gap(b, a)))",
        "(curvatures.logistic(gap(a, b)), curvatures.logistic(gap(a, b)))",
        "logaddexp",
    ),
    Bug("a lost branch at 0", ROWS, "0.0 if y == 0 else y * math.log(x)", "y * math.log(x)", "pow"),
    Bug("a lost factor", CURVATURES, "(x * y * y * y,)", "(x * y * y,)", "asin"),
    Bug(
        "a square that overflows",
        CURVATURES,
        "return 2.0**-60 / (2.0**-60 + scaled * scaled)",
        "return 1.0 / (1.0 + x * x)",
        "atan",
    ),
    Bug(
        "no digits in saturation",
        CURVATURES,
        "return 4.0 * (decay * inverse * inverse)",
        "return 1.0 - math.tanh(x) * math.tanh(x)",
        "tanh",
    ),
    Bug(
        "a curvature of the wrong sign",
        CURVATURES,
        "(-(2.0 * y * squared_secant(x)), 0)",
        "(2.0 * y * squared_secant(x), 0)",
        "tanh",
    ),
    Bug(
        "a correction left out",
        CURVATURES,
        "return math.exp(-square) * (1.0 - lost)",
        "return math.exp(-square)",
        "erf",
    ),
    Bug(
        "a difference the wrong way round",
        CURVATURES,
        "over_length(abs(a) - abs(b), a, b)",
        "over_length(abs(b) - abs(a), a, b)",
        "atan2",
    ),
    Bug("a reciprocal squared", CURVATURES, "y * (1.0 / b) * (1.0 / b)", "y * ((1.0 / b) * (1.0 / b))", "x / y"),
    Bug("a wrong factor of a curvature", CURVATURES, "(-2.0 * (s / y),)", "(-1.0 * (s / y),)", "cbrt"),
    Bug(
        "two sides confused",
        "special/exponentials.py",
        "return (decay if x < 0 else 1.0) / (1.0 + decay)",
        "return (1.0 if x < 0 else decay) / (1.0 + decay)",
        "sigmoid",
    ),
    Bug(
        "an exponential that overflows",
        "special/exponentials.py",
        "return (0.0 if x < 0 else x) + math.log1p(math.exp(-abs(x)))",
        "return math.log1p(math.exp(x))",
        "softplus",
    ),
    Bug("an argument that is rounded", "special/normal.py", "tail = tail + tail * excess", "tail = tail + 0.0", "ndtr"),
    Bug("a wrong coefficient", "special/normal.py", "67265.770927008700853", "67265.770827008700853", "erfinv"),
    Bug("a fraction with two digits swapped", "special/gamma.py", "1 / 240", "1 / 204", "digamma"),
    Bug(
        "a turn taken off too late",
        "special/trigonometric.py",
        "return math.sin(math.pi * rest)",
        "return math.sin(math.pi * x)",
        "sinc",
    ),
    Bug("the wrong zero", "arithmetic.py", "return math.copysign(rest, y)", "return rest", "modulo"),
    Bug("powers that overflow", "arithmetic.py", "third = n // 3", "third = n // 2", "ldexp"),
    Bug(
        "a quotient not rounded down",
        "arithmetic.py",
        "quotient = quotient - 1.0",
        "quotient = quotient",
        "floor_divide",
    ),
]
FIND = """
import sys
from range_grid import compare
wrong = [each for dtype in ("float32", "float64") for each in compare(sys.argv[1], dtype)[1]]
print(*wrong[:1], sep="\\n")
sys.exit(7 if wrong else 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.what)
def test_a_planted_bug_is_found(bug: Bug, tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "dualbcast", ignore=shutil.ignore_patterns("__pycache__"))
    path = tmp_path / "dualbcast" / bug.file
    text = path.read_text(encoding="utf-8")
    assert text.count(bug.right) == 1, "the source has changed: plant this bug anew"
    path.write_text(text.replace(bug.right, bug.wrong), encoding="utf-8")
    run = found(bug.form, tmp_path)
    assert run.returncode == 7, run.stdout + run.stderr
    print(run.stdout)


@pytest.mark.slow
def test_nothing_is_found_without_one(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "dualbcast", ignore=shutil.ignore_patterns("__pycache__"))
    run = found("hypot", tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr


def found(form: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What the grid finds of a form, of the package in a folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(PROJECT / "tests" / "oracles")]),
        "DUALBCAST_CACHE_DIR": str(folder / "kernels"),
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FIND, form], env=environment, capture_output=True, text=True, cwd=folder
    )
