"""The implementations of the HM-LSTM update that `dualbcast hmlstm` compares, with what each launches and moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli import by_hand, models
from dualbcast.cli.measure import Device
from dualbcast.cli.reverse import ReverseCell
from dualbcast.program.typed_product import Backend

__all__ = [
    "MODES",
    "WRT",
    "Implementation",
    "Mode",
    "implementations",
    "needed",
    "own_kernels",
]

Mode = Literal["derivatives", "value and pullback"]
MODES: tuple[Mode, ...] = ("derivatives", "value and pullback")
WRT = ("c", "f", "i", "g")
_ITEM = 4  # float32
# What the cases FLUSH, COPY and UPDATE need of c, f, i, g, for each mode: 1 where an array is read.
_READS: dict[Mode, dict[str, tuple[int, int, int]]] = {
    "derivatives": {"c": (0, 0, 1), "f": (0, 0, 1), "i": (1, 0, 1), "g": (1, 0, 1)},
    "value and pullback": {"c": (0, 1, 1), "f": (0, 0, 1), "i": (1, 0, 1), "g": (1, 0, 1)},
}


@dataclass(frozen=True)
class Implementation:
    """One way to compute the update's derivatives.

    Attributes
    ----------
    name : str
    prepare : callable
        From the arrays c, f, i, g, z, zb and, for the pullback, the cotangent, a call; it gives a list of what the mode
        asks for: the partials, or the value and the cotangents.
    moved : int or None
        The bytes that it reads and writes, where that is known: arrays whole, but for loads in branches.
    launches : callable
        Gives the number of kernels of a call, once it has been made; None where that is not known.
    tolerance : float
        The largest error, in ulp, that its results may have.
    wait : callable, optional
        For what runs on streams of its own: waits for all calls. Such calls are timed by the clock on the wall.
    host : callable
        A part of a result as a NumPy array.
    is_peer : bool
        Whether it is a framework's: one that fails is left out, and said to be.
    """

    name: str
    prepare: Callable[[Sequence[Any]], Callable[[], Sequence[Any]]]
    moved: int | None
    launches: Callable[[], int | None]
    tolerance: float
    wait: Callable[[], object] | None
    host: Callable[[Any], NDArray[Any]]
    is_peer: bool = False


def needed(z: NDArray[Any], zb: NDArray[Any], n: int, mode: Mode, unit: int) -> int:
    """The bytes that one pass with loads in branches reads and writes.

    Memory comes in units of `unit` bytes: one is read if any of its elements is needed.

    Parameters
    ----------
    z, zb : arrays of one shape, which broadcasts to (n, n)
    n : int
    mode : str
    unit : int
    """
    # (n, 1): a row is a case, and rows are taken for whole units.
    run = 1 if z.shape[1] == 1 else unit // _ITEM
    case = np.where(z == 1, 0, np.where(zb == 0, 1, 2))
    elements = 0
    for reads in _READS[mode].values():
        wanted = np.asarray(reads, bool)[case]
        spare = -wanted.shape[1] % run
        units = np.pad(wanted, ((0, 0), (0, spare))).reshape(len(wanted), -1, run).any(axis=2)
        # Elements that the last unit of a row does not have are not counted.
        widths = np.full(units.shape[1], run)
        widths[-1] -= spare
        elements += int((units * widths).sum()) * (n * n // wanted.size)
    whole = 4 if mode == "derivatives" else 6  # the partials; or the value, the cotangents and that of the value
    return _ITEM * (elements + whole * n * n) + z.nbytes + zb.nbytes


def implementations(
    device: Device, mode: Mode, n: int, controls: tuple[NDArray[Any], NDArray[Any]], peers: bool
) -> list[Implementation]:
    """Those that can run on the device; the frameworks if asked for."""
    z, zb = controls
    unit = 32 if device.backend == "cuda" else 64
    least = needed(z, zb, n, mode, unit)
    gate = _ITEM * n * n
    whole = (8 if mode == "derivatives" else 10) * gate + z.nbytes + zb.nbytes
    reverse = ReverseCell(device.backend, mode != "derivatives")
    found = [
        Implementation("fused forward mode", _fused(device.backend, mode), least, lambda: 1, 4.0, None, device.host),
        Implementation(
            "reverse, XLA's kernels",
            reverse.prepared,
            reverse.moved(gate, z.nbytes),
            lambda: reverse.launches,
            16.0,
            None,
            device.host,
        ),
        Implementation(
            "CuPy by hand" if device.backend == "cuda" else "NumPy by hand",
            _arrays(device.xp, mode),
            None,
            lambda: None,
            16.0,
            None,
            device.host,
        ),
    ]
    if device.backend == "cuda" and z.shape[1] == 1 and by_hand.available():
        from dualbcast.runtime.cuda import launch as cuda_launch

        for kernel in hand_kernels(mode, n, cuda_launch.current_cc()):
            found.append(
                Implementation(
                    f"CUDA C++, {kernel.width} a thread", _hand(kernel), least, lambda: 1, 16.0, None, device.host
                )
            )
    if peers:
        # Imported only when asked for: the frameworks take seconds and memory.
        from dualbcast.cli.peers import frameworks

        found += frameworks(device, mode, whole)
    return found


def hand_kernels(mode: Mode, n: int, cc: tuple[int, int]) -> list[by_hand.HandKernel]:
    """The kernels by hand, of one element a thread and of four where rows are whole threads."""
    name = "hm_lstm_derivatives" if mode == "derivatives" else "hm_lstm_value_and_pullback"
    return [by_hand.compile_by_hand(name, cc, width) for width in (1, 4) if n % width == 0]


def own_kernels(arrays: Sequence[Any], mode: Mode, cc: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """The CUDA kernels of our own for arguments of such forms, with what each is of; needs no GPU.

    The arrays are c, f, i, g, z, zb and a cotangent.
    """
    function: Any = differentiable_broadcast(models.cell_update)
    product = "jacobian" if mode == "derivatives" else "value_and_vjp"
    yield "fused", function.cuda_resources(*arrays[:6], wrt=WRT, product=product, cc=cc)
    if mode == "derivatives":  # for the host's time of a call
        yield "value and Jacobian", function.cuda_resources(*arrays[:6], wrt=WRT, cc=cc)
    for kernel in ReverseCell("auto", mode != "derivatives").compiled(arrays, cc):
        yield "reverse", kernel


def _fused(backend: Backend, mode: Mode) -> Callable[[Sequence[Any]], Callable[[], Sequence[Any]]]:
    function: Any = differentiable_broadcast(backend=backend)(models.cell_update)

    def prepare(arrays: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        primals = tuple(arrays[:6])

        def derivatives() -> Sequence[Any]:
            jacobian = function.jacobian(*primals, wrt=WRT)
            return [jacobian[name] for name in WRT]

        def pulled() -> Sequence[Any]:
            value, gradients = function.value_and_vjp(primals, arrays[6], wrt=WRT)
            return [value, *gradients]

        return derivatives if mode == "derivatives" else pulled

    return prepare


def _arrays(xp: Any, mode: Mode) -> Callable[[Sequence[Any]], Callable[[], Sequence[Any]]]:
    def prepare(arrays: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        def derivatives() -> Sequence[Any]:
            return models.cell_update_by_hand(xp, *arrays[:6])[1]

        def pulled() -> Sequence[Any]:
            value, partials = models.cell_update_by_hand(xp, *arrays[:6])
            return [value, *[arrays[6] * partial for partial in partials]]

        return derivatives if mode == "derivatives" else pulled

    return prepare


def _hand(kernel: by_hand.HandKernel) -> Callable[[Sequence[Any]], Callable[[], Sequence[Any]]]:
    def prepare(arrays: Sequence[Any]) -> Callable[[], Sequence[Any]]:
        count = 4 if len(arrays) == 6 else 5
        out = [arrays[0].copy() for _ in range(count)]

        def call() -> Sequence[Any]:
            by_hand.launch_cell(kernel, arrays, out)
            return out

        return call

    return prepare
