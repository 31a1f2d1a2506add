r"""
A price surface with scipy.stats
================================

A formula that is written with ``scipy.stats.norm.cdf`` compiles as it stands. Here it gives the price of a call option
for 300 prices of the stock and 200 times until the option ends, with all first and second derivatives, in one pass.
They are put into the differential equation that the price solves (F. Black and M. Scholes, J. Political Economy 81,
1973).
"""

import math

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from dualbcast import differentiable_broadcast

# %%
# The price of a call with strike 1, as a textbook has it.

RATE, VOLATILITY = 0.03, 0.25


@differentiable_broadcast
def price(spot, time):
    spread = VOLATILITY * math.sqrt(time)
    d = (math.log(spot) + RATE * time) / spread + spread / 2
    return spot * norm.cdf(d) - math.exp(-RATE * time) * norm.cdf(d - spread)


# %%
# One call for the surface and its derivatives.

spot, time = np.linspace(0.5, 1.5, 300), np.linspace(0.02, 2.0, 200)[:, None]
value, slopes, curvatures = price.value_jacobian_and_hessian(spot, time)
delta, gamma = slopes["spot"], curvatures["spot", "spot"]

# %%
# The price gains by time what it loses by the drift and the spread of the stock. The terms are of size 0.1, and their
# sum is 0 to within rounding.

residual = slopes["time"] - VOLATILITY**2 / 2 * spot**2 * gamma - RATE * spot * delta + RATE * value
print(f"largest residual {np.abs(residual).max():.1e}, largest term {np.abs(slopes['time']).max():.2f}")
assert np.abs(residual).max() < 1e-12
np.testing.assert_allclose(
    delta, norm.cdf((np.log(spot) + (RATE + VOLATILITY**2 / 2) * time) / (VOLATILITY * time**0.5))
)

# %%
# The price, and how it moves with the stock.

fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained", sharey=True)
for axis, surface, title in ((axes[0], value, "Price"), (axes[1], delta, "Delta")):
    contours = axis.contourf(spot, time[:, 0], surface, levels=20)
    fig.colorbar(contours, ax=axis)
    axis.set(title=title, xlabel="price of the stock")
axes[0].set_ylabel("years until the end")
plt.show()
