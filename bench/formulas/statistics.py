"""Statistics: densities and their logarithms, distribution functions, and a quantile."""

from __future__ import annotations

import math

from bench.formulas.corpus import formula


@formula(
    source="Lawless, Canadian Journal of Statistics 15, 209-225, 1987",
    dtype="float64",
    count=("int", 0, 40),
    mean=(0.5, 30.0),
    dispersion=(0.05, 2.0),
)
def negative_binomial_log_likelihood(count: int, mean: float, dispersion: float) -> float:
    """The logarithm of the probability of a count with the variance mean + dispersion·mean²."""
    size = 1.0 / dispersion
    product = dispersion * mean
    return (
        math.lgamma(count + size)
        - math.lgamma(size)
        - math.lgamma(count + 1.0)
        + count * math.log(product)
        - (count + size) * math.log1p(product)
    )


@formula(
    source="Abramowitz, Stegun, Handbook of Mathematical Functions, National Bureau of Standards, 1964, eq. 6.5.29",
    dtype="float64",
    x=(0.1, 12.0),
    shape=(0.5, 10.0),
    rate=(0.3, 1.5),
)
def gamma_distribution(x: float, shape: float, rate: float) -> float:
    """The distribution function of the gamma distribution, by the series of the incomplete gamma function."""
    scaled = rate * x
    term = total = 1.0 / shape
    n = 1.0
    while abs(term) > 1e-14 * abs(total):
        term *= scaled / (shape + n)
        total += term
        n += 1.0
    return total * math.exp(shape * math.log(scaled) - scaled - math.lgamma(shape))


@formula(
    source="Mardia, Jupp, Directional Statistics, Wiley, 2000, eq. 3.5.17; Abramowitz, Stegun, 1964, eqs. 9.8.1, 9.8.2",
    dtype="float64",
    angle=(-3.14, 3.14),
    mean=(-3.14, 3.14),
    concentration=(0.05, 30.0, "log"),
)
def von_mises_log_density(angle: float, mean: float, concentration: float) -> float:
    """The logarithm of the von Mises density; radians."""
    if concentration < 3.75:
        t = (concentration / 3.75) ** 2
        bessel = 1.0 + t * (
            3.5156229 + t * (3.0899424 + t * (1.2067492 + t * (0.2659732 + t * (0.0360768 + t * 0.0045813))))
        )
        log_bessel = math.log(bessel)
    else:
        t = 3.75 / concentration
        series = 0.39894228 + t * (
            0.01328592
            + t
            * (
                0.00225319
                + t
                * (
                    -0.00157565
                    + t * (0.00916281 + t * (-0.02057706 + t * (0.02635537 + t * (-0.01647633 + t * 0.00392377))))
                )
            )
        )
        log_bessel = concentration - 0.5 * math.log(concentration) + math.log(series)
    return concentration * math.cos(angle - mean) - math.log(2.0 * math.pi) - log_bessel


@formula(
    source="Jenkinson, Quarterly Journal of the Royal Meteorological Society 81, 158-171, 1955",
    dtype="float64",
    x=(8.0, 30.0),
    location=(10.0, 14.0),
    scale=(3.0, 6.0),
    shape=(-0.15, 0.3),
)
def extreme_value_log_density(x: float, location: float, scale: float, shape: float) -> float:
    """The logarithm of the generalised extreme value density; the shape is zero for Gumbel's distribution."""
    z = (x - location) / scale
    if abs(shape) < 1e-6:
        return -math.log(scale) - z - math.exp(-z)
    inner = 1.0 + shape * z
    if inner <= 0.0:
        return -1e3
    power = math.log(inner) / shape
    return -math.log(scale) - (1.0 + shape) * power - math.exp(-power)


@formula(
    source="Wichura, Applied Statistics 37, 477-484, 1988, algorithm AS 241",
    dtype="float64",
    probability=(1e-9, 0.999999999),
    mean=(-2.0, 2.0),
    deviation=(0.1, 5.0),
)
def normal_quantile(probability: float, mean: float, deviation: float) -> float:
    """The quantile of the normal distribution, by three rational functions."""
    q = probability - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        upper = 45921.953931549871457 + r * (
            67265.770927008700853 + r * (33430.575583588128105 + r * 2509.0809287301226727)
        )
        upper = 133.14166789178437745 + r * (1971.5909503065514427 + r * (13731.693765509461125 + r * upper))
        lower = 39307.89580009271061 + r * (28729.085735721942674 + r * 5226.495278852854561)
        lower = 687.1870074920579083 + r * (5394.1960214247511077 + r * (21213.794301586595867 + r * lower))
        value = q * (3.387132872796366608 + r * upper) / (1.0 + r * (42.313330701600911252 + r * lower))
    else:
        r = math.sqrt(-math.log(probability if q < 0.0 else 1.0 - probability))
        if r <= 5.0:
            r -= 1.6
            upper = 0.24178072517745061177 + r * (0.022723844989269184583 + r * 7.7454501427834140764e-4)
            upper = 5.7694972214606914055 + r * (3.6478483247632045605 + r * (1.27045825245236838258 + r * upper))
            upper = 1.42343711074968357734 + r * (4.6303378461565452959 + r * upper)
            lower = 0.0151986665636164571966 + r * (5.475938084995344946e-4 + r * 1.05075007164441684324e-9)
            lower = 1.6763848301838038494 + r * (0.68976733498510000455 + r * (0.14810397642748007459 + r * lower))
            lower = 1.0 + r * (2.05319162663775882187 + r * lower)
        else:
            r -= 5.0
            upper = 0.0012426609473880784386 + r * (2.71155556874348757815e-5 + r * 2.01033439929228813265e-7)
            upper = 1.7848265399172913358 + r * (0.29656057182850489123 + r * (0.026532189526576123093 + r * upper))
            upper = 6.6579046435011037772 + r * (5.4637849111641143699 + r * upper)
            lower = 1.8463183175100546818e-5 + r * (1.4215117583164458887e-7 + r * 2.04426310338993978564e-15)
            lower = 0.013692988092273580531 + r * (7.868691311456132591e-4 + r * lower)
            lower = 1.0 + r * (
                0.59983220655588793769 + r * (0.13692988092273580531 + r * (0.0148753612908506148525 + r * lower))
            )
        value = upper / lower
        value = -value if q < 0.0 else value
    return mean + deviation * value


@formula(
    source="Azzalini, Scandinavian Journal of Statistics 12, 171-178, 1985",
    dtype="float64",
    x=(-6.0, 6.0),
    location=(-1.0, 1.0),
    scale=(0.5, 3.0),
    slant=(-4.0, 4.0),
)
def skew_normal_log_density(x: float, location: float, scale: float, slant: float) -> float:
    """The logarithm of the skew-normal density; the far tail by the asymptotic series of erfc."""
    z = (x - location) / scale
    t = -slant * z / math.sqrt(2.0)
    if t < 5.0:
        log_cdf = math.log(0.5 * math.erfc(t))
    else:
        u = 1.0 / (2.0 * t * t)
        log_cdf = -t * t - math.log(2.0 * t * math.sqrt(math.pi)) + math.log1p(-u * (1.0 - 3.0 * u * (1.0 - 5.0 * u)))
    return math.log(2.0 / scale) - 0.5 * z * z - 0.5 * math.log(2.0 * math.pi) + log_cdf
