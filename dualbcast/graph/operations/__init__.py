"""The operations on Variables: element-wise, broadcasting, shapes, reductions, indexing, linear algebra.

Comes in: Variables, arrays and numbers. Goes out: Variables, recorded where a derivative may be asked for. An operation
that Variable has as an operator or method enters itself into the table of `graph.variable`.
"""
