"""What a program is: typed nodes of one scalar function, and what every stage does with them.

Comes in: nothing of this package but errors. Goes out: `Function`, which all later stages read and return, with ways
to walk, print, verify, fold, number and compose it.
"""
