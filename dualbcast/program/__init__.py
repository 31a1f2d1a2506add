"""From IR to a program that runs: products (value, Jacobian, pullback), their kernels, and their results.

Comes in: an IR `Function`, the product to compute, and arrays. Goes out: arrays, a `Jacobian` or a `Hessian`.
"""
