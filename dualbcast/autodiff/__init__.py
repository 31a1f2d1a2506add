"""Automatic differentiation, from IR to IR.

Comes in: an IR `Function` and the inputs to differentiate in. Goes out: a `Function` that computes partials, tangents
or cotangents beside the values; it can be differentiated again.
"""
