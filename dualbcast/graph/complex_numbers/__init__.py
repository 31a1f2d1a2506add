"""Variables of complex numbers, and operations on them, by their real and imaginary parts.

Comes in: operations and pairs of real Variables. Goes out: Variables of complex numbers.
"""
