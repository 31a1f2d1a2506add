"""The passes from IR to IR for a target; `program.pipeline` lists them in order.

Comes in: an IR `Function`. Goes out: one with the same results that suits vectors on a CPU, or threads on a GPU.
"""
