"""Loops around kernels and beside them, written with `builder` and compiled once for a machine.

Comes in: sizes of elements and numbers of arguments. Goes out: addresses of machine code.
"""
