"""The HM-LSTM cell update in reverse mode, as TensorFlow's XLA compiled it for Revels et al. (2018): seven kernels.

Three compute and store the logistic functions of i and f, and tanh(g); one for each of ∇g, ∇i, ∇f and ∇c reads them.
Where control decides, both sides are computed and one is selected, so a kernel reads all its arguments. They are
scalar functions, compiled by the same decorator as everything else. For training an eighth computes the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import tanh
from typing import Any

from dualbcast.api.function import differentiable_broadcast
from dualbcast.program.products import Backend
from dualbcast.special import sigmoid

__all__ = ["ReverseCell"]

# Controls are 0 or 1, and a selection is a product with them: an `if` would be a branch, with loads only where it is
# taken.


def _logistic(x: float) -> float:
    return sigmoid(x)


def _saturation(x: float) -> float:
    return tanh(x)


def _value(c: float, sf: float, si: float, t: float, z: float, zb: float) -> float:
    copy = (1.0 - z) * (1.0 - zb)
    return copy * c + (1.0 - copy) * (si * t) + ((1.0 - z) * zb) * (sf * c)


def _grad_g(si: float, t: float, z: float, zb: float) -> float:
    copy = (1.0 - z) * (1.0 - zb)
    return (1.0 - copy) * (si * (1.0 - t * t))


def _grad_i(si: float, t: float, z: float, zb: float) -> float:
    copy = (1.0 - z) * (1.0 - zb)
    return (1.0 - copy) * (t * (si * (1.0 - si)))


def _grad_f(c: float, sf: float, z: float, zb: float) -> float:
    return ((1.0 - z) * zb) * (c * (sf * (1.0 - sf)))


def _grad_c(sf: float, z: float, zb: float) -> float:
    return (1.0 - z) * (1.0 - zb) + ((1.0 - z) * zb) * sf


def _back_g(bar: float, si: float, t: float, z: float, zb: float) -> float:
    return bar * _grad_g(si, t, z, zb)


def _back_i(bar: float, si: float, t: float, z: float, zb: float) -> float:
    return bar * _grad_i(si, t, z, zb)


def _back_f(bar: float, c: float, sf: float, z: float, zb: float) -> float:
    return bar * _grad_f(c, sf, z, zb)


def _back_c(bar: float, sf: float, z: float, zb: float) -> float:
    return bar * _grad_c(sf, z, zb)


Step = tuple[Callable[..., float], str, str]  # a kernel, the names that it reads, and the name of its result

_STORED: tuple[Step, ...] = ((_logistic, "i", "si"), (_saturation, "g", "t"), (_logistic, "f", "sf"))
_PARTIALS: tuple[Step, ...] = (
    (_grad_g, "si t z zb", "dg"),
    (_grad_i, "si t z zb", "di"),
    (_grad_f, "c sf z zb", "df"),
    (_grad_c, "sf z zb", "dc"),
)
_PULLED: tuple[Step, ...] = (
    (_value, "c sf si t z zb", "value"),
    (_back_g, "bar si t z zb", "dg"),
    (_back_i, "bar si t z zb", "di"),
    (_back_f, "bar c sf z zb", "df"),
    (_back_c, "bar sf z zb", "dc"),
)
_CONTROLS = {"z", "zb"}


class ReverseCell:
    """The kernels for one backend.

    Parameters
    ----------
    backend : {"cpu", "cuda", "python"}
    pulled : bool
        Whether a cotangent is given, and the value wanted; else the partials alone.
    """

    def __init__(self, backend: Backend, pulled: bool) -> None:
        self._steps = (*_STORED, *(_PULLED if pulled else _PARTIALS))
        self._results = ("value", "dc", "df", "di", "dg") if pulled else ("dc", "df", "di", "dg")
        compiled = differentiable_broadcast(backend=backend)
        self._kernels: dict[Any, Any] = {step[0]: compiled(step[0]) for step in self._steps}

    @property
    def launches(self) -> int:
        """How many kernels are launched."""
        return len(self._steps)

    def steps(self) -> Iterator[tuple[Any, list[str], str]]:
        """The kernels in order, each with the names of what it reads and of what it computes."""
        for function, names, result in self._steps:
            yield self._kernels[function], names.split(), result

    def moved(self, gate: int, control: int) -> int:
        """The bytes that all kernels together read and write, for the bytes of a gate and of a control."""
        reads = [name for _, names, _ in self._steps for name in names.split()]
        controls = sum(name in _CONTROLS for name in reads)
        return (len(reads) - controls + len(self._steps)) * gate + controls * control

    def prepared(self, arrays: Sequence[Any]) -> Callable[[], list[Any]]:
        """A call for c, f, i, g, z, zb and, where there is one, the cotangent; with memory for all that is stored."""
        known = dict(zip(("c", "f", "i", "g", "z", "zb", "bar"), arrays, strict=False))
        launches = []
        for function, names, result in self._steps:
            inputs = [known[name] for name in names.split()]
            known[result] = self._kernels[function](*inputs)  # this also compiles it
            launches.append((self._kernels[function], inputs, known[result]))

        def call() -> list[Any]:
            for kernel, inputs, out in launches:
                kernel(*inputs, out=out)
            return [known[name] for name in self._results]

        return call

    def compiled(self, arrays: Sequence[Any], cc: tuple[int, int]) -> Iterator[Any]:
        """The CUDA kernels for arguments of such forms; needs no GPU."""
        known = dict(zip(("c", "f", "i", "g", "z", "zb", "bar"), arrays, strict=False))
        for function, names, result in self._steps:
            known[result] = known["c"]  # all results have the form of the gates
            yield self._kernels[function].explain(*[known[name] for name in names.split()], product="value", cc=cc).cuda
