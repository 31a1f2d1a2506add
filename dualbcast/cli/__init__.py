"""The command line.

Comes in: the arguments of `dualbcast sweep`, `explain`, `info` or `cache`. Goes out: tables, pictures, JSON, CSV.
"""
