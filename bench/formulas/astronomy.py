"""Astronomy: orbits, transits, distances, the sun's place, gravitational lenses, and dust."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Wright, Howard, Astrophysical Journal Supplement 182, 205-215, 2009; Danby, Burkardt, Celestial "
    "Mechanics 31, 95-107, 1983",
    dtype="float64",
    time=(0.0, 2000.0),
    period=(3.0, 800.0, "log"),
    periastron=(0.0, 3.0),
    eccentricity=(0.0, 0.9),
    argument=(-3.1, 3.1),
    amplitude=(1.0, 200.0, "log"),
    drift=1e-3,
)
def radial_velocity(
    time: float,
    period: float,
    periastron: float,
    eccentricity: float,
    argument: float,
    amplitude: float,
    drift: float,
) -> float:
    """The radial velocity of a star with one planet, in m/s; days, radians."""
    anomaly = 2.0 * math.pi * ((time - periastron) / period % 1.0)
    x = anomaly + 0.85 * eccentricity * (1.0 if anomaly < math.pi else -1.0)
    while True:
        s, c = eccentricity * math.sin(x), eccentricity * math.cos(x)
        f, f1 = x - s - anomaly, 1.0 - c
        step = -f / f1
        step = -f / (f1 + 0.5 * step * s)
        step = -f / (f1 + 0.5 * step * s + step * step * c / 6.0)
        x += step
        if abs(step) < 1e-12:
            break
    true = 2.0 * math.atan(math.sqrt((1.0 + eccentricity) / (1.0 - eccentricity)) * math.tan(0.5 * x))
    return amplitude * (math.cos(true + argument) + eccentricity * math.cos(argument)) + drift * time


@formula(
    source="Mandel, Agol, Astrophysical Journal 580, L171-L175, 2002, eq. 1",
    dtype="float64",
    phase=(-0.05, 0.05),
    ratio=(0.02, 0.2),
    distance=(3.0, 20.0),
    inclination=(1.45, 1.5707),
    depth_scale=(0.9, 1.1),
)
def transit_flux(phase: float, ratio: float, distance: float, inclination: float, depth_scale: float) -> float:
    """The flux of a uniform star that a planet passes, relative to the star's; orbital phase, stellar radii."""
    angle = 2.0 * math.pi * phase
    z = distance * math.hypot(math.sin(angle), math.cos(inclination) * math.cos(angle))
    p = ratio
    if z >= 1.0 + p:
        hidden = 0.0
    elif z <= 1.0 - p:
        hidden = p * p
    else:
        k1 = math.acos((1.0 - p * p + z * z) / (2.0 * z))
        k0 = math.acos((p * p + z * z - 1.0) / (2.0 * p * z))
        root = math.sqrt((4.0 * z * z - (1.0 + z * z - p * p) ** 2) / 4.0)
        hidden = (p * p * k0 + k1 - root) / math.pi
    return 1.0 - depth_scale * hidden


@formula(
    source="Hogg, arXiv:astro-ph/9905116, 1999, eqs. 14-21; Chevallier, Polarski, International Journal of Modern "
    "Physics D 10, 213-223, 2001",
    dtype="float64",
    redshift=(0.01, 2.5),
    hubble=(60.0, 80.0),
    matter=(0.15, 0.45),
    dark_energy=(0.5, 0.85),
    w0=(-1.3, -0.6),
    wa=(-0.5, 0.3),
)
def luminosity_distance(
    redshift: float, hubble: float, matter: float, dark_energy: float, w0: float, wa: float
) -> tuple[float, float]:
    """The luminosity distance in Mpc and the distance modulus, by Simpson's rule with 16 intervals."""
    curvature = 1.0 - matter - dark_energy
    intervals = 16
    total = 0.0
    for k in range(intervals + 1):
        z = redshift * k / intervals
        a = 1.0 + z
        density = dark_energy * a ** (3.0 * (1.0 + w0 + wa)) * math.exp(-3.0 * wa * z / a)
        rate = math.sqrt(matter * a**3 + curvature * a**2 + density)
        weight = 1.0 if k == 0 or k == intervals else (4.0 if k % 2 == 1 else 2.0)
        total += weight / rate
    comoving = total * redshift / (3.0 * intervals)
    if curvature > 1e-4:
        root = math.sqrt(curvature)
        transverse = math.sinh(root * comoving) / root
    elif curvature < -1e-4:
        root = math.sqrt(-curvature)
        transverse = math.sin(root * comoving) / root
    else:
        transverse = comoving
    distance = 299792.458 / hubble * (1.0 + redshift) * transverse
    return distance, 5.0 * math.log10(distance) + 25.0


@formula(
    source="Michalsky, Solar Energy 40, 227-235, 1988",
    dtype="float64",
    day=(0.0, 9000.0),
    latitude=(-65.0, 65.0),
    longitude=(-180.0, 180.0),
)
def sun_position(day: float, latitude: float, longitude: float) -> tuple[float, float]:
    """The sun's elevation with refraction, and its azimuth from north; degrees, days after noon of 1 January 2000."""
    mean_longitude = (280.460 + 0.9856474 * day) % 360.0
    mean_anomaly = math.radians((357.528 + 0.9856003 * day) % 360.0)
    ecliptic = math.radians(mean_longitude + 1.915 * math.sin(mean_anomaly) + 0.020 * math.sin(2.0 * mean_anomaly))
    obliquity = math.radians(23.439 - 0.0000004 * day)
    ascension = math.atan2(math.cos(obliquity) * math.sin(ecliptic), math.cos(ecliptic))
    declination = math.asin(math.sin(obliquity) * math.sin(ecliptic))
    hour = (day + 0.5) % 1.0 * 24.0
    sidereal = (6.697375 + 0.0657098242 * day + hour + longitude / 15.0) % 24.0
    hour_angle = math.radians(15.0 * sidereal) - ascension
    if hour_angle > math.pi:
        hour_angle -= 2.0 * math.pi
    elif hour_angle < -math.pi:
        hour_angle += 2.0 * math.pi
    phi = math.radians(latitude)
    sine = math.sin(declination) * math.sin(phi) + math.cos(declination) * math.cos(phi) * math.cos(hour_angle)
    elevation = math.degrees(math.asin(sine))
    north = math.sin(declination) * math.cos(phi) - math.cos(declination) * math.sin(phi) * math.cos(hour_angle)
    azimuth = math.degrees(math.atan2(-math.cos(declination) * math.sin(hour_angle), north)) % 360.0
    if elevation > -0.56:
        refraction = 3.51561 * (0.1594 + 0.0196 * elevation + 0.00002 * elevation**2)
        refraction /= 1.0 + 0.505 * elevation + 0.0845 * elevation**2
    else:
        refraction = 0.56
    return elevation + refraction, azimuth


@formula(
    source="Wright, Brainerd, Astrophysical Journal 534, 34-40, 2000, eqs. 11, 14-16",
    dtype="float64",
    radius=(0.02, 3.0, "log"),
    scale_radius=(0.1, 0.6),
    concentration=(3.0, 12.0),
    critical_density=(1.5e6, 5.0e6),
    background=136.0,
)
def nfw_lensing(
    radius: float, scale_radius: float, concentration: float, critical_density: float, background: float
) -> tuple[float, float]:
    """The convergence and the shear of an NFW halo; Mpc, 10⁹ solar masses a Mpc² and a Mpc³."""
    c = concentration
    overdensity = 200.0 / 3.0 * c**3 / (math.log1p(c) - c / (1.0 + c))
    strength = scale_radius * overdensity * background / critical_density
    x = radius / scale_radius
    if abs(x - 1.0) < 1e-3:
        return strength * (2.0 / 3.0 - 0.8 * (x - 1.0)), strength * (10.0 / 3.0 + 4.0 * math.log(0.5))
    if x < 1.0:
        arc = math.atanh(math.sqrt((1.0 - x) / (1.0 + x))) / math.sqrt(1.0 - x * x)
    else:
        arc = math.atan(math.sqrt((x - 1.0) / (1.0 + x))) / math.sqrt(x * x - 1.0)
    convergence = 2.0 * strength / (x * x - 1.0) * (1.0 - 2.0 * arc)
    shear = 8.0 * arc / (x * x) + 4.0 / (x * x) * math.log(0.5 * x) - 2.0 / (x * x - 1.0) + 4.0 * arc / (x * x - 1.0)
    return convergence, strength * shear


@formula(
    source="Cardelli, Clayton, Mathis, Astrophysical Journal 345, 245-256, 1989, eqs. 1-4",
    dtype="float32",
    wavelength=(0.13, 3.0, "log"),
    visual=(0.0, 3.0),
    ratio=(2.2, 5.8),
    flux=(0.1, 100.0, "log"),
)
def dereddened_flux(wavelength: float, visual: float, ratio: float, flux: float) -> float:
    """The flux without the extinction by interstellar dust, from the visual extinction in magnitudes; µm."""
    x = 1.0 / wavelength
    if x < 1.1:
        a, b = 0.574 * x**1.61, -0.527 * x**1.61
    elif x < 3.3:
        y = x - 1.82
        a = 0.01979 + y * (-0.77530 + y * 0.32999)
        a = 1.0 + y * (0.17699 + y * (-0.50447 + y * (-0.02427 + y * (0.72085 + y * a))))
        b = -0.62251 + y * (5.30260 - y * 2.09002)
        b = y * (1.41338 + y * (2.28305 + y * (1.07233 + y * (-5.38434 + y * b))))
    else:
        a = 1.752 - 0.316 * x - 0.104 / ((x - 4.67) ** 2 + 0.341)
        b = -3.090 + 1.825 * x + 1.206 / ((x - 4.62) ** 2 + 0.263)
        if x > 5.9:
            y = x - 5.9
            a += -0.04473 * y**2 - 0.009779 * y**3
            b += 0.2130 * y**2 + 0.1207 * y**3
    return flux * 10.0 ** (0.4 * visual * (a + b / ratio))
