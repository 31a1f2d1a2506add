"""A search for cliffs: no work grows more than three times as fast as the operations that are counted.

Work is counted and not timed: the calls and instructions of the compiler, and the instructions that a kernel executes.
What only a clock can tell, such as the time that a processor takes for subnormal numbers, `bench/cliff_times.py` shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import cliffs
import pytest
from work_counts import Counter

from dualbcast.errors import CompileError

PRODUCTS = ("value", "value_and_jacobian", "vjp")

# What executes more than three times as much in some range of values, how many times, and why.
_FAR = "an argument is reduced by more digits of pi than a format has, element by element"
_REFLECTED = "negative arguments take the reflection, which computes a sine of pi and a logarithm besides"
_THREE_SUMS = "negative arguments take three sums in place of one"
_LONG_DIVISION = "the remainder of a quotient beyond 2^53 takes several exact steps, each for some fifty of its bits"
_DEGREES = "a remainder by 360 takes several steps for the largest numbers"
_SEARCH = "the search for the inverse takes more steps, and each of them more terms, where a parameter is next to zero"
_NEWTON = "below exp(-600) two steps of Newton's method compute a tail of the normal distribution each"
# The logarithm of an ordinary base is shared; bases of which it is no number have a function for each of the three.
_NOT_SHARED = "a power of a special number, its slope and the logarithm are computed by themselves"
KNOWN: dict[str, tuple[float, str]] = {
    **dict.fromkeys(("pow", "x0 ** x1"), (3.5, _NOT_SHARED)),
    **dict.fromkeys(("sin", "cos", "tan"), (20.0, _FAR)),
    **dict.fromkeys(("cosm1", "j0", "j1", "y0", "y1", "jn", "yn", "si", "ci"), (15.0, _FAR)),
    **dict.fromkeys(("sindg", "cosdg", "tandg", "cotdg"), (10.0, _DEGREES)),
    **dict.fromkeys(("betaincinv", "betainccinv"), (60.0, _SEARCH)),
    "ndtri_exp": (7.0, _NEWTON),
    "lgamma": (10.0, _REFLECTED),
    "polygamma": (6.0, _THREE_SUMS),
    **dict.fromkeys(("fmod", "modulo", "ieee_remainder", "floor_divide"), (25.0, _LONG_DIVISION)),
    **dict.fromkeys(("x0 % x1", "x0 // x1"), (25.0, _LONG_DIVISION)),
}


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "kernels"))
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "1")


@pytest.fixture
def counter(nothing_compiled: None) -> Iterator[Counter]:  # noqa: ARG001
    with pytest.MonkeyPatch.context() as patch:
        yield Counter(patch)


def assert_within(ratios: dict[str, float], most: float = cliffs.MOST) -> None:
    too_high = {what: round(ratio, 1) for what, ratio in ratios.items() if not ratio <= most}
    assert not too_high, f"more than {most} times: {too_high}"


def cost(family: cliffs.Family, size: int, product: str, dtype: str, folder: Path, counter: Counter) -> cliffs.Cost:
    """The work of the program of a size."""
    function = cliffs.load(family.text(size), folder)
    run = cliffs.call(function, product, cliffs.inputs(function, dtype))
    # One more, since no kernel runs at all where all results are constants.
    return cliffs.Cost(counter.compiled(run), (counter.executed(run) + 1) / cliffs.ELEMENTS)


def grown(family: cliffs.Family, product: str, dtype: str, folder: Path, counter: Counter) -> dict[str, float]:
    """How much faster than the operations the work grows."""
    # Import and make all that a first call of a process waits for.
    cost(cliffs.FAMILIES["elif with exp and sin"], 3, product, "float64", folder, counter)
    return cliffs.growth(family, {size: cost(family, size, product, dtype, folder, counter) for size in family.sizes})


@pytest.mark.parametrize("product", PRODUCTS)
def test_chains_of_branches_compile_in_time_of_their_length(product: str, tmp_path: Path, counter: Counter) -> None:
    family = cliffs.FAMILIES["elif"]._replace(sizes=(10, 80))
    assert_within(grown(family, product, "float64", tmp_path, counter))


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", cliffs.FAMILIES)
def test_what_grows_alone(name: str, product: str, tmp_path: Path, counter: Counter) -> None:
    """In float64: what there is to compile does not depend on the dtype."""
    assert_within(grown(cliffs.FAMILIES[name], product, "float64", tmp_path, counter))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["elif", "ifs one after another", "choices", "products", "terms", "helpers"])
def test_what_grows_alone_to_second_order(name: str, tmp_path: Path, counter: Counter) -> None:
    family = cliffs.FAMILIES[name]._replace(sizes=(10, 40, 100))
    assert_within(grown(family, "hessian", "float64", tmp_path, counter))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("name", ["terms", "iterations", "elif", "what a loop carries"])
def test_sizes_of_arrays(name: str, product: str, dtype: str, tmp_path: Path, counter: Counter) -> None:
    """From one size to the double a call executes at most three times the double."""
    assert_within(cliffs.growth_with_arrays(name, product, dtype, tmp_path, counter.executed))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("product", ["value", "value_and_jacobian"])
@pytest.mark.parametrize("name", [*cliffs.OPERATORS, *filter(cliffs.is_named, cliffs.RULE_NAMES)])
def test_ranges_of_values(name: str, product: str, dtype: str, tmp_path: Path, counter: Counter) -> None:
    most = KNOWN.get(name, (cliffs.MOST, ""))[0]
    assert_within(cliffs.growth_with_values(name, product, dtype, tmp_path, counter.executed), most)


# What takes longer where a single element of a vector has an argument that is out of the ordinary. A sine alone is so
# cheap that it is computed for all elements, those that do not take the branch among them.
GUARDED = ("pow", "log", "log1p", "log10", "hypot", "lgamma", "fmod", "atan2", "acosh", "asin")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", GUARDED)
def test_elements_that_a_guard_keeps_out(name: str, dtype: str, tmp_path: Path, counter: Counter) -> None:
    """What arguments they have does not matter."""
    assert_within(cliffs.growth_behind_a_guard(name, "value_and_jacobian", dtype, tmp_path, counter.executed), 1.2)


@pytest.mark.slow
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.parametrize("body", ["x * y + x", "math.tanh(x) * y"])
@pytest.mark.parametrize("one", cliffs.DTYPES)
def test_dtypes(one: str, body: str, product: str, tmp_path: Path, counter: Counter) -> None:
    """Each pair of dtypes, beside float64 alone: more than that no element has to be computed in."""
    assert_within(cliffs.growth_with_dtypes(one, body, product, tmp_path, counter.executed))


def test_the_search_finds_what_grows_with_the_square() -> None:
    """One that takes the square of its size is beyond the bound."""
    family = cliffs.Family(str, (4, 16))
    costs = {size: cliffs.Cost(size * size, size) for size in family.sizes}
    assert [*cliffs.growth(family, costs)] == ["first 4 to 16", "element 4 to 16"]
    assert cliffs.growth(family, costs)["first 4 to 16"] == pytest.approx(4.0)
    with pytest.raises(AssertionError, match="first 4 to 16"):
        assert_within(cliffs.growth(family, costs))


@pytest.mark.parametrize("product", PRODUCTS)
def test_instructions_are_counted_where_they_are_executed(product: str, tmp_path: Path, counter: Counter) -> None:
    family = cliffs.FAMILIES["iterations"]
    few, many = (cost(family, count, product, "float64", tmp_path, counter) for count in (16, 4096))
    assert 128 < many.element / few.element < 512, "256 times as many iterations"
    # Both are loops of the same code.
    assert few.first / 2 < many.first < few.first * 2


@pytest.mark.parametrize(
    ("count", "product"),
    [*((200, each) for each in PRODUCTS), (290, "value")]
    + [pytest.param(290, each, marks=pytest.mark.slow) for each in PRODUCTS[1:]],
)
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
