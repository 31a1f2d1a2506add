"""Formulas of meteorology: moist air, comfort, the surface layer, clouds."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Bolton, Mon. Weather Rev. 108, 1046-1053, 1980, eqs. 10, 22 and 43",
    dtype="float32",
    celsius=(-20.0, 38.0),
    humidity=(5.0, 100.0),
    pressure=(500.0, 1030.0),
)
def equivalent_potential_temperature(celsius: float, humidity: float, pressure: float) -> tuple[float, float]:
    """The equivalent potential temperature and the temperature at the condensation level (K).

    Relative humidity in %, pressure in hPa.
    """
    kelvin = celsius + 273.15
    vapour = humidity / 100 * 6.112 * math.exp(17.67 * celsius / (celsius + 243.5))
    r = 622 * vapour / (pressure - vapour)
    condensed = 1 / (1 / (kelvin - 55) - math.log(humidity / 100) / 2840) + 55
    theta = kelvin * (1000 / pressure) ** (0.2854 * (1 - 0.28e-3 * r))
    return theta * math.exp((3.376 / condensed - 0.00254) * r * (1 + 0.81e-3 * r)), condensed


@formula(
    source="Rothfusz, NWS Technical Attachment SR 90-23, 1990; Osczevski & Bluestein, Bull. Am. Meteorol. Soc. 86, "
    "1453-1458, 2005",
    dtype="float32",
    t=(-30.0, 110.0),
    humidity=(5.0, 100.0),
    wind=(0.0, 45.0),
)
def apparent_temperature(t: float, humidity: float, wind: float) -> float:
    """The apparent temperature of the National Weather Service: wind chill, heat index or the temperature itself.

    Temperatures in degrees Fahrenheit, relative humidity in %, wind in miles per hour.

    >>> round(apparent_temperature(90.0, 70.0, 5.0)), round(apparent_temperature(0.0, 50.0, 15.0))
    (106, -19)
    """
    if t <= 50:
        if wind <= 3:
            return t
        power: float = wind**0.16
        return 35.74 + 0.6215 * t - 35.75 * power + 0.4275 * t * power
    simple = 0.5 * (t + 61 + (t - 68) * 1.2 + humidity * 0.094)
    if (simple + t) / 2 < 80:
        return (simple + t) / 2
    index = (
        -42.379
        + 2.04901523 * t
        + 10.14333127 * humidity
        - 0.22475541 * t * humidity
        - 6.83783e-3 * t * t
        - 5.481717e-2 * humidity * humidity
        + 1.22874e-3 * t * t * humidity
        + 8.5282e-4 * t * humidity * humidity
        - 1.99e-6 * t * t * humidity * humidity
    )
    if humidity < 13 and 80 <= t <= 112:
        index -= (13 - humidity) / 4 * math.sqrt((17 - abs(t - 95)) / 17)
    elif humidity > 85 and 80 <= t <= 87:
        index += (humidity - 85) / 10 * (87 - t) / 5
    return index


def stability_corrections(zeta: float) -> tuple[float, float]:
    """psi_m and psi_h: Paulson's integrals below 0, those of Beljaars and Holtslag above."""
    if zeta < 0:
        x = (1 - 16 * zeta) ** 0.25
        momentum = 2 * math.log((1 + x) / 2) + math.log((1 + x * x) / 2) - 2 * math.atan(x) + math.pi / 2
        return momentum, 2 * math.log((1 + x * x) / 2)
    b, c, d = 0.667, 5.0, 0.35
    tail = b * (zeta - c / d) * math.exp(-d * zeta) + b * c / d
    return -(zeta + tail), -((1 + 2 * zeta / 3) ** 1.5 + tail - 1)


@formula(
    source="Paulson, J. Appl. Meteorol. 9, 857-861, 1970; Beljaars & Holtslag, J. Appl. Meteorol. 30, 327-341, 1991",
    dtype="float64",
    wind=(3.0, 16.0),
    air=(275.0, 305.0),
    difference=(-8.0, 1.5),
    z=(5.0, 20.0),
    z0=(1e-3, 0.1, "log"),
    z0h=(1e-4, 1e-2, "log"),
)
def surface_fluxes(wind: float, air: float, difference: float, z: float, z0: float, z0h: float) -> tuple[float, float]:
    """The friction velocity (m/s) and the upward flux of heat (W/m2) over land, by Monin and Obukhov's similarity.

    The difference is the potential temperature at the height z minus that of the surface. Ten iterations for z / L.
    """
    karman, gravity, density, heat_capacity = 0.4, 9.81, 1.2, 1005.0
    zeta, friction, scale = 0.0, 0.0, 0.0
    for _ in range(10):
        psi_m, psi_h = stability_corrections(zeta)
        psi_m0, _ = stability_corrections(zeta * z0 / z)
        _, psi_h0 = stability_corrections(zeta * z0h / z)
        friction = karman * wind / (math.log(z / z0) - psi_m + psi_m0)
        scale = karman * difference / (math.log(z / z0h) - psi_h + psi_h0)
        zeta = karman * gravity * z * scale / (air * friction * friction)
    return friction, -density * heat_capacity * friction * scale


def over_water(t: float) -> float:
    """The saturation vapour pressure (hPa) over water."""
    steam = 373.16 / t
    logarithm = (
        -7.90298 * (steam - 1)
        + 5.02808 * math.log10(steam)
        - 1.3816e-7 * (10 ** (11.344 * (1 - 1 / steam)) - 1)
        + 8.1328e-3 * (10 ** (-3.49149 * (steam - 1)) - 1)
        + math.log10(1013.246)
    )
    return 10**logarithm


def over_ice(t: float) -> float:
    """The saturation vapour pressure (hPa) over ice."""
    melting = 273.16 / t
    logarithm = (
        -9.09718 * (melting - 1) - 3.56654 * math.log10(melting) + 0.876793 * (1 - 1 / melting) + math.log10(6.1071)
    )
    return 10**logarithm


@formula(
    source="Goff & Gratch, Trans. Am. Soc. Heat. Vent. Eng. 52, 95-122, 1946; Tiedtke, Mon. Weather Rev. 121, "
    "3040-3061, 1993",
    dtype="float64",
    temperature=(230.0, 310.0),
    dew_point=(222.0, 300.0),
    pressure=(300.0, 1030.0),
)
def moist_air(temperature: float, dew_point: float, pressure: float) -> tuple[float, float, float]:
    """The specific humidity (kg/kg) of air, and its relative humidity and saturation deficit (hPa) over mixed phases.

    Temperatures in K, pressure in hPa. Between 250.16 and 273.16 K a quadratic share of the condensate is liquid.
    """
    if temperature >= 273.16:
        saturated = over_water(temperature)
    elif temperature <= 250.16:
        saturated = over_ice(temperature)
    else:
        liquid = ((temperature - 250.16) / 23) ** 2
        saturated = liquid * over_water(temperature) + (1 - liquid) * over_ice(temperature)
    vapour = over_water(min(dew_point, temperature))
    specific = 0.62198 * vapour / (pressure - 0.37802 * vapour)
    return specific, vapour / saturated, saturated - vapour


@formula(
    source="Klemp & Wilhelmson, J. Atmos. Sci. 35, 1070-1096, 1978; Soong & Ogura, J. Atmos. Sci. 30, 879-893, 1973",
    dtype="float32",
    theta=(280.0, 330.0),
    vapour=(1e-3, 0.02),
    cloud=(1e-5, 4e-3),
    rain=(1e-6, 6e-3, "log"),
    exner=(0.8, 1.0),
    density=(0.5, 1.2),
    dt=10.0,
)
def warm_rain(
    theta: float, vapour: float, cloud: float, rain: float, exner: float, density: float, dt: float
) -> tuple[float, float, float, float, float]:
    """Potential temperature (K), mixing ratios (kg/kg) of vapour, cloud and rain a step dt (s) later.

    Kessler's conversion of cloud to rain, then adjustment to saturation and evaporation of rain; the last output is
    the speed (m/s) at which the rain falls.
    """
    grams = 1e-3 * density
    fall = 36.34 * (grams * rain) ** 0.1364 * math.sqrt(1.2 / density)
    converted = cloud - (cloud - dt * max(1e-3 * (cloud - 1e-3), 0.0)) / (1 + dt * 2.2 * rain**0.875)
    cloud = max(cloud - converted, 0.0)
    rain = max(rain + converted, 0.0)

    pressure = 1000 * exner**3.5
    kelvin = exner * theta
    saturated = 3.8 / pressure * math.exp(17.27 * (kelvin - 273) / (kelvin - 36))
    condensed = (vapour - saturated) / (1 + saturated * 237.3 * 17.27 * 2.5e6 / 1003 / (kelvin - 36) ** 2)
    ventilation = 1.6 + 124.9 * (grams * rain) ** 0.2046
    evaporation = ventilation * (grams * rain) ** 0.525 / (2.55e6 / (pressure * saturated) + 5.4e5)
    evaporated = min(
        dt * evaporation * max(saturated - vapour, 0.0) / (grams * saturated), max(-condensed - cloud, 0.0), rain
    )
    change = max(condensed, -cloud)
    theta += 2.5e6 / (1003 * exner) * (change - evaporated)
    return theta, max(vapour - change + evaporated, 0.0), cloud + change, rain - evaporated, fall
