"""Formulas of mechanics: plasticity, rubber, lubricated contacts, friction, tyres."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Johnson & Cook, Proc. 7th Int. Symp. Ballistics, The Hague, 541-547, 1983",
    dtype="float64",
    wrt="trial strain kelvin dt a b n",
    trial=(200.0, 3000.0),
    strain=(1e-3, 0.5, "log"),
    kelvin=(294.0, 1200.0),
    dt=(1e-6, 1e-2, "log"),
    a=(300.0, 900.0),
    b=(200.0, 700.0),
    n=(0.15, 0.5),
    c=0.014,
    m=1.03,
)
def johnson_cook(
    trial: float, strain: float, kelvin: float, dt: float, a: float, b: float, n: float, c: float, m: float
) -> tuple[float, float]:
    """The von Mises stress (MPa) and the plastic strain after a step dt (s), by a radial return of the trial stress.

    The shear modulus is 77 GPa, the reference rate 1/s; rates below it do not harden. Newton's method for the strain.
    """
    shear, room, melt = 77e3, 293.0, 1793.0
    softening = 1 - ((kelvin - room) / (melt - room)) ** m
    if trial <= (a + b * strain**n) * softening:
        return trial, strain
    at_reference = (a + b * (strain + dt) ** n) * softening
    fast = trial - 3 * shear * dt > at_reference
    increment = dt if fast else 0.0
    for _ in range(50):
        total = strain + increment
        static = (a + b * total**n) * softening
        slope = b * n * total ** (n - 1) * softening
        if fast:
            hardening = 1 + c * math.log(increment / dt)
            slope = slope * hardening + static * c / increment
            static *= hardening
        step = (trial - 3 * shear * increment - static) / (3 * shear + slope)
        increment += step
        if abs(step) < 1e-14 * total:
            break
    return trial - 3 * shear * increment, strain + increment


@formula(
    source="Ogden, Proc. R. Soc. Lond. A 326, 565-584, 1972",
    dtype="float64",
    stretch1=(0.5, 3.0),
    stretch2=(0.5, 3.0),
    mu1=(0.5, 0.8),
    mu2=(0.001, 0.003),
    mu3=(-0.02, -0.005),
    alpha1=(1.1, 1.5),
    alpha2=(4.0, 5.5),
    alpha3=(-2.5, -1.5),
)
def ogden_membrane(
    stretch1: float, stretch2: float, mu1: float, mu2: float, mu3: float, alpha1: float, alpha2: float, alpha3: float
) -> tuple[float, float, float]:
    """The energy (MJ/m3) and the two principal stresses (MPa) of an incompressible rubber membrane of three terms."""
    stretch3 = 1 / (stretch1 * stretch2)
    energy, stress1, stress2 = 0.0, 0.0, 0.0
    for mu, alpha in ((mu1, alpha1), (mu2, alpha2), (mu3, alpha3)):
        p1, p2, p3 = stretch1**alpha, stretch2**alpha, stretch3**alpha
        energy += mu / alpha * (p1 + p2 + p3 - 3)
        stress1 += mu * (p1 - p3)
        stress2 += mu * (p2 - p3)
    return energy, stress1, stress2


@formula(
    source="Hamrock & Dowson, J. Lubr. Technol. 99, 264-276, 1977; Brewe & Hamrock, ibid. 485-487",
    dtype="float64",
    load=(10.0, 2000.0, "log"),
    r_x=(0.004, 0.03),
    r_y=(0.005, 0.3, "log"),
    modulus=(1.5e11, 2.5e11),
    viscosity=(0.005, 0.4, "log"),
    pressure_coefficient=(1e-8, 2.5e-8),
    speed=(0.1, 20.0, "log"),
)
def lubricated_contact(
    load: float, r_x: float, r_y: float, modulus: float, viscosity: float, pressure_coefficient: float, speed: float
) -> tuple[float, float, float]:
    """The highest pressure (Pa), the approach (m) and the least film thickness (m) of a lubricated elliptical contact.

    Load in N, radii in m, effective modulus in Pa, viscosity in Pa s and its pressure coefficient in 1/Pa, mean speed
    in m/s.
    """
    radius = 1 / (1 / r_x + 1 / r_y)
    k = 1.0339 * (r_y / r_x) ** 0.636
    e = 1.0003 + 0.5968 * r_x / r_y
    f = 1.5277 + 0.6023 * math.log(r_y / r_x)
    d_y = 2 * (6 * k**2 * e * load * radius / (math.pi * modulus)) ** (1 / 3)
    d_x = d_y / k
    approach = f * (9 / (2 * e * radius) * (load / (math.pi * k * modulus)) ** 2) ** (1 / 3)
    u = viscosity * speed / (modulus * r_x)
    g = pressure_coefficient * modulus
    w = load / (modulus * r_x**2)
    film = 3.63 * u**0.68 * g**0.49 * w**-0.073 * (1 - math.exp(-0.68 * k)) * r_x
    return 6 * load / (math.pi * d_x * d_y), approach, film


def magic(slip: float, b: float, c: float, d: float, e: float) -> float:
    """Pacejka's magic formula."""
    x = b * slip
    return d * math.sin(c * math.atan(x - e * (x - math.atan(x))))


@formula(
    source="Bakker, Nyborg & Pacejka, SAE 870421, 1987",
    dtype="float32",
    slip=(-0.3, 0.3),
    angle=(-15.0, 15.0),
    load=(1.0, 8.0),
    camber=(-6.0, 6.0),
    grip=(0.3, 1.1),
)
def tyre_forces(slip: float, angle: float, load: float, camber: float, grip: float) -> tuple[float, float, float]:
    """The longitudinal and lateral force (N) and the aligning torque (Nm) of a tyre in combined slip.

    The slip ratio, the slip angle and the camber (degrees), the load (kN), and the friction of the road relative to
    that of the tests. The pure forces at the combined slip are divided in its direction.
    """
    sigma_x = slip / (1 + slip)
    sigma_y = math.tan(math.radians(angle)) / (1 + slip)
    sigma = math.hypot(sigma_x, sigma_y)
    if sigma < 1e-6:
        return 0.0, 0.0, 0.0
    square = load * load
    d = -21.3 * square + 1144 * load
    b = (49.6 * square + 226 * load) * math.exp(-0.069 * load) / (1.65 * d)
    f_x = magic(100 * sigma, b / grip, 1.65, grip * d, -0.006 * square + 0.056 * load + 0.486)

    degrees = math.degrees(math.atan(sigma))
    d = -22.1 * square + 1011 * load
    b = 1078 * math.sin(1.82 * math.atan(0.208 * load)) * (1 - 0.022 * abs(camber)) / (1.30 * d)
    f_y = magic(degrees + 0.028 * camber, b / grip, 1.30, grip * d, -0.354 * load + 0.707) + 14.8 * load * camber

    d = -2.72 * square - 2.28 * load
    b = (-1.86 * square - 2.73 * load) * math.exp(-0.110 * load) / (2.40 * d)
    m_z = magic(degrees, b / grip, 2.40, grip * d, -0.070 * square + 0.643 * load - 4.04)
    return sigma_x / sigma * f_x, sigma_y / sigma * f_y, sigma_y / sigma * m_z


@formula(
    source="Canudas de Wit, Olsson, Astrom & Lischinsky, IEEE Trans. Autom. Control 40, 419-425, 1995",
    dtype="float32",
    velocity=(-0.02, 0.02),
    deflection=(-1.5e-5, 1.5e-5),
    coulomb=(0.5, 2.0),
    static=(1.0, 3.0),
    stribeck=(5e-4, 5e-3, "log"),
    stiffness=1e5,
    damping=316.0,
    viscous=0.4,
)
def lugre_friction(
    velocity: float,
    deflection: float,
    coulomb: float,
    static: float,
    stribeck: float,
    stiffness: float,
    damping: float,
    viscous: float,
) -> tuple[float, float]:
    """The friction force (N) and the rate (m/s) of the deflection of the bristles between two surfaces.

    Velocities in m/s, forces in N, stiffness in N/m.
    """
    level = coulomb + (static - coulomb) * math.exp(-((velocity / stribeck) ** 2))
    rate = velocity - stiffness * abs(velocity) / level * deflection
    return stiffness * deflection + damping * rate + viscous * velocity, rate
