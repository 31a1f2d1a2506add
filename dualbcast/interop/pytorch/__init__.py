"""Calls on PyTorch's tensors, as its autograd, its transforms and its compiler see them.

Comes in: an element function and tensors. Goes out: tensors that know where they come from.
"""
