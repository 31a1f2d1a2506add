"""Elementary functions as LLVM code that vectorises.

Comes in: the type of a number. Goes out: LLVM functions for `exp`, `log`, `pow` and the rest, each with its error
bound.
"""
