r"""
Greeks by simulation
====================

The price of an option is the mean of what it pays over all paths of the stock. The derivative of the mean is the mean
of the derivatives along each path, since what it pays is continuous (M. Broadie and P. Glasserman, Management Science
42(2), 1996). Here ten million paths are drawn and differentiated in one pass, which stores none of them.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast, random

# %%
# What a call with strike 1 pays after a year, as a function of the number of the path. The number is made of a batch
# and a path in it, so that no array of ten million numbers is read.

PATHS = 10_000


@differentiable_broadcast
def payoff(spot, volatility, rate, batch, path):
    z = random.normal(2026, PATHS * batch + path)
    end = spot * math.exp(rate - volatility**2 / 2 + volatility * z)
    return math.exp(-rate) * max(end - 1.0, 0.0)


# %%
# A thousand batches of ten thousand paths. The arguments with one value for each batch have one sum for each batch; a
# batch is an estimate of its own, and their spread tells how good the mean of all is.

batches = 1000
spot, volatility, rate = (np.full((batches, 1), value) for value in (1.1, 0.3, 0.02))
total, slopes = payoff.sum(
    spot, volatility, rate, np.arange(batches)[:, None], np.arange(PATHS), wrt=("spot", "volatility", "rate"), order=1
)
estimates = np.stack([total, slopes["spot"], slopes["volatility"], slopes["rate"]])[..., 0] / PATHS
means, errors = estimates.mean(1), estimates.std(1, ddof=1) / math.sqrt(batches)

# %%
# The closed forms of F. Black and M. Scholes (J. Political Economy 81, 1973), which the estimates meet.

s, v, r = 1.1, 0.3, 0.02
d1 = (math.log(s) + r + v**2 / 2) / v
d2 = d1 - v
n1, n2 = (math.erfc(-d / math.sqrt(2)) / 2 for d in (d1, d2))
density = math.exp(-(d1**2) / 2) / math.sqrt(2 * math.pi)
exact = np.array([s * n1 - math.exp(-r) * n2, n1, s * density, math.exp(-r) * n2])
for name, mean, error, value in zip(("price", "delta", "vega", "rho"), means, errors, exact, strict=True):
    print(f"{name:6} {mean:.5f} ± {error:.5f}, exact {value:.5f}")
assert (np.abs(means - exact) < 4 * errors).all()

# %%
# The mean of the first batches comes near as one over the root of their number.

counts = np.arange(1, batches + 1)
running = np.cumsum(estimates, axis=1) / counts
fig, axes = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
for axis, at, title in ((axes[0], 0, "Price"), (axes[1], 1, "Delta")):
    spread = estimates[at].std() / np.sqrt(counts)
    axis.fill_between(counts * PATHS, exact[at] - 2 * spread, exact[at] + 2 * spread, alpha=0.25, label="two errors")
    axis.plot(counts * PATHS, running[at], linewidth=1, label="mean so far")
    axis.axhline(exact[at], color="black", linewidth=0.8, linestyle=":", label="exact")
    axis.set(title=title, xscale="log", xlabel="paths")
axes[0].set_ylabel("estimate")
axes[0].legend()
plt.show()
