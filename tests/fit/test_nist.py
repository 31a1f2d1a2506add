"""Least squares held against the certified values of NIST's Statistical Reference Datasets for nonlinear regression
(https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml), from both of NIST's start values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from dualbcast import fit


class Dataset(NamedTuple):
    """The data and what NIST certifies: the parameters, their standard deviations and the residual sum of squares."""

    residual: Callable[..., float]
    x: list[float]
    y: list[float]
    starts: tuple[list[float], list[float]]
    values: list[float]
    deviations: list[float]
    sum_of_squares: float


def growth(x: float, y: float, b1: float, b2: float) -> float:
    """Misra1a and BoxBOD."""
    return b1 * (1 - math.exp(-b2 * x)) - y


def rational(x: float, y: float, b1: float, b2: float, b3: float, b4: float) -> float:
    """MGH09."""
    return b1 * (x * x + x * b2) / (x * x + x * b3 + b4) - y


def cubics(x: float, y: float, b1: float, b2: float, b3: float, b4: float, b5: float, b6: float, b7: float) -> float:
    """Thurber."""
    return (b1 + b2 * x + b3 * x**2 + b4 * x**3) / (1 + b5 * x + b6 * x**2 + b7 * x**3) - y


def numbers(text: str) -> list[float]:
    return [float(each) for each in text.split()]


DATASETS = {
    "Misra1a": Dataset(
        growth,
        [77.6, 114.9, 141.1, 190.8, 239.9, 289.0, 332.8, 378.4, 434.8, 477.3, 536.8, 593.1, 689.1, 760.0],
        [10.07, 14.73, 17.94, 23.93, 29.61, 35.18, 40.02, 44.82, 50.76, 55.05, 61.01, 66.40, 75.47, 81.78],
        ([500, 0.0001], [250, 0.0005]),
        [2.3894212918e02, 5.5015643181e-04],
        [2.7070075241e00, 7.2668688436e-06],
        1.2455138894e-01,
    ),
    "BoxBOD": Dataset(
        growth,
        [1, 2, 3, 5, 7, 10],
        [109, 149, 149, 191, 213, 224],
        ([1, 1], [100, 0.75]),
        [2.1380940889e02, 5.4723748542e-01],
        [1.2354515176e01, 1.0455993237e-01],
        1.1680088766e03,
    ),
    "MGH09": Dataset(
        rational,
        [4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625],
        [0.1957, 0.1947, 0.1735, 0.1600, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246],
        ([25, 39, 41.5, 39], [0.25, 0.39, 0.415, 0.39]),
        [1.9280693458e-01, 1.9128232873e-01, 1.2305650693e-01, 1.3606233068e-01],
        [1.1435312227e-02, 1.9633220911e-01, 8.0842031232e-02, 9.0025542308e-02],
        3.0750560385e-04,
    ),
    "Thurber": Dataset(
        cubics,
        numbers(
            """-3.067 -2.981 -2.921 -2.912 -2.840 -2.797 -2.702 -2.699 -2.633 -2.481 -2.363 -2.322 -1.501 -1.460 -1.274
            -1.212 -1.100 -1.046 -0.915 -0.714 -0.566 -0.545 -0.400 -0.309 -0.109 -0.103 0.010 0.119 0.377 0.790 0.963
            1.006 1.115 1.572 1.841 2.047 2.200"""
        ),
        numbers(
            """80.574 84.248 87.264 87.195 89.076 89.608 89.868 90.101 92.405 95.854 100.696 101.060 401.672 390.724
            567.534 635.316 733.054 759.087 894.206 990.785 1090.109 1080.914 1122.643 1178.351 1260.531 1273.514
            1288.339 1327.543 1353.863 1414.509 1425.208 1421.384 1442.962 1464.350 1468.705 1447.894 1457.628"""
        ),
        ([1000, 1000, 400, 40, 0.7, 0.3, 0.03], [1300, 1500, 500, 75, 1, 0.4, 0.05]),
        numbers(
            """1.2881396800e+03 1.4910792535e+03 5.8323836877e+02 7.5416644291e+01 9.6629502864e-01 3.9797285797e-01
            4.9727297349e-02"""
        ),
        numbers(
            """4.6647963344e+00 3.9571156086e+01 2.8698696102e+01 5.5675370270e+00 3.1333340687e-02 1.4984928198e-02
            6.5842344623e-03"""
        ),
        5.6427082397e03,
    ),
}

# From its first start values BoxBOD's rate runs off to where the curve is flat; a bound stops it.
BOUNDS = {("BoxBOD", 0): {"b2": (0, 2)}}


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("name", DATASETS)
def test_certified_values(name: str, start: int) -> None:
    data, bounds = DATASETS[name], BOUNDS.get((name, start))
    names = [f"b{at + 1}" for at in range(len(data.values))]
    begin = {each: float(value) for each, value in zip(names, data.starts[start], strict=True)}
    arrays = np.array(data.x), np.array(data.y)
    tests = {"ftol": 1e-14, "xtol": 1e-11, "gtol": 1e-14}
    found = fit.least_squares(data.residual, *arrays, wrt=names, bounds=bounds, **tests, **begin)
    assert found.converged, found.message
    np.testing.assert_allclose(list(found.parameters.values()), data.values, rtol=1e-7)
    np.testing.assert_allclose(list(found.standard_errors.values()), data.deviations, rtol=1e-6)
    np.testing.assert_allclose(found.sum_of_squares, data.sum_of_squares, rtol=1e-9)
    assert found.degrees_of_freedom == len(data.x) - len(names)
