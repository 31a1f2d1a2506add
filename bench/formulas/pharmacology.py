"""Formulas of pharmacology: concentrations in compartments, saturable elimination, receptors and targets."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Gibaldi & Perrier, Pharmacokinetics, 2nd edition, Marcel Dekker, 1982, chapter 2",
    dtype="float64",
    time=(0.1, 48.0),
    dose=(50.0, 1000.0),
    absorption=(1.4, 4.0),
    lag=(0.0, 0.5),
    clearance=(2.0, 8.0),
    central=(20.0, 60.0),
    exchange=(2.0, 10.0),
    peripheral=(40.0, 150.0),
    available=(0.4, 1.0),
)
def two_compartments(
    time: float,
    dose: float,
    absorption: float,
    lag: float,
    clearance: float,
    central: float,
    exchange: float,
    peripheral: float,
    available: float,
) -> float:
    """The concentration (mg/L) after an oral dose (mg) with first-order absorption (1/h) and a lag (h).

    Clearances in L/h, volumes in L.
    """
    if time <= lag:
        return 0.0
    t = time - lag
    k10, k12, k21 = clearance / central, exchange / central, exchange / peripheral
    total = k10 + k12 + k21
    root = math.sqrt(total * total - 4 * k21 * k10)
    alpha, beta = (total + root) / 2, 2 * k21 * k10 / (total + root)
    a = (k21 - alpha) / ((absorption - alpha) * (beta - alpha))
    b = (k21 - beta) / ((absorption - beta) * (alpha - beta))
    c = (k21 - absorption) / ((alpha - absorption) * (beta - absorption))
    amount = a * math.exp(-alpha * t) + b * math.exp(-beta * t) + c * math.exp(-absorption * t)
    return available * dose * absorption / central * amount


def lambert_w(x: float) -> float:
    """The main branch for x >= 0, by Halley's method."""
    w = math.log1p(x) if x < 3 else math.log(x) - math.log(math.log(x))
    for _ in range(20):
        e = math.exp(w)
        f = w * e - x
        step = f / (e * (w + 1) - (w + 2) * f / (2 * w + 2))
        w -= step
        if abs(step) <= 1e-15 * (1 + w):
            break
    return w


@formula(
    source="Schnell & Mendoza, J. Theor. Biol. 187, 207-212, 1997",
    dtype="float64",
    time=(0.0, 24.0),
    start=(1.0, 60.0),
    v_max=(0.3, 4.0),
    k_m=(1.0, 12.0),
)
def saturable_elimination(time: float, start: float, v_max: float, k_m: float) -> tuple[float, float]:
    """The concentration (mg/L) after an elimination by Michaelis and Menten's kinetics, and its rate (mg/L/h)."""
    w = lambert_w(start / k_m * math.exp((start - v_max * time) / k_m))
    concentration = k_m * w
    return concentration, -v_max * concentration / (k_m + concentration)


@formula(
    source="Black & Leff, Proc. R. Soc. Lond. B 220, 141-162, 1983; Gaddum, J. Physiol. 89, 7P-9P, 1937",
    dtype="float32",
    agonist=(1e-10, 1e-4, "log"),
    antagonist=(1e-10, 1e-5, "log"),
    k_agonist=(1e-8, 1e-5, "log"),
    k_antagonist=(1e-10, 1e-7, "log"),
    efficacy=(0.3, 100.0, "log"),
    slope=(0.6, 2.5),
    schild=(0.8, 1.2),
    basal=(0.0, 0.2),
    maximum=(0.8, 1.2),
)
def operational_agonism(
    agonist: float,
    antagonist: float,
    k_agonist: float,
    k_antagonist: float,
    efficacy: float,
    slope: float,
    schild: float,
    basal: float,
    maximum: float,
) -> float:
    """The response of a tissue to an agonist, with a competitive antagonist; concentrations in mol/L."""
    ratio = agonist / (k_agonist * (1 + (antagonist / k_antagonist) ** schild))
    stimulus: float = (efficacy * ratio / (1 + ratio)) ** slope
    return basal + (maximum - basal) * stimulus / (1 + stimulus)


# Gauss and Legendre's rule of eight points in [-1, 1]: the positive nodes and their weights.
NODES = (0.18343464249564981, 0.52553240991632899, 0.79666647741362674, 0.96028985649753623)
WEIGHTS = (0.36268378337836199, 0.31370664587788729, 0.22238103445337448, 0.10122853629037626)


@formula(
    source="Savic, Jonker, Kerbusch & Karlsson, J. Pharmacokinet. Pharmacodyn. 34, 711-726, 2007",
    dtype="float64",
    time=(0.2, 24.0),
    dose=(10.0, 500.0),
    transits=(1.0, 15.0),
    transit_time=(0.4, 4.0),
    absorption=(0.8, 3.0),
    clearance=(1.0, 10.0),
    volume=(20.0, 80.0),
)
def transit_absorption(
    time: float, dose: float, transits: float, transit_time: float, absorption: float, clearance: float, volume: float
) -> float:
    """The concentration (mg/L) after absorption through a chain of compartments, whose number need not be whole.

    The outflow of the chain is convolved with absorption and elimination by quadrature in three parts. Times in h,
    rates in 1/h, clearance in L/h, volume in L.
    """
    rate = (transits + 1) / transit_time
    elimination = clearance / volume
    end = min(time, transit_time * (1 + 8 / math.sqrt(transits + 1)))
    log_gamma = math.lgamma(transits + 1)
    half = end / 6
    total = 0.0
    for part in range(3):
        middle = half * (2 * part + 1)
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            for t in (middle - half * node, middle + half * node):
                inflow = math.exp(transits * math.log(rate * t) - rate * t - log_gamma)
                left = math.exp(-elimination * (time - t)) - math.exp(-absorption * (time - t))
                total += weight * inflow * left
    return dose * rate / volume * absorption / (absorption - elimination) * half * total


@formula(
    source="Gibiansky, Gibiansky, Kakkar & Ma, J. Pharmacokinet. Pharmacodyn. 35, 573-591, 2008",
    dtype="float32",
    wrt="drug target k_d k_el k_int k_deg k_syn",
    drug=(0.01, 300.0, "log"),
    target=(0.1, 30.0),
    k_d=(0.05, 5.0, "log"),
    k_el=(0.01, 0.3),
    k_int=(0.01, 1.0),
    k_deg=(0.05, 1.0),
    k_syn=(0.1, 5.0),
    infusion=0.5,
)
def target_mediated_disposition(
    drug: float, target: float, k_d: float, k_el: float, k_int: float, k_deg: float, k_syn: float, infusion: float
) -> tuple[float, float, float]:
    """Rates of change (nM/h) of the total drug and the total target in rapid equilibrium, and the free drug (nM)."""
    gap = drug - target - k_d
    root = math.sqrt(gap * gap + 4 * k_d * drug)
    free = (gap + root) / 2 if gap > 0 else 2 * k_d * drug / (root - gap)
    bound = target * free / (k_d + free)
    d_drug = infusion - k_int * bound - k_el * free
    d_target = k_syn - k_deg * target - (k_int - k_deg) * bound
    return d_drug, d_target, free
