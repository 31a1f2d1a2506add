r"""
Fitting the light curve of a transit
====================================

A planet in front of its star hides a part of the light: the area that two circles share, which is a different formula
outside, across the edge and inside (K. Mandel and E. Agol, ApJ 580, L171, 2002, for a star of uniform brightness). Seen
from the ground, the light also fades with the airmass. The model has six parameters. ``scipy.optimize.least_squares``
gets its exact Jacobian from one launch, where finite differences need six more evaluations and lose half of the digits.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import approx_fprime, least_squares

from dualbcast import differentiable_broadcast

# %%
# The three cases are branches, so no square root is taken of a negative number and no arc cosine beyond 1. ``k`` is the
# ratio of the radii, ``b`` the smallest distance of the centres and ``speed`` that of the planet in radii of the star.


def hidden(k, z):
    if z >= 1 + k:
        return 0.0
    if z <= 1 - k:
        return k * k
    star = math.acos((1 - k * k + z * z) / (2 * z))
    planet = math.acos((k * k + z * z - 1) / (2 * k * z))
    triangles = math.sqrt(4 * z * z - (1 + z * z - k * k) ** 2) / 2
    return (k * k * planet + star - triangles) / math.pi


@differentiable_broadcast(wrt=("k", "b", "middle", "speed", "level", "extinction"))
def brightness(hour, airmass, k, b, middle, speed, level, extinction):
    z = math.hypot(b, speed * (hour - middle))
    return level * (1 - hidden(k, z)) * math.exp(-extinction * (airmass - 1))


# %%
# A night of 400 exposures with noise of 0.1 %. The planet's radius is 12 % of the star's, which is a hot Jupiter.

names = "radius ratio k", "impact b", "mid-time (h)", "speed (1/h)", "level", "extinction"
truth = np.array([0.12, 0.35, 2.6, 0.75, 1.0, 0.08])
rng = np.random.default_rng(2)
hour = np.linspace(0, 5, 400)
airmass = 1 / np.cos(np.radians(20 + 9 * np.abs(hour - 1)))  # the star is highest an hour after the start
noise = 1e-3
data = brightness(hour, airmass, *truth) + noise * rng.standard_normal(hour.size)

# %%
# The Jacobian of the residuals has a row for each exposure and a column for each parameter: ``J.stacked()``.


def residuals(p):
    return (brightness(hour, airmass, *p) - data) / noise


def slopes(p):
    return brightness.jacobian(hour, airmass, *p).stacked() / noise


first = np.array([0.1, 0.2, 2.4, 0.9, 1.01, 0.05])
bounds = [0.01, 0, 1, 0.1, 0, 0], [0.3, 1, 4, 3, 2, 1]
fit = least_squares(residuals, first, slopes, bounds, x_scale=np.array([0.01, 0.1, 0.1, 0.1, 0.01, 0.01]))
error = np.sqrt(np.diag(np.linalg.inv(fit.jac.T @ fit.jac)))
for name, value, sigma in zip(names, fit.x, error, strict=True):
    print(f"{name:15} {value:8.4f} ± {sigma:.4f}")

# %%
# The Jacobian agrees with central differences, and the fit finds the true parameters to within its errors.

central = (approx_fprime(first, residuals, 1e-6) + approx_fprime(first, residuals, -1e-6)) / 2
assert np.allclose(slopes(first) / np.abs(central).max(axis=0), central / np.abs(central).max(axis=0), atol=1e-4)
assert np.all(np.abs(fit.x - truth) < 3 * error)
assert 0.8 < 2 * fit.cost / hour.size < 1.2

# %%
# Each column of the Jacobian shows when in the night a parameter is measured. The depth gives the radius ratio, and the
# ingress and egress give the mid-time.

fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
top.plot(hour, data, ".", color="#999999", markersize=3, label="exposures")
top.plot(hour, brightness(hour, airmass, *fit.x), color="#D55E00", linewidth=2, label="fitted model")
top.plot(hour, brightness(hour, airmass, 1e-9, *fit.x[1:]), "--", color="#0072B2", label="without the planet")
top.set(ylabel="brightness", title=f"The planet's radius is {fit.x[0]:.4f} ± {error[0]:.4f} of the star's")
top.legend(frameon=False)
colours = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#000000"
for name, column, colour in zip(names, fit.jac.T, colours, strict=True):
    bottom.plot(hour, column / np.abs(column).max(), color=colour, label=name.split(" (")[0])
bottom.set(xlabel="time (h)", ylabel="derivative / its largest", title="Derivatives of the brightness")
bottom.legend(frameon=False, ncols=3, loc="upper center")
bottom.set_ylim(-1.1, 2.0)
plt.show()
