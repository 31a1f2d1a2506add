"""The intermediate representation: typed nodes of one scalar function, and the operations that all stages share.

Comes in: nothing of this package but errors. Goes out: `Function`, which all later stages read and return, and
functions that traverse, print, verify, fold, number and compose it.
"""
