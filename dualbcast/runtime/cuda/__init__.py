"""Launches on a GPU, by CuPy.

Comes in: a cubin and a launch plan. Goes out: filled arrays, on CuPy's current stream.
"""
