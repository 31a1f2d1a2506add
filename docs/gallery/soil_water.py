r"""
How a soil holds and conducts water
===================================

The water content of a soil falls with the suction *h* (M. T. van Genuchten, Soil Sci. Soc. Am. J. 44, 1980):

.. math:: S = \left(1 + (\alpha h)^n\right)^{-m},\quad \theta = \theta_r + (\theta_s - \theta_r)\,S,\quad
   K = K_s \sqrt S \left(1 - (1 - S^{1/m})^m\right)^2,\quad m = 1 - 1/n.

Below the water table *h* is negative and the soil is saturated. Models of infiltration need the capacity
:math:`-\mathrm{d}\theta/\mathrm{d}h` and the slope of the conductivity *K*, and their formulas are 0/0 or infinite at
saturation. dualbcast differentiates the program: where the soil is saturated, every derivative is exactly 0.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast

# %%
# The suction is in cm. With :math:`u = (\alpha h)^n` the term :math:`1 - S^{1/m}` is :math:`u / (1 + u)`. Its logarithm
# loses digits in a dry soil or in a wet one, depending on how it is written, so there is a branch for each.


@differentiable_broadcast(wrt="h")
def soil(h, residual, saturated, alpha, n, conductivity):
    if h <= 0:
        return saturated, conductivity
    m = 1 - 1 / n
    u = (alpha * h) ** n
    saturation = (1 + u) ** -m
    pores = -math.expm1(m * (math.log(u / (1 + u)) if u < 1 else math.log1p(-1 / (1 + u))))
    return residual + (saturated - residual) * saturation, conductivity * math.sqrt(saturation) * pores * pores


# %%
# Mean parameters of four kinds of soil: R. F. Carsel and R. S. Parrish, Water Resour. Res. 24, 1988. The lengths are in
# cm and the times in days. Rows are soils and columns are suctions, and the last columns are below the water table.

soils = "sand", "loam", "silt loam", "clay"
parameters = np.array(
    [
        [0.045, 0.43, 0.145, 2.68, 712.8],
        [0.078, 0.43, 0.036, 1.56, 24.96],
        [0.067, 0.45, 0.020, 1.41, 10.80],
        [0.068, 0.38, 0.008, 1.09, 4.80],
    ]
)
h = np.append(np.geomspace(1e-2, 15_850, 400), [0, -10])
columns = parameters.T[..., np.newaxis]
(theta, k), J = soil.value_and_jacobian(h, *columns)
capacity, slope = -J[0, "h"], J[1, "h"]

# %%
# The closed form of the capacity, and central differences of the conductivity, agree. A suction of 15,850 cm (pF 4.2)
# is the wilting point of plants.

residual, saturated, alpha, n, _ = columns
x = alpha * h[:400]
closed = (saturated - residual) * (n - 1) * alpha * x ** (n - 1) * (1 + x**n) ** (1 / n - 2)
assert np.allclose(capacity[:, :400], closed, rtol=1e-10)
step = 1e-5 * h[:400]
differences = (soil(h[:400] + step, *columns)[1] - soil(h[:400] - step, *columns)[1]) / (2 * step)
assert np.allclose(slope[:, :400], differences, rtol=1e-6)
assert not capacity[:, 400:].any() and not slope[:, 400:].any()

# %%
# Sand empties within a narrow range of suctions, and clay over five decades.

fig, axes = plt.subplots(2, 2, figsize=(8, 5.8), sharex=True, layout="constrained")
panels = (
    (theta, "Water content", "volume of water / volume", "linear", (0, 0.5)),
    (k, "Conductivity", "K (cm/d)", "log", (1e-12, 1e4)),
    (capacity, "Capacity", r"$-\mathrm{d}\theta/\mathrm{d}h$ (1/cm)", "log", (1e-7, 1e-1)),
    (-slope, "Slope of the conductivity", r"$-\mathrm{d}K/\mathrm{d}h$ (1/d)", "log", (1e-14, 1e4)),
)
for axis, (rows, title, label, scale, limits) in zip(axes.flat, panels, strict=True):
    for name, row, colour in zip(soils, rows, ("#E69F00", "#009E73", "#CC79A7", "#0072B2"), strict=True):
        axis.plot(h[:400], row[:400], color=colour, linewidth=2, label=name)
    axis.set(title=title, ylabel=label, xscale="log", yscale=scale, ylim=limits)
    axis.spines[["top", "right"]].set_visible(False)
for axis in axes[1]:
    axis.set_xlabel("suction h (cm)")
axes[0, 0].legend(frameon=False)
plt.show()
