"""Formulas of chemistry: equations of state, electrolytes, rate coefficients, force fields, thermochemistry."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula

GAS = 8.314462618
Species = tuple[tuple[float, ...], tuple[float, ...]]


@formula(
    source="Peng & Robinson, Ind. Eng. Chem. Fundam. 15, 59-64, 1976",
    dtype="float64",
    temperature=(250.0, 600.0),
    pressure=(1e5, 2e7, "log"),
    t_critical=(190.0, 560.0),
    p_critical=(2.5e6, 7.4e6),
    acentric=(0.01, 0.45),
)
def peng_robinson(
    temperature: float, pressure: float, t_critical: float, p_critical: float, acentric: float
) -> tuple[float, float]:
    """The compressibility factor and the logarithm of the fugacity coefficient of a pure fluid.

    Temperatures in K, pressures in Pa. The largest root of the cubic equation,
    that of the vapour where there is one, by Cardano's formulas.
    """
    kappa = 0.37464 + 1.54226 * acentric - 0.26992 * acentric**2
    alpha = (1 + kappa * (1 - math.sqrt(temperature / t_critical))) ** 2
    reduced = pressure / p_critical * t_critical / temperature
    a = 0.45724 * alpha * reduced * t_critical / temperature
    b = 0.07780 * reduced
    c2, c1, c0 = b - 1, a - 3 * b * b - 2 * b, b**3 + b * b - a * b
    q = (c2 * c2 - 3 * c1) / 9
    r = (2 * c2**3 - 9 * c2 * c1 + 27 * c0) / 54
    if r * r < q**3:
        angle = math.acos(r / math.sqrt(q**3))
        root = -2 * math.sqrt(q) * math.cos((angle + 2 * math.pi) / 3)
    else:
        s = math.cbrt(abs(r) + math.sqrt(r * r - q**3))
        root = -math.copysign(s + q / s, r)
    z = root - c2 / 3
    two = math.sqrt(2)
    logarithm = math.log((z + (1 + two) * b) / (z + (1 - two) * b))
    return z, z - 1 - math.log(z - b) - a / (2 * two * b) * logarithm


@formula(
    source="Pitzer & Mayorga, J. Phys. Chem. 77, 2300-2308, 1973",
    dtype="float64",
    wrt="molality beta0 beta1 c_phi a_phi",
    molality=(0.001, 6.0),
    beta0=(0.0, 0.4),
    beta1=(0.1, 2.0),
    c_phi=(-0.005, 0.01),
    a_phi=(0.37, 0.46),
    cation=2.0,
    anion=1.0,
)
def pitzer_electrolyte(
    molality: float, beta0: float, beta1: float, c_phi: float, a_phi: float, cation: float, anion: float
) -> tuple[float, float]:
    """The osmotic coefficient and the mean activity coefficient of a salt with ions of the given charges.

    Sodium chloride at 25 degrees Celsius:

    >>> phi, gamma = pitzer_electrolyte(1.0, 0.0765, 0.2664, 0.00127, 0.392, 1.0, 1.0)
    >>> round(phi, 3), round(gamma, 3)
    (0.936, 0.655)
    """
    alpha, b = 2.0, 1.2
    n_cation, n_anion = (1.0, 1.0) if cation == anion else (anion, cation)
    total = n_cation + n_anion
    strength = molality * (n_cation * cation**2 + n_anion * anion**2) / 2
    root = math.sqrt(strength)
    x = alpha * root
    f_phi = -a_phi * root / (1 + b * root)
    b_phi = beta0 + beta1 * math.exp(-x)
    f_gamma = -a_phi * (root / (1 + b * root) + 2 / b * math.log(1 + b * root))
    b_gamma = 2 * beta0 + 2 * beta1 / x**2 * (1 - math.exp(-x) * (1 + x - x * x / 2))
    pairs = molality * 2 * n_cation * n_anion / total
    triples = molality**2 * 2 * (n_cation * n_anion) ** 1.5 / total
    phi = 1 + cation * anion * f_phi + pairs * b_phi + triples * c_phi
    return phi, math.exp(cation * anion * f_gamma + pairs * b_gamma + triples * 1.5 * c_phi)


@formula(
    source="Gilbert, Luther & Troe, Ber. Bunsenges. Phys. Chem. 87, 169-177, 1983",
    dtype="float64",
    temperature=(500.0, 2500.0),
    density=(1e-7, 1e-3, "log"),
    a_low=(1e15, 1e18, "log"),
    e_low=(0.0, 1e4),
    a_high=(1e12, 1e14, "log"),
    e_high=(0.0, 2e4),
    n_low=-0.9,
    width=(0.3, 0.9),
)
def troe_falloff(
    temperature: float,
    density: float,
    a_low: float,
    e_low: float,
    a_high: float,
    e_high: float,
    n_low: float,
    width: float,
) -> float:
    """The rate coefficient (cm3/mol/s) of a recombination between its limits of low and of high pressure.

    Density of the gas in mol/cm3, energies in J/mol; the temperatures of the broadening are those of
    H + CH3 (+ M) = CH4 (+ M) in GRI-Mech 3.0.
    """
    t3, t1, t2 = 74.0, 2941.0, 6964.0
    k_low: float = a_low * temperature**n_low * math.exp(-e_low / (GAS * temperature))
    k_high = a_high * math.exp(-e_high / (GAS * temperature))
    reduced = k_low * density / k_high
    centre = (
        (1 - width) * math.exp(-temperature / t3) + width * math.exp(-temperature / t1) + math.exp(-t2 / temperature)
    )
    log_centre = math.log10(centre)
    c = -0.4 - 0.67 * log_centre
    n = 0.75 - 1.27 * log_centre
    shifted = math.log10(reduced) + c
    broadening: float = 10 ** (log_centre / (1 + (shifted / (n - 0.14 * shifted)) ** 2))
    return k_high * reduced / (1 + reduced) * broadening


@formula(
    source="Brooks et al., J. Comput. Chem. 4, 187-217, 1983",
    dtype="float32",
    dx=(-7.0, 7.0),
    dy=(-7.0, 7.0),
    dz=(-7.0, 7.0),
    epsilon_i=(0.02, 0.3),
    epsilon_j=(0.02, 0.3),
    radius_i=(0.8, 2.2),
    radius_j=(0.8, 2.2),
    charge_i=(-0.9, 0.9),
    charge_j=(-0.9, 0.9),
)
def nonbonded_energy(
    dx: float,
    dy: float,
    dz: float,
    epsilon_i: float,
    epsilon_j: float,
    radius_i: float,
    radius_j: float,
    charge_i: float,
    charge_j: float,
) -> float:
    """The energy (kcal/mol) of two atoms of the CHARMM force field at a distance (angstrom).

    Lennard-Jones switched off between 8 and 10, and shifted electrostatics up to 10; the closest distance is 1.
    """
    on, off = 8.0, 10.0
    r2 = max(dx * dx + dy * dy + dz * dz, 1.0)
    if r2 >= off * off:
        return 0.0
    epsilon = math.sqrt(epsilon_i * epsilon_j)
    s6 = ((radius_i + radius_j) ** 2 / r2) ** 3
    energy = epsilon * (s6 * s6 - 2 * s6)
    if r2 > on * on:
        energy *= (off**2 - r2) ** 2 * (off**2 + 2 * r2 - 3 * on**2) / (off**2 - on**2) ** 3
    return energy + 332.0716 * charge_i * charge_j / math.sqrt(r2) * (1 - r2 / off**2) ** 2


# Coefficients above and below 1000 K.
CO = (
    (2.71518561, 2.06252743e-3, -9.98825771e-7, 2.30053008e-10, -2.03647716e-14, -1.41518724e4, 7.81868772),
    (3.57953347, -6.10353680e-4, 1.01681433e-6, 9.07005884e-10, -9.04424499e-13, -1.43440860e4, 3.50840928),
)
H2O = (
    (3.03399249, 2.17691804e-3, -1.64072518e-7, -9.70419870e-11, 1.68200992e-14, -3.00042971e4, 4.96677010),
    (4.19864056, -2.03643410e-3, 6.52040211e-6, -5.48797062e-9, 1.77197817e-12, -3.02937267e4, -0.849032208),
)
CO2 = (
    (3.85746029, 4.41437026e-3, -2.21481404e-6, 5.23490188e-10, -4.72084164e-14, -4.87591660e4, 2.27163806),
    (2.35677352, 8.98459677e-3, -7.12356269e-6, 2.45919022e-9, -1.43699548e-13, -4.83719697e4, 9.90105222),
)
H2 = (
    (3.33727920, -4.94024731e-5, 4.99456778e-7, -1.79566394e-10, 2.00255376e-14, -950.158922, -3.20502331),
    (2.34433112, 7.98052075e-3, -1.94781510e-5, 2.01572094e-8, -7.37611761e-12, -917.935173, 0.683010238),
)


def enthalpy(species: Species, t: float) -> float:
    """The standard enthalpy over RT by NASA's polynomials of seven coefficients."""
    a1, a2, a3, a4, a5, a6, _ = species[0] if t > 1000 else species[1]
    return a1 + t * (a2 / 2 + t * (a3 / 3 + t * (a4 / 4 + t * a5 / 5))) + a6 / t


def entropy(species: Species, t: float) -> float:
    """The standard entropy over R."""
    a1, a2, a3, a4, a5, _, a7 = species[0] if t > 1000 else species[1]
    return a1 * math.log(t) + t * (a2 + t * (a3 / 2 + t * (a4 / 3 + t * a5 / 4))) + a7


@formula(
    source="McBride, Gordon & Reno, NASA TM-4513, 1993; coefficients of Smith et al., GRI-Mech 3.0, 1999",
    dtype="float64",
    temperature=(400.0, 2000.0),
    co=(0.01, 5.0),
    steam=(0.01, 5.0),
    co2=(0.01, 5.0),
    hydrogen=(0.01, 5.0),
)
def water_gas_shift(
    temperature: float, co: float, steam: float, co2: float, hydrogen: float
) -> tuple[float, float, float]:
    """The heat (J/mol) and the equilibrium constant of CO + H2O = CO2 + H2, and the extent (mol) to equilibrium.

    Temperature in K, amounts in mol.
    """
    heat = (
        enthalpy(CO2, temperature) + enthalpy(H2, temperature) - enthalpy(CO, temperature) - enthalpy(H2O, temperature)
    )
    order = entropy(CO2, temperature) + entropy(H2, temperature) - entropy(CO, temperature) - entropy(H2O, temperature)
    k = math.exp(order - heat)
    b = k * (co + steam) + co2 + hydrogen
    c = k * co * steam - co2 * hydrogen
    extent = 2 * c / (b + math.sqrt(b * b - 4 * (k - 1) * c))
    return heat * GAS * temperature, k, extent
