"""The error, gamma, beta and zeta functions and distributions made of them, in the language of scalar functions.

Comes in: numbers. Goes out: a number. `dualbcast.special` exports those that have a name of their own.
"""
