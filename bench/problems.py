"""The scalar functions of the cases, as a user of dualbcast writes them; two more are in `bench.paper.models` and
`dualbcast.cli.checking`."""

from __future__ import annotations

import math

from constants import BULK, HARDENING, SHEAR, STEP, STEPS, TOLERANCE, YIELD

from dualbcast import value_and_derivative, value_and_gradient


def call_price(spot: float, strike: float, rate: float, volatility: float, time: float) -> float:
    """Black and Scholes: a European call."""
    spread = volatility * math.sqrt(time)
    d = (math.log(spot / strike) + rate * time) / spread + spread / 2
    return spot * normal(d) - strike * math.exp(-rate * time) * normal(d - spread)


def normal(x: float) -> float:
    """The distribution function of the standard normal."""
    return math.erfc(-x / math.sqrt(2)) / 2


def greeks(spot: float, strike: float, rate: float, volatility: float, time: float) -> tuple[float, ...]:
    """The price, delta, gamma, vega, theta and rho, none of them by hand."""

    def price(spot: float, rate: float, volatility: float, time: float) -> float:
        return call_price(spot, strike, rate, volatility, time)

    def delta_of(spot: float) -> float:
        return value_and_gradient(price)(spot, rate, volatility, time)[1][0]

    value, (_, rho, vega, decay) = value_and_gradient(price)(spot, rate, volatility, time)
    delta, gamma = value_and_derivative(delta_of)(spot)
    return value, delta, gamma, vega, -decay, rho


def eccentric_anomaly(mean: float, eccentricity: float) -> float:
    """Kepler's equation by Newton's method, until a step is small."""
    x = mean + eccentricity * math.sin(mean)
    step = 1.0
    while abs(step) > TOLERANCE:
        step = (x - eccentricity * math.sin(x) - mean) / (1 - eccentricity * math.cos(x))
        x -= step
    return x


def oscillator(x: float, v: float, damping: float) -> float:
    """Where van der Pol's oscillator is after equal steps of the symplectic Euler method."""
    for _ in range(STEPS):
        v += STEP * (damping * (1 - x * x) * v - x)
        x += STEP * v
    return x


def stress(xx: float, yy: float, zz: float, xy: float, xz: float, yz: float, hardened: float) -> tuple[float, ...]:
    """J2 plasticity at small strains with linear isotropic hardening: the stress by a radial return.

    The six strains are elastic trial strains (tensor components); `hardened` is the plastic strain so far.
    """
    volume = xx + yy + zz
    pressure, third = BULK * volume, volume / 3
    sxx, syy, szz = 2 * SHEAR * (xx - third), 2 * SHEAR * (yy - third), 2 * SHEAR * (zz - third)
    sxy, sxz, syz = 2 * SHEAR * xy, 2 * SHEAR * xz, 2 * SHEAR * yz
    mises = math.sqrt(1.5 * (sxx * sxx + syy * syy + szz * szz + 2 * (sxy * sxy + sxz * sxz + syz * syz)))
    excess = mises - (YIELD + HARDENING * hardened)
    if excess > 0:
        kept = 1 - 3 * SHEAR * excess / ((3 * SHEAR + HARDENING) * mises)
        sxx, syy, szz, sxy, sxz, syz = kept * sxx, kept * syy, kept * szz, kept * sxy, kept * sxz, kept * syz
    return sxx + pressure, syy + pressure, szz + pressure, sxy, sxz, syz


def layer(x: float, w: float, b: float) -> float:
    """tanh of a product and a bias."""
    return math.tanh(x * w + b)
