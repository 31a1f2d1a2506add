"""From a Python function to IR.

Comes in: a scalar function and the kinds of its arguments. Goes out: an IR `Function` in which all calls are
inlined, and the captures that it depends on. What it refuses is an error at the user's line.
"""
