"""`dualbcast hmlstm`: the HM-LSTM cell update and its partials, checked, then timed beside NumPy by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import RenderableType

from dualbcast.api import differentiable_broadcast
from dualbcast.call import Backend
from dualbcast.cli import models, plots, report
from dualbcast.cli.checking import check_cell_update
from dualbcast.cli.measure import Device, choose_device
from dualbcast.cli.options import measuring_options, numbers
from dualbcast.cli.report import Column, Row

__all__ = ["control_values", "hmlstm"]

_WRT = ("c", "f", "i", "g")
_TOLERANCE = 4.0  # ulp of max(1, |reference|)
_BY_HAND_TOLERANCE = 16.0  # it is the time that is wanted there, of the right thing
_READS = {"flush": 2, "copy": 1, "update": 4}  # how many of c, f, i, g each case needs
_CASES = {"flush": (1, 0), "copy": (0, 0), "update": (0, 1)}  # z, zb


@dataclass
class _Cell:
    """What every row of one run has in common."""

    device: Device
    function: Any
    control: str
    pattern: str
    repeat: int
    min_time: float
    seed: int
    bandwidth: float = 0.0

    @property
    def title(self) -> str:
        return f"HM-LSTM cell update: value and ∂/∂(c, f, i, g), float32, {self.pattern} control by {self.control}"

    def table(self, rows: Sequence[Row]) -> RenderableType:
        by_hand = "CuPy" if self.device.backend == "cuda" else "NumPy"
        columns = [
            Column("n", "n"),
            Column("error_ulp", "error\nulp", "{:.2f}"),
            *report.TIMING_COLUMNS,
            Column("by_hand_seconds", f"{by_hand} by\nhand, ms", "{:.3f}", 1e3),
            Column("by_hand_ratio", "ratio", "{:.1f}"),
        ]
        notes = [
            *report.machine_notes(self.device, self.bandwidth, rows),
            f"Error: |result - reference| / (2⁻²³ max(1, |reference|)), all elements; at most {_TOLERANCE:g} allowed.",
        ]
        return report.build_table(columns, rows, self.title, notes)

    def measure(self, n: int, doing: Callable[[str], None]) -> Row:
        """Check and time one size."""
        generator = np.random.default_rng(self.seed)
        gates = [generator.standard_normal((n, n)).astype(np.float32) for _ in _WRT]
        z, zb = control_values(generator, n, self.control, self.pattern)
        moved = _bytes_moved(n, self.control, z, zb)
        arguments = [self.device.array(array) for array in (*gates, z, zb)]
        xp = self.device.xp

        doing(f"n = {n}: compiling")
        start = time.perf_counter()
        value, jacobian = self.function.value_and_jacobian(*arguments, wrt=_WRT)
        first_call = time.perf_counter() - start
        doing(f"n = {n}: checking")
        error = check_cell_update(self.device, arguments, value, [jacobian[name] for name in _WRT], _TOLERANCE)
        check_cell_update(self.device, arguments, *models.cell_update_by_hand(xp, *arguments), _BY_HAND_TOLERANCE)
        doing(f"n = {n}: timing")
        out = (value, jacobian)
        timing = self.device.time(
            lambda: self.function.value_and_jacobian(*arguments, wrt=_WRT, out=out), self.repeat, self.min_time
        )
        doing(f"n = {n}: timing by hand")
        by_hand = self.device.time(lambda: models.cell_update_by_hand(xp, *arguments), self.repeat, self.min_time)
        return {
            "n": n,
            "error_ulp": error,
            **report.timing_fields(timing, n**2, moved, self.bandwidth),
            "first_call_seconds": first_call,
            "by_hand_seconds": by_hand.median,
            "by_hand_ratio": by_hand.median / timing.median,
        }


def control_values(
    generator: np.random.Generator, n: int, control: str, pattern: str
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The control values z and zb, of shape (n, 1), (1, n) or (n, n), each 0 or 1."""
    shape = {"rows": (n, 1), "columns": (1, n), "elements": (n, n)}[control]
    if pattern in _CASES:
        z, zb = (np.full(shape, value, np.float32) for value in _CASES[pattern])
    else:
        z, zb = (generator.integers(0, 2, shape).astype(np.float32) for _ in range(2))
    return z, zb


def _bytes_moved(n: int, control: str, z: NDArray[np.float32], zb: NDArray[np.float32]) -> int:
    """The bytes that have to be read and written: what each element's case needs, the controls, and five outputs."""
    cases = np.where(z == 1, _READS["flush"], np.where(zb == 0, _READS["copy"], _READS["update"]))
    reads = int(np.broadcast_to(cases, (n, n)).sum())
    if control != "rows" and cases.min() < cases.max():
        # Neighbours differ, and memory comes by the line: all of every input.
        reads = len(_WRT) * n * n
    return 4 * (reads + (1 + len(_WRT)) * n * n + z.size + zb.size)


@click.command(short_help="Check and time the HM-LSTM cell update.")
@click.option(
    "--n",
    "sizes",
    type=numbers,
    metavar="N,N,…",
    default="512,1024,2048",
    show_default=True,
    help="The arrays are n by n, for each of these.",
)
@click.option(
    "--control",
    type=click.Choice(["rows", "columns", "elements"]),
    default="rows",
    show_default=True,
    help="What shares a value of the control vectors z and zb: their shape is (n, 1), (1, n) or (n, n).",
)
@click.option(
    "--pattern",
    type=click.Choice(["random", *_CASES]),
    default="random",
    show_default=True,
    help="The control values: fair coins, or the same case everywhere.",
)
@measuring_options
def hmlstm(
    sizes: tuple[int, ...],
    control: str,
    pattern: str,
    backend: Backend,
    repeat: int,
    min_time: float,
    seed: int,
    json_path: Path | None,
    csv_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Check and time the HM-LSTM cell update: its value and its partials in (c, f, i, g).

    The update is Eq. 6 of Revels et al. (2018), a scalar function with if / elif / else: FLUSH where z = 1, COPY where
    z = 0 and zb = 0, UPDATE elsewhere. The control vectors z and zb are broadcast. Value and partials are checked over
    all elements against a float64 reference, then timed with their output arrays reused, beside the same computed by
    hand with NumPy (CuPy on a GPU). Exit status 1 means that a result was wrong.

    \b
    Columns:
      error      the largest; it must not exceed 4
      time       median over the samples; ns per element is that over n²
      moved      what the cases of all elements read, and the five outputs
      of copy    bytes moved per second, as a share of a large copy in this
                 run with as many threads
      ratio      time by hand over time
    """
    if plot_path is not None:
        plots.require()
    device = choose_device(backend)
    function: Any = differentiable_broadcast(backend=device.backend)(models.cell_update)
    cell = _Cell(device, function, control, pattern, repeat, min_time, seed)
    with report.Run(len(sizes), cell.table) as run:
        run.doing("copying, to know the bandwidth")
        cell.bandwidth = device.copy_bandwidth(min_time)
        for n in sizes:
            row = cell.measure(n, run.doing)
            run.done(row, f"n = {n}: error {row['error_ulp']:.2f} ulp; {row['seconds'] * 1e3:.3f} ms")
        # Once more: other work on the machine may have slowed the first.
        cell.bandwidth = max(cell.bandwidth, device.copy_bandwidth(min_time))
        run.hold_against(cell.bandwidth)
    report.show(cell.table(run.rows))
    if json_path is not None:
        parameters = {"n": sizes, "control": control, "pattern": pattern, "seed": seed}
        parameters |= {"repeat": repeat, "min_time": min_time}
        extra = {"copy_bytes_per_second": cell.bandwidth, "tolerance_ulp": _TOLERANCE}
        report.write_json(json_path, report.record("hmlstm", device, parameters, run.rows, **extra))
    if csv_path is not None:
        report.write_csv(csv_path, run.rows)
    if plot_path is not None:
        plots.plot_hmlstm(plot_path, run.rows, device, cell.bandwidth, cell.title)
