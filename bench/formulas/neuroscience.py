"""Formulas of neuroscience: membranes, spiking models, synapses."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


def linear_rate(x: float, scale: float) -> float:
    """x / (1 - exp(-x / scale)), which has the limit scale at 0."""
    y = x / scale
    if abs(y) < 1e-3:
        return scale * (1 + y / 2 + y * y / 12)
    return -x / math.expm1(-y)


@formula(
    source="Hodgkin & Huxley, J. Physiol. 117, 500-544, 1952",
    dtype="float32",
    wrt="v m h n current",
    v=(-90.0, 40.0),
    m=(0.0, 1.0),
    h=(0.0, 1.0),
    n=(0.0, 1.0),
    current=(-5.0, 20.0),
    g_na=120.0,
    g_k=36.0,
    g_leak=0.3,
)
def hodgkin_huxley(
    v: float, m: float, h: float, n: float, current: float, g_na: float, g_k: float, g_leak: float
) -> tuple[float, float, float, float]:
    """The rates of change of the potential (mV/ms) and of the gates (1/ms) of the squid's axon, with rest at -65 mV."""
    alpha_m = 0.1 * linear_rate(v + 40, 10.0)
    beta_m = 4 * math.exp(-(v + 65) / 18)
    alpha_h = 0.07 * math.exp(-(v + 65) / 20)
    beta_h = 1 / (1 + math.exp(-(v + 35) / 10))
    alpha_n = 0.01 * linear_rate(v + 55, 10.0)
    beta_n = 0.125 * math.exp(-(v + 65) / 80)
    i_na = g_na * m**3 * h * (v - 50)
    i_k = g_k * n**4 * (v + 77)
    i_leak = g_leak * (v + 54.387)
    return (
        current - i_na - i_k - i_leak,
        alpha_m * (1 - m) - beta_m * m,
        alpha_h * (1 - h) - beta_h * h,
        alpha_n * (1 - n) - beta_n * n,
    )


@formula(
    source="Brette & Gerstner, J. Neurophysiol. 94, 3637-3642, 2005",
    dtype="float32",
    v=(-80.0, -35.0),
    w=(0.0, 300.0),
    current=(0.0, 1000.0),
    slope=(1.0, 4.0),
    threshold=(-55.0, -45.0),
    adaptation=(0.0, 10.0),
    jump=(0.0, 120.0),
    dt=0.1,
)
def adaptive_exponential(
    v: float, w: float, current: float, slope: float, threshold: float, adaptation: float, jump: float, dt: float
) -> tuple[float, float, float]:
    """The potential (mV) and the adaptation current (pA) a step dt (ms) later, and whether there was a spike.

    The exponential integrate-and-fire neuron with adaptation and the parameters of the paper; above 0 mV it is reset.
    """
    capacitance, leak, rest, tau_w = 281.0, 30.0, -70.6, 144.0
    exponent = min((v - threshold) / slope, 20.0)
    dv = (-leak * (v - rest) + leak * slope * math.exp(exponent) + current - w) / capacitance
    dw = (adaptation * (v - rest) - w) / tau_w
    v, w = v + dt * dv, w + dt * dw
    if v > 0:
        return rest, w + jump, 1.0
    return v, w, 0.0


@formula(
    source="Tsodyks, Pawelzik & Markram, Neural Comput. 10, 821-835, 1998",
    dtype="float64",
    use=(0.05, 0.7),
    tau_recovery=(50.0, 800.0),
    tau_facilitation=(20.0, 1000.0),
    efficacy=(0.5, 5.0),
    rate=(2.0, 80.0),
    spikes=("int", 1, 20),
)
def synaptic_response(
    use: float, tau_recovery: float, tau_facilitation: float, efficacy: float, rate: float, spikes: int
) -> float:
    """The response (mV) of a depressing and facilitating synapse to the last of some regular spikes.

    Times in ms, rate in Hz.
    """
    interval = 1000 / rate
    u, resources, response = use, 1.0, 0.0
    for i in range(spikes):
        if i > 0:
            u = use + u * (1 - use) * math.exp(-interval / tau_facilitation)
            resources = 1 - (1 - resources) * math.exp(-interval / tau_recovery)
        response = efficacy * u * resources
        resources -= u * resources
    return response


def goldman_flux(u: float, inside: float, outside: float) -> float:
    """inside and outside weighted as in the constant field equation, for a potential u of RT/zF."""
    if abs(u) < 1e-6:
        return inside - outside + u / 2 * (inside + outside)
    return u * (inside - outside * math.exp(-u)) / -math.expm1(-u)


@formula(
    source="Goldman, J. Gen. Physiol. 27, 37-60, 1943; Hodgkin & Katz, J. Physiol. 108, 37-77, 1949",
    dtype="float64",
    v=(-0.12, 0.08),
    k_in=(80.0, 160.0),
    k_out=(2.0, 12.0),
    na_in=(5.0, 30.0),
    na_out=(110.0, 160.0),
    cl_in=(4.0, 40.0),
    cl_out=(90.0, 150.0),
    p_na=(0.01, 20.0, "log"),
    celsius=25.0,
)
def constant_field(
    v: float,
    k_in: float,
    k_out: float,
    na_in: float,
    na_out: float,
    cl_in: float,
    cl_out: float,
    p_na: float,
    celsius: float,
) -> tuple[float, float]:
    """The current density (A/m2) through a membrane and the potential (V) at which it is 0.

    The equation of Goldman, Hodgkin and Katz for three ions: v in V, concentrations in mol/m3, and the permeability of
    sodium relative to that of potassium, which is 1e-8 m/s.
    """
    faraday, gas = 96485.332, 8.314463
    p_k, p_cl = 1.0, 0.45
    thermal = gas * (celsius + 273.15) / faraday
    u = v / thermal
    cations = p_k * goldman_flux(u, k_in, k_out) + p_na * goldman_flux(u, na_in, na_out)
    current = 1e-8 * faraday * (cations - p_cl * goldman_flux(-u, cl_in, cl_out))
    reversal = thermal * math.log(
        (p_k * k_out + p_na * na_out + p_cl * cl_in) / (p_k * k_in + p_na * na_in + p_cl * cl_out)
    )
    return current, reversal


@formula(
    source="FitzHugh, Biophys. J. 1, 445-466, 1961",
    dtype="float32",
    v=(-2.0, 2.0),
    w=(-0.7, 1.6),
    current=(0.0, 1.0),
    a=(0.5, 0.9),
    b=(0.5, 1.0),
    tau=(8.0, 16.0),
    dt=0.2,
)
def fitzhugh_nagumo(
    v: float, w: float, current: float, a: float, b: float, tau: float, dt: float
) -> tuple[float, float]:
    """The two variables of the model after ten steps by the classical method of Runge and Kutta."""

    def slopes(v: float, w: float) -> tuple[float, float]:
        return v - v**3 / 3 - w + current, (v + a - b * w) / tau

    for _ in range(10):
        v1, w1 = slopes(v, w)
        v2, w2 = slopes(v + dt / 2 * v1, w + dt / 2 * w1)
        v3, w3 = slopes(v + dt / 2 * v2, w + dt / 2 * w2)
        v4, w4 = slopes(v + dt * v3, w + dt * w3)
        v += dt / 6 * (v1 + 2 * v2 + 2 * v3 + v4)
        w += dt / 6 * (w1 + 2 * w2 + 2 * w3 + w4)
    return v, w
