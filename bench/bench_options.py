"""Black and Scholes' price of a million calls, float64, with first derivatives, and with the five Greeks."""

from __future__ import annotations

from typing import Any

import references
import systems

N = 10**6


@systems.every_and_floor
def bench_price(benchmark: Any, turn: int, system: str) -> None:
    """The price and its derivatives in spot, strike, rate, volatility and time."""
    host = references.market(N)
    check = systems.checker(references.price_expected, host, 1e-12)
    systems.compare(
        benchmark, "Black-Scholes, price and five partials", system, "price", host, check, outputs=6, turn=turn
    )


@systems.every_and_floor
def bench_greeks(benchmark: Any, turn: int, system: str) -> None:
    """The price, delta, gamma, vega, theta and rho; gamma is a second derivative."""
    host = references.market(N)
    check = systems.checker(references.greeks_expected, host, 1e-12)
    group = "Black-Scholes, price, delta, gamma, vega, theta, rho"
    systems.compare(benchmark, group, system, "greeks", host, check, outputs=6, turn=turn)
