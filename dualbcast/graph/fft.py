"""Discrete Fourier transforms, by the names and with the arguments of `numpy.fft`.

Comes in: real or complex Variables or arrays. Goes out: Variables. The pullback of a transform is another one: the
adjoint of `fft` is `ifft` without its factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError
from dualbcast.graph import shapes
from dualbcast.graph.array_functions.assembly import pad
from dualbcast.graph.arrays import is_complex, namespace
from dualbcast.graph.complex_numbers.primitives import run_complex
from dualbcast.graph.elementwise import apply, floating
from dualbcast.graph.primitives import constant
from dualbcast.graph.recording import fresh_constant
from dualbcast.graph.tape import Node, unary
from dualbcast.graph.variable import Variable

__all__ = [
    *("fft", "fft2", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft"),
    *("irfft", "irfft2", "irfftn", "rfft", "rfft2", "rfftn"),
]


def __dir__() -> list[str]:
    """The public names."""
    return __all__


_Axes = Sequence[int] | None
# The norm with which the inverse of a transform is its adjoint.
_ADJOINT = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


# --- primitives: their axes count from the back, so that they go over a batch as they are -----------------------------


def _fft(array: Any, inverse: bool, axes: tuple[int, ...], norm: str) -> Any:
    transform = namespace(array).fft.ifftn if inverse else namespace(array).fft.fftn
    return transform(array, axes=axes, norm=norm)


def _pullback_of_fft(node: Node, cotangent: Variable) -> Variable:
    static = node.static
    return _transformed(cotangent, not static["inverse"], static["axes"], _ADJOINT[static["norm"]])


_FFT = unary("fft", _fft, _pullback_of_fft, complex_outputs=(True,))


def _transformed(x: Variable, inverse: bool, axes: tuple[int, ...], norm: str) -> Variable:
    return run_complex(_FFT, (x,), {"inverse": inverse, "axes": axes, "norm": norm})[0]


def _pullback_of_rfft(node: Node, cotangent: Variable) -> Variable:
    axis, norm = node.static["axis"], node.static["norm"]
    length = node.inputs[0].shape[axis]
    # `irfft` counts each frequency twice that has a twin, which `rfft` leaves out.
    halved = apply("divide", cotangent, _twins(cotangent, length, axis))
    return _half_to_real(halved, length, axis, _ADJOINT[norm])


_RFFT = unary(
    "rfft",
    lambda array, axis, norm: namespace(array).fft.rfft(array, axis=axis, norm=norm),
    _pullback_of_rfft,
    complex_outputs=(True,),
)


def _pullback_of_irfft(node: Node, cotangent: Variable) -> Variable:
    axis, norm, length = node.static["axis"], node.static["norm"], node.static["length"]
    back = _real_to_half(cotangent, axis, _ADJOINT[norm])
    return apply("multiply", back, _twins(back, length, axis))


_IRFFT = unary(
    "irfft",
    lambda array, length, axis, norm: namespace(array).fft.irfft(array, length, axis, norm),
    _pullback_of_irfft,
    complex_outputs=(False,),
)


def _twins(x: Variable, length: int, axis: int) -> Any:
    """For each frequency of `rfft` the number of those in `fft` that it stands for: 2, but of 0 and the highest 1."""
    dtype = x.real.dtype
    count = np.full(x.shape[axis], 2, dtype)
    count[0] = 1
    if length % 2 == 0:
        count[-1] = 1
    return fresh_constant(x.namespace.asarray(count.reshape(-1, *[1] * (-axis - 1))))


def _real_to_half(x: Variable, axis: int, norm: str) -> Variable:
    return run_complex(_RFFT, (x,), {"axis": axis, "norm": norm})[0]


def _half_to_real(x: Variable, length: int, axis: int, norm: str) -> Variable:
    return run_complex(_IRFFT, (x,), {"length": length, "axis": axis, "norm": norm})[0]


# --- arguments --------------------------------------------------------------------------------------------------------


def _axes(x: Variable, s: _Axes, axes: _Axes, name: str) -> tuple[int, ...]:
    """The axes, which count from the back; by default the last ones that have a length in `s`, or all."""
    if axes is None:
        axes = range(-x.ndim if s is None else -len(s), 0)
    if s is not None and len(s) != len(axes):
        raise ArgumentError(f"{name}: s has {len(s)} lengths for {len(axes)} axes")
    return tuple([shapes.axis_of(axis, x.ndim, name) - x.ndim for axis in axes])


def _some_axes(x: Variable, s: _Axes, axes: _Axes, name: str) -> tuple[int, ...]:
    over = _axes(x, s, axes, name)
    if not over:
        raise ArgumentError(f"{name}: the last axis becomes half of a spectrum, and there is none")
    return over


def _lengths(n: int | None, name: str) -> _Axes:
    """The lengths `s` for one axis. There -1 is no length, while in `s` it stands for that which the axis has."""
    if n is None:
        return None
    _require_length(n, name)
    return (n,)


def _require_length(length: int, name: str) -> None:
    if length < 1:
        raise ArgumentError(f"{name}: a length of {length} has no frequencies; it must be 1 at least")


def _norm(norm: str | None, name: str) -> str:
    if norm not in (None, *_ADJOINT):
        raise ArgumentError(f"{name}: norm={norm!r} is none of {', '.join(_ADJOINT)}")
    return norm or "backward"


def _fitted(x: Variable, axis: int, length: int | None, name: str) -> Variable:
    """The array cut, or filled up with zeros, to a length along an axis."""
    present = x.shape[axis]
    if length is None or length == present:
        return x
    _require_length(length, name)
    if length < present:
        return x[(..., slice(length), *[slice(None)] * (-axis - 1))]
    widths = [(0, 0)] * x.ndim
    widths[axis] = (0, length - present)
    return pad(x, widths)


def _fully(x: Any, s: _Axes, axes: _Axes, norm: str | None, inverse: bool, name: str) -> Variable:
    x = floating(x)
    over = _axes(x, s, axes, name)
    for axis, length in zip(over, s or [], strict=False):
        x = _fitted(x, axis, None if length == -1 else length, name)
    return _transformed(x, inverse, over, _norm(norm, name)) if over else x


# --- the transforms ---------------------------------------------------------------------------------------------------


def fft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Variable:
    """The discrete Fourier transform along an axis: `numpy.fft.fft`.

    Parameters
    ----------
    a : Variable or array
        Real or complex.
    n : int, optional
        The length of the axis, which is cut or filled up with zeros to it.
    axis : int
    norm : {"backward", "ortho", "forward"}, optional
        Which of the transform and its inverse is divided by the length; "ortho" divides both by its root.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> graph.grad(lambda v: np.sum(abs(np.fft.fft(v)) ** 2))(np.array([1.0, 2.0, 3.0])).round(9)
    array([ 6., 12., 18.])
    """
    return _fully(a, _lengths(n, "fft"), (axis,), norm, False, "fft")


def ifft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Variable:
    """The inverse of `fft`: `numpy.fft.ifft`."""
    return _fully(a, _lengths(n, "ifft"), (axis,), norm, True, "ifft")


def fftn(a: Any, s: _Axes = None, axes: _Axes = None, norm: str | None = None) -> Variable:
    """The transform along several axes, by default all: `numpy.fft.fftn`."""
    return _fully(a, s, axes, norm, False, "fftn")


def ifftn(a: Any, s: _Axes = None, axes: _Axes = None, norm: str | None = None) -> Variable:
    """The inverse of `fftn`: `numpy.fft.ifftn`."""
    return _fully(a, s, axes, norm, True, "ifftn")


def fft2(a: Any, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None) -> Variable:
    """The transform along two axes, by default the last: `numpy.fft.fft2`."""
    return _fully(a, s, axes, norm, False, "fft2")


def ifft2(a: Any, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None) -> Variable:
    """The inverse of `fft2`: `numpy.fft.ifft2`."""
    return _fully(a, s, axes, norm, True, "ifft2")


def rfftn(a: Any, s: _Axes = None, axes: _Axes = None, norm: str | None = None) -> Variable:
    """The transform of real numbers along several axes, without the half of the last that is known by symmetry:
    `numpy.fft.rfftn`."""
    x = floating(a)
    if is_complex(x):
        raise ArgumentError("rfft is of real numbers, and these are complex: use fft, or z.real")
    over, norm = _some_axes(x, s, axes, "rfftn"), _norm(norm, "rfftn")
    for axis, length in zip(over, s or [], strict=False):
        x = _fitted(x, axis, None if length == -1 else length, "rfftn")
    half = _real_to_half(x, over[-1], norm)
    return _transformed(half, False, over[:-1], norm) if len(over) > 1 else half


def irfftn(a: Any, s: _Axes = None, axes: _Axes = None, norm: str | None = None) -> Variable:
    """The inverse of `rfftn`: `numpy.fft.irfftn`. The last axis has the even length, unless `s` says another."""
    x = floating(a)
    over, norm = _some_axes(x, s, axes, "irfftn"), _norm(norm, "irfftn")
    length = 2 * (x.shape[over[-1]] - 1) if s is None or s[-1] == -1 else s[-1]
    for axis, other in zip(over[:-1], s or [], strict=False):
        x = _fitted(x, axis, None if other == -1 else other, "irfftn")
    _require_length(length, "irfft")
    x = _fitted(x, over[-1], length // 2 + 1, "irfftn")
    x = _transformed(x, True, over[:-1], norm) if len(over) > 1 else x
    return _half_to_real(x, length, over[-1], norm)


def rfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Variable:
    """The transform of real numbers along an axis, without the half that is known by symmetry: `numpy.fft.rfft`."""
    return rfftn(a, _lengths(n, "rfft"), (axis,), norm)


def irfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Variable:
    """The inverse of `rfft`: `numpy.fft.irfft`. The length is even, unless `n` says another."""
    return irfftn(a, _lengths(n, "irfft"), (axis,), norm)


def rfft2(a: Any, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None) -> Variable:
    """`rfftn` along two axes, by default the last: `numpy.fft.rfft2`."""
    return rfftn(a, s, axes, norm)


def irfft2(a: Any, s: _Axes = None, axes: _Axes = (-2, -1), norm: str | None = None) -> Variable:
    """The inverse of `rfft2`: `numpy.fft.irfft2`."""
    return irfftn(a, s, axes, norm)


def hfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Variable:
    """The real transform of a signal with Hermitian symmetry, of which the half is given: `numpy.fft.hfft`."""
    return irfft(floating(a).conj(), n, axis, _ADJOINT[_norm(norm, "hfft")])


def ihfft(a: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Variable:
    """The inverse of `hfft`: `numpy.fft.ihfft`."""
    return rfft(a, n, axis, _ADJOINT[_norm(norm, "ihfft")]).conj()


def fftshift(x: Any, axes: Any = None) -> Variable:
    """The array with the frequency 0 moved from the front to the middle: `numpy.fft.fftshift`."""
    return _shifted(x, axes, 1, "fftshift")


def ifftshift(x: Any, axes: Any = None) -> Variable:
    """The inverse of `fftshift`: `numpy.fft.ifftshift`."""
    return _shifted(x, axes, -1, "ifftshift")


def _shifted(x: Any, axes: Any, sign: int, name: str) -> Variable:
    shifted = constant(x)
    for axis in shapes.axes_of(axes, shifted.ndim, name):
        # Forwards by half of the length, rounded down, and back by as much.
        shifted = shapes.roll(shifted, sign * (shifted.shape[axis] // 2), axis)
    return shifted
