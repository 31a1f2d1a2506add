"""Every row of the rule table, through the compiler: value and partials of the function called by its user's name.

Rows are compiled in groups, each group as one function with an output a row, because compiling is what takes the time;
each row, dtype and backend is a test of its own.
"""

from __future__ import annotations

import importlib
import math
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import rule_oracles as oracles
from forgotten_rules import forget
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.rules import library
from dualbcast.rules.registration import rule
from dualbcast.rules.table import ALIASES, Rule, add_later_rows, lookup
from dualbcast.rules.table import RULES as TABLE

add_later_rows()

inf, nan = math.inf, math.nan
RULES = {name: row for name, row in TABLE.items() if not row.by_user}
DTYPES = ("float32", "float64")
BACKENDS = ("python", "cpu")
# The `python` backend computes the same text in both dtypes; what is particular to float32 is in the compiled kernels.
ON = pytest.mark.parametrize(
    ("dtype", "backend"),
    [
        pytest.param("float32", "python", marks=pytest.mark.slow),
        *[("float32", "cpu"), ("float64", "python"), ("float64", "cpu")],
    ],
)
POINTS = 12
GROUP = 9
IMPORTS = "import math\nimport dualbcast.arithmetic\nimport dualbcast.special\nimport numpy\nimport scipy.special\n"


@dataclass(frozen=True)
class Case:
    """A function under test."""

    name: str
    spelling: str
    domain: tuple[tuple[float, float], ...]
    integer: tuple[int, ...] = ()

    @property
    def parameters(self) -> list[str]:
        return [f"{self.name}_{position}" for position in range(len(self.domain))]

    @property
    def differentiable(self) -> list[int]:
        return [position for position in range(len(self.domain)) if position not in self.integer]

    def points(self) -> list[tuple[float, ...]]:
        """Ordinary points, the same in every run: near the ends of the domain and within; exact in float32."""
        draw = random.Random(self.name)
        found = []
        for number in range(POINTS):
            point: list[float] = []
            for position, (low, high) in enumerate(self.domain):
                if position in self.integer:
                    point.append(draw.randint(round(low), round(high)))
                else:
                    # Not the ends themselves: a whole number is a jump of some functions.
                    end = draw.choice((1.37e-4, 1 - 1.37e-4))
                    share = end if number < 4 else draw.random()
                    point.append(float(np.float32(low + share * (high - low))))
            found.append(tuple(point))
        return found


def find(spelling: str) -> Any:
    """What a dotted name stands for, or None."""
    place, _, name = spelling.rpartition(".")
    if place.startswith("scipy.stats."):  # a method of a distribution
        return getattr(find(place), name, None)
    return getattr(importlib.import_module(place), name, None)


def spelling_of(row: Rule) -> str:
    """A user's name for a row's function that this Python, NumPy and SciPy have."""
    names = [name for name in row.spellings if find(name) is not None]
    if row.function is not None:
        names.append(f"{row.function.__module__}.{row.name}")
    return names[0]


# The arguments of beta_term depend on one another; test_gamma_and_beta.py has it.
CASES = {
    row.name: Case(row.name, spelling_of(row), row.domain, row.integer)
    for row in RULES.values()
    if row.name != "beta_term"
}
CASES |= {name: Case(name, spelling, domain) for name, (spelling, domain) in oracles.ALIASES.items()}
NAMES = tuple(CASES)


# --- running the code under test -----------------------------------------------------------------------------------


def source(cases: list[Case], name: str) -> str:
    """A module with a scalar function that calls each case's spelling on parameters of its own."""
    parameters = ", ".join(parameter for case in cases for parameter in case.parameters)
    calls = [f"{case.spelling}({', '.join(case.parameters)})" for case in cases]
    body = "".join(f"        {call},\n" for call in calls)
    return f"{IMPORTS}\n\ndef {name}({parameters}):\n    return (\n{body}    )\n"


@pytest.fixture(scope="session")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], ModuleType]:
    """Imports a text as a module with a real file, which the front end reads it back from."""
    folder: Path = tmp_path_factory.mktemp("scalar_functions")
    sys.path.insert(0, str(folder))

    @cache
    def make(name: str, text: str) -> ModuleType:
        (folder / f"{name}.py").write_text(text)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return make


Results = dict[str, tuple[np.ndarray, list[np.ndarray]]]


def measure(
    function: Callable[..., Any],
    cases: list[Case],
    points: dict[str, list[tuple[float, ...]]],
    dtype: str,
    backend: str,
) -> Results:
    """Each case's values and partials at its points, from one call."""
    length = max(len(points[case.name]) for case in cases)
    arrays = []
    for case in cases:
        own = points[case.name]
        padded = own + own[:1] * (length - len(own))
        for position in range(len(case.domain)):
            kind = "int16" if position in case.integer else dtype
            arrays.append(np.array([point[position] for point in padded], kind))
    broadcast = differentiable_broadcast(backend=backend)(function)
    with np.errstate(all="ignore"):
        values, jacobian = broadcast.value_and_jacobian(*arrays)
    results: Results = {}
    for output, case in enumerate(cases):
        partials = []
        for position, parameter in enumerate(case.parameters):
            zeros = np.zeros(length, dtype)
            partials.append(zeros if position in case.integer else jacobian[output, parameter])
        assert values[output].dtype == dtype
        assert all(partial.dtype == dtype for partial in partials)
        results[case.name] = (values[output], partials)
    return results


@pytest.fixture(scope="session")
def results(load: Callable[[str, str], ModuleType]) -> Callable[[str, str, str], tuple[np.ndarray, list[np.ndarray]]]:
    """Values and partials of a case at its ordinary points and then at its edges."""

    @cache
    def group(first: int, dtype: str, backend: str) -> Results:
        cases = [CASES[name] for name in NAMES[first : first + GROUP]]
        name = f"group_{first}"
        function = getattr(load(name, source(cases, name)), name)
        points = {case.name: case.points() + [edge[0] for edge in oracles.EDGES[case.name]] for case in cases}
        return measure(function, cases, points, dtype, backend)

    def of(name: str, dtype: str, backend: str) -> tuple[np.ndarray, list[np.ndarray]]:
        first = NAMES.index(name) // GROUP * GROUP
        return group(first, dtype, backend)[name]

    return of


# --- judging it ----------------------------------------------------------------------------------------------------


def allowance(case: Case, point: tuple[float, ...], orders: tuple[int, ...], dtype: str) -> float:
    """The error granted to a value (orders all 0) or a partial v at a point x.

    It is eps * (k * (|v| + sum |x_i| |dv/dx_i|) + c) + tiny: k roundings of the result and of each argument, the latter
    carried to the result by the condition of the function; c is what is granted by decision; tiny, the smallest normal
    number, is for results that underflow.
    """
    info = np.finfo(dtype)
    size = abs(oracles.derivative(case.name, point, orders))
    for position in case.differentiable:
        raised = tuple(order + (position == other) for other, order in enumerate(orders))
        size += abs(point[position] * oracles.derivative(case.name, point, raised))
    granted = oracles.GRANTED.get(case.name, (0.0, 0.0, 0.0))[sum(orders)]
    roundings = oracles.ROUNDINGS.get(case.name, oracles.DEFAULT_ROUNDINGS)
    return float(info.eps) * (roundings * float(size) + granted) + float(info.tiny)


def disagreements(case: Case, dtype: str, values: np.ndarray, partials: list[np.ndarray]) -> Iterator[str]:
    """What differs from mpmath at the ordinary points."""
    none = (0,) * len(case.domain)
    for row, point in enumerate(case.points()):
        checks = [("value", none, values[row])]
        for position in case.differentiable:
            orders = tuple(int(position == other) for other in range(len(none)))
            checks.append((f"partial in argument {position}", orders, partials[position][row]))
        for what, orders, got in checks:
            expected = oracles.derivative(case.name, point, orders)
            error, allowed = float(abs(float(got) - expected)), allowance(case, point, orders, dtype)
            if not error <= allowed:
                shown = f"{got}, not {float(expected)}: {error:.2g} off, {allowed:.2g} allowed"
                yield f"{what} of {case.name}{point} is {shown}"


def edge_disagreements(case: Case, dtype: str, values: np.ndarray, partials: list[np.ndarray]) -> Iterator[str]:
    """What differs from the table of edges; a zero value must have its sign, a finite number 16 roundings."""
    eps, tiny = float(np.finfo(dtype).eps), float(np.finfo(dtype).tiny)
    for row, (point, value, slopes) in enumerate(oracles.EDGES[case.name], start=POINTS):
        expectations = [("value", value, values[row])]
        expectations += [
            (f"partial in argument {position}", slopes[position], partials[position][row])
            for position in case.differentiable
        ]
        for what, expected, got in expectations:
            if expected is oracles.ANY:
                continue
            with np.errstate(all="ignore"):
                expected = float(np.dtype(dtype).type(expected))
            same = float(got) == expected or (got != got and expected != expected)
            close = math.isfinite(expected) and abs(float(got) - expected) <= 16 * eps * abs(expected) + tiny
            sign_matters = what == "value" and expected == 0 and got == 0
            if not (same or close) or (sign_matters and np.signbit(got) != np.signbit(expected)):
                yield f"{what} of {case.name}{point} is {got}, not {expected}"


@ON
@pytest.mark.parametrize("name", NAMES)
def test_value_and_partials(name: str, dtype: str, backend: str, results: Callable[..., Any]) -> None:
    found = list(disagreements(CASES[name], dtype, *results(name, dtype, backend)))
    assert not found, "\n".join(found)


@ON
@pytest.mark.parametrize("name", NAMES)
def test_edges(name: str, dtype: str, backend: str, results: Callable[..., Any]) -> None:
    found = list(edge_disagreements(CASES[name], dtype, *results(name, dtype, backend)))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", sampled([name for name in RULES if name in CASES], 3))
def test_partials_can_be_differentiated(name: str, load: Callable[[str, str], ModuleType]) -> None:
    """A row's partials, composed with the function, have the function's second derivatives as their Jacobian."""
    case, twice = CASES[name], f"twice_{name}"
    arguments = ", ".join(case.parameters)
    body = f"    return partials({arguments}, {case.spelling}({arguments}))\n"
    module = load(twice, f"{IMPORTS}\n\ndef {twice}({arguments}):\n{body}")
    vars(module)["partials"] = RULES[name].partials
    points = case.points()[:: 4 if len(case.domain) > 2 else 1]  # mpmath needs a second for each
    arrays = [np.array([point[position] for point in points]) for position in range(len(case.domain))]
    for position in case.integer:
        arrays[position] = arrays[position].astype("int64")
    jacobian = differentiable_broadcast(backend="python")(getattr(module, twice)).jacobian(*arrays)
    for first in case.differentiable:
        for second in case.differentiable:
            orders = tuple((position == first) + (position == second) for position in range(len(case.domain)))
            for row, point in enumerate(points):
                expected = oracles.derivative(name, point, orders)
                error = abs(float(jacobian[first, case.parameters[second]][row]) - expected)
                # A chain of two rows takes more roundings; mpmath's own second difference is good to about 1e-60.
                allowed = 8 * allowance(case, point, orders, "float64") + 1e-50
                assert error <= allowed, (point, orders, float(expected))


@pytest.mark.parametrize("name", [name for name in RULES if name in CASES])
def test_the_convention_at_a_kink_is_tested(name: str) -> None:
    """What a row says about its kinks is what the table of edges expects of the compiled function."""
    edges = {repr(point): slopes for point, _, slopes in oracles.EDGES[name]}
    for point, slopes in RULES[name].kinks:
        if repr(point) in edges:
            assert repr(edges[repr(point)]) == repr(slopes)
        else:
            pytest.fail(f"the kink of {name} at {point} is not among the edges")


# --- whether the checks can fail -----------------------------------------------------------------------------------


def exact(case: Case, dtype: str) -> tuple[np.ndarray, list[np.ndarray]]:
    """The true values and partials, rounded."""
    size = len(case.domain)
    orders = [tuple(int(position == other) for other in range(size)) for position in range(size)]
    partials = []
    for position in range(size):
        if position in case.integer:
            partials.append(np.zeros(POINTS, dtype))
        else:
            slopes = [float(oracles.derivative(case.name, point, orders[position])) for point in case.points()]
            partials.append(np.array(slopes, dtype))
    return np.array([float(oracles.value(case.name, point)) for point in case.points()], dtype), partials


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_wrong_partial_would_be_noticed(name: str, dtype: str) -> None:
    """The tolerances have teeth: a wrong sign, and an error of 0.1 % (float64: 1e-9) are both rejected."""
    case = CASES[name]
    values, partials = exact(case, dtype)
    assert not list(disagreements(case, dtype, values, partials))
    for position in case.differentiable:
        for factor in (-1.0, 1.001 if dtype == "float32" else 1.0 + 1e-9):
            wrong = [
                slope * np.dtype(dtype).type(factor if other == position else 1) for other, slope in enumerate(partials)
            ]
            if np.any(partials[position]):
                assert list(disagreements(case, dtype, values, wrong)), f"argument {position}, factor {factor}"


@pytest.mark.parametrize(
    ("name", "partials"),
    [
        ("tanh", lambda _, y: (y * y - 1.0,)),
        ("atan2", lambda a, b, _: (b / (a * a + b * b), a / (a * a + b * b))),
        ("pow", lambda x, p, _: (p * math.pow(x, p - 1.0), 0)),
    ],
    ids=["wrong sign", "wrong sign in one argument", "a partial left out"],
)
def test_a_wrong_row_is_caught(name: str, partials: Callable[..., Any], load: Callable[[str, str], ModuleType]) -> None:
    """A row with a right value and a wrong partial, added as users add rows, fails the check that the table passes."""
    row, mutant = CASES[name], f"wrong_{name}"
    case = Case(name, mutant, row.domain)
    arguments = ", ".join(row.parameters)
    module = load(
        f"module_of_{mutant}",
        f"{source([case], 'caller')}\n\ndef {mutant}({arguments}):\n    return {row.spelling}({arguments})\n",
    )
    added = rule(mutant, partials, function=getattr(module, mutant), domain=row.domain)
    try:
        found = measure(module.caller, [case], {name: case.points()}, "float64", "python")[name]
    finally:
        forget(added)
    wrong = list(disagreements(case, "float64", *found))
    assert wrong
    assert not any(message.startswith("value") for message in wrong)


# --- whether the table is complete ---------------------------------------------------------------------------------

# Functions that are another spelling of syntax, with the number of their arguments.
SYNTAX = {
    "numpy.add": 2,
    "numpy.subtract": 2,
    "numpy.multiply": 2,
    "numpy.true_divide": 2,
    "numpy.negative": 1,
    "numpy.positive": 1,
    "numpy.conjugate": 1,
    "numpy.equal": 2,
    "numpy.not_equal": 2,
    "numpy.less": 2,
    "numpy.less_equal": 2,
    "numpy.greater": 2,
    "numpy.greater_equal": 2,
    "numpy.logical_and": 2,
    "numpy.logical_or": 2,
    "numpy.logical_xor": 2,
    "numpy.logical_not": 1,
    "math.floor": 1,
    "math.ceil": 1,
    "math.trunc": 1,
}
BIT_SYNTAX = {
    "numpy.bitwise_and": 2,
    "numpy.bitwise_or": 2,
    "numpy.bitwise_xor": 2,
    "numpy.left_shift": 2,
    "numpy.right_shift": 2,
    "numpy.invert": 1,
}
SEQUENCE_SYNTAX = {"math.prod": 1}
# What takes or gives tuples; the corpus and tests/language/test_number_parts.py have these.
TUPLE_SYNTAX = ("math.dist", "numpy.divmod")
# Names that older releases of Python and SciPy do not have.
NEWER = {"math.sumprod", "math.fma", "scipy.special.softplus"}


def functions_to_know() -> Iterator[tuple[str, Any]]:
    for name in dir(math):
        if callable(getattr(math, name)) and not name.startswith("_"):
            yield f"math.{name}", getattr(math, name)
    for name in dir(np):
        if isinstance(getattr(np, name), np.ufunc):
            yield f"numpy.{name}", getattr(np, name)


def test_every_function_of_math_and_every_ufunc_is_accounted_for() -> None:
    handled = [find(spelling) for spelling in (*SYNTAX, *BIT_SYNTAX, *SEQUENCE_SYNTAX, *TUPLE_SYNTAX)]
    excluded = [find(spelling) for spelling in library.EXCLUDED]
    missing = []
    for spelling, function in functions_to_know():
        ways = (lookup(function) is not None) + any(function is known for known in handled)
        left_out = any(function is known for known in excluded)
        if bool(ways) == left_out:
            missing.append(f"{spelling}: {'both known and excluded' if ways else 'unknown'}")
    assert not missing, missing


@pytest.mark.parametrize("spelling", library.EXCLUDED)
def test_exclusions_exist_and_say_why(spelling: str) -> None:
    assert len(library.EXCLUDED[spelling]) > 10
    assert find(spelling) is not None or spelling in NEWER


@pytest.mark.parametrize("spelling", [*(name for row in RULES.values() for name in row.spellings), *ALIASES])
def test_every_spelling_resolves(spelling: str) -> None:
    function = find(spelling)
    if function is None:
        assert spelling in NEWER
        return
    meaning = lookup(function)
    assert meaning is not None
    # Two spellings may be one object; then they must mean the same.
    row = next((row for row in RULES.values() if spelling in row.spellings), None)
    assert meaning is (row if row is not None else lookup(ALIASES[spelling]))


def test_functions_of_the_scalar_language_are_their_own_spelling() -> None:
    for row in RULES.values():
        if row.function is not None:
            assert lookup(row.function) is row
            assert getattr(importlib.import_module(row.function.__module__), row.name) is row.function


def test_native_functions_need_no_code_and_the_others_have_it() -> None:
    native = {
        *("sqrt", "cbrt", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos"),
        *(
            "atan",
            "sinh",
            "cosh",
            "tanh",
            "asinh",
            "acosh",
            "atanh",
            "erf",
            "erfc",
            "lgamma",
            "tgamma",
            "floor",
            "ceil",
        ),
        *("trunc", "rint", "fabs", "atan2", "hypot", "pow", "fmod", "copysign", "nextafter"),
    }
    assert {row.name for row in RULES.values() if row.function is None} == native


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_that_are_syntax(backend: str, load: Callable[[str, str], ModuleType]) -> None:
    """Each gives NumPy's value; a float that is added makes the outputs of one dtype."""
    calls = [f"0.0 + {name}({', '.join('xy'[:arity])})" for name, arity in SYNTAX.items()]
    calls += [f"0.0 + {name}({', '.join('ij'[:arity])})" for name, arity in BIT_SYNTAX.items()]
    calls += [f"0.0 + {name}((x, y))" for name in SEQUENCE_SYNTAX]
    body = "".join(f"        {call},\n" for call in calls)
    module = load("syntax", f"{IMPORTS}\n\ndef syntax(x, y, i, j):\n    return (\n{body}    )\n")
    x, y = (grid.ravel() for grid in np.meshgrid([-1.5, 0.0, 2.25], [-1.5, 0.0, 4.0]))
    i, j = (grid.ravel().astype("int16") for grid in np.meshgrid([-3, 0, 5], [0, 1, 2]))
    with np.errstate(all="ignore"):
        values = differentiable_broadcast(backend=backend)(module.syntax)(x, y, i, j)
        for call, value in zip(calls, values, strict=True):
            wanted = [
                eval(call, vars(module), dict(zip("xyij", row, strict=True))) for row in zip(x, y, i, j, strict=True)
            ]
            np.testing.assert_array_equal(value, wanted, err_msg=call)


@pytest.mark.parametrize("backend", BACKENDS)
def test_questions(backend: str, load: Callable[[str, str], ModuleType]) -> None:
    """The aliases that answer yes or no, and `where`."""
    names = [
        "numpy.isnan",
        "numpy.isinf",
        "numpy.isfinite",
        "numpy.signbit",
        "math.isnan",
        "math.isinf",
        "math.isfinite",
    ]
    body = "".join(f"        {name}(x),\n" for name in names) + "        numpy.where(numpy.isnan(x), 7.0, x * x),\n"
    module = load("questions", f"{IMPORTS}\n\ndef questions(x):\n    return (\n{body}    )\n")
    x = np.array([0.0, -0.0, 1.0, -1.0, inf, -inf, nan])
    function = differentiable_broadcast(backend=backend)(module.questions)
    with np.errstate(all="ignore"):
        *answers, chosen = function(x)
        slope = function.jacobian(x)[len(names), "x"]
    for name, answer in zip(names, answers, strict=True):
        np.testing.assert_array_equal(answer.astype(bool), [find(name)(item) for item in x], err_msg=name)
    np.testing.assert_array_equal(chosen, [0.0, 0.0, 1.0, 1.0, inf, inf, 7.0])
    np.testing.assert_array_equal(slope, [0.0, 0.0, 2.0, -2.0, inf, -inf, 0.0])


def test_nothing_in_the_library_is_spelled_twice() -> None:
    spelled = [*(spelling for row in RULES.values() for spelling in row.spellings), *ALIASES]
    assert len(spelled) == len(set(spelled))
    functions = [row.function for row in RULES.values() if row.function is not None]
    assert len(functions) == len(set(functions))
