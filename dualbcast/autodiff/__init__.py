"""Automatic differentiation, from IR to IR.

Comes in: an IR `Function` and the directions to differentiate in. Goes out: a `Function` that computes the tangents in
these beside the values; it can be differentiated again.
"""
