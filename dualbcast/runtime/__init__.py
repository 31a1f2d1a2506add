"""From machine code and arrays to results.

Comes in: a compiled kernel and the arguments of a call. Goes out: arrays. It validates, lays out, allocates and
launches; it knows no derivative.
"""
