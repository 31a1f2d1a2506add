"""Functions of NumPy's that are short compositions of other operations, by its names and with its arguments.

Comes in: Variables or arrays. Goes out: Variables.
"""
