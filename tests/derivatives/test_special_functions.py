"""Special functions of several arguments, which have no rows: value, first and second derivatives against mpmath.

Points are drawn where each function is smooth, in both dtypes and on both backends. The second derivatives are mpmath's
numerical ones, too.
"""

from __future__ import annotations

import importlib
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mpmath as mp
import numpy as np
import pytest
import scipy.special
from suites import sampled
from transcendental_oracles import VALUES

from dualbcast import differentiable_broadcast, special
from dualbcast.errors import CompileError
from dualbcast.rules.table import ALIASES, BY_SPELLING, RULES, add_later_rows

add_later_rows()

Interval = tuple[float, float]
# Of one or two arguments, of three and of four: mpmath's derivatives take many values.
POINTS = (8, 4, 3, 2)
EPS = 2.0**-52
POSITIVE = (0.05, 5.0)
NEAR = (-3.0, 3.0)
PHI = (-4.0, 4.0)
PARAMETER = (-3.0, 0.95)


@dataclass(frozen=True)
class Case:
    """A call of a function, its exact value, and the interval of each argument; `whole` are known whole numbers first.

    Errors are in roundings, and a `scale` is added to the value where terms cancel.
    """

    name: str
    exact: Callable[..., Any]
    domain: tuple[Interval, ...]
    whole: tuple[int, ...] = ()
    roundings: float = 16.0
    scale: float = 0.0
    part: int | None = None

    @property
    def label(self) -> str:
        return "_".join(map(str, (self.name, *self.whole, *([] if self.part is None else [self.part])))).replace(
            "-", "m"
        )

    def text(self) -> str:
        names = [f"x{position}" for position in range(len(self.domain))]
        arguments = ", ".join([*map(str, self.whole), *names])
        module = "scipy.special" if f"scipy.special.{self.name}" in BY_SPELLING else "dualbcast.special"
        index = "" if self.part is None else f"[{self.part}]"
        return f"def {self.label}({', '.join(names)}):\n    return {module}.{self.name}({arguments}){index}\n"

    def points(self) -> list[tuple[float, ...]]:
        draw, count = random.Random(self.label), POINTS[len(self.domain) - 1]
        return [tuple(float(np.float32(draw.uniform(*each))) for each in self.domain) for _ in range(count)]


def _amplitude(u: Any, m: Any) -> Any:
    guess = mp.mpf(float(scipy.special.ellipj(float(u), float(m))[3]))
    return mp.findroot(lambda phi: mp.ellipf(phi, m) - u, guess)


def _power(x: Any, p: Any) -> Any:
    return (x**p - 1) / p if p != 0 else mp.log(x)


def _entropy(x: Any, y: Any) -> Any:
    return x * mp.log(x / y)


# mpmath's polynomials have another form for whole degrees at some points; these are sums of powers.
_laguerre = lambda n: lambda a, x: mp.laguerre(n, a, x)  # noqa: E731


CASES = [
    Case("boxcox", _power, (POSITIVE, NEAR)),
    Case("boxcox1p", lambda x, p: _power(1 + x, p), ((-0.9, 5.0), NEAR)),
    Case("inv_boxcox", lambda y, p: (1 + p * y) ** (1 / p), ((0.0, 3.0), (0.1, 2.0))),
    Case("inv_boxcox1p", lambda y, p: (1 + p * y) ** (1 / p) - 1, ((0.0, 3.0), (0.1, 2.0))),
    Case("powm1", lambda x, y: x**y - 1, (POSITIVE, NEAR)),
    Case("rel_entr", _entropy, (POSITIVE, POSITIVE)),
    Case("kl_div", lambda x, y: _entropy(x, y) - x + y, (POSITIVE, POSITIVE)),
    Case("huber", lambda d, r: r * r / 2 if abs(r) < d else d * (abs(r) - d / 2), (POSITIVE, NEAR)),
    Case("pseudo_huber", lambda d, r: d * d * (mp.sqrt(1 + (r / d) ** 2) - 1), (POSITIVE, NEAR)),
    Case("radian", lambda d, m, s: mp.radians(d + m / 60 + s / 3600), (NEAR, NEAR, NEAR)),
    Case("agm", mp.agm, (POSITIVE, POSITIVE)),
    Case("ellipkinc", mp.ellipf, (PHI, PARAMETER)),
    Case("ellipeinc", mp.ellipe, (PHI, PARAMETER), scale=1.0),
    *(
        Case("ellipj", of, (NEAR, (0.05, 0.95)), part=part, roundings=32.0, scale=1.0)
        for part, of in enumerate(
            (
                lambda u, m: mp.ellipfun("sn", u, m=m),
                lambda u, m: mp.ellipfun("cn", u, m=m),
                lambda u, m: mp.ellipfun("dn", u, m=m),
                _amplitude,
            )
        )
    ),
    Case("elliprc", mp.elliprc, (POSITIVE, POSITIVE)),
    Case("elliprc", mp.elliprc, (POSITIVE, (-5.0, -0.05))),
    Case("elliprd", mp.elliprd, (POSITIVE,) * 3, roundings=32.0),
    Case("elliprf", mp.elliprf, (POSITIVE,) * 3),
    Case("elliprg", mp.elliprg, (POSITIVE,) * 3, roundings=32.0),
    Case("elliprj", mp.elliprj, (POSITIVE,) * 4, roundings=64.0),
    *(Case("sici", of, ((0.1, 20.0),), part=part, scale=1.0) for part, of in enumerate((mp.si, mp.ci))),
    *(Case("shichi", of, ((0.1, 20.0),), part=part) for part, of in enumerate((mp.shi, mp.chi))),
    *(Case("fresnel", of, (NEAR,), part=part, scale=1.0) for part, of in enumerate((mp.fresnels, mp.fresnelc))),
    Case("lambertw", lambda x: mp.lambertw(x).real, ((-0.36, 20.0),)),
    *(Case("eval_legendre", lambda x, n=n: mp.legendre(n, x), (NEAR,), (n,), scale=9.0) for n in (0, 1, 5)),
    *(Case("eval_chebyt", lambda x, n=n: mp.chebyt(n, x), (NEAR,), (n,), scale=9.0) for n in (0, 5, -3)),
    *(Case("eval_chebyu", lambda x, n=n: mp.chebyu(n, x), (NEAR,), (n,), scale=9.0) for n in (0, 4)),
    Case("eval_chebyc", lambda x: 2 * mp.chebyt(4, x / 2), (NEAR,), (4,), scale=9.0),
    Case("eval_chebys", lambda x: mp.chebyu(4, x / 2), (NEAR,), (4,), scale=9.0),
    Case("eval_hermite", lambda x: mp.hermite(5, x), (NEAR,), (5,), scale=99.0),
    Case("eval_hermitenorm", lambda x: mp.hermite(4, x / mp.sqrt(2)) / 4, (NEAR,), (4,), scale=9.0),
    Case("eval_laguerre", lambda x: mp.laguerre(5, 0, x), (NEAR,), (5,), scale=9.0),
    Case("eval_genlaguerre", _laguerre(4), (POSITIVE, NEAR), (4,), scale=99.0),
    Case("eval_gegenbauer", lambda a, x: mp.gegenbauer(4, a, x), (POSITIVE, NEAR), (4,), scale=99.0),
    Case("eval_jacobi", lambda a, b, x: mp.jacobi(3, a, b, x), (POSITIVE, POSITIVE, NEAR), (3,), scale=99.0),
    Case("eval_sh_legendre", lambda x: mp.legendre(4, 2 * x - 1), ((0.0, 1.0),), (4,), scale=9.0),
    Case("eval_sh_chebyt", lambda x: mp.chebyt(4, 2 * x - 1), ((0.0, 1.0),), (4,), scale=9.0),
    Case("eval_sh_chebyu", lambda x: mp.chebyu(4, 2 * x - 1), ((0.0, 1.0),), (4,), scale=9.0),
]
BY_LABEL = {f"{case.label}, {number}": case for number, case in enumerate(CASES)}


@pytest.fixture(scope="module")
def functions(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Any]:
    """Imports a case's function from a real file."""
    folder: Path = tmp_path_factory.mktemp("special_functions")
    sys.path.insert(0, str(folder))
    found: dict[str, Any] = {}

    def of(case: Case) -> Any:
        if case.label not in found:
            name = f"case_of_{case.label}"
            (folder / f"{name}.py").write_text(f"import scipy.special\nimport dualbcast.special\n\n{case.text()}")
            importlib.invalidate_caches()
            found[case.label] = getattr(importlib.import_module(name), case.label)
        return found[case.label]

    return of


@cache
def exact(case: Case, point: tuple[float, ...], orders: tuple[int, ...]) -> Any:
    with mp.workdps(30):
        return (
            mp.diff(case.exact, tuple(map(mp.mpf, point)), orders) if any(orders) else case.exact(*map(mp.mpf, point))
        )


def allowed(case: Case, point: tuple[float, ...], orders: tuple[int, ...], dtype: str) -> float:
    """What roundings make of the value and of each argument; a derivative counts as what it adds to the value."""
    count = len(point)
    unit = [tuple(int(position == other) for other in range(count)) for position in range(count)]
    size = abs(exact(case, point, (0,) * count)) + case.scale
    size += sum(abs(x * exact(case, point, unit[position])) for position, x in enumerate(point))
    for order, x in zip(orders, point, strict=True):
        size /= abs(x) ** order
    return float(np.finfo(dtype).eps) * case.roundings * float(abs(exact(case, point, orders)) + size) + 1e-40


@pytest.mark.parametrize("label", sampled(BY_LABEL, 3))
def test_value_slopes_and_curvatures(label: str, functions: Callable[[Case], Any]) -> None:
    case = BY_LABEL[label]
    points = case.points()
    names = [f"x{position}" for position in range(len(case.domain))]
    count = len(names)
    unit = [tuple(int(position == other) for other in range(count)) for position in range(count)]
    results = {}
    for dtype, backend in (("float64", "cpu"), ("float32", "cpu"), ("float64", "python")):
        function: Any = differentiable_broadcast(backend=backend)(functions(case))
        arrays = [np.array(column, dtype) for column in zip(*points, strict=True)]
        results[dtype, backend] = function.value_jacobian_and_hessian(*arrays)
    wanted: list[tuple[tuple[int, ...], Callable[..., Any]]] = [((0,) * count, lambda value, _, __: value)]
    for i in range(count):
        wanted.append((unit[i], lambda _, jacobian, __, i=i: jacobian[names[i]]))
        for j in range(i, count):
            orders = tuple(a + b for a, b in zip(unit[i], unit[j], strict=True))
            wanted.append((orders, lambda _, __, hessian, i=i, j=j: hessian[names[i], names[j]]))
            wanted.append((orders, lambda _, __, hessian, i=i, j=j: hessian[names[j], names[i]]))
    for orders, pick in wanted:
        for row, point in enumerate(points):
            due = exact(case, point, orders)
            for (dtype, backend), result in results.items():
                got = np.broadcast_to(pick(*result), (len(points),))[row]
                # Second derivatives take a chain of rows.
                bound = (8 if sum(orders) == 2 else 1) * allowed(case, point, orders, dtype)
                assert abs(got - due) <= bound, (dtype, backend, orders, point, float(got), float(due), bound)
    plain = getattr(special, case.name)(*case.whole, *points[0])
    value = plain if case.part is None else plain[case.part]
    assert abs(value - exact(case, points[0], wanted[0][0])) <= allowed(case, points[0], wanted[0][0], "float64")


def test_every_function_without_a_row_is_tested() -> None:
    tested = {case.name for case in CASES}
    inlined = {
        spelling.rpartition(".")[2]
        for spelling, function in ALIASES.items()
        if spelling.startswith("scipy.special.") and function.__module__.startswith("dualbcast.special.classical.")
    }
    assert inlined <= tested


# --- as plain Python -------------------------------------------------------------------------------------------------


@pytest.fixture
def many_digits() -> Iterator[None]:
    with mp.workdps(150):
        yield


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.usefixtures("many_digits")
def test_rows_as_plain_python(name: str) -> None:
    row, draw = RULES[name], random.Random(name)
    assert row.function is not None
    for _ in range(20):
        point = [draw.uniform(*interval) for interval in row.domain]
        for position in row.integer:
            point[position] = round(point[position])
        due = VALUES[name](*map(mp.mpf, point))
        # Functions that change sign are held to their size before they do.
        assert abs(row.function(*point) - due) <= 16 * EPS * (abs(due) + 1), point


@pytest.mark.parametrize("order", [2, 7, 30, 100])
@pytest.mark.parametrize("name", ["jn", "yn", "iv", "kv", "expn"])
@pytest.mark.usefixtures("many_digits")
def test_high_orders(name: str, order: int) -> None:
    """Errors grow with the order; beyond it Bessel functions are held to their amplitude."""
    draw = random.Random(order)
    for exponent in (-1.0, -0.3, 0.0, 0.2, 0.7):
        x = order * 10.0**exponent * draw.uniform(0.9, 1.1)
        due = VALUES[name](order, mp.mpf(x))
        amplitude = mp.sqrt(2 / (mp.pi * x)) if name in ("jn", "yn") and x > order else 0
        error = abs(getattr(special, name)(order, x) - due)
        assert error <= (16 + 2 * order) * EPS * max(abs(due), amplitude), x


# --- GPUs ------------------------------------------------------------------------------------------------------------


def several(x: float) -> tuple[float, ...]:
    """Functions with series, quotients, trigonometric functions, loops and several results."""
    sine, cosine = special.sici(9 * x)
    return (
        *(special.j0(8 * x), special.i1e(20 * x), special.jn(3, 8 * x), special.ellipkinc(x, 0.4), sine, cosine),
        *(special.lambertw(x), special.boxcox(x, 0.3)),
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_gpu_gives_what_the_cpu_gives(dtype: str) -> None:
    cupy = pytest.importorskip("cupy")
    function: Any = differentiable_broadcast(several)
    x = np.linspace(0.05, 0.95, 400).astype(dtype)
    expected, expected_jacobian = function.value_and_jacobian(x)
    values, jacobian = function.value_and_jacobian(cupy.asarray(x))
    for output in range(len(expected)):
        blocks = (values[output], expected[output]), (jacobian[output, "x"], expected_jacobian[output, "x"])
        for got, due in blocks:
            tolerance = 64 * float(np.finfo(dtype).eps)
            np.testing.assert_allclose(cupy.asnumpy(got), due, rtol=tolerance, atol=tolerance * np.abs(due).max())


def without_sines(x: float) -> tuple[float, ...]:
    """CUDA reduces the argument of a sine in float64."""
    return (
        special.i1e(x),
        special.kv(2, x),
        special.ellipk(x),
        special.expi(x),
        special.lambertw(x),
        special.boxcox(x, 2),
    )


@pytest.mark.cuda_compilers
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_they_compile_for_a_gpu_without_one(dtype: str) -> None:
    ptx = differentiable_broadcast(without_sines).inspect_ptx(dtype, cc=(9, 0))
    assert ".visible .entry" in ptx
    assert dtype == "float64" or not re.search(r"\b(mul|add|fma)\S*\.f64", ptx)


@pytest.mark.parametrize("name", ["jv", "yv", "iv", "kv", "expn"])
def test_an_order_that_is_a_float_is_an_error_at_the_call(name: str, functions: Callable[[Case], Any]) -> None:
    case = Case(name, mp.mpf, ((0.5, 1.0), (0.5, 1.0)))
    with pytest.raises(CompileError, match=r"must be an integer") as caught:
        differentiable_broadcast(functions(case))(0.5, np.ones(2))
    assert f"scipy.special.{name}(x0, x1)" in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_slopes_where_an_argument_is_small_beside_the_others(dtype: Any) -> None:
    """In float32 those of `elliprg` were off by 2 %, its curvature by a factor of -50; that of `boxcox1p` was 0."""
    of = differentiable_broadcast.from_source(
        "import scipy.special\n"
        "def f(x, y, z):\n"
        "    return scipy.special.elliprg(x, y, z), scipy.special.boxcox1p(z, y)\n"
    )
    x, y, z = np.array([(1.0, 1.0, 1e-9), (859.0, 0.5, 1e-6), (0.25, 2.0, 0.75)], dtype).T
    _, jacobian, hessian = of.value_jacobian_and_hessian(x, y, z)
    wanted = (mp.elliprg, lambda _, y, z: ((1 + z) ** y - 1) / y)
    places = {(0, "x"): (1, 0, 0), (0, "z"): (0, 0, 1), (0, "z", "z"): (0, 0, 2), (1, "z", "y"): (0, 1, 1)}
    for row, at in enumerate(zip(x.tolist(), y.tolist(), z.tolist(), strict=True)):
        for place, orders in places.items():
            with mp.workdps(80):
                exact = mp.diff(wanted[place[0]], tuple(map(mp.mpf, at)), orders, h=mp.mpf(10) ** -25)
            got = (jacobian if len(place) == 2 else hessian)[place][row]
            assert abs(got - exact) <= 64 * np.finfo(dtype).eps * abs(exact), (at, place, got)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_elliprg_of_arguments_of_any_sizes(dtype: Any) -> None:
    """Slopes by R_D, of which each is multiplied by its last argument (DLMF 19.21.11), and two limits at 0."""
    of = differentiable_broadcast.from_source(
        "import scipy.special\ndef f(x, y, z):\n    return scipy.special.elliprg(x, y, z)\n"
    )
    rows = [(0.0, 1.0, 2.0), (3.0, 1e-9, 0.0), (1e-9, 2e9, 3.0), (5.0, 5.0, 5.0), (7.0, 1e-12, 1e-12), (1e15, 1.0, 2.0)]
    x = np.array(rows, dtype).T
    value, jacobian = of.value_and_jacobian(*x)
    for row, at in enumerate(x.T.tolist()):
        with mp.workdps(40):
            p = [mp.mpf(a) for a in at]
            parts = [a * mp.elliprj(p[i - 2], p[i - 1], a, a) if a else 0 for i, a in enumerate(p)]
            slopes = [(parts[i - 2] + parts[i - 1]) / 12 for i in range(3)]
            wanted = [mp.elliprg(*p), *slopes]
        got = [value[row], *(jacobian[name][row] for name in "xyz")]
        for one, exact in zip(got, wanted, strict=True):
            assert abs(one - exact) <= 8 * np.finfo(dtype).eps * exact, (at, got, wanted)
