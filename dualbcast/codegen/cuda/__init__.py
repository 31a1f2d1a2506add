"""Machine code of NVIDIA GPUs.

Comes in: a kernel's text and a compute capability. Goes out: a cubin, and the assembler's report. It needs no GPU.
"""
