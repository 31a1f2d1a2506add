"""Launches on the host.

Comes in: machine code and a launch plan. Goes out: filled arrays, by one thread or several.
"""
