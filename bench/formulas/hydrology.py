"""Formulas of hydrology: soil water, evaporation, open channels, infiltration, wells and solute transport."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Vogel, van Genuchten & Cislerova, Adv. Water Resour. 24, 133-144, 2001",
    dtype="float64",
    h=(-400.0, 20.0),
    theta_r=(0.03, 0.1),
    theta_s=(0.36, 0.5),
    alpha=(0.005, 0.15, "log"),
    n=(1.1, 2.8),
    ks=(0.2, 700.0, "log"),
    hs=-2.0,
    pore=0.5,
)
def soil_hydraulic_functions(
    h: float, theta_r: float, theta_s: float, alpha: float, n: float, ks: float, hs: float, pore: float
) -> tuple[float, float]:
    """Water content and conductivity (cm/day) of a soil at the pressure head h (cm).

    The model of van Genuchten and Mualem, modified near saturation by an air-entry head hs.
    """
    if h >= hs:
        return theta_s, ks
    m = 1 - 1 / n
    curve, at_entry = (1 + (-alpha * h) ** n) ** -m, (1 + (-alpha * hs) ** n) ** -m
    saturation = curve / at_entry
    f, f_at_entry = (1 - curve ** (1 / m)) ** m, (1 - at_entry ** (1 / m)) ** m
    return theta_r + (theta_s - theta_r) * saturation, ks * saturation**pore * ((1 - f) / (1 - f_at_entry)) ** 2


def saturation_vapour_pressure(t: float) -> float:
    """FAO-56, eq. 11, in kPa, of a temperature in degrees Celsius."""
    return 0.6108 * math.exp(17.27 * t / (t + 237.3))


@formula(
    source="Allen, Pereira, Raes & Smith, FAO Irrigation and Drainage Paper 56, 1998, chapters 2-4",
    dtype="float32",
    wrt="t_max t_min rh_max rh_min wind sunshine",
    t_max=(18.0, 38.0),
    t_min=(2.0, 17.0),
    rh_max=(60.0, 100.0),
    rh_min=(15.0, 55.0),
    wind=(0.5, 8.0),
    sunshine=(0.0, 9.0),
    latitude=(-50.0, 50.0),
    day=(1.0, 365.0),
    elevation=150.0,
)
def reference_evapotranspiration(
    t_max: float,
    t_min: float,
    rh_max: float,
    rh_min: float,
    wind: float,
    sunshine: float,
    latitude: float,
    day: float,
    elevation: float,
) -> float:
    """The daily evapotranspiration of a reference crop (mm/day), by the equation of Penman and Monteith.

    Temperatures in degrees Celsius, relative humidities in %, wind at 2 m in m/s, sunshine in hours, latitude in
    degrees, elevation in m.

    Example 18 of the publication, for Brussels on 6 July:

    >>> round(reference_evapotranspiration(21.5, 12.3, 84.0, 63.0, 2.078, 9.25, 50.8, 187.0, 100.0), 1)
    3.9
    """
    t_mean = (t_max + t_min) / 2
    pressure: float = 101.3 * ((293 - 0.0065 * elevation) / 293) ** 5.26
    gamma = 0.665e-3 * pressure
    slope = 4098 * saturation_vapour_pressure(t_mean) / (t_mean + 237.3) ** 2
    e_max, e_min = saturation_vapour_pressure(t_max), saturation_vapour_pressure(t_min)
    e_s = (e_max + e_min) / 2
    e_a = (e_min * rh_max + e_max * rh_min) / 200

    phi = math.radians(latitude)
    season = 2 * math.pi * day / 365
    distance = 1 + 0.033 * math.cos(season)
    declination = 0.409 * math.sin(season - 1.39)
    sunset = math.acos(-math.tan(phi) * math.tan(declination))
    daylight = 24 / math.pi * sunset
    extraterrestrial = (
        24
        * 60
        / math.pi
        * 0.0820
        * distance
        * (sunset * math.sin(phi) * math.sin(declination) + math.cos(phi) * math.cos(declination) * math.sin(sunset))
    )
    clear_sky = (0.75 + 2e-5 * elevation) * extraterrestrial
    solar = (0.25 + 0.50 * min(sunshine / daylight, 1.0)) * extraterrestrial
    longwave: float = (
        4.903e-9
        * ((t_max + 273.16) ** 4 + (t_min + 273.16) ** 4)
        / 2
        * (0.34 - 0.14 * math.sqrt(e_a))
        * (1.35 * min(solar / clear_sky, 1.0) - 0.35)
    )
    net = (1 - 0.23) * solar - longwave
    return (0.408 * slope * net + gamma * 900 / (t_mean + 273) * wind * (e_s - e_a)) / (
        slope + gamma * (1 + 0.34 * wind)
    )


@formula(
    source="Chow, Open-Channel Hydraulics, McGraw-Hill, 1959, chapter 6",
    dtype="float64",
    discharge=(0.5, 300.0, "log"),
    width=(1.0, 30.0),
    side_slope=(0.5, 3.0),
    roughness=(0.012, 0.06),
    bed_slope=(1e-4, 1e-2, "log"),
)
def normal_depth(
    discharge: float, width: float, side_slope: float, roughness: float, bed_slope: float
) -> tuple[float, float, float]:
    """Depth (m), mean velocity (m/s) and Froude number of uniform flow in a trapezoidal channel.

    Manning's equation, solved by Newton's method for the depth.
    """
    conveyance = roughness * discharge / math.sqrt(bed_slope)
    sides = 2 * math.sqrt(1 + side_slope * side_slope)
    y = (conveyance / width) ** 0.6
    step = y
    while abs(step) > 1e-12 * y:
        area = (width + side_slope * y) * y
        perimeter = width + sides * y
        top = width + 2 * side_slope * y
        flow = area * (area / perimeter) ** (2 / 3)
        slope = flow * (5 * top / area - 2 * sides / perimeter) / 3
        step = (flow - conveyance) / slope
        y -= step
    area = (width + side_slope * y) * y
    velocity = discharge / area
    return y, velocity, velocity / math.sqrt(9.81 * area / (width + 2 * side_slope * y))


@formula(
    source="Mein & Larson, Water Resour. Res. 9, 384-394, 1973",
    dtype="float64",
    rain=(0.1, 8.0),
    hours=(0.1, 12.0),
    conductivity=(0.03, 3.0, "log"),
    suction=(5.0, 32.0),
    deficit=(0.05, 0.4),
)
def green_ampt_infiltration(
    rain: float, hours: float, conductivity: float, suction: float, deficit: float
) -> tuple[float, float]:
    """Depth of infiltrated water (cm) and the rate (cm/h) at a time after the begin of a steady rain (cm/h).

    All of the rain infiltrates until the surface is ponded; then Green and Ampt's equation holds with a shifted time,
    and is solved by Newton's method.
    """
    capacity = suction * deficit
    if rain <= conductivity:
        return rain * hours, rain
    at_ponding = conductivity * capacity / (rain - conductivity)
    ponding = at_ponding / rain
    if hours <= ponding:
        return rain * hours, rain
    shift = (at_ponding - capacity * math.log1p(at_ponding / capacity)) / conductivity
    target = conductivity * (hours - ponding + shift)
    depth = at_ponding + conductivity * (hours - ponding)
    for _ in range(30):
        step = (depth - capacity * math.log1p(depth / capacity) - target) * (capacity + depth) / depth
        depth -= step
        if abs(step) < 1e-12 * depth:
            break
    return depth, conductivity * (1 + capacity / depth)


def exponential_integral(x: float) -> float:
    """E1 of a positive x: its series below 1, and a continued fraction by Lentz's method above."""
    if x < 1:
        total, term, k = -0.57721566490153286 - math.log(x), -1.0, 0
        while abs(term) > 1e-17:
            k += 1
            term *= -x / k
            total += term / k
        return total
    b = x + 1
    c = 1e30
    d = 1 / b
    result = d
    for i in range(1, 100):
        a = -i * i
        b += 2
        d = 1 / (a * d + b)
        c = b + a / c
        result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return result * math.exp(-x)


@formula(
    source="Theis, Trans. Am. Geophys. Union 16, 519-524, 1935",
    dtype="float64",
    rate=(200.0, 4000.0),
    transmissivity=(50.0, 2000.0, "log"),
    storativity=(1e-4, 0.2, "log"),
    radius=(5.0, 500.0),
    image_radius=(600.0, 2500.0),
    days=(0.05, 100.0, "log"),
)
def theis_drawdown(
    rate: float, transmissivity: float, storativity: float, radius: float, image_radius: float, days: float
) -> float:
    """Drawdown (m) at a distance from a well near a river, which an image well represents.

    Pumping rate in m3/day, transmissivity in m2/day, distances in m.
    """
    u = storativity / (4 * transmissivity * days)
    own, image = radius * radius * u, image_radius * image_radius * u
    drawdown = exponential_integral(own) if own < 30 else 0.0
    if image < 30:
        drawdown -= exponential_integral(image)
    return rate / (4 * math.pi * transmissivity) * drawdown


@formula(
    source="van Genuchten & Alves, USDA Technical Bulletin 1661, 1982",
    dtype="float64",
    x=(5.0, 100.0),
    days=(1.0, 60.0),
    velocity=(0.5, 5.0),
    dispersivity=(0.5, 20.0, "log"),
    retardation=(1.0, 4.0),
    decay=(1e-4, 0.05, "log"),
    c0=(1.0, 50.0),
)
def solute_concentration(
    x: float, days: float, velocity: float, dispersivity: float, retardation: float, decay: float, c0: float
) -> float:
    """Concentration of a decaying solute at a depth x (cm) below a surface where it is c0 from the time 0 on.

    Advection (cm/day) and dispersion with linear sorption, after Ogata and Banks.
    """
    dispersion = dispersivity * velocity
    u = velocity * math.sqrt(1 + 4 * decay * retardation * dispersion / velocity**2)
    width = 2 * math.sqrt(dispersion * retardation * days)
    front = math.exp((velocity - u) * x / (2 * dispersion)) * math.erfc((retardation * x - u * days) / width)
    argument = (retardation * x + u * days) / width
    exponent = (velocity + u) * x / (2 * dispersion)
    if argument < 25 and exponent < 600:
        front += math.exp(exponent) * math.erfc(argument)
    return c0 * front / 2
