"""CUDA kernels without a GPU: their PTX is executed on a processor, and what a GPU would have to do for it is counted.

Comes in: PTX, a launch and arrays. Goes out: what the kernel writes; counts of instructions and memory traffic.
"""
