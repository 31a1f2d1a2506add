"""Methods of `scipy.stats` distributions and distribution functions of `scipy.special` in kernels: values and
derivatives in all arguments against mpmath, and the meanings of the arguments against SciPy.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special
import scipy.stats
from distribution_oracles import COUNTS, DISTRIBUTIONS
from suites import sampled

from dualbcast import differentiable_broadcast
from dualbcast.errors import CompileError
from dualbcast.special.probability import probabilities
from dualbcast.special.probability.located_distributions import METHODS

POINTS = 5
QUANTILES = ("ppf", "isf")
NAMES = [spelling.removeprefix("scipy.stats.") for spelling in METHODS]


def kernel(call: str, arity: int, **options: Any) -> Any:
    """A kernel that returns a call on its arguments x0, x1, …"""
    arguments = ", ".join(f"x{position}" for position in range(arity))
    modules = "import scipy.special\nimport scipy.stats\nfrom scipy.stats import norm\n"
    return differentiable_broadcast.from_source(
        f"{modules}def f({arguments}):\n    return {call}({arguments})\n", **options
    )


def points(name: str) -> list[np.ndarray]:
    """Arguments: the number or its probability, the shapes, and for numbers that are no counts location and scale."""
    family, method = name.split(".")
    of = DISTRIBUTIONS.get(family) or COUNTS[family]
    draw = random.Random(name)
    rows = []
    for _ in range(POINTS):
        number = draw.uniform(0.05, 0.95) if method in QUANTILES else draw.uniform(*of.support)
        shapes = [draw.uniform(*interval) for interval in of.shapes]
        if family in COUNTS:
            rows.append([float(round(number)), *shapes])
            continue
        loc, scale = draw.uniform(-1, 1), draw.uniform(0.5, 2)
        rows.append([number if method in QUANTILES else loc + scale * number, *shapes, loc, scale])
    return [np.array(column) for column in np.array(rows, "float32").astype("float64").T]


def exact(name: str) -> Callable[..., Any]:
    """The method in mpmath, of all but quantiles."""
    family, method = name.split(".")
    if family in COUNTS:
        of = COUNTS[family]
        return {
            "pmf": lambda *args: mp.exp(of.log_density(*args)),
            "logpmf": of.log_density,
            "cdf": of.below,
            "sf": lambda *args: 1 - of.below(*args),
        }[method]
    of = DISTRIBUTIONS[family]

    def standard(way: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x, *rest: way((x - rest[-2]) / rest[-1], *rest[:-2])

    return {
        "pdf": lambda *args: mp.exp(standard(of.log_density)(*args)) / args[-1],
        "logpdf": lambda *args: standard(of.log_density)(*args) - mp.log(args[-1]),
        "cdf": standard(of.below),
        "sf": lambda *args: 1 - standard(of.below)(*args),
        "logcdf": lambda *args: mp.log(standard(of.below)(*args)),
        "logsf": lambda *args: mp.log1p(-standard(of.below)(*args)),
    }[method]


def unit(position: int, length: int) -> tuple[int, ...]:
    return tuple(int(position == other) for other in range(length))


def slopes_of(of: Callable[..., Any], at: tuple[Any, ...], varied: list[int]) -> list[Any]:
    return [mp.diff(of, at, unit(position, len(at))) for position in varied]


def check(name: str, **options: Any) -> None:
    family, method = name.split(".")
    arrays = points(name)
    value, jacobian = kernel(f"scipy.stats.{name}", len(arrays), **options).value_and_jacobian(*arrays)
    varied = list(range(1 if family in COUNTS else 0, len(arrays)))  # a count has no derivative
    eps = float(np.finfo("float64").eps)
    for row, point in enumerate(zip(*arrays, strict=True)):
        got = [float(np.broadcast_to(jacobian[f"x{position}"], value.shape)[row]) for position in varied]
        with mp.workdps(40):
            at = tuple(map(mp.mpf, point))
            if method in QUANTILES:
                wanted = 1 - at[0] if method == "isf" else at[0]
                below, density = exact(f"{family}.cdf"), exact(f"{family}.pdf")
                at = (mp.mpf(float(value[row])), *at[1:])
                slopes = slopes_of(below, at, varied[1:])
                assert abs(below(*at) - wanted) <= 64 * eps * (1 + abs(at[0]) * density(*at)), (name, point)
                slopes = [(-1 if method == "isf" else 1) / density(*at), *(-s / density(*at) for s in slopes)]
            else:
                of = exact(name)
                slopes = slopes_of(of, at, varied)
                size = abs(of(*at)) + sum(abs(at[k] * slope) for k, slope in zip(varied, slopes, strict=True))
                assert abs(value[row] - of(*at)) <= 64 * eps * size, (name, point, value[row])
            for position, slope, partial in zip(varied, slopes, got, strict=True):
                allowed = 1e-12 * (abs(slope) + 0.1 * max(map(abs, slopes)))
                assert abs(partial - slope) <= allowed, (name, position, point, partial, float(slope))


@pytest.mark.parametrize("name", NAMES)
def test_values_and_derivatives(name: str) -> None:
    check(name, backend="python")


@pytest.mark.parametrize("name", sampled(dict.fromkeys(NAMES), 12))
def test_values_and_derivatives_in_compiled_kernels(name: str) -> None:
    check(name)


@pytest.mark.parametrize("name", NAMES)
def test_the_meaning_is_that_of_scipy(name: str) -> None:
    family, method = name.split(".")
    arrays = points(name)
    if family == "binom":  # SciPy takes no other numbers of trials
        arrays[1] = np.rint(arrays[1])
    wanted = getattr(getattr(scipy.stats, family), method)(*arrays)
    found = kernel(f"scipy.stats.{name}", len(arrays), backend="python")(*arrays)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


def test_every_method_has_an_oracle() -> None:
    assert {name.split(".")[0] for name in NAMES} == {*DISTRIBUTIONS, *COUNTS}
    assert len(NAMES) > 100


# Where an argument is outside of its range, or at an end of it.
OUTSIDE = [
    *(
        f"{family}.{method}(-1.5)"
        for family in ("expon", "rayleigh", "halfnorm", "uniform")
        for method in ("pdf", "cdf")
    ),
    *(f"gamma.{method}(-1.5, 2.0)" for method in ("pdf", "logpdf", "cdf", "sf")),
    *(f"gamma.{method}(1.5, -2.0)" for method in ("pdf", "logpdf", "cdf", "sf", "ppf")),
    *(f"beta.{method}(1.5, 2.0, 3.0)" for method in ("pdf", "logpdf", "cdf", "sf")),
    *(f"beta.{method}(0.5, -2.0, 3.0)" for method in ("pdf", "cdf")),
    *(f"lognorm.{method}(-1.5, 0.5)" for method in ("pdf", "logpdf", "cdf", "sf", "logcdf", "logsf")),
    *(f"pareto.{method}(0.5, 2.0)" for method in ("pdf", "logpdf", "cdf", "sf")),
    *(f"weibull_min.{method}(-0.5, 2.0)" for method in ("pdf", "logpdf", "cdf", "sf", "logsf")),
    *(f"f.{method}(-0.5, 2.0, 3.0)" for method in ("pdf", "logpdf", "cdf", "sf")),
    *(f"t.{method}(0.5, -2.0)" for method in ("pdf", "logpdf", "cdf")),
    *(f"norm.{method}(0.5, 0.0, -1.0)" for method in ("pdf", "logpdf", "cdf", "sf", "ppf")),
    *(f"{family}.ppf(1.5)" for family in ("norm", "expon", "uniform", "cauchy", "logistic", "rayleigh", "halfnorm")),
    *(f"poisson.{method}(-1.0, 2.0)" for method in ("pmf", "logpmf", "cdf", "sf")),
    *(f"poisson.{method}(1.5, 2.0)" for method in ("pmf", "logpmf", "cdf", "sf")),
    *(f"poisson.{method}(1.0, -2.0)" for method in ("pmf", "logpmf", "cdf")),
    *(f"binom.{method}(7.0, 5.0, 0.3)" for method in ("pmf", "logpmf", "cdf", "sf")),
    *(f"binom.{method}(2.0, 5.0, 1.3)" for method in ("pmf", "logpmf", "cdf", "sf")),
    *(
        f"binom.{method}({arguments})"
        for method in ("pmf", "logpmf", "cdf", "sf")
        for arguments in ("1.0, math.nan, 0.2", "-1.0, math.nan, 0.2", "2.0, -2.0, 0.5", "5.0, 5.0, math.nan")
    ),
    *(f"binom.{method}({k}, 5.0, 1.5)" for method in ("cdf", "sf") for k in (-1.0, 5.0, 9.0)),
    *(f"geom.{method}(math.inf, 0.3)" for method in ("pmf", "logpmf")),
    *(f"geom.{method}(0.0, 0.3)" for method in ("pmf", "logpmf")),
    "poisson.pmf(0.0, 0.0)",
    "binom.pmf(0.0, 5.0, 0.0)",
    "norm.pdf(1.5, loc=1.0)",
    "norm.cdf(1.5, scale=2.0, loc=1.0)",
    "gamma.logpdf(1.5, a=2.5, scale=2.0)",
    "poisson.logpmf(3.0, mu=2.5)",
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_outside_of_the_range_and_with_keywords() -> None:
    calls = "".join(f"        x * 0.0 + scipy.stats.{call},\n" for call in OUTSIDE)
    text = f"import math\nimport scipy.stats\ndef f(x):\n    return (\n{calls}    )\n"
    found = differentiable_broadcast.from_source(text, backend="python")(np.array([1.0]))
    for call, (value,) in zip(OUTSIDE, found, strict=True):
        wanted = float(eval(f"scipy.stats.{call}", {"math": math, "scipy": scipy}))
        np.testing.assert_allclose(value, wanted, rtol=1e-12, err_msg=call)


def test_defaults_and_short_names() -> None:
    text = "from scipy.stats import norm\ndef f(x, m, s):\n    return norm.cdf(x), norm.cdf(x, m), norm.cdf(x, m, s)\n"
    x, m, s = np.linspace(-2, 2, 9), 0.25, 1.5
    plain, moved, scaled = differentiable_broadcast.from_source(text)(x, m, s)
    np.testing.assert_allclose(plain, scipy.stats.norm.cdf(x), rtol=1e-14)
    np.testing.assert_allclose(moved, scipy.stats.norm.cdf(x, m), rtol=1e-14)
    np.testing.assert_allclose(scaled, scipy.stats.norm.cdf(x, m, s), rtol=1e-14)


def test_a_distribution_of_a_users_is_not_mistaken_for_scipys() -> None:
    own = type(scipy.stats.norm)(a=-1.0, b=1.0, name="own")
    function = differentiable_broadcast.from_source("def f(x):\n    return own.cdf(x)\n", namespace={"own": own})
    with pytest.raises(CompileError, match="no derivative rule"):
        function(np.ones(3))


# --- the distribution functions of scipy.special ----------------------------------------------------------------------

# Arguments of each; derivatives are compared in those that are not whole.
SPECIAL = {
    "bdtr": ((2.0, 12.0, 0.3), (3.7, 9.0, 0.6)),
    "bdtrc": ((2.0, 12.0, 0.3), (3.7, 9.0, 0.6)),
    "bdtri": ((2.0, 12.0, 0.3),),
    "chdtr": ((2.5, 1.7), (30.5, 25.25)),
    "chdtrc": ((2.5, 1.7), (30.5, 60.25)),
    "chdtri": ((2.5, 0.3), (30.5, 0.01)),
    "factorial": ((2.5,), (0.3,)),
    "fdtr": ((2.5, 7.5, 1.2), (7.5, 2.5, 9.5)),
    "fdtrc": ((2.5, 7.5, 1.2), (7.5, 2.5, 9.5)),
    "fdtri": ((2.5, 7.5, 0.3),),
    "gdtr": ((1.5, 2.5, 1.2),),
    "gdtrc": ((1.5, 2.5, 1.2),),
    "gdtrix": ((1.5, 2.5, 0.2),),
    "multigammaln": ((3.5, 3),),
    "nbdtr": ((3.0, 4.0, 0.3),),
    "nbdtrc": ((3.0, 4.0, 0.3),),
    "nbdtri": ((3.0, 4.0, 0.3),),
    "nrdtrimn": ((0.3, 1.5, 2.5),),
    "nrdtrisd": ((0.5, 0.3, 2.5),),
    "pdtr": ((3.0, 2.5), (3.7, 2.5)),
    "pdtrc": ((3.0, 2.5), (3.7, 2.5)),
    "pdtri": ((3.0, 0.3),),
    "stdtr": ((3.5, -0.7), (3.5, 4.5), (2.5, 0.0), (30.5, -8.25), (3.5, 1e-9)),
    "stdtrit": ((3.5, 0.3), (2.5, 0.999), (30.5, 1e-3)),
}


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
@pytest.mark.parametrize("name", probabilities.UNDER_SCIPYS_NAMES)
def test_distribution_functions_of_scipy_special(name: str) -> None:
    """Values of SciPy, and its central differences; mpmath has the functions that these are made of."""
    scipys = getattr(scipy.special, name)
    for point in SPECIAL[name]:
        whole = [position for position, x in enumerate(point) if float(x).is_integer() and x > 1]
        if name == "multigammaln":
            of = kernel("(lambda x: scipy.special.multigammaln(x, 3))", 1, backend="python")
            args: list[Any] = [point[0]]
        else:
            of, args = kernel(f"scipy.special.{name}", len(point), backend="python"), list(point)
        value, jacobian = of.value_and_jacobian(*(np.array([x]) for x in args))
        np.testing.assert_allclose(value[0], scipys(*point), rtol=2e-13, err_msg=f"{name}{point}")
        for position in range(len(args)):
            if position in whole or (name.startswith(("b", "n", "p")) and position == 0 and name[1] != "r"):
                continue
            step = 1e-5 * max(abs(point[position]), 0.1)
            ends = [
                scipys(*(x + side * step if position == other else x for other, x in enumerate(point)))
                for side in (-2, -1, 1, 2)
            ]
            slope = (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * step)
            got = float(np.broadcast_to(jacobian[f"x{position}"], (1,))[0])
            np.testing.assert_allclose(got, slope, rtol=2e-7, atol=1e-9, err_msg=f"{name}{point} in {position}")


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_slopes_at_the_median_of_laplace_and_at_a_mean_of_no_events(backend: Any) -> None:
    """They were 0, or NaN where no event is certain."""
    both = lambda x: (scipy.stats.laplace.cdf(x), scipy.stats.laplace.sf(x))  # noqa: E731
    laplace = differentiable_broadcast(both, backend=backend)
    jacobian = laplace.jacobian(np.array([0.0, -0.0]))
    np.testing.assert_array_equal(jacobian[0, "x"], 0.5)
    np.testing.assert_array_equal(jacobian[1, "x"], -0.5)
    poisson = differentiable_broadcast(lambda k, mu: scipy.stats.poisson.pmf(k, mu), backend=backend)
    _, jacobian, hessian = poisson.value_jacobian_and_hessian(np.arange(4), 0.0, wrt="mu")
    np.testing.assert_array_equal(jacobian["mu"], [-1.0, 1.0, 0.0, 0.0])
    np.testing.assert_array_equal(hessian["mu", "mu"], [1.0, -2.0, 1.0, 0.0])


# Calls with a density at x near an end of its interval, the slope there, and the second derivative.
NEAR_THE_END = {
    "gamma.pdf(x, 2.0)": (1.0, -2.0),
    "chi2.pdf(x, 4.0)": (0.25, -0.25),
    "beta.pdf(x, 2.0, 3.0)": (12.0, -48.0),
    "beta.pdf(1.0 - x, 3.0, 2.0)": (12.0, -48.0),
    "f.pdf(x, 4.0, 6.0)": (16 / 3, -320 / 9),
    "poisson.pmf(1.0, x)": (1.0, -2.0),
    "binom.pmf(1.0, 5.0, x)": (5.0, -40.0),
    "binom.pmf(4.0, 5.0, 1.0 - x)": (5.0, -40.0),
    "nbinom.pmf(2.0, 1.0, x)": (1.0, -4.0),
    "nbinom.pmf(1.0, 3.0, 1.0 - x)": (3.0, -18.0),
    "geom.pmf(3.0, x)": (1.0, -4.0),
    "geom.pmf(2.0, 1.0 - x)": (1.0, -2.0),
}


@pytest.mark.parametrize("backend", ["python", "cpu"])
def test_second_derivatives_near_the_ends_of_a_density(backend: Any) -> None:
    """They were differences of the squares of 1 / x, or NaN at the end itself."""
    x = np.array([0.0, 1e-30, 1e-12])
    for call, (slope, curvature) in NEAR_THE_END.items():
        at = x[1:] if call == "geom.pmf(3.0, x)" else x  # where no trial succeeds there is no first success
        of = differentiable_broadcast.from_source(
            f"import scipy.stats\ndef f(x):\n    return scipy.stats.{call}\n", backend=backend
        )
        _, jacobian, hessian = of.value_jacobian_and_hessian(at)
        np.testing.assert_allclose(jacobian["x"], slope, rtol=1e-10, err_msg=call)
        np.testing.assert_allclose(hessian["x", "x"], curvature, rtol=1e-9, err_msg=call)


@pytest.mark.parametrize("call", ["gamma.pdf", "beta.pdf", "f.pdf", "binom.pmf", "nbinom.pmf", "geom.pmf"])
def test_second_derivatives_of_densities(call: str) -> None:
    """In the middle and on both sides, for small and large parameters, in all arguments."""
    rows = {
        "gamma.pdf": [(0.1, 1.5), (0.4, 0.3), (3.0, 3.5), (90.0, 100.0), (9e3, 1e4)],
        "beta.pdf": [(0.01, 1.5, 3.5), (0.4, 0.7, 0.6), (0.97, 2.5, 1.5), (0.5, 400.0, 410.0), (0.1, 1.0, 20.0)],
        "f.pdf": [(0.01, 3.5, 5.5), (1.5, 8.0, 9.0), (40.0, 3.0, 5.0), (1.1, 300.0, 200.0)],
        "binom.pmf": [(0.0, 7.0, 0.01), (3.0, 9.5, 0.3), (9.0, 10.0, 0.97), (200.0, 400.0, 0.49)],
        "nbinom.pmf": [(0.0, 0.5, 0.01), (3.0, 2.5, 0.3), (2.0, 1.0, 0.97), (200.0, 150.0, 0.45)],
        "geom.pmf": [(1.0, 0.3), (4.0, 0.01), (3.0, 0.98), (50.0, 0.02)],
    }[call]
    family, arrays = call.split(".")[0], [np.array(column) for column in np.transpose(rows)]
    of = COUNTS.get(family) or DISTRIBUTIONS[family]
    varied = range(1 if family in COUNTS else 0, len(arrays))
    names = [f"x{position}" for position in varied]
    hessian = kernel(f"scipy.stats.{call}", len(arrays), backend="python").hessian(*arrays, wrt=names)
    for row, point in enumerate(rows):
        with mp.workdps(50):
            at = tuple(map(mp.mpf, point))
            for i in varied:
                for j in varied:
                    orders = tuple(np.add(unit(i, len(at)), unit(j, len(at))).tolist())
                    wanted = mp.diff(lambda *args: mp.exp(of.log_density(*args)), at, orders)
                    got = float(hessian[f"x{i}", f"x{j}"][row])
                    assert abs(got - wanted) <= 1e-9 * (abs(wanted) + mp.exp(of.log_density(*at))), (point, i, j)
