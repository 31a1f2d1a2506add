"""Machine code of NVIDIA GPUs.

Comes in: a kernel's text and a compute capability. Goes out: a cubin, and what the assembler says of it. No GPU is
needed.
"""
