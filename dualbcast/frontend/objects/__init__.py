"""Objects of Python's that exist while a kernel is compiled: members of enumerations, dictionaries, lists that change.

Comes in: what a function does with them. Goes out: operations on the numbers in them.
"""
