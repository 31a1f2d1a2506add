"""The experiments of Revels et al. (2018) on this package, other systems and kernels by hand: `python -m bench.paper`.

Comes in: a command line. Goes out: tables, pictures, JSON and CSV files.
"""
