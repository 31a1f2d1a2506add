"""The meanings of functions: the domain and the partial derivatives of each callable that kernels can call.

Comes in: a Python callable. Goes out: a row of the rule table, or a custom derivative of the user's.
"""
