"""Functions of functions of arrays: their gradients and Jacobians, batches of calls, and steps that are replayed.

Comes in: a function of arrays. Goes out: a function that has other results, or the same ones sooner.
"""
