"""`hmlstm`: the derivatives of the HM-LSTM cell update, fused, in reverse mode, and by frameworks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.console import Group, RenderableType

from bench.paper import memory, models, peers
from bench.paper.checking import CellReference
from bench.paper.counted import Counting, counting_options, is_default
from bench.paper.counted_cell import count_hmlstm
from bench.paper.implementation import MODES, WRT, Implementation
from bench.paper.implementations import implementations
from bench.paper.plots import plot_hmlstm
from bench.paper.timing import Rotation, host_seconds, release_memory, wall_clock
from bench.paper.traffic import CASES, control_values, gate_values
from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli import report
from dualbcast.cli.checking import CheckError
from dualbcast.cli.measure import Timing, choose_device, copies
from dualbcast.cli.options import numbers
from dualbcast.cli.report import Column, Experiment, Row, measuring_options
from dualbcast.program.products import Backend

__all__ = ["hmlstm"]

# The memory that a size takes: the bytes for each element, by the layout of control, and a constant.
_BYTES = {"rows": 125, "columns": 125, "elements": 145}
_FIXED_BYTES = 600_000_000
_COLUMNS = (
    Column("n", "n"),
    Column("implementation", "implementation", left=True),
    Column("error_ulp", "error\nulp", "{:.2f}"),
    Column("launches", "laun-\nches"),
    Column("seconds", "time\nms", "{:.4f}", 1e3),
    Column("bytes", "moved\nMB", "{:.1f}", 1e-6),
    Column("bytes_per_second", "GB/s", "{:.1f}", 1e-9),
    Column("copy_share", "of\ncopy", "{:.0%}"),
    Column("speedup", "speed-\nup", "{:.2f}"),
)
_MODE_TITLES = {
    "derivatives": "∂/∂(c, f, i, g) alone, as in the paper",
    "value and pullback": "The value, and the cotangents of c, f, i, g, as training needs them",
}


@dataclass(kw_only=True)
class _Cell(Experiment):
    """A run over the sizes of the arrays."""

    command = "hmlstm"
    control: str
    pattern: str
    peers: bool
    sizes: Sequence[int] = ()
    host_seconds: float = 0.0

    def __post_init__(self) -> None:
        self.title = f"HM-LSTM cell update, float32, {self.pattern} control by {self.control}"

    def parameters(self) -> dict[str, Any]:
        return {"n": self.sizes, "control": self.control, "pattern": self.pattern, "peers": self.peers}

    def figures(self) -> dict[str, Any]:
        figures: dict[str, Any] = {"host_seconds_per_call": self.host_seconds, "left_out": self.notes}
        return figures | {"peers": peers.versions()} if self.peers else figures

    def plot(self, path: Path) -> None:
        plot_hmlstm(path, self)

    def table(self, rows: Sequence[Row]) -> RenderableType:
        tables = []
        for mode in MODES:
            if chosen := [row for row in rows if row["mode"] == mode]:
                tables.append(report.build_table(_COLUMNS, chosen, f"{self.title}\n{_MODE_TITLES[mode]}"))
        notes = [
            *self.machine_notes(rows),
            "Speedup: over the reverse mode in separate kernels. Calls take turns with arrays that no cache holds.",
        ]
        if self.host_seconds:
            notes.append(f"A call of the fused kernel takes {self.host_seconds * 1e6:.1f} µs of the host's time.")
        return Group(*tables, report.notes([*notes, *self.notes]))

    def memory(self, n: int) -> int:
        """How many bytes of memory one size takes on a processor, roughly; measured for n = 64 to 6000."""
        return _FIXED_BYTES + 8 * self.device.cache_bytes + _BYTES[self.control] * n * n

    def fitting(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The sizes that fit in memory; the memory for the largest is printed, and sizes left out are noted."""
        if self.device.backend == "cuda":
            return tuple(sizes)  # a GPU that runs out of memory raises an error, and the rows before are kept
        largest, available = max(sizes), memory.available_memory()
        need = f"n = {largest} takes about {self.memory(largest) / 1e9:.1f} GB of memory"
        if available is None:
            print(f"{need}.", file=sys.stderr, flush=True)
            return tuple(sizes)
        supply = f"{available / 1e9:.1f} GB are available"
        print(f"{need}; {supply}.", file=sys.stderr, flush=True)
        fitting = tuple(n for n in sizes if self.memory(n) <= available)
        if not fitting:
            least = min(sizes)
            raise click.ClickException(
                f"There is not enough memory: n = {least} takes about {self.memory(least) / 1e9:.1f} GB, and {supply}. "
                "Give a smaller --n."
            )
        for n in sizes:
            if n not in fitting:
                self.leave_out(f"n = {n}: it takes about {self.memory(n) / 1e9:.1f} GB of memory, and {supply}")
        return fitting

    def measure(self, n: int) -> list[Row]:
        """Check and time all implementations at one size, in both modes; a framework that fails is left out."""
        generator = np.random.default_rng(self.seed)
        gates = gate_values(generator, n, 5)
        z, zb = control_values(generator, n, self.control, self.pattern)
        rows: list[Row] = []
        for mode in MODES:
            bar = None if mode == "derivatives" else gates[4]
            given = [*gates[:4], z, zb] if bar is None else [*gates[:4], z, zb, bar]
            self.doing(f"n = {n}: the reference")
            reference = CellReference([*gates[:4], z, zb], bar)
            arrays = [self.device.array(array) for array in given]
            outputs = 4 if bar is None else 5
            sets = copies(self.device, arrays, outputs * gates[0].nbytes)
            timed = []
            for which in implementations(self.device, mode, n, (z, zb), self.peers):
                self.doing(f"n = {n}, {mode}: {which.name}")
                try:
                    timed.append({"n": n, "mode": mode, **self._one(which, sets, reference, n)})
                except CheckError:
                    raise
                except Exception as error:  # a framework may raise anything, for example where a compiler is missing
                    if not which.is_peer:
                        raise
                    self.leave_out(f"{which.name}: {type(error).__name__}: {next(iter(str(error).splitlines()), '')}")
                release_memory(self.device)
            baseline = next(row["seconds"] for row in timed if row["implementation"].startswith("reverse"))
            rows += [row | {"speedup": baseline / row["seconds"]} for row in timed]
        return rows

    def leave_out(self, text: str) -> None:
        """Note a size or an implementation that was not measured, and the reason."""
        self.note(f"Left out: {text}")

    def _one(self, which: Implementation, sets: Sequence[Sequence[Any]], reference: CellReference, n: int) -> Row:
        rotation = Rotation([which.prepare(arrays) for arrays in sets])
        results = rotation.call_each()
        if which.wait:
            which.wait()
        error = max(reference.check(result, which.host, which.tolerance, which.name) for result in results)
        del results
        if which.wait:
            timing = wall_clock(rotation, which.wait, self.repeat, self.min_time)
        else:
            timing = self.device.time(rotation, self.repeat, self.min_time)
        return {
            "implementation": which.name,
            "error_ulp": error,
            "compared": reference.elements,
            "launches": which.launches(),
            "arrays_in_turn": len(sets),
            "timed_by": "wall clock" if which.wait or self.device.backend != "cuda" else "events",
            **self._fields(timing, n * n, which.moved),
        }

    def _fields(self, timing: Timing, elements: int, moved: int | None) -> Row:
        """The fields of a row about its timing, also where the bytes are not known."""
        fields = self.timing_fields(timing, elements, moved or 0)
        return fields if moved is not None else fields | dict.fromkeys(("bytes", "bytes_per_second", "copy_share"))

    def measure_host(self) -> None:
        """Measure the host's time for a call of the fused kernel."""
        function: Any = differentiable_broadcast(backend=self.device.backend)(models.cell_update)
        generator = np.random.default_rng(self.seed)
        controls = control_values(generator, 4, "rows", "random")
        arrays = [self.device.array(array) for array in (*gate_values(generator, 4, 4), *controls)]
        call = partial(function.value_and_jacobian, *arrays, wrt=WRT)
        call(), call()
        self.host_seconds = host_seconds(self.device, call)


@click.command(short_help="Check and time the HM-LSTM cell update's derivatives.")
@click.option(
    "--n",
    "sizes",
    type=numbers,
    metavar="N,N,…",
    default="512,1024,2048,4096,8192",
    show_default=True,
    help="The arrays are n by n, for each n of this list.",
)
@click.option(
    "--control",
    type=click.Choice(["rows", "columns", "elements"]),
    default="rows",
    show_default=True,
    help="Which elements share a value of the control vectors z and zb: their shape is (n, 1), (1, n) or (n, n).",
)
@click.option(
    "--pattern",
    type=click.Choice(["random", *CASES]),
    default="random",
    show_default=True,
    help="The control values: fair coins, or the same case everywhere.",
)
@click.option("--peers", "with_peers", is_flag=True, help="Also time PyTorch, JAX and TensorFlow, if installed.")
@counting_options
@measuring_options
def hmlstm(
    sizes: tuple[int, ...],
    control: str,
    pattern: str,
    with_peers: bool,
    backend: Backend,
    counting: Counting | None,
    **measuring: Any,
) -> None:
    """Check and time the derivatives of the HM-LSTM cell update in several implementations.

    The update is Eq. 6 of Revels et al. (2018), a scalar function with if / elif / else: FLUSH where z = 1, COPY where
    z = 0 and zb = 0, UPDATE elsewhere. The control vectors z and zb are broadcast. The implementations are

    \b
      fused forward mode  one kernel, compiled from the scalar function
      reverse             reverse mode in the seven kernels of the paper's
                          Fig. 5, made by XLA; eight with the value
      by hand             whole arrays of NumPy (of CuPy on a GPU); on a GPU
                          also CUDA C++, from a clone's bench/
      --peers             torch.compile, torch, jax.jit, TensorFlow with XLA

    Each is run for the partials alone, as in the paper, and for the value with the cotangents of c, f, i and g. All
    results are checked against a float64 reference before they are timed. Exit status 1 means that one was wrong. On a
    processor the arrays need about 125 n² bytes (145 n² with control by elements) and 1 GB more: 9 GB for n = 8192.
    Sizes that do not fit are left out.

    With --counted nothing is timed: the GPU kernels are executed on the processor, and what a GPU would have to do is
    counted, for n = 512, 1024 and 2048 unless --n is given.

    \b
    Columns:
      error      the largest; 4 is allowed for the fused kernel
      launches   kernels of one call, if known
      time       median of the samples; on a GPU the time of the device
      moved      bytes that each kernel reads and writes; in the fused kernel
                 only the reads that an element's case needs; for frameworks
                 the least that a kernel without branches has to move
      of copy    bytes moved per second, as a share of a large copy in this
                 run with as many threads
      speedup    time of the reverse mode divided by this time
    """
    if counting is not None:
        sizes = (512, 1024, 2048) if is_default("sizes") else sizes
        count_hmlstm(
            sizes, control, pattern, measuring["seed"], counting, measuring["json_path"], measuring["csv_path"]
        )
        return
    cell = _Cell(**measuring, device=choose_device(backend), control=control, pattern=pattern, peers=with_peers)
    cell.sizes = cell.fitting(sizes)
    with cell.running(len(cell.sizes)):
        for n in cell.sizes:
            try:
                rows = cell.measure(n)
            except MemoryError as error:  # CuPy's are such, too
                if not cell.rows:
                    raise
                cell.leave_out(f"n = {n}: {error}")
                cell.add([], f"n = {n}: there is no memory for it")
                continue
            cell.add(rows, f"n = {n}: checked; fused {_faster(rows)} times as fast as reverse mode in separate kernels")
        cell.measure_host()


def _faster(rows: Sequence[Row]) -> str:
    """The speedups of the fused kernel in both modes."""
    speedups = {row["mode"]: row["speedup"] for row in rows if row["implementation"].startswith("fused")}
    return " and ".join(f"{speedup:.2f}" for speedup in speedups.values())
