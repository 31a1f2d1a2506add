"""Formulas of acoustics: absorption in the sea and in air, porous absorbers, barriers, bubbles."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula

Complex = tuple[float, float]


@formula(
    source="Francois & Garrison, J. Acoust. Soc. Am. 72, 1879-1890, 1982",
    dtype="float64",
    frequency=(0.4, 500.0, "log"),
    celsius=(-1.5, 30.0),
    salinity=(5.0, 40.0),
    depth=(0.0, 5000.0),
    ph=(7.7, 8.3),
)
def seawater_absorption(frequency: float, celsius: float, salinity: float, depth: float, ph: float) -> float:
    """The absorption (dB/km) of sound by boric acid, magnesium sulfate and water; frequency in kHz, depth in m."""
    theta = 273 + celsius
    speed = 1412 + 3.21 * celsius + 1.19 * salinity + 0.0167 * depth
    a1 = 8.86 / speed * 10 ** (0.78 * ph - 5)
    f1 = 2.8 * math.sqrt(salinity / 35) * 10 ** (4 - 1245 / theta)
    a2 = 21.44 * salinity / speed * (1 + 0.025 * celsius)
    p2 = 1 - 1.37e-4 * depth + 6.2e-9 * depth**2
    f2 = 8.17 * 10 ** (8 - 1990 / theta) / (1 + 0.0018 * (salinity - 35))
    if celsius <= 20:
        a3 = 4.937e-4 - 2.59e-5 * celsius + 9.11e-7 * celsius**2 - 1.50e-8 * celsius**3
    else:
        a3 = 3.964e-4 - 1.146e-5 * celsius + 1.45e-7 * celsius**2 - 6.5e-10 * celsius**3
    p3 = 1 - 3.83e-5 * depth + 4.9e-10 * depth**2
    square = frequency**2
    return a1 * f1 * square / (square + f1**2) + a2 * p2 * f2 * square / (square + f2**2) + a3 * p3 * square


@formula(
    source="ISO 9613-1:1993 and ISO 9613-2:1996",
    dtype="float32",
    power=(60.0, 110.0),
    frequency=(63.0, 8000.0, "log"),
    distance=(20.0, 1500.0),
    height=(1.0, 6.0),
    celsius=(-15.0, 35.0),
    humidity=(10.0, 95.0),
    pressure=(85.0, 104.0),
)
def outdoor_sound_level(
    power: float, frequency: float, distance: float, height: float, celsius: float, humidity: float, pressure: float
) -> tuple[float, float]:
    """The level (dB) at a distance (m) from a source of a power level (dB), and the absorption (dB/m) of the air.

    Spherical spreading, atmospheric absorption, and attenuation by porous ground below a path of a mean height (m).
    Relative humidity in %, pressure in kPa.
    """
    kelvin = celsius + 273.15
    p, t = pressure / 101.325, kelvin / 293.15
    saturation = 10 ** (4.6151 - 6.8346 * (273.16 / kelvin) ** 1.261)
    molar = humidity * saturation / p
    oxygen = p * (24 + 4.04e4 * molar * (0.02 + molar) / (0.391 + molar))
    nitrogen = p / math.sqrt(t) * (9 + 280 * molar * math.exp(-4.170 * (t ** (-1 / 3) - 1)))
    square = frequency * frequency
    relaxation = 0.01275 * math.exp(-2239.1 / kelvin) / (oxygen + square / oxygen) + 0.1068 * math.exp(
        -3352 / kelvin
    ) / (nitrogen + square / nitrogen)
    absorption = 8.686 * square * (1.84e-11 / p * math.sqrt(t) + t**-2.5 * relaxation)
    ground = max(4.8 - 2 * height / distance * (17 + 300 / distance), 0.0)
    return power - 20 * math.log10(distance) - 11 - absorption * distance - ground, absorption


def times(a: Complex, b: Complex) -> Complex:
    """The product of two complex numbers, which are pairs."""
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def over(a: Complex, b: Complex) -> Complex:
    """The quotient of two complex numbers."""
    norm = b[0] * b[0] + b[1] * b[1]
    return (a[0] * b[0] + a[1] * b[1]) / norm, (a[1] * b[0] - a[0] * b[1]) / norm


@formula(
    source="Miki, J. Acoust. Soc. Jpn. (E) 11, 19-24, 1990; Delany & Bazley, Appl. Acoust. 3, 105-116, 1970",
    dtype="float32",
    frequency=(100.0, 5000.0, "log"),
    resistivity=(5e3, 5e4, "log"),
    thickness=(0.02, 0.2),
    incidence=(0.0, 1.3),
)
def porous_absorption(
    frequency: float, resistivity: float, thickness: float, incidence: float
) -> tuple[float, float, float]:
    """The absorption coefficient of a fibrous layer (m) on a rigid wall, and its surface impedance relative to air.

    Flow resistivity in Pa s/m2, the angle of incidence in radians; the surface is locally reacting.
    """
    speed = 343.0
    x = frequency / resistivity
    impedance = (1 + 0.070 * x**-0.632, -0.107 * x**-0.632)
    k0 = 2 * math.pi * frequency / speed
    a = k0 * (1 + 0.109 * x**-0.618) * thickness
    b = k0 * 0.160 * x**-0.618 * thickness
    # The cotangent of a - jb.
    scale = math.cosh(2 * b) - math.cos(2 * a)
    cotangent = (math.sin(2 * a) / scale, math.sinh(2 * b) / scale)
    resistance, reactance = times((0.0, -1.0), times(impedance, cotangent))
    cosine = math.cos(incidence)
    reflected = over((resistance * cosine - 1, reactance * cosine), (resistance * cosine + 1, reactance * cosine))
    return 1 - reflected[0] ** 2 - reflected[1] ** 2, resistance, reactance


@formula(
    source="Kurze & Anderson, Appl. Acoust. 4, 35-53, 1971",
    dtype="float64",
    frequency=(63.0, 8000.0, "log"),
    source_height=(0.3, 3.0),
    receiver_height=(1.0, 6.0),
    barrier_height=(0.5, 7.0),
    to_source=(3.0, 30.0),
    to_receiver=(5.0, 150.0),
    celsius=(-10.0, 35.0),
)
def barrier_attenuation(
    frequency: float,
    source_height: float,
    receiver_height: float,
    barrier_height: float,
    to_source: float,
    to_receiver: float,
    celsius: float,
) -> float:
    """The attenuation (dB) by a thin barrier, with the receiver in its shadow or in sight; all lengths are in m."""
    speed = 331.3 * math.sqrt(1 + celsius / 273.15)
    before = math.hypot(to_source, barrier_height - source_height)
    after = math.hypot(to_receiver, barrier_height - receiver_height)
    direct = math.hypot(to_source + to_receiver, receiver_height - source_height)
    fresnel = 2 * (before + after - direct) * frequency / speed
    sight = source_height + (receiver_height - source_height) * to_source / (to_source + to_receiver)
    if barrier_height < sight:
        fresnel = -fresnel
    if fresnel <= -0.19:
        return 0.0
    x = math.sqrt(2 * math.pi * abs(fresnel))
    if x < 1e-3:
        ratio = 1 + 2 * math.pi * fresnel / 3
    elif fresnel > 0:
        ratio = x / math.tanh(x)
    else:
        ratio = x / math.tan(x)
    return min(max(5 + 20 * math.log10(ratio), 0.0), 24.0)


@formula(
    source="Commander & Prosperetti, J. Acoust. Soc. Am. 85, 732-746, 1989",
    dtype="float64",
    frequency=(1e3, 2e5, "log"),
    radius=(2e-5, 1e-3, "log"),
    void_fraction=(1e-6, 1e-3, "log"),
    pressure=(1e5, 5e5),
    diffusivity=2.1e-5,
)
def bubbly_liquid(
    frequency: float, radius: float, void_fraction: float, pressure: float, diffusivity: float
) -> tuple[float, float]:
    """The phase velocity (m/s) and the attenuation (dB/m) of sound in water with air bubbles of one radius (m).

    Pressure of the water in Pa, thermal diffusivity of air in m2/s.
    """
    gamma, density, speed, viscosity, tension = 1.4, 998.0, 1481.0, 1e-3, 0.0725
    omega = 2 * math.pi * frequency
    inside = pressure + 2 * tension / radius
    chi = diffusivity / (omega * radius**2)
    # sqrt(i / chi) and its hyperbolic cotangent, whose argument has equal parts.
    part = math.sqrt(0.5 / chi)
    scale = math.cosh(2 * part) - math.cos(2 * part)
    cotangent = (math.sinh(2 * part) / scale, -math.sin(2 * part) / scale)
    conduction = times((part, part), cotangent)
    bracket = times((0.0, chi), (conduction[0] - 1, conduction[1]))
    phi = over((3 * gamma, 0.0), (1 - 3 * (gamma - 1) * bracket[0], -3 * (gamma - 1) * bracket[1]))
    resonance = inside / (density * radius**2) * (phi[0] - 2 * tension / (radius * inside))
    damping = (
        2 * viscosity / (density * radius**2)
        + inside / (2 * density * radius**2 * omega) * phi[1]
        + omega**2 * radius / (2 * speed)
    )
    number = 3 * void_fraction / (4 * math.pi * radius**3)
    slowness = over((4 * math.pi * speed**2 * number * radius, 0.0), (resonance - omega**2, 2 * damping * omega))
    # The square root of 1 + slowness, with a negative imaginary part.
    real, imaginary = 1 + slowness[0], slowness[1]
    modulus = math.hypot(real, imaginary)
    if real > 0:
        u = math.sqrt((modulus + real) / 2)
        v = -imaginary / (2 * u)
    else:
        v = math.sqrt((modulus - real) / 2)
        u = -imaginary / (2 * v)
    return speed / u, 20 / math.log(10) * omega * v / speed
