"""Other libraries: adapters for calls on their arrays, functions for their solvers, and functions of their expressions.

Comes in: an element function with arrays of a library, or a library's own objects. Goes out: what that library expects.
"""
