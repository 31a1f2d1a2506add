"""Finance: prices of options and bonds, and volatilities that markets imply."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


def normal_cdf(x: float) -> float:
    """The distribution function of the standard normal."""
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def normal_density(x: float) -> float:
    """The density of the standard normal."""
    return math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def black_scholes_call(spot: float, strike: float, rate: float, carry: float, sigma: float, time: float) -> float:
    """The price of a European call on an asset with a cost of carry."""
    spread = sigma * math.sqrt(time)
    d1 = (math.log(spot / strike) + (carry + 0.5 * sigma**2) * time) / spread
    growth = math.exp((carry - rate) * time)
    return spot * growth * normal_cdf(d1) - strike * math.exp(-rate * time) * normal_cdf(d1 - spread)


@formula(
    source="Hagan, Kumar, Lesniewski, Woodward, Wilmott Magazine, September, 84-108, 2002, eq. 2.17",
    dtype="float64",
    forward=(0.01, 0.08),
    strike=(0.01, 0.08),
    time=(0.1, 10.0),
    alpha=(0.01, 0.1),
    beta=(0.2, 0.9),
    rho=(-0.8, 0.8),
    nu=(0.1, 0.9),
)
def sabr_volatility(
    forward: float, strike: float, time: float, alpha: float, beta: float, rho: float, nu: float
) -> float:
    """The implied Black volatility of the SABR model, a year."""
    ratio = math.log(forward / strike)
    middle = (forward * strike) ** ((1.0 - beta) / 2.0)
    z = nu / alpha * middle * ratio
    if abs(z) < 1e-6:
        skew = 1.0 - 0.5 * rho * z
    else:
        skew = z / math.log((math.sqrt(1.0 - 2.0 * rho * z + z * z) + z - rho) / (1.0 - rho))
    square = ((1.0 - beta) * ratio) ** 2
    lower = middle * (1.0 + square / 24.0 + square**2 / 1920.0)
    correction = (
        (1.0 - beta) ** 2 / 24.0 * alpha**2 / middle**2
        + 0.25 * rho * beta * nu * alpha / middle
        + (2.0 - 3.0 * rho**2) / 24.0 * nu**2
    )
    return alpha / lower * skew * (1.0 + correction * time)


@formula(
    source="Barone-Adesi, Whaley, Journal of Finance 42, 301-320, 1987",
    dtype="float64",
    spot=(60.0, 140.0),
    strike=(80.0, 120.0),
    rate=(0.02, 0.1),
    dividend=(0.03, 0.12),
    sigma=(0.15, 0.5),
    time=(0.2, 2.0),
)
def american_call(spot: float, strike: float, rate: float, dividend: float, sigma: float, time: float) -> float:
    """The price of an American call by the quadratic approximation; its critical price by Newton's method."""
    carry = rate - dividend
    n = 2.0 * carry / sigma**2
    k = 2.0 * rate / (sigma**2 * (1.0 - math.exp(-rate * time)))
    q = (-(n - 1.0) + math.sqrt((n - 1.0) ** 2 + 4.0 * k)) / 2.0
    q_infinite = (-(n - 1.0) + math.sqrt((n - 1.0) ** 2 + 8.0 * rate / sigma**2)) / 2.0
    limit = strike / (1.0 - 1.0 / q_infinite)
    h = -(carry * time + 2.0 * sigma * math.sqrt(time)) * strike / (limit - strike)
    critical = strike + (limit - strike) * (1.0 - math.exp(h))
    spread = sigma * math.sqrt(time)
    growth = math.exp((carry - rate) * time)
    while True:
        d1 = (math.log(critical / strike) + (carry + 0.5 * sigma**2) * time) / spread
        left = critical - strike
        right = black_scholes_call(critical, strike, rate, carry, sigma, time)
        right += (1.0 - growth * normal_cdf(d1)) * critical / q
        if abs(left - right) < 1e-7 * strike:
            break
        slope = growth * normal_cdf(d1) * (1.0 - 1.0 / q) + (1.0 - growth * normal_density(d1) / spread) / q
        critical = (strike + right - slope * critical) / (1.0 - slope)
    if spot >= critical:
        return spot - strike
    d1 = (math.log(critical / strike) + (carry + 0.5 * sigma**2) * time) / spread
    premium = critical / q * (1.0 - growth * normal_cdf(d1))
    return black_scholes_call(spot, strike, rate, carry, sigma, time) + premium * (spot / critical) ** q


@formula(
    source="Merton, Journal of Financial Economics 3, 125-144, 1976, eq. 19",
    dtype="float64",
    spot=(80.0, 120.0),
    strike=(80.0, 120.0),
    rate=(0.0, 0.06),
    sigma=(0.1, 0.4),
    time=(0.1, 2.0),
    intensity=(0.1, 1.5),
    jump_mean=(-0.2, 0.1),
    jump_deviation=(0.05, 0.3),
)
def jump_diffusion_call(
    spot: float,
    strike: float,
    rate: float,
    sigma: float,
    time: float,
    intensity: float,
    jump_mean: float,
    jump_deviation: float,
) -> float:
    """The price of a European call where prices jump: a Poisson-weighted series of 12 Black-Scholes prices."""
    k = math.exp(jump_mean + 0.5 * jump_deviation**2) - 1.0
    expected = intensity * (1.0 + k) * time
    weight = math.exp(-expected)
    price = 0.0
    for n in range(12):
        variance = sigma**2 + n * jump_deviation**2 / time
        drift = rate - intensity * k + n * math.log(1.0 + k) / time
        price += weight * black_scholes_call(spot, strike, drift, drift, math.sqrt(variance), time)
        weight *= expected / (n + 1)
    return price


@formula(
    source="Manaster, Koehler, Journal of Finance 37, 227-230, 1982",
    dtype="float64",
    price=(12.0, 35.0),
    forward=(95.0, 105.0),
    strike=(95.0, 105.0),
    rate=(0.0, 0.05),
    time=(0.5, 2.0),
)
def implied_volatility(price: float, forward: float, strike: float, rate: float, time: float) -> float:
    """The volatility that the price of a call on a forward implies, by Newton's method from the inflection point."""
    undiscounted = price * math.exp(rate * time)
    sigma = max(math.sqrt(2.0 * abs(math.log(forward / strike)) / time), 0.1)
    for _ in range(20):
        spread = sigma * math.sqrt(time)
        d1 = math.log(forward / strike) / spread + 0.5 * spread
        value = forward * normal_cdf(d1) - strike * normal_cdf(d1 - spread)
        vega = forward * math.sqrt(time) * normal_density(d1)
        step = (value - undiscounted) / vega
        sigma -= step
        if abs(step) < 1e-10:
            break
    return sigma


@formula(
    source="Cox, Ingersoll, Ross, Econometrica 53, 385-407, 1985, eq. 23",
    dtype="float64",
    short_rate=(0.001, 0.1),
    kappa=(0.1, 1.0),
    theta=(0.02, 0.08),
    sigma=(0.02, 0.2),
    maturity=(0.5, 30.0),
)
def cir_bond(short_rate: float, kappa: float, theta: float, sigma: float, maturity: float) -> tuple[float, float]:
    """The price of a zero-coupon bond of face value one, and its continuously compounded yield, a year."""
    gamma = math.sqrt(kappa * kappa + 2.0 * sigma * sigma)
    growth = math.expm1(gamma * maturity)
    lower = (gamma + kappa) * growth + 2.0 * gamma
    loading = 2.0 * growth / lower
    power = 2.0 * kappa * theta / (sigma * sigma)
    factor = (2.0 * gamma * math.exp(0.5 * (kappa + gamma) * maturity) / lower) ** power
    price = factor * math.exp(-loading * short_rate)
    return price, -math.log(price) / maturity
