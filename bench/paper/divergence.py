"""`divergence`: the cost of branches where neighbours take different ones, and the bytes that loads in them save."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from bench.paper import models
from bench.paper.checking import CellReference
from bench.paper.counted import Counting, counting_options, is_default
from bench.paper.counted_cell import count_divergence
from bench.paper.implementation import WRT
from bench.paper.plots import plot_divergence
from bench.paper.timing import Rotation
from bench.paper.traffic import bytes_needed, control_values, gate_values
from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli.measure import Timing, choose_device, copies
from dualbcast.cli.report import Column, Experiment, Row, measuring_options
from dualbcast.program.products import Backend

__all__ = ["CONTROLS", "RUN", "divergence", "own_kernels"]

CONTROLS = ("rows", "columns", "elements")
# Neighbours that share a case where control is uniform: the threads of a warp, with up to four elements each.
RUN = 128
_RUNS = (("uniform", RUN), ("random", 1))
_TOLERANCE = {"branches": 4.0, "masks": 16.0}
_COLUMNS = (
    Column("control", "control by", left=True),
    Column("pattern", "pattern", left=True),
    Column("error_ulp", "error\nulp", "{:.2f}"),
    Column("seconds", "time\nms", "{:.4f}", 1e3),
    Column("overhead", "over\nuniform", "{:+.0%}"),
    Column("overhead_by_bytes", "by\nbytes", "{:+.0%}"),
    Column("bytes", "moved\nMB", "{:.1f}", 1e-6),
    Column("saved", "saved by\nbranches", "{:.0%}"),
    Column("copy_share", "of\ncopy", "{:.0%}"),
    Column("masks_seconds", "by masks\nms", "{:.4f}", 1e3),
    Column("masks_ratio", "ratio", "{:.2f}"),
)
_FUNCTIONS = {"branches": models.cell_update, "masks": models.cell_update_by_masks}


@dataclass(kw_only=True)
class _Divergence(Experiment):
    """A run over the layouts of control."""

    command = "divergence"
    n: int

    def __post_init__(self) -> None:
        self.title = f"HM-LSTM cell update: ∂/∂(c, f, i, g), {self.n} by {self.n} float32, by how control is laid out"
        self.columns = _COLUMNS
        self.note(f"Uniform: {RUN} neighbours in a row, a warp's worth, share each value of the control vectors.")

    def parameters(self) -> dict[str, Any]:
        return {"n": self.n, "run": RUN}

    def figures(self) -> dict[str, Any]:
        return {"tolerance_ulp": _TOLERANCE}

    def plot(self, path: Path) -> None:
        plot_divergence(path, self)

    def measure(self, control: str) -> list[Row]:
        """Check and time uniform and random control of one layout."""
        rows: list[Row] = []
        for pattern, run in _RUNS:
            if control == "rows" and pattern == "uniform":
                continue  # the elements of a row share their control as it is
            generator = np.random.default_rng(self.seed)
            gates = gate_values(generator, self.n, 4)
            z, zb = control_values(generator, self.n, control, "random", run)
            self.doing(f"control by {control}, {pattern}: the reference")
            reference = CellReference([*gates, z, zb])
            sets = copies(self.device, [self.device.array(a) for a in (*gates, z, zb)], 4 * gates[0].nbytes)
            timings, error = {}, 0.0
            for name in _FUNCTIONS:
                self.doing(f"control by {control}, {pattern}: by {name}")
                timings[name], worst = self._time(name, sets, reference)
                error = max(error, worst) if name == "branches" else error
            timing = timings["branches"]
            whole = bytes_needed(*control_values(generator, self.n, control, "update"), self.n, "derivatives", 4)
            moved = bytes_needed(z, zb, self.n, "derivatives", 32 if self.device.backend == "cuda" else 64)
            uniform = next((row for row in rows if row["pattern"] == "uniform"), None)
            over = by_bytes = None
            if uniform is not None:
                over = timing.seconds / uniform["seconds"] - 1
                # The overhead per byte that is moved.
                by_bytes = (1 + over) * uniform["bytes"] / moved - 1
            rows.append(
                {
                    "control": control,
                    "pattern": pattern,
                    "error_ulp": error,
                    "compared": reference.elements,
                    "arrays_in_turn": len(sets),
                    **self.timing_fields(timing, self.n**2, moved),
                    "overhead": over,
                    "overhead_by_bytes": by_bytes,
                    "saved": 1 - moved / whole,
                    "masks_seconds": timings["masks"].seconds,
                    "masks_ratio": timings["masks"].seconds / timing.seconds,
                }
            )
        return rows

    def _time(self, name: str, sets: Sequence[Sequence[Any]], reference: CellReference) -> tuple[Timing, float]:
        function: Any = differentiable_broadcast(backend=self.device.backend)(_FUNCTIONS[name])

        def prepared(arrays: Sequence[Any]) -> Callable[[], Any]:
            def call() -> Any:
                jacobian = function.jacobian(*arrays, wrt=WRT)
                return [jacobian[at] for at in WRT]

            return call

        rotation = Rotation([prepared(arrays) for arrays in sets])
        results = rotation.call_each()
        errors = [reference.check(each, self.device.host, _TOLERANCE[name], f"by {name}") for each in results]
        return self.device.time(rotation, self.repeat, self.min_time), max(errors)


def own_kernels(n: int, cc: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """The CUDA kernels that the command launches, each with a description; needs no GPU."""
    gates = [np.empty((n, n), np.float32) for _ in range(4)]
    for control in CONTROLS:
        z, zb = control_values(np.random.default_rng(0), n, control, "copy")
        for name, scalar in _FUNCTIONS.items():
            function: Any = differentiable_broadcast(scalar)
            kernel = function.explain(*gates, z, zb, wrt=WRT, product="jacobian", cc=cc).cuda
            yield f"by {name}, control by {control}", kernel


@click.command(short_help="Time the cell update where neighbours take different branches.")
@click.option("--n", type=click.IntRange(1), default=2048, show_default=True, help="The arrays are n by n.")
@counting_options
@measuring_options
def divergence(n: int, backend: Backend, counting: Counting | None, **measuring: Any) -> None:
    """Time the partials of the HM-LSTM cell update when neighbours take different branches, and when they do not.

    The three cases of the update have the shares that fair coins for z and zb give them, in random order. Random
    control has a case for each row, column or element. Uniform control has one for each run of 128 neighbours in a row.
    By rows, neighbours always share their case. The same partials are also computed by masks: products with 0 and 1
    replace `if`, so everything is read and computed. Results are checked before they are timed; exit status 1 means
    that one was wrong.

    With --counted nothing is timed: the GPU kernels are executed on the processor, and what a GPU would have to do is
    counted, for n = 512 and 2048 unless --n is given.

    \b
    Columns:
      over uniform  the time over that of uniform control of the same layout
      by bytes      the same for the time per byte: random control moves more
      moved         the reads that the elements' cases need, by sectors of 32
                    bytes on a GPU and lines of 64 on a processor; and the
                    writes of the four partials
      saved by      bytes that are not read, since loads are in branches, as a
      branches      share of the bytes of a version that reads everything
      by masks      the time of the version that reads everything
      ratio         the time by masks over the time with branches
    """
    if counting is not None:
        sizes = (512, 2048) if is_default("n") else (n,)
        files = measuring["json_path"], measuring["csv_path"]
        count_divergence(sizes, _RUNS, CONTROLS, measuring["seed"], counting, *files)
        return
    setup = _Divergence(**measuring, device=choose_device(backend), n=n)
    with setup.running(len(CONTROLS)):
        for control in CONTROLS:
            rows = setup.measure(control)
            times = ", ".join(f"{row['pattern']} {row['seconds'] * 1e3:.3f} ms" for row in rows)
            setup.add(rows, f"control by {control}: checked; {times}")
