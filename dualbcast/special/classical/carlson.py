"""Carlson's symmetric elliptic integrals, in the language of scalar functions.

The duplication theorem of B. C. Carlson, "Numerical computation of real or complex elliptic integrals", *Numerical
Algorithms* 10 (1995) 13-26, and 19.36 of the Digital Library of Mathematical Functions. They have no rules: the
derivatives are those of the loops; only `elliprg` has slopes of its own.
"""

from __future__ import annotations

import math

from dualbcast.arithmetic import maximum, minimum


def elliprf(x: float, y: float, z: float) -> float:
    """Carlson's elliptic integral R_F, of numbers that are not negative, and at most one of which is 0.

    Returns
    -------
    float
        To some 5 units in the last place. It is differentiable in all arguments where they are positive.

    Examples
    --------
    >>> elliprf(4.0, 4.0, 4.0), round(elliprf(0.0, 1.0, 2.0), 12)
    (0.5, 1.311028777146)
    """
    mean = (x + y + z) / 3.0
    while maximum(abs(mean - x), maximum(abs(mean - y), abs(mean - z))) > 3e-3 * mean:
        sum_of_products = products(x, y, z)
        x = 0.25 * (x + sum_of_products)
        y = 0.25 * (y + sum_of_products)
        z = 0.25 * (z + sum_of_products)
        mean = (x + y + z) / 3.0
    u, v = (mean - x) / mean, (mean - y) / mean
    w = -u - v
    e2 = u * v - w * w
    e3 = u * v * w
    series = e2 * (-1.0 / 10 + e2 * (1.0 / 24 - 5.0 / 208 * e2 + 1.0 / 16 * e3) - 3.0 / 44 * e3)
    return (1.0 + (series + e3 * (1.0 / 14 + 3.0 / 104 * e3))) / math.sqrt(mean)


def elliprd(x: float, y: float, z: float) -> float:
    """Carlson's elliptic integral R_D, of numbers that are not negative; z and at least one more are positive.

    Examples
    --------
    >>> elliprd(4.0, 4.0, 4.0), round(elliprd(0.0, 2.0, 1.0), 12)
    (0.125, 1.797210352103)
    """
    mean = 0.2 * (x + y + 3.0 * z)
    scale, total = 1.0, 0.0
    while maximum(abs(mean - x), maximum(abs(mean - y), abs(mean - z))) > 3e-3 * mean:
        sum_of_products = products(x, y, z)
        total = total + scale / (math.sqrt(z) * (z + sum_of_products))
        scale = 0.25 * scale
        x = 0.25 * (x + sum_of_products)
        y = 0.25 * (y + sum_of_products)
        z = 0.25 * (z + sum_of_products)
        mean = 0.2 * (x + y + 3.0 * z)
    u, v = (mean - x) / mean, (mean - y) / mean
    w = (-u - v) / 3.0
    return scale * fifth_degree(u, v, w, w, w) / (mean * math.sqrt(mean)) + 3.0 * total


def elliprj(x: float, y: float, z: float, p: float) -> float:
    """Carlson's elliptic integral R_J, of numbers that are not negative; at most one of the first three is 0, p is not.

    For negative p, where SciPy has Cauchy's principal value, the result is NaN.

    Examples
    --------
    >>> elliprj(4.0, 4.0, 4.0, 4.0), round(elliprj(0.0, 1.0, 2.0, 3.0), 12)
    (0.125, 0.776886237786)
    """
    if not p > 0:
        return math.nan
    mean = 0.2 * (x + y + z + 2.0 * p)
    scale, total = 1.0, 0.0
    while maximum(maximum(abs(mean - x), abs(mean - y)), maximum(abs(mean - z), abs(mean - p))) > 3e-3 * mean:
        root_x, root_y, root_z, root_p = math.sqrt(x), math.sqrt(y), math.sqrt(z), math.sqrt(p)
        d = (root_p + root_x) * (root_p + root_y) * (root_p + root_z)
        # (p - x) * (p - y) * (p - z) / d**2, factor by factor, so that nothing overflows.
        e = (root_p - root_x) / (root_p + root_x) * ((root_p - root_y) / (root_p + root_y))
        e = e * ((root_p - root_z) / (root_p + root_z))
        total = total + scale / d * elliprc(1.0, 1.0 + e)
        scale = 0.25 * scale
        sum_of_products = products(x, y, z)
        x = 0.25 * (x + sum_of_products)
        y = 0.25 * (y + sum_of_products)
        z = 0.25 * (z + sum_of_products)
        p = 0.25 * (p + sum_of_products)
        mean = 0.2 * (x + y + z + 2.0 * p)
    u, v, w = (mean - x) / mean, (mean - y) / mean, (mean - z) / mean
    q = -0.5 * (u + v + w)
    return scale * fifth_degree(u, v, w, q, q) / (mean * math.sqrt(mean)) + 6.0 * total


def elliprc(x: float, y: float) -> float:
    """Carlson's elliptic integral R_C, R_F of x, y and y; for negative y Cauchy's principal value.

    Examples
    --------
    >>> round(elliprc(0.0, 0.25), 12), round(elliprc(0.25, -2.0), 12)
    (3.14159265359, 0.231049060187)
    """
    if y < 0:
        return math.sqrt(x / (x - y)) * elliprf(x - y, -y, -y)
    return elliprf(x, y, y)


def elliprg(x: float, y: float, z: float) -> float:
    """Carlson's elliptic integral R_G, of numbers that are not negative, and at most one of which is 0.

    Examples
    --------
    >>> elliprg(4.0, 4.0, 4.0), round(elliprg(0.0, 16.0, 16.0), 12)
    (2.0, 3.14159265359)
    """
    of_x, of_y, of_z = elliprg_parts(x, y, z)
    return (y * of_x + z * of_x + z * of_y + x * of_y + x * of_z + y * of_z) / 6.0


def elliprg_slopes(x: float, y: float, z: float) -> tuple[float, float, float]:
    """The slopes of `elliprg`; those of its text would cancel where an argument is small."""
    of_x, of_y, of_z = elliprg_parts(x, y, z)
    return (of_y + of_z) / 12.0, (of_z + of_x) / 12.0, (of_x + of_y) / 12.0


def elliprg_parts(x: float, y: float, z: float) -> tuple[float, float, float]:
    """Each argument times the R_D of which it is the last one (19.21.8 to 19.21.11), by one loop for the three."""
    root_x, root_y, root_z = math.sqrt(x), math.sqrt(y), math.sqrt(z)
    sum_of_products = root_x * (root_y + root_z) + root_y * root_z
    a, b, c = x + sum_of_products, y + sum_of_products, z + sum_of_products
    head_x, head_y, head_z = root_x / a, root_y / b, root_z / c
    a, b, c, scale = 0.25 * a, 0.25 * b, 0.25 * c, 0.25
    of_a, of_b, of_c = 0.0, 0.0, 0.0
    while maximum(a, maximum(b, c)) - minimum(a, minimum(b, c)) > 1e-3 * (a + b + c):
        root_a, root_b, root_c = math.sqrt(a), math.sqrt(b), math.sqrt(c)
        sum_of_products = root_a * (root_b + root_c) + root_b * root_c
        a, b, c = a + sum_of_products, b + sum_of_products, c + sum_of_products
        of_a, of_b, of_c = of_a + scale / (root_a * a), of_b + scale / (root_b * b), of_c + scale / (root_c * c)
        a, b, c, scale = 0.25 * a, 0.25 * b, 0.25 * c, 0.25 * scale
    return (
        3.0 * head_x + x * (3.0 * of_a + scale * near_elliprd(b, c, a)),
        3.0 * head_y + y * (3.0 * of_b + scale * near_elliprd(c, a, b)),
        3.0 * head_z + z * (3.0 * of_c + scale * near_elliprd(a, b, c)),
    )


def near_elliprd(x: float, y: float, z: float) -> float:
    """R_D of numbers near each other."""
    mean = 0.2 * (x + y + 3.0 * z)
    u, v = (mean - x) / mean, (mean - y) / mean
    w = (-u - v) / 3.0
    return fifth_degree(u, v, w, w, w) / (mean * math.sqrt(mean))


def products(x: float, y: float, z: float) -> float:
    """The sum of the products of pairs of roots, by which the three numbers approach each other."""
    root_x, root_y, root_z = math.sqrt(x), math.sqrt(y), math.sqrt(z)
    return root_x * (root_y + root_z) + root_y * root_z


def fifth_degree(u: float, v: float, w: float, p: float, q: float) -> float:
    """R_J of numbers near each other, from their deviations, of which the last is counted twice or more (19.36.2)."""
    # The elementary symmetric functions of the five deviations.
    e1, e2, e3, e4, e5 = u + v, u * v, 0.0, 0.0, 0.0
    for each in (w, p, q):
        e5 = e5 + e4 * each
        e4 = e4 + e3 * each
        e3 = e3 + e2 * each
        e2 = e2 + e1 * each
        e1 = e1 + each
    series = e2 * (-3.0 / 14 + e2 * (9.0 / 88 - 1.0 / 16 * e2 + 45.0 / 272 * e3) - 9.0 / 52 * e3 + 3.0 / 20 * e4)
    series = series + e3 * (1.0 / 6 + 3.0 / 40 * e3 - 9.0 / 68 * e4)
    return 1.0 + (series - 3.0 / 22 * e4 + e5 * (3.0 / 26 - 9.0 / 68 * e2))
