"""The decorator, and the functions of arrays that it makes.

Comes in: a Python function, and calls with a user's arguments. Goes out: calls of programs for the arguments' kinds.
"""
