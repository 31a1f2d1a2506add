"""What all systems have in common: how many threads, and the numbers in the functions."""

THREADS = 2
BULK, SHEAR, YIELD, HARDENING = 160e3, 80e3, 250.0, 1e3  # of a steel, in MPa
TOLERANCE = 1e-12  # of Newton's step, in radians
