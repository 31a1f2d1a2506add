"""Optics: reflection at surfaces and films, microfacets, scattering, and the light of the sky."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Born, Wolf, Principles of Optics, 7th edition, Cambridge, section 1.5.2, 1999",
    dtype="float32",
    angle=(0.0, 1.5),
    outside=(1.0, 2.4),
    inside=(1.0, 2.4),
)
def fresnel_reflectances(angle: float, outside: float, inside: float) -> tuple[float, float]:
    """The reflectances of a dielectric for light polarised across and in the plane of incidence; radians."""
    sine = outside / inside * math.sin(angle)
    if sine >= 1.0:
        return 1.0, 1.0
    incident, refracted = math.cos(angle), math.sqrt(1.0 - sine * sine)
    across = (outside * incident - inside * refracted) / (outside * incident + inside * refracted)
    within = (inside * incident - outside * refracted) / (inside * incident + outside * refracted)
    return across * across, within * within


def masking(cosine: float, alpha: float) -> float:
    """The share of microfacets that is seen from a direction, GGX (eq. 34)."""
    tangent2 = (1.0 - cosine * cosine) / (cosine * cosine)
    return 2.0 / (1.0 + math.sqrt(1.0 + alpha * alpha * tangent2))


@formula(
    source="Walter, Marschner, Li, Torrance, Eurographics Symposium on Rendering, 195-206, 2007, eqs. 20, 22, 33, 34",
    dtype="float32",
    normal_light=(0.05, 0.99),
    normal_view=(0.05, 0.99),
    normal_half=(0.3, 0.99),
    view_half=(0.1, 0.99),
    roughness=(0.1, 1.0),
    index=(1.1, 2.5),
)
def microfacet_reflection(
    normal_light: float, normal_view: float, normal_half: float, view_half: float, roughness: float, index: float
) -> float:
    """The BRDF of a rough dielectric with the GGX distribution, a steradian; directions by their cosines."""
    alpha = roughness * roughness
    g = math.sqrt(index * index - 1.0 + view_half * view_half)
    ratio = (g - view_half) / (g + view_half)
    inner = (view_half * (g + view_half) - 1.0) / (view_half * (g - view_half) + 1.0)
    fresnel = 0.5 * ratio * ratio * (1.0 + inner * inner)
    tangent2 = 1.0 / (normal_half * normal_half) - 1.0
    distribution = alpha**2 / (math.pi * normal_half**4 * (alpha**2 + tangent2) ** 2)
    shadowing = masking(normal_light, alpha) * masking(normal_view, alpha)
    return fresnel * distribution * shadowing / (4.0 * normal_light * normal_view)


@formula(
    source="Born, Wolf, Principles of Optics, 7th edition, Cambridge, section 1.6.4, 1999",
    dtype="float64",
    wavelength=(380.0, 780.0),
    thickness=(20.0, 800.0),
    angle=(0.0, 1.2),
    film=(1.3, 2.4),
    substrate=(1.4, 4.0),
    ambient=1.0,
)
def film_reflectance(
    wavelength: float, thickness: float, angle: float, film: float, substrate: float, ambient: float
) -> float:
    """The reflectance of a dielectric film for light polarised across the plane of incidence; nm, radians."""
    tangential = ambient * math.sin(angle)
    first = ambient * math.cos(angle)
    second = math.sqrt(film * film - tangential * tangential)
    third = math.sqrt(substrate * substrate - tangential * tangential)
    front = (first - second) / (first + second)
    back = (second - third) / (second + third)
    phase = 4.0 * math.pi * thickness * second / wavelength
    both = 2.0 * front * back * math.cos(phase)
    return (front * front + back * back + both) / (1.0 + front * front * back * back + both)


@formula(
    source="Bucholtz, Applied Optics 34, 2765-2773, 1995, table 3",
    dtype="float64",
    wavelength=(0.25, 1.1),
    pressure=(300.0, 1050.0),
    temperature=(210.0, 310.0),
    path=(0.1, 50.0, "log"),
)
def rayleigh_transmittance(wavelength: float, pressure: float, temperature: float, path: float) -> float:
    """The transmittance of air after Rayleigh scattering; µm, hPa, K, km."""
    if wavelength < 0.5:
        a, b, c, d = 7.68246e-4, 3.55212, 1.35579, 0.11563
    else:
        a, b, c, d = 10.21675e-4, 3.99668, 1.10298e-3, 2.71393e-2
    standard = a * wavelength ** -(b + c * wavelength + d / wavelength)
    return math.exp(-standard * (pressure / 1013.25) * (288.15 / temperature) * path)


def perez(cosine: float, gamma: float, turbidity: float) -> float:
    """The luminance distribution of Perez, with the coefficients of Preetham's appendix A.2."""
    a = 0.1787 * turbidity - 1.4630
    b = -0.3554 * turbidity + 0.4275
    c = -0.0227 * turbidity + 5.3251
    d = 0.1206 * turbidity - 2.5771
    e = -0.0670 * turbidity + 0.3703
    return (1.0 + a * math.exp(b / cosine)) * (1.0 + c * math.exp(d * gamma) + e * math.cos(gamma) ** 2)


@formula(
    source="Preetham, Shirley, Smits, Proceedings of SIGGRAPH, 91-100, 1999, eq. 3 and appendix A",
    dtype="float32",
    view_zenith=(0.0, 1.5),
    view_azimuth=(0.05, 3.1),
    sun_zenith=(0.1, 1.4),
    turbidity=(2.0, 6.0),
)
def sky_luminance(view_zenith: float, view_azimuth: float, sun_zenith: float, turbidity: float) -> float:
    """The luminance of the clear sky in a direction, in kcd/m²; radians, azimuth from the sun."""
    cosine = math.sin(view_zenith) * math.sin(sun_zenith) * math.cos(view_azimuth)
    cosine += math.cos(view_zenith) * math.cos(sun_zenith)
    gamma = math.acos(min(max(cosine, -0.9999), 0.9999))
    chi = (4.0 / 9.0 - turbidity / 120.0) * (math.pi - 2.0 * sun_zenith)
    zenith = (4.0453 * turbidity - 4.9710) * math.tan(chi) - 0.2155 * turbidity + 2.4192
    return zenith * perez(math.cos(view_zenith), gamma, turbidity) / perez(1.0, sun_zenith, turbidity)
