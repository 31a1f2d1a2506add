r"""
The firing rate of a neuron and what it depends on
==================================================

The membrane model of A. L. Hodgkin and A. F. Huxley (J. Physiol. 117, 1952) has four equations and rates such as
:math:`x / (1 - e^{-x})`, which need a guard at 0. A constant current above a threshold makes it fire regularly. Here
the whole simulation is inside the scalar function: 10,000 Runge-Kutta steps, the search for the spikes, and the rate
from the time between the last two. dualbcast runs it for many currents in one launch, and gives the derivatives of the
rate in the current and in the conductances. For a current that does not make the neuron fire they are exactly 0.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

from dualbcast import differentiable_broadcast

# %%
# The units are mV, ms, µA/cm² and mS/cm². The potentials are absolute, with a rest at -65 mV.


def guarded(x):
    """x / (1 - exp(-x)), by its series close to 0."""
    if abs(x) < 1e-4:
        return 1 + x / 2 + x * x / 12
    return -x / math.expm1(-x)


def slopes(v, m, h, n, current, sodium, potassium):
    dm = guarded((v + 40) / 10) * (1 - m) - 4 * math.exp(-(v + 65) / 18) * m
    dh = 0.07 * math.exp(-(v + 65) / 20) * (1 - h) - h / (1 + math.exp(-(v + 35) / 10))
    dn = 0.1 * guarded((v + 55) / 10) * (1 - n) - 0.125 * math.exp(-(v + 65) / 80) * n
    flow = sodium * m**3 * h * (v - 50) + potassium * n**4 * (v + 77) + 0.3 * (v + 54.387)
    return current - flow, dm, dh, dn


def runge_kutta(state, dt, *parameters):
    def moved(by, k):
        return [s + by * d for s, d in zip(state, k, strict=True)]

    k1 = slopes(*state, *parameters)
    k2 = slopes(*moved(dt / 2, k1), *parameters)
    k3 = slopes(*moved(dt / 2, k2), *parameters)
    k4 = slopes(*moved(dt, k3), *parameters)
    return tuple(s + dt / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True))


REST = (-65.0, 0.052932, 0.596121, 0.317677)
DT = 0.025


@differentiable_broadcast
def firing_rate(current, sodium, potassium):
    """The rate in Hz after 250 ms, from the last two times at which the potential rises through 0 mV."""
    parameters = current, sodium, potassium
    state, last, before = REST, 0.0, 0.0
    for i in range(10_000):
        earlier, state = state, runge_kutta(state, DT, *parameters)
        if earlier[0] < 0 <= state[0]:
            part = DT * earlier[0] / (earlier[0] - state[0])
            for _ in range(3):  # Newton's method for the part of the step at whose end the potential is 0
                there = runge_kutta(earlier, part, *parameters)
                part -= there[0] / slopes(*there, *parameters)[0]
            last, before = DT * i + part, last
    return 1000 / (last - before) if last > 200 else 0.0


@differentiable_broadcast
def potential(steps, current):
    state = REST
    for _ in range(steps):
        state = runge_kutta(state, DT, current, 120.0, 36.0)
    return state[0]


# %%
# One launch for 97 currents. Firing sets in at 6.3 µA/cm², as J. Rinzel and R. N. Miller found (Math. Biosci. 49,
# 1980). SciPy's solver gives the same rate, and central differences give the same derivatives.

current = np.linspace(2, 26, 97)
rate, J = firing_rate.value_and_jacobian(current, 120.0, 36.0)
fires = rate > 0
assert np.array_equal(fires, current > 6.3) and not any(J[name][~fires].any() for name in J)
one = 10.0, 120.0, 36.0
solved = solve_ivp(lambda _, s: slopes(*s, *one), (0, 250), REST, "DOP853", events=lambda _, s: s[0], rtol=1e-9)
crossings = solved.t_events[0]  # up and down in turn
assert np.isclose(1000 / (crossings[-1] - crossings[-3]), firing_rate(*one), rtol=1e-4)
differences = (firing_rate(current + 1e-4, 120.0, 36.0) - firing_rate(current - 1e-4, 120.0, 36.0)) / 2e-4
assert np.allclose(J["current"], differences, rtol=2e-3)

# %%
# The number of steps is an argument like any other, so one launch also draws the potentials over time.

steps = np.arange(0, 2401, 4)
fig, axes = plt.subplot_mosaic("AA;BC", figsize=(8, 5.8), layout="constrained")
for which, colour in ((20, "#E69F00"), (7, "#0072B2"), (4, "#000000")):
    axes["A"].plot(DT * steps, potential(steps, which), color=colour, label=f"{which} µA/cm²")
axes["A"].set(xlabel="time (ms)", ylabel="potential (mV)", title="Membrane potential", ylim=(-85, 70))
axes["A"].legend(frameon=False, loc="upper right", ncols=3)
axes["B"].plot(current, rate, ".", color="#0072B2", markersize=4)
axes["B"].set(xlabel="current (µA/cm²)", ylabel="rate (Hz)", title="Firing rate")
for name, value, colour in (("current", current, "#0072B2"), ("sodium", 120, "#D55E00"), ("potassium", 36, "#009E73")):
    axes["C"].plot(current[fires], (value * J[name])[fires] / 100, color=colour, label=name)
axes["C"].set(xlabel="current (µA/cm²)", ylabel="change of rate (Hz)", title="One quantity larger by 1 %", ylim=(-1, 1))
axes["C"].legend(frameon=False)
for axis in axes.values():
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
