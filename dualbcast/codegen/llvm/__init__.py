"""Machine code of the host.

Comes in: a kernel's text. Goes out: LLVM code on vectors, and the machine code that LLVM makes of it.
"""
