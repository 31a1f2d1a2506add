"""Loops around kernels and beside them, in a small language of their own (`builder`, `values`).

Comes in: sizes of elements and numbers of arguments. Goes out: a `Recipe`, from which LLVM makes machine code.
"""
