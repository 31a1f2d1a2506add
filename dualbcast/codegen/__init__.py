"""From IR to machine code.

Comes in: an IR `Function` and the layout it is specialised on. Goes out: the text of a kernel for people, the
interpreter and Numba-CUDA; LLVM code and machine code for the CPU (`llvm`, `mathlib`); a cubin for GPUs (`cuda`).
"""
