"""Arrays in the scalar language: small ones of which each element is a variable, and whole ones that a kernel reads.

Comes in: what a function does with arrays. Goes out: operations on their elements.
"""
