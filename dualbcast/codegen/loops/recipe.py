"""Loops by the functions that write them and their parameters, so that a loop in the cache need not be written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Recipe:
    """Functions to be written.

    Attributes
    ----------
    write : callable
        Writes them into a `builder.Module`, its first argument, and returns those that are called from outside.
    parameters : tuple
        Its other arguments.
    """

    write: Callable[..., Any]
    parameters: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"{self.write.__module__}.{self.write.__qualname__}{self.parameters}"

    def __str__(self) -> str:
        """The module in LLVM's language."""
        from dualbcast.codegen.loops.builder import Module

        module = Module()
        written = self.write(module, *self.parameters)
        for function in written if isinstance(written, tuple) else (written,):
            function.code.linkage = "external"
        return str(module)
