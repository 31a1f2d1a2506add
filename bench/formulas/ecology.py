"""Formulas of ecology: photosynthesis, exchange of ecosystems, predators, development of insects, plankton."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


def arrhenius(c: float, energy: float, kelvin: float) -> float:
    """exp(c - energy / RT), with the energy in kJ/mol."""
    return math.exp(c - energy / (8.314e-3 * kelvin))


@formula(
    source="Farquhar, von Caemmerer & Berry, Planta 149, 78-90, 1980; Bernacchi et al., Plant Cell Environ. 24, "
    "253-259, 2001; Medlyn et al., Plant Cell Environ. 25, 1167-1179, 2002",
    dtype="float64",
    celsius=(5.0, 42.0),
    ci=(80.0, 900.0),
    light=(5.0, 2000.0),
    v_cmax25=(15.0, 140.0),
    j_max25=(30.0, 250.0),
    r_day25=(0.3, 3.0),
    oxygen=210.0,
)
def leaf_photosynthesis(
    celsius: float, ci: float, light: float, v_cmax25: float, j_max25: float, r_day25: float, oxygen: float
) -> float:
    """Net assimilation (umol/m2/s) of a C3 leaf, limited by Rubisco or by the transport of electrons.

    Light in umol/m2/s, CO2 between the cells in umol/mol, oxygen in mmol/mol.
    """
    kelvin = celsius + 273.15
    compensation = arrhenius(19.02, 37.83, kelvin)
    k_c = arrhenius(38.05, 79.43, kelvin)
    k_o = arrhenius(20.30, 36.38, kelvin)
    v_cmax = v_cmax25 * arrhenius(26.35, 65.33, kelvin)
    r_day = r_day25 * arrhenius(18.72, 46.39, kelvin)

    gas, activation, deactivation, disorder = 8.314, 43.9e3, 200e3, 640.0
    at25 = 1 + math.exp((298.15 * disorder - deactivation) / (298.15 * gas))
    at_leaf = 1 + math.exp((kelvin * disorder - deactivation) / (kelvin * gas))
    j_max = j_max25 * math.exp(activation * (kelvin - 298.15) / (298.15 * gas * kelvin)) * at25 / at_leaf

    yield_, curvature = 0.3, 0.9
    captured = yield_ * light
    total = captured + j_max
    j = (total - math.sqrt(total * total - 4 * curvature * captured * j_max)) / (2 * curvature)
    by_rubisco = v_cmax * (ci - compensation) / (ci + k_c * (1 + oxygen / k_o))
    by_electrons = j / 4 * (ci - compensation) / (ci + 2 * compensation)
    return min(by_rubisco, by_electrons) - r_day


@formula(
    source="Lasslop et al., Glob. Change Biol. 16, 187-208, 2010; Lloyd & Taylor, Funct. Ecol. 8, 315-323, 1994",
    dtype="float32",
    radiation=(0.0, 900.0),
    celsius=(-5.0, 35.0),
    deficit=(0.0, 40.0),
    efficiency=(0.01, 0.2),
    beta0=(5.0, 60.0),
    k=(0.0, 0.1),
    r_base=(0.5, 8.0),
    e0=(50.0, 400.0),
)
def net_ecosystem_exchange(
    radiation: float,
    celsius: float,
    deficit: float,
    efficiency: float,
    beta0: float,
    k: float,
    r_base: float,
    e0: float,
) -> tuple[float, float]:
    """Net exchange of CO2 and respiration (umol/m2/s) of an ecosystem.

    A hyperbolic response to light (W/m2) with a capacity that falls with the deficit of vapour pressure (hPa) above
    10 hPa, and a respiration that rises with the temperature.
    """
    beta = beta0 * math.exp(-k * (deficit - 10)) if deficit > 10 else beta0
    uptake = efficiency * beta * radiation / (efficiency * radiation + beta)
    respiration = r_base * math.exp(e0 * (1 / (15.0 + 46.02) - 1 / (celsius + 46.02)))
    return respiration - uptake, respiration


@formula(
    source="Rogers, J. Anim. Ecol. 41, 369-383, 1972; Juliano, in Scheiner & Gurevitch, Design and Analysis of "
    "Ecological Experiments, 2nd edition, Oxford, 2001",
    dtype="float64",
    prey=(2.0, 200.0),
    attack=(0.05, 3.0, "log"),
    slope=(0.0, 0.05),
    saturation=(0.0, 0.2),
    handling=(0.01, 0.3),
    time=(1.0, 24.0),
)
def prey_eaten(prey: float, attack: float, slope: float, saturation: float, handling: float, time: float) -> float:
    """The number of prey that a predator eats, without replacement, with a functional response of type II or III.

    Rogers' equation with an attack rate (d + b n) / (1 + c n), solved by Newton's method.
    """
    rate = (attack + slope * prey) / (1 + saturation * prey)
    eaten = min(prey, time / handling)
    step = eaten
    while abs(step) > 1e-13 * prey:
        left = prey * math.exp(rate * (handling * eaten - time))
        step = (eaten - prey + left) / (1 + rate * handling * left)
        eaten -= step
    return eaten


@formula(
    source="Schoolfield, Sharpe & Magnuson, J. Theor. Biol. 88, 719-731, 1981",
    dtype="float32",
    celsius=(2.0, 42.0),
    rho25=(0.02, 0.3),
    activation=(8e3, 2.5e4),
    low_energy=(-9e4, -3e4),
    low_half=(279.0, 288.0),
    high_energy=(4e4, 1.2e5),
    high_half=(304.0, 312.0),
)
def development_rate(
    celsius: float,
    rho25: float,
    activation: float,
    low_energy: float,
    low_half: float,
    high_energy: float,
    high_half: float,
) -> float:
    """The rate of development (1/day) of a poikilotherm, with inactivation at low and at high temperatures.

    Energies in cal/mol, temperatures of half inactivation in K.
    """
    gas = 1.987
    kelvin = celsius + 273.15
    rate = rho25 * kelvin / 298.15 * math.exp(activation / gas * (1 / 298.15 - 1 / kelvin))
    low = math.exp(low_energy / gas * (1 / low_half - 1 / kelvin))
    high = math.exp(high_energy / gas * (1 / high_half - 1 / kelvin))
    return rate / (1 + low + high)


@formula(
    source="Platt, Gallegos & Harrison, J. Mar. Res. 38, 687-701, 1980; Eppley, Fish. Bull. 70, 1063-1085, 1972",
    dtype="float64",
    surface=(50.0, 2000.0),
    chlorophyll=(0.05, 8.0, "log"),
    depth=(5.0, 80.0),
    celsius=(0.0, 28.0),
    capacity=(1.0, 6.0),
    initial=(0.01, 0.08),
    inhibition=(1e-4, 4e-3, "log"),
    layers=("int", 8, 24),
)
def primary_production(
    surface: float,
    chlorophyll: float,
    depth: float,
    celsius: float,
    capacity: float,
    initial: float,
    inhibition: float,
    layers: int,
) -> float:
    """Photosynthesis in a mixed layer of water (mg C/m2/h), with inhibition by light, summed over its layers.

    Light at the surface in umol/m2/s, chlorophyll in mg/m3, depth in m; the attenuation is that of Morel (1988).
    """
    maximum = capacity * math.exp(0.0633 * (celsius - 10))
    attenuation = 0.121 * chlorophyll**0.428
    thickness = depth / layers
    total = 0.0
    for i in range(layers):
        light = surface * math.exp(-attenuation * (i + 0.5) * thickness)
        rise = -math.expm1(-initial * light / maximum)
        total += maximum * rise * math.exp(-inhibition * light / maximum)
    return chlorophyll * total * thickness
