"""From IR to a program that runs: products (value, Jacobian, pullback), their kernels, and what is made of the results.

Comes in: an IR `Function`, what to compute of it, and arrays. Goes out: arrays, a `Jacobian` or a `Hessian`.
"""
