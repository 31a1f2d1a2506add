r"""
Friction in pipes: the derivative of a root
===========================================

The pressure that drives a fluid through a pipe follows from the friction factor *f*. In laminar flow it is 64/Re. In
turbulent flow it is the root of an equation (C. F. Colebrook, J. Inst. Civil Eng. 11, 1939):

.. math:: \frac{1}{\sqrt f} = -2 \log_{10}\left(\frac{\varepsilon}{3.7} + \frac{2.51}{\mathrm{Re} \sqrt f}\right).

Designers of networks need its derivatives in the Reynolds number and in the roughness :math:`\varepsilon`. dualbcast
differentiates Newton's loop, and the result is that of the implicit function theorem, without a formula for it.
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import wrightomega

from dualbcast import differentiable_broadcast, value_and_derivative

# %%
# The unknown is :math:`x = 1/\sqrt f`. Newton's step takes the derivative of the equation from the equation itself. The
# arguments are logarithms, so the derivatives are those that engineers read off a logarithmic chart.


@differentiable_broadcast(max_iterations=20)
def log_friction(log_reynolds, log_roughness):
    """The natural logarithm of the friction factor."""
    reynolds, roughness = math.exp(log_reynolds), math.exp(log_roughness)
    if reynolds < 2300:
        return math.log(64 / reynolds)

    def equation(x):
        return x + 2 * math.log10(roughness / 3.7 + 2.51 * x / reynolds)

    x, step = 7.0, 1.0
    while abs(step) > 1e-13 * x:
        value, slope = value_and_derivative(equation)(x)
        step = value / slope
        x -= step
    return -2 * math.log(x)


reynolds = np.geomspace(600, 1e8, 501)
roughness = np.array([1e-6, 1e-5, 1e-4, 5e-4, 2e-3, 1e-2, 5e-2])[:, np.newaxis]
log_f, J = log_friction.value_and_jacobian(np.log(reynolds), np.log(roughness))
by_flow, by_roughness = J["log_reynolds"], J["log_roughness"]

# %%
# The root has a closed form with Wright's omega function, and its derivatives follow from the implicit function
# theorem. In laminar flow they are -1 and exactly 0.

laminar = reynolds < 2300
re = reynolds[~laminar]
scale = 2 * 2.51 / re / math.log(10)
inner = scale * wrightomega(roughness / 3.7 / scale - np.log(scale)).real  # what the logarithm is taken of
x = -2 * np.log10(inner)
assert np.allclose(log_f[:, ~laminar], -2 * np.log(x), rtol=1e-12)
ratio = 2 / math.log(10) / inner
slope = 1 + ratio * 2.51 / re
assert np.allclose(by_flow[:, ~laminar], -2 * ratio * 2.51 / re / slope, rtol=1e-9)
assert np.allclose(by_roughness[:, ~laminar], 2 * ratio * roughness / 3.7 / (x * slope), rtol=1e-9)
assert np.allclose(by_flow[:, laminar], -1, rtol=1e-14) and np.all(by_roughness[:, laminar] == 0)

# %%
# L. F. Moody's chart (Trans. ASME 66, 1944), and below it the exponent with which the pressure grows with the flow. It
# is 1 in laminar flow, around 7/4 in a smooth pipe, and 2 in a rough one.

exponent = 2 + by_flow
fig, (top, bottom) = plt.subplots(2, 1, figsize=(8, 6.4), sharex=True, height_ratios=[1.5, 1], layout="constrained")
for i, colour in enumerate(plt.colormaps["viridis"](np.linspace(0, 0.9, roughness.size))):
    for part, shade in ((laminar, "black"), (~laminar, colour)):
        top.loglog(reynolds[part], np.exp(log_f[i, part]), color=shade, linewidth=2)
        bottom.plot(reynolds[part], exponent[i, part], color=shade, linewidth=2)
    top.text(1.15e8, np.exp(log_f[i, -1]), f"{roughness[i, 0]:g}", color=colour, va="center")
top.text(1.15e8, 0.11, r"$\varepsilon$")
top.set(ylabel="friction factor f", title="Moody's chart", yticks=[0.01, 0.02, 0.05, 0.1])
top.set_yticklabels(["0.01", "0.02", "0.05", "0.1"])
bottom.set(xlabel="Reynolds number", ylabel="exponent", title="The pressure grows as this power of the flow")
for axis in (top, bottom):
    axis.axvspan(2300, 4000, color="#DDDDDD", linewidth=0)
    axis.spines[["top", "right"]].set_visible(False)
top.text(3000, 0.013, "critical", rotation=90, ha="center", va="center", color="#666666")
plt.show()
