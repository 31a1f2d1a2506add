"""The implementations of the HM-LSTM update that run on a device, with the bytes that each moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from bench.paper import by_hand, models
from bench.paper.implementation import ITEM, WRT, Implementation, Mode
from bench.paper.peers import frameworks
from bench.paper.reverse import ReverseCell
from bench.paper.traffic import bytes_needed
from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli.measure import Device
from dualbcast.program.products import Backend

__all__ = ["hand_kernels", "implementations", "own_kernels"]


def implementations(
    device: Device, mode: Mode, n: int, controls: tuple[NDArray[Any], NDArray[Any]], peers: bool
) -> list[Implementation]:
    """Those that can run on the device; the frameworks if asked for."""
    z, zb = controls
    unit = 32 if device.backend == "cuda" else 64
    least = bytes_needed(z, zb, n, mode, unit)
    gate = ITEM * n * n
    whole = (8 if mode == "derivatives" else 10) * gate + z.nbytes + zb.nbytes
    reverse = ReverseCell(device.backend, mode != "derivatives")
    chosen = [
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
    if device.backend == "cuda" and z.shape[1] == 1:
        from dualbcast.runtime.cuda import launch as cuda_launch

        for kernel in hand_kernels(mode, n, cuda_launch.current_cc()):
            chosen.append(
                Implementation(
                    f"CUDA C++, {kernel.width} a thread", _hand(kernel), least, lambda: 1, 16.0, None, device.host
                )
            )
    if peers:
        chosen += frameworks(device, mode, whole)
    return chosen


def hand_kernels(mode: Mode, n: int, cc: tuple[int, int]) -> list[by_hand.HandKernel]:
    """The kernels by hand, of one element a thread and of four where rows are whole threads."""
    name = "hm_lstm_derivatives" if mode == "derivatives" else "hm_lstm_value_and_pullback"
    return [by_hand.compile_by_hand(name, cc, width) for width in (1, 4) if n % width == 0]


def own_kernels(arrays: Sequence[Any], mode: Mode, cc: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """The CUDA kernels of our own for arguments of such forms, each with a description; needs no GPU.

    The arrays are c, f, i, g, z, zb and a cotangent.
    """
    function: Any = differentiable_broadcast(models.cell_update)
    product = "jacobian" if mode == "derivatives" else "value_and_vjp"
    yield "fused", function.explain(*arrays[:6], wrt=WRT, product=product, cc=cc).cuda
    if mode == "derivatives":  # for the host's time of a call
        yield "value and Jacobian", function.explain(*arrays[:6], wrt=WRT, cc=cc).cuda
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
