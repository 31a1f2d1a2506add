"""Loops around kernels and beside them, in a small language of their own (`builder`, `codegen.values`).

Each is written by a function `write_…` from a module and sizes; `runtime.cpu.loader.compiled` makes machine code of it.
"""

# The statuses that loops return beside those of kernels: an input is misaligned, and the kernel has not run; or there
# is no memory to work in.
MISALIGNED, OUT_OF_MEMORY = 1, 3
