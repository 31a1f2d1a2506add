r"""
Kepler orbits and the times of eclipses
=======================================

Where a planet is at a given time follows from Kepler's equation :math:`M = E - e \sin E` (J. Kepler, *Astronomia nova*,
1609), which has to be solved by iteration. The number of iterations differs from element to element, and so does the
sensitivity of the solution to the eccentricity. dualbcast compiles Newton's loop with the derivatives inside. A second
function gives the time from a transit to the eclipse of the planet by its star, for which observers use a formula to
first order in e (J. N. Winn, *Exoplanet transits and occultations*, 2010).
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast

# %%
# Newton's method starts from :math:`E = M`, or from :math:`E = \pi` if the orbit is so eccentric that it could diverge.
# The second function needs no iteration: at a transit the true anomaly is :math:`\pi/2 - \omega`, and at the eclipse it
# is larger by :math:`\pi`.


@differentiable_broadcast(max_iterations=50)
def eccentric_anomaly(mean, e):
    anomaly = mean if e < 0.8 else math.pi
    step = 1.0
    while abs(step) > 1e-12:
        step = (anomaly - e * math.sin(anomaly) - mean) / (1 - e * math.cos(anomaly))
        anomaly -= step
    return anomaly


@differentiable_broadcast
def eclipse_offset(e, omega):
    """The time from a transit to the next eclipse in periods, less the half that it is on a circle."""

    def phase(true_anomaly):
        eccentric = 2 * math.atan(math.sqrt((1 - e) / (1 + e)) * math.tan(true_anomaly / 2))
        return (eccentric - e * math.sin(eccentric)) / (2 * math.pi)

    return (phase(1.5 * math.pi - omega) - phase(0.5 * math.pi - omega)) % 1 - 0.5


# %%
# All anomalies and eccentricities of a grid, in one launch. Implicit differentiation gives
# :math:`\partial E / \partial e = \sin E / (1 - e \cos E)`, with which the derivative through the loop has to agree.

mean = np.linspace(0, 2 * np.pi, 401)
e = np.linspace(0, 0.95, 191)[:, np.newaxis]
E, J = eccentric_anomaly.value_and_jacobian(mean, e)
assert np.allclose(E - e * np.sin(E), mean, rtol=0, atol=1e-13)
assert np.allclose(J["e"], np.sin(E) / (1 - e * np.cos(E)), rtol=1e-9, atol=1e-12)
assert np.allclose(J["mean"], 1 / (1 - e * np.cos(E)), rtol=1e-9)

# %%
# Winn's formula for the offset is :math:`(2/\pi)\, e \cos\omega`. It is linear in e, with the slope of the exact offset
# at a circle. For HD 80606 b (e = 0.93) it is far off.

omega = np.linspace(-np.pi, np.pi, 181) + 1e-3
assert np.allclose(eclipse_offset.jacobian(1e-9, omega)["e"], 2 / np.pi * np.cos(omega), atol=1e-7)

# %%
# Dots are equal times apart. Near the periastron of an eccentric orbit the planet is fast, and its place is most
# sensitive to the eccentricity there.

fig, axes = plt.subplot_mosaic("AA;BC", figsize=(8, 6.4), height_ratios=[1, 1.25], layout="constrained")
orbits, place, offset = axes.values()
for which, colour in ((0.0, "#0072B2"), (0.5, "#E69F00"), (0.9, "#CC79A7")):
    for count, style in ((400, "-"), (37, "o")):
        angle = eccentric_anomaly(np.linspace(0, 2 * np.pi, count), which)
        x, y = np.cos(angle) - which, math.sqrt(1 - which**2) * np.sin(angle)
        orbits.plot(x, y, style, color=colour, markersize=4, label=f"e = {which}" if style == "o" else None)
orbits.plot(0, 0, "k*", markersize=12)
orbits.set(aspect="equal", xlabel="x / semi-major axis", ylabel="y / semi-major axis", xlim=(-2.1, 2.4))
orbits.set_title("Orbits of the same period")
orbits.legend(frameon=False, loc="center right")
image = place.pcolormesh(mean, e[:, 0], J["e"], cmap="RdBu_r", vmin=-2, vmax=2, rasterized=True)
fig.colorbar(image, ax=place, extend="both", label="change of E per unit of e (rad)")
place.set(xlabel="mean anomaly M (rad)", ylabel="eccentricity e", title="Sensitivity of the place")
place.set_xticks([0, np.pi, 2 * np.pi], ["0", r"$\pi$", r"$2\pi$"])
for which, colour in ((0.1, "#0072B2"), (0.5, "#E69F00"), (0.93, "#CC79A7")):
    offset.plot(np.degrees(omega), eclipse_offset(which, omega), color=colour, label=f"e = {which}")
    offset.plot(np.degrees(omega), 2 / np.pi * which * np.cos(omega), ":", color=colour)
offset.plot([], [], "k:", label="first order")
offset.set(xlabel=r"argument of periastron $\omega$ (°)", ylabel="offset (periods)", title="Offset of the eclipse")
offset.set(xticks=[-180, -90, 0, 90, 180], ylim=(-0.65, 1.0))
offset.legend(frameon=False, ncols=2, loc="upper center")
plt.show()
