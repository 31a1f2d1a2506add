"""Bessel functions, elliptic and other integrals, Lambert's W, orthogonal polynomials, transforms and divergences.

Comes in: numbers. Goes out: a number, or a tuple of them.
"""
