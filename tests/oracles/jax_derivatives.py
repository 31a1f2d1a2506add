"""Derivatives of a function by JAX, compiled once as a whole: one XLA program for each operation takes three times as
long to compile."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import jax

__all__ = ["compiled", "in_jax", "to_second_order"]

# As an oracle a program runs once, so that XLA need not make it fast.
_ONCE = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function under `jax.jit` with 64 bits."""
    jitted = jax.jit(function, compiler_options=_ONCE)

    def call(*args: Any) -> Any:
        with jax.enable_x64():
            return jitted(*args)

    return call


def in_jax(function: Any) -> Any:
    """The function with `jax.numpy` for its global name `np`."""
    return types.FunctionType(function.__code__, {**function.__globals__, "np": jax.numpy})


def to_second_order(
    number: Callable[..., Any], args: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """The value of a function to one number, its gradient, and the derivative of the gradient along the tangents."""
    wrt = tuple(range(len(args)))

    def both(args: Any, tangents: Any) -> Any:
        (value, gradient), (_, seconds) = jax.jvp(jax.value_and_grad(number, wrt), args, tangents)
        return value, gradient, seconds

    return compiled(both)(tuple(args), tuple(tangents))
