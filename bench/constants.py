"""Constants of all systems: the numbers of threads and turns, and the numbers in the functions."""

THREADS = 2
TURNS = 3
FLOOR = "floor"  # the time of a case that computes nothing
FAR = 3.0  # a system that takes this many times as long as the fastest has one turn
BULK, SHEAR, YIELD, HARDENING = 160e3, 80e3, 250.0, 1e3  # of a steel, in MPa
TOLERANCE = 1e-12  # of Newton's step, in radians
STEPS, STEP = 50, 0.02  # of the oscillator, and of its time
INERTIA = (1.0, 2.0, 3.5)  # the principal moments of a body
