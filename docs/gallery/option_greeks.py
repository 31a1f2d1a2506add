r"""
The Greeks of an option up to its expiry
========================================

The price of a European call (F. Black and M. Scholes, J. Political Economy 81, 1973) is

.. math:: C = S\,N(d_1) - K e^{-rT} N(d_2),\quad d_{1,2} = \frac{\ln(S/K) + (r \pm \sigma^2/2)T}{\sigma\sqrt{T}},

and at expiry it is the payoff, where the formula divides by zero. Traders want the derivatives of the price, the
Greeks, for all prices of the stock and all times. dualbcast gives the price and all first and second derivatives from
one launch, and at expiry they are those of the payoff and never NaN.
"""

import math

import matplotlib.pyplot as plt
import numpy as np

from dualbcast import differentiable_broadcast

# %%
# The program says what a trader says: at expiry the option is worth its payoff, and before it the formula holds.


def normal_cdf(x):
    return math.erfc(-x / math.sqrt(2)) / 2  # erfc keeps its digits where erf is close to -1


@differentiable_broadcast
def call(spot, strike, rate, volatility, time):
    if time <= 0:
        return max(spot - strike, 0.0)
    spread = volatility * math.sqrt(time)
    d1 = (math.log(spot / strike) + (rate + volatility**2 / 2) * time) / spread
    return spot * normal_cdf(d1) - strike * math.exp(-rate * time) * normal_cdf(d1 - spread)


# %%
# A grid of 241 prices and 200 times, the first of which is expiry itself. The strike, the rate and the volatility are
# plain numbers; the arrays of prices and times broadcast.

spot = np.linspace(60, 140, 241)
time = np.linspace(0, 1, 200)[:, np.newaxis]
strike, rate, volatility = 100.0, 0.03, 0.2
arguments = spot, strike, rate, volatility, time
price, J, H = call.value_jacobian_and_hessian(*arguments, wrt=("spot", "volatility"))
delta, vega, gamma = J["spot"], J["volatility"], H["spot", "spot"]

# %%
# The closed forms of the Greeks hold before expiry. At expiry the derivatives are those of the payoff. At the strike
# itself ``max`` has the derivative of its first argument, as on every tie.

before = time[1:]
d1 = (np.log(spot / strike) + (rate + volatility**2 / 2) * before) / (volatility * np.sqrt(before))
density = np.exp(-(d1**2) / 2) / math.sqrt(2 * math.pi)
assert np.allclose(gamma[1:], density / (spot * volatility * np.sqrt(before)), rtol=1e-9, atol=1e-14)
assert np.allclose(vega[1:], spot * density * np.sqrt(before), rtol=1e-10, atol=1e-10)
assert np.array_equal(delta[0], spot >= strike) and not gamma[0].any() and not vega[0].any()

# %%
# The price also solves the equation from which Black and Scholes derived it. Its derivative in time comes from a
# Jacobian, so that this is a check of all of them together.

theta = -call.jacobian(*arguments, wrt="time")["time"]
equation = theta + volatility**2 * spot**2 * gamma / 2 + rate * spot * delta - rate * price
assert np.abs(equation[1:]).max() < 1e-10

# %%
# Gamma gathers at the strike as expiry comes near, while vega dies out.

fig, axes = plt.subplots(1, 3, figsize=(8, 3.7), sharey=True, layout="constrained")
panels = (
    (delta, "Delta", 1.0, "price per unit of spot"),
    (gamma, "Gamma", 0.06, "delta per unit of spot"),
    (vega, "Vega", 40.0, "price per unit of volatility"),
)
for axis, (values, title, top, unit) in zip(axes, panels, strict=True):
    extend = "max" if values.max() > top else "neither"
    image = axis.contourf(spot, 365 * time[:, 0], values, np.linspace(0, top, 11), cmap="viridis", extend=extend)
    fig.colorbar(image, ax=axis, orientation="horizontal", label=unit, ticks=[0, top / 2, top])
    axis.axvline(strike, color="white", linewidth=1, linestyle=":")
    axis.set(title=title, xlabel="spot price", xticks=[60, 80, 100, 120, 140])
axes[0].set_ylabel("days to expiry")
fig.suptitle("A call with strike 100, volatility 20 % and interest 3 %")
plt.show()
