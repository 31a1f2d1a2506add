"""Functions of vectors and matrices.

Comes in: a call with arrays that have core dimensions. Goes out: one whose arguments are the elements of the cores, and
results that lie in memory as blocks of these dimensions.
"""
