r"""
A climate that tips over
========================

Ice reflects sunlight, so a cold planet stays cold and a warm one warm. In the simplest model (M. I. Budyko, Tellus 21,
1969) the absorbed sunlight balances the emitted heat :math:`A + B\,T`, and the albedo grows along a ramp between an
ocean without ice and a planet that is covered by it (R. T. Pierrehumbert, *Principles of Planetary Climate*, 2010). The
climate is where a loop settles, which takes from tens to thousands of iterations. dualbcast differentiates it, and
gives the warming by carbon dioxide for every brightness of the sun: beside a tipping point it has no limit.
"""

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast

# %%
# Temperatures are in °C and fluxes in W/m². The constants of the emission are those of G. R. North et al. (Rev.
# Geophys. 19, 1981).

ICE, OCEAN = -13.0, 17.0  # all is ice below the one, and there is none above the other
EMITTED, PER_DEGREE = 203.3, 2.09


def albedo(temperature):
    if temperature <= ICE:
        return 0.6
    if temperature >= OCEAN:
        return 0.3
    return 0.3 + 0.3 * ((temperature - OCEAN) / (ICE - OCEAN)) ** 2


@differentiable_broadcast(max_iterations=1_000_000)
def climate(solar, forcing, start):
    """The temperature at which a planet settles that has this one at the start."""
    temperature, imbalance = start, 1.0
    while abs(imbalance) > 1e-10:
        absorbed = solar / 4 * (1 - albedo(temperature))
        imbalance = absorbed + forcing - EMITTED - PER_DEGREE * temperature
        temperature += imbalance / (2 * PER_DEGREE)
    return temperature


# %%
# The sun from 80 to 140 % of its brightness, for a planet that is warm at first and for one that is cold.

brightness = np.linspace(0.8, 1.4, 1201)
solar = 1361 * brightness
start = np.array([[40.0], [-60.0]])
temperature, J = climate.value_and_jacobian(solar, 0.0, start, wrt=("solar", "forcing"))

# %%
# In balance, the implicit function theorem gives the derivatives. They agree, also beside the tipping points, where
# they grow without limit.

ramp = (temperature > ICE) & (temperature < OCEAN)
slope = np.where(ramp, 0.6 * (temperature - OCEAN) / (ICE - OCEAN) ** 2, 0)
reflected = 0.3 + np.where(ramp, slope * (temperature - OCEAN) / 2, np.where(temperature <= ICE, 0.3, 0))
feedback = PER_DEGREE + solar / 4 * slope
assert np.allclose(J["forcing"], 1 / feedback, rtol=1e-5)
assert np.allclose(J["solar"], (1 - reflected) / 4 / feedback, rtol=1e-5)

# %%
# Carbon dioxide adds 5.35 W/m² times the logarithm of its ratio (G. Myhre et al., Geophys. Res. Lett. 25, 1998), so 3.7
# W/m² for twice as much. With a constant albedo it would warm each of the planets by 1.8 °C.

doubled = 5.35 * np.log(2) * J["forcing"]
fig, axes = plt.subplots(2, 1, figsize=(8, 6), sharex=True, layout="constrained")
for row, name, colour in ((0, "warm at first", "#D55E00"), (1, "cold at first", "#0072B2")):
    jump = np.argmax(np.abs(np.diff(temperature[row])))
    for axis, values in zip(axes, (temperature[row], doubled[row]), strict=True):
        for part in (slice(None, jump + 1), slice(jump + 1, None)):
            axis.plot(100 * brightness[part], values[part], color=colour, linewidth=2.5 - row, label=name)
            name = None
    ends = 100 * brightness[jump], temperature[row, jump : jump + 2]
    axes[0].vlines(ends[0], *np.sort(ends[1]), color=colour, linestyle=":")
axes[0].set(ylabel="temperature (°C)", title="Where the climate settles")
axes[0].legend(frameon=False)
axes[1].set(xlabel="brightness of the sun (% of today's)", ylabel="warming (°C)", yscale="log")
axes[1].set(title="Warming by twice the carbon dioxide", yticks=[2, 5, 10, 20], yticklabels=["2", "5", "10", "20"])
axes[1].minorticks_off()
for axis in axes:
    axis.axvline(100, color="#BBBBBB", linewidth=1, zorder=0)
    axis.spines[["top", "right"]].set_visible(False)
plt.show()
