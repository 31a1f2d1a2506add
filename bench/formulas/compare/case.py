"""A formula with its arguments, as every system gets it, and what ours gives for it in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bench.formulas.compare.array_ops import NumpyOps
from bench.formulas.compare.peer_source import ArrayFunction, array_function
from bench.formulas.corpus import Formula
from dualbcast import differentiable_broadcast

__all__ = ["Case", "Forms", "blocks"]

# By its name, a callable that prepares a call. A call gives all values, and then the partials of each output.
Forms = dict[str, Callable[[], Callable[[], Any]]]


@dataclass
class Case:
    """A formula and arguments of one size."""

    formula: Formula
    size: int
    seed: int = 0

    @cached_property
    def arguments(self) -> list[Any]:
        """Arrays and scalars, in the order of the signature."""
        return self.formula.arguments(self.size, self.seed)

    @cached_property
    def plain(self) -> ArrayFunction:
        """The formula of whole arrays."""
        return array_function(self.formula)

    @cached_property
    def guarded(self) -> ArrayFunction:
        """The same with guards against infinite slopes on sides that are not taken."""
        return array_function(self.formula, guarded=True)

    @cached_property
    def arrays(self) -> list[Any]:
        """The arguments of the formula of whole arrays; a scalar among them is differentiated in."""
        by_name = dict(zip(self.formula.ranges, self.arguments, strict=True))
        return [by_name[name] for name in self.plain.parameters]

    @cached_property
    def active(self) -> list[int]:
        """Which of `arrays` are differentiated in."""
        return [self.plain.parameters.index(name) for name in self.formula.wrt]

    @cached_property
    def iterations(self) -> dict[int, int]:
        """The most iterations that a loop which ends where the data says takes for an element."""
        if not self.plain.while_loops:
            return {}
        ops = NumpyOps(self.formula.dtype, self.size)
        with np.errstate(all="ignore"):
            self.plain.bind(ops.namespace)(*self.arrays)
        return ops.iterations

    @cached_property
    def step(self) -> int:
        """Every k-th element is compared, k odd."""
        return (self.size >> 14) | 1

    def ours(self, dtype: str) -> list[Any]:
        """Values and partials of the elements that are compared, by dualbcast with arrays of floats of a dtype."""
        some = [a[:: self.step] if isinstance(a, np.ndarray) else a for a in self.arguments]
        given = [a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a for a in some]
        function: Any = differentiable_broadcast(self.formula.function)
        found = [np.asarray(a) for a in blocks(function.value_and_jacobian(*given, wrt=self.formula.wrt))]
        return [np.broadcast_to(a, (len(range(0, self.size, self.step)),)) for a in found]

    @cached_property
    def expected(self) -> list[Any]:
        """Values and partials in float64."""
        return self.ours("float64")

    @cached_property
    def rounding(self) -> list[float]:
        """What float32 changes of each result, but for the few elements that it puts on another side of a branch."""
        if self.formula.dtype == "float64":
            return [0.0 for _ in self.expected]
        pairs = zip(self.ours("float32"), self.expected, strict=True)
        return [float(np.quantile(np.abs(single - double), 0.999)) for single, double in pairs]

    def wrong(self, found: list[Any], *, as_rounded: float = 4.0) -> str:
        """What is wrong with all results of a system, or nothing.

        They may differ from `expected` by `as_rounded` times as much as float32 changes of dualbcast's, besides the
        tolerance for the dtype.
        """
        step = self.step
        single = self.formula.dtype == "float32"
        if len(found) != len(self.expected):
            return f"{len(found)} results instead of {len(self.expected)}"
        for position, (result, exact) in enumerate(zip(found, self.expected, strict=True)):
            judged = np.broadcast_to(result, (self.size,))[::step].astype(np.float64)
            what = self.label(position)
            if not np.all(np.isfinite(judged)):
                return f"{what} is not finite in {np.mean(~np.isfinite(judged)):.2%}"
            allowed = (1e-3 if single else 1e-8) * (np.abs(exact) + np.mean(np.abs(exact)))
            allowed += as_rounded * self.rounding[position] if as_rounded else 0.0
            off = np.abs(judged - exact) > allowed
            # A rounded argument may be on the other side of a branch.
            if np.mean(off) > 1e-3:
                worst = np.max(np.abs(judged - exact)) / (np.mean(np.abs(exact)) or 1.0)
                return f"{what} is wrong in {np.mean(off):.2%}, by up to {worst:.1g} of the mean"
        return ""

    def difference(self, found: list[Any]) -> float:
        """How far results are from `expected`, relative to the mean of each: the most, but for a thousandth of all."""
        pairs = zip(found, self.expected, strict=True)
        return max(
            float(np.quantile(np.abs(np.broadcast_to(result, (self.size,))[:: self.step] - exact), 0.999))
            / (float(np.mean(np.abs(exact))) or 1.0)
            for result, exact in pairs
        )

    def label(self, position: int) -> str:
        """The name of a result."""
        outputs, wrt = self.plain.outputs, self.formula.wrt
        if position < outputs:
            return f"output {position}"
        output, parameter = divmod(position - outputs, len(wrt))
        return f"d output {output} / d {wrt[parameter]}"


def blocks(result: tuple[Any, Any]) -> list[Any]:
    """The arrays of dualbcast's value and Jacobian in the order of `Forms`."""
    value, jacobian = result
    leaves: list[Any] = []

    def visit(part: Any) -> None:
        if isinstance(part, (tuple, list)):
            for inner in part:
                visit(inner)
        else:
            leaves.append(part)

    visit(value)
    return leaves + [jacobian[output, name] for output in range(jacobian.outputs) for name in jacobian.wrt]
