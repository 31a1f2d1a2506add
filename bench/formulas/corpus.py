"""The registry of published formulas: scalar Python functions with their sources, dtypes and ranges of arguments."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import pkgutil
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

__all__ = ["FORMULAS", "Formula", "formula", "load"]

Function = TypeVar("Function", bound=Callable[..., Any])
FORMULAS: dict[str, Formula] = {}


@dataclass(frozen=True)
class Formula:
    """A function of scalars, and where it comes from.

    Attributes
    ----------
    function : callable
        Plain Python, undecorated.
    field : str
        The module that has it.
    source : str
        The publication.
    dtype : str
        Of its float arrays: float32 or float64.
    ranges : dict
        For each parameter, in the order of the signature: `(low, high)` is uniform, `(low, high, "log")` is uniform in
        the logarithm, `("int", low, high)` is an array of integers that includes both ends, and a number is one scalar
        for all elements.
    wrt : tuple of str
        The parameters that derivatives are taken in.
    """

    function: Callable[..., Any]
    field: str
    source: str
    dtype: str
    ranges: dict[str, Any]
    wrt: tuple[str, ...]

    @property
    def name(self) -> str:
        """The function's name, which no other formula has."""
        return self.function.__name__

    @property
    def half(self) -> str:
        """`tune` or `report`: by a hash of the name, so that it never changes."""
        return "tune" if hashlib.sha256(self.name.encode()).digest()[0] & 1 else "report"

    def arguments(self, size: int, seed: int = 0) -> list[Any]:
        """An argument for each parameter: arrays of shape (size,) within the ranges, and scalars.

        The same name, size and seed give the same numbers.
        """
        random = np.random.default_rng([zlib.crc32(self.name.encode()), seed])
        return [_argument(random, spec, size, np.dtype(self.dtype)) for spec in self.ranges.values()]


def _argument(random: np.random.Generator, spec: Any, size: int, dtype: np.dtype[Any]) -> Any:
    if not isinstance(spec, tuple):
        return spec
    if spec[0] == "int":
        # With float32, NumPy computes in float64 if integers are longer.
        kind = "int16" if dtype == np.float32 else "int64"
        return random.integers(spec[1], spec[2], size, endpoint=True, dtype=kind)
    low, high = spec[:2]
    drawn = random.random(size)
    values = low * (high / low) ** drawn if "log" in spec else low + (high - low) * drawn
    return np.clip(values, low, high).astype(dtype)


def formula(*, source: str, dtype: str, wrt: str | None = None, **ranges: Any) -> Callable[[Function], Function]:
    """Enter a function into `FORMULAS`; it is returned as it is.

    Parameters
    ----------
    source : str
        "Author, Journal volume, pages, year[, eq. n]".
    dtype : "float32" or "float64"
    wrt : str, optional
        Names of parameters, separated by spaces. All that are arrays of floats by default.
    **ranges
        As in `Formula`, one for each parameter.

    Raises
    ------
    ValueError
        If a name is taken, or the ranges or `wrt` are not those of parameters.
    """

    def register(function: Function) -> Function:
        parameters = list(inspect.signature(function).parameters)
        if sorted(parameters) != sorted(ranges):
            raise ValueError(f"{function.__name__} has the parameters {parameters}, and ranges for {list(ranges)}")
        if function.__name__ in FORMULAS:
            raise ValueError(f"there are two formulas with the name {function.__name__}")
        floats = [name for name in parameters if isinstance(ranges[name], tuple) and ranges[name][0] != "int"]
        chosen = wrt.split() if wrt is not None else floats
        if not chosen or any(name not in parameters for name in chosen):
            raise ValueError(f"{function.__name__}: wrt={wrt!r} does not name parameters")
        FORMULAS[function.__name__] = Formula(
            function,
            function.__module__.rpartition(".")[2],
            source,
            dtype,
            {name: ranges[name] for name in parameters},
            tuple(name for name in parameters if name in chosen),
        )
        return function

    return register


def load() -> dict[str, Formula]:
    """Import every module of fields beside this file, and return the formulas by name."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if not (module.ispkg or module.name in ("__main__", "corpus")):
            importlib.import_module(f"bench.formulas.{module.name}")
    return FORMULAS
