"""Other libraries: each module has the name of the library that it is for, and imports it only when it is used.

Comes in: arrays, expressions and solvers of other libraries. Goes out: values and derivatives as they want them.
"""
