"""Formulas of geophysics: seawater, faults, ground motion, the ellipsoid of the earth."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Fofonoff & Millard, UNESCO Technical Papers in Marine Science 44, 1983",
    dtype="float64",
    salinity=(0.5, 42.0),
    celsius=(-1.5, 35.0),
    pressure=(0.0, 10000.0),
)
def seawater_density(salinity: float, celsius: float, pressure: float) -> float:
    """The density (kg/m3) of seawater by the international equation of state of 1980; pressure in dbar.

    >>> round(seawater_density(35.0, 25.0, 10000.0), 5), round(seawater_density(35.0, 5.0, 0.0), 5)
    (1062.53817, 1027.67547)
    """
    s, t, p = salinity, celsius, pressure / 10
    root = math.sqrt(s)
    water = 999.842594 + t * (
        6.793952e-2 + t * (-9.095290e-3 + t * (1.001685e-4 + t * (-1.120083e-6 + t * 6.536332e-9)))
    )
    a = 8.24493e-1 + t * (-4.0899e-3 + t * (7.6438e-5 + t * (-8.2467e-7 + t * 5.3875e-9)))
    b = -5.72466e-3 + t * (1.0227e-4 - t * 1.6546e-6)
    surface = water + s * (a + b * root + 4.8314e-4 * s)

    bulk_water = 19652.21 + t * (148.4206 + t * (-2.327105 + t * (1.360477e-2 - t * 5.155288e-5)))
    f = 54.6746 + t * (-0.603459 + t * (1.09987e-2 - t * 6.1670e-5))
    g = 7.944e-2 + t * (1.6483e-2 - t * 5.3009e-4)
    bulk = bulk_water + s * (f + g * root)
    i = 2.2838e-3 + t * (-1.0981e-5 - t * 1.6078e-6)
    linear = 3.239908 + t * (1.43713e-3 + t * (1.16092e-4 - t * 5.77905e-7)) + s * (i + 1.91075e-4 * root)
    m = -9.9348e-7 + t * (2.0816e-8 + t * 9.1697e-10)
    square = 8.50935e-5 + t * (-6.12293e-6 + t * 5.2787e-8) + s * m
    return surface / (1 - p / (bulk + p * (linear + p * square)))


@formula(
    source="Ruina, J. Geophys. Res. 88, 10359-10370, 1983; Rice & Ben-Zion, Proc. Natl. Acad. Sci. 93, 3811-3818, 1996",
    dtype="float64",
    stress=(24.0, 36.0),
    state=(1e-2, 1e8, "log"),
    a=(0.008, 0.02),
    b=(0.005, 0.025),
    normal=(45.0, 55.0),
    d_c=(1e-3, 1e-1, "log"),
    damping=4.3,
)
def fault_slip_rate(
    stress: float, state: float, a: float, b: float, normal: float, d_c: float, damping: float
) -> tuple[float, float]:
    """The slip rate (m/s) of a fault with friction that depends on rate and state, and the aging of its state.

    Stresses in MPa, the state in s, the slip distance in m; radiation takes away damping times the rate (MPa s/m). The
    logarithm of the rate is found by Newton's method.
    """
    friction, v0 = 0.6, 1e-6
    offset = (friction + b * math.log(v0 * state / d_c)) / a
    strength = a * normal
    u = min(stress / strength - offset, math.log(stress / (damping * v0)))
    for _ in range(60):
        x = 0.5 * math.exp(u + offset)
        radiated = damping * v0 * math.exp(u)
        residual = strength * math.asinh(x) + radiated - stress
        step = residual / (strength * x / math.hypot(1.0, x) + radiated)
        u -= step
        if abs(step) < 1e-13 * (1 + abs(u)):
            break
    rate = v0 * math.exp(u)
    return rate, 1 - rate * state / d_c


@formula(
    source="Bowring, Survey Review 23, 323-327, 1976",
    dtype="float64",
    x=(-5e6, 5e6),
    y=(1e6, 5e6),
    z=(-5e6, 5e6),
)
def geodetic_coordinates(x: float, y: float, z: float) -> tuple[float, float, float]:
    """The latitude and longitude (degrees) and the height (m) above the ellipsoid WGS 84 of a point (m)."""
    a, f = 6378137.0, 1 / 298.257223563
    b = a * (1 - f)
    e2 = f * (2 - f)
    second = e2 / (1 - e2)
    p = math.hypot(x, y)
    reduced = math.atan2(z * a, p * b)
    latitude = 0.0
    for _ in range(3):
        latitude = math.atan2(z + second * b * math.sin(reduced) ** 3, p - e2 * a * math.cos(reduced) ** 3)
        reduced = math.atan2((1 - f) * math.sin(latitude), math.cos(latitude))
    height = p * math.cos(latitude) + z * math.sin(latitude) - a * math.sqrt(1 - e2 * math.sin(latitude) ** 2)
    return math.degrees(latitude), math.degrees(math.atan2(y, x)), height


def chinnery_corner(xi: float, eta: float, q: float, dip: float, medium: float) -> tuple[float, ...]:
    """The displacements (x, y, z) that belong to one corner of a fault: three for strike slip, three for dip slip."""
    sine, cosine = math.sin(dip), math.cos(dip)
    y_, d_ = eta * cosine + q * sine, eta * sine - q * cosine
    r = math.sqrt(xi * xi + eta * eta + q * q)
    x = math.hypot(xi, q)
    r_eta = math.log(r + eta)
    i5 = medium * 2 / cosine * math.atan((eta * (x + q * cosine) + x * (r + x) * sine) / (xi * (r + x) * cosine))
    i4 = medium / cosine * (math.log(r + d_) - sine * r_eta)
    i3 = medium * (y_ / (cosine * (r + d_)) - r_eta) + sine / cosine * i4
    i2 = -medium * r_eta - i3
    i1 = -medium * xi / (cosine * (r + d_)) - sine / cosine * i5
    angle = math.atan(xi * eta / (q * r))
    along, across = q / (r * (r + eta)), q / (r * (r + xi))
    return (
        xi * along + angle + i1 * sine,
        y_ * along + q * cosine / (r + eta) + i2 * sine,
        d_ * along + q * sine / (r + eta) + i4 * sine,
        q / r - i3 * sine * cosine,
        y_ * across + cosine * angle - i1 * sine * cosine,
        d_ * across + sine * angle - i5 * sine * cosine,
    )


@formula(
    source="Okada, Bull. Seismol. Soc. Am. 75, 1135-1154, 1985, eqs. 25-29",
    dtype="float64",
    x=(-30.0, 30.0),
    y=(-30.0, 30.0),
    depth=(8.0, 20.0),
    dip=(20.0, 80.0),
    length=(5.0, 25.0),
    width=(3.0, 8.0),
    strike_slip=(-2.0, 2.0),
    dip_slip=(-2.0, 2.0),
    poisson=0.25,
)
def fault_displacement(
    x: float,
    y: float,
    depth: float,
    dip: float,
    length: float,
    width: float,
    strike_slip: float,
    dip_slip: float,
    poisson: float,
) -> tuple[float, ...]:
    """The displacement (m) of the surface of the earth by the slip (m) on a rectangular fault.

    Lengths in km, dip in degrees.

    Case 2 of the publication's table 2:

    >>> [round(1e3 * u, 3) for u in fault_displacement(2.0, 3.0, 4.0, 70.0, 3.0, 2.0, 1.0, 0.0, 0.25)]
    [-8.689, -4.298, -2.747]
    >>> [round(1e3 * u, 2) for u in fault_displacement(2.0, 3.0, 4.0, 70.0, 3.0, 2.0, 0.0, 1.0, 0.25)]
    [-4.68, -35.27, -35.64]
    """
    angle = math.radians(dip)
    medium = 1 - 2 * poisson
    p = y * math.cos(angle) + depth * math.sin(angle)
    q = y * math.sin(angle) - depth * math.cos(angle)
    corners = [chinnery_corner(xi, eta, q, angle, medium) for xi in (x, x - length) for eta in (p, p - width)]
    total = [a - b - c + d for a, b, c, d in zip(*corners, strict=True)]
    return tuple(-(strike_slip * total[i] + dip_slip * total[i + 3]) / (2 * math.pi) for i in range(3))


def site_amplification(v_s30: float, rock: float, b_lin: float, b1: float, b2: float) -> float:
    """Boore and Atkinson's linear and nonlinear terms of a site, given the acceleration (g) of rock."""
    if v_s30 <= 180:
        slope = b1
    elif v_s30 <= 300:
        slope = (b1 - b2) * math.log(v_s30 / 300) / math.log(180 / 300) + b2
    elif v_s30 < 760:
        slope = b2 * math.log(v_s30 / 760) / math.log(300 / 760)
    else:
        slope = 0.0
    dx, dy = math.log(0.09 / 0.03), slope * math.log(0.09 / 0.06)
    if rock <= 0.03:
        nonlinear = slope * math.log(0.06 / 0.1)
    elif rock <= 0.09:
        x = math.log(rock / 0.03)
        c, d = (3 * dy - slope * dx) / dx**2, -(2 * dy - slope * dx) / dx**3
        nonlinear = slope * math.log(0.06 / 0.1) + c * x**2 + d * x**3
    else:
        nonlinear = slope * math.log(rock / 0.1)
    return b_lin * math.log(v_s30 / 760) + nonlinear


@formula(
    source="Boore & Atkinson, Earthquake Spectra 24, 99-138, 2008",
    dtype="float32",
    wrt="magnitude distance v_s30",
    magnitude=(5.0, 8.0),
    distance=(0.5, 200.0, "log"),
    v_s30=(150.0, 1200.0),
    rake=(-180.0, 180.0),
)
def ground_motion(magnitude: float, distance: float, v_s30: float, rake: float) -> tuple[float, float]:
    """The median peak acceleration (g) and peak velocity (cm/s) of an earthquake, at a distance (km) from its rupture.

    The velocity of shear waves in the upper 30 m in m/s. The rake (degrees) tells strike-slip, reverse and normal
    faults.
    """
    if abs(rake) <= 30 or abs(rake) >= 150:
        style_a, style_v = -0.50350, 5.04727
    elif rake > 0:
        style_a, style_v = -0.50970, 5.08210
    else:
        style_a, style_v = -0.75472, 4.63188
    excess = magnitude - 6.75
    source_a = style_a + (0.28805 * excess - 0.10164 * excess * excess if excess <= 0 else 0.0)
    excess = magnitude - 8.5
    source_v = style_v + 0.18322 * excess - 0.12736 * excess * excess
    r_a, r_v = math.hypot(distance, 1.35), math.hypot(distance, 2.54)
    path_a = (-0.66050 + 0.11970 * (magnitude - 4.5)) * math.log(r_a) - 0.01151 * (r_a - 1)
    path_v = (-0.87370 + 0.10060 * (magnitude - 4.5)) * math.log(r_v) - 0.00334 * (r_v - 1)
    rock = math.exp(source_a + path_a)
    acceleration = rock * math.exp(site_amplification(v_s30, rock, -0.360, -0.640, -0.14))
    velocity = math.exp(source_v + path_v + site_amplification(v_s30, rock, -0.600, -0.500, -0.06))
    return acceleration, velocity
