"""`sweep`: the command of the package, with kernels by hand and the hardware's counters beside it on a GPU."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import click
import numpy as np

from bench.paper import by_hand
from bench.paper.counted import Counting, counting_options, is_default
from bench.paper.counted_sweep import count_sweep
from bench.paper.profiling import profile
from bench.paper.timing import Rotation
from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli import checking
from dualbcast.cli import sweep as package_sweep
from dualbcast.cli.checking import check_product
from dualbcast.cli.measure import copies
from dualbcast.cli.options import numbers
from dualbcast.cli.report import Column, Row
from dualbcast.cli.sweep import Sweep, run_sweep
from dualbcast.runtime.cuda import launch as cuda_launch

__all__ = ["hand_kernels", "own_kernels", "sweep"]

_MAX_LANES = 32  # arity times elements a thread, by hand: all sums and products stay in registers
_COUNTED_ARITIES = "1:16,18,24,32"
_SAME_UP_TO = 2  # the arity up to which the two ways by hand to compute partials are the same

_ON_A_GPU = (
    "On a GPU the table also has the fastest kernel by hand in CUDA C++, with the ratio of its time to ours. If ncu of "
    "Nsight Compute is on the path, it has the achieved occupancy and the utilisation of compute and DRAM as well."
)
_COUNTED = (
    "With --counted nothing is timed: the GPU kernels are executed on the processor, and what a V100 and an H100 would "
    f"have to do is counted, for the arities {_COUNTED_ARITIES} unless others are given."
)
_COLUMNS = (
    Column("by_hand_seconds", "C++ by\nhand, ms", "{:.3f}", 1e3),
    Column("by_hand_ratio", "ratio", "{:.2f}"),
    Column("achieved_occupancy", "achieved\noccup.", "{:.0%}"),
    Column("compute_share", "com-\npute", "{:.0%}"),
    Column("dram_share", "DRAM", "{:.0%}"),
)


@dataclass(kw_only=True)
class _ComparedSweep(Sweep):
    """A sweep with the comparison where the function is the paper's product, in float32 on a GPU."""

    compared: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.compared = self.device.backend == "cuda" and self.exact is None and self.dtype == "float32"
        if self.compared:
            self.columns = [*self.columns, *_COLUMNS]

    def measure(self, xs: Sequence[Any]) -> Row:
        row = super().measure(xs)
        if self.compared:
            self.doing(f"arity {len(xs)}: kernels to compare with")
            sets = copies(self.device, xs, row["bytes"] - sum(x.nbytes for x in xs))
            row |= _time_by_hand(self, sets, row["seconds"])
        return row

    @contextmanager
    def running(self, steps: int) -> Iterator[None]:
        with super().running(steps):
            yield
            if self.compared:
                self.doing("profiling")
                figures, reason = profile([row["arity"] for row in self.rows], self.n)
                for row, metrics in zip(self.rows, figures, strict=bool(figures)):
                    row |= metrics
                if reason:
                    self.note(reason)


@counting_options
def _run(arities: tuple[int, ...], counting: Counting | None, **given: Any) -> None:
    if counting is None:
        run_sweep(_ComparedSweep, arities=arities, **given)
        return
    if given["user_function"] is not None or given["dtype"] != "float32":
        raise click.UsageError("--counted is for the product, in float32.")
    arities = numbers(_COUNTED_ARITIES) if is_default("arities") else arities
    files = given["json_path"], given["csv_path"]
    count_sweep(arities, given["n"], given["seed"], counting.measured, *files)


sweep = click.Command(
    "sweep",
    params=[*package_sweep.sweep.params, *reversed(getattr(_run, "__click_params__", []))],
    callback=_run,
    short_help=package_sweep.sweep.short_help,
    help=f"{inspect.cleandoc(package_sweep.sweep.help or '')}\n\n{_ON_A_GPU}\n\n{_COUNTED}",
)


def _time_by_hand(setup: Sweep, sets: Sequence[Sequence[Any]], seconds: float) -> Row:
    """Check and time the kernels by hand; the figures are those of the fastest."""
    timed: list[tuple[float, by_hand.HandKernel]] = []
    for kernel in hand_kernels(len(sets[0]), setup.n * setup.n, cuda_launch.current_cc()):

        def prepared(xs: Sequence[Any], kernel: by_hand.HandKernel = kernel) -> Callable[[], Any]:
            out = [xs[0].copy() for _ in range(len(xs) + 1)]

            def call() -> Any:
                by_hand.launch_product(kernel, xs, out)
                return out

            return call

        rotation = Rotation([prepared(xs) for xs in sets])
        out = rotation.call_each()[0]
        check_product(setup.device, sets[0], out[0], out[1:])
        timed.append((setup.device.time(rotation, setup.repeat, setup.min_time).seconds, kernel))
    best, kernel = min(timed, key=lambda one: one[0])
    return {
        "by_hand_seconds": best,
        "by_hand_ratio": best / seconds,
        "by_hand_kernel": kernel.label,
        "by_hand_registers": kernel.registers,
        "by_hand_spill_bytes": kernel.spill_bytes,
    }


def hand_kernels(arity: int, size: int, cc: tuple[int, int]) -> list[by_hand.HandKernel]:
    """The kernels by hand of a product, in the widths that fit in registers and divide the size."""
    widths = [width for width in (1, 2, 4) if (width == 1 or width * arity <= _MAX_LANES) and size % width == 0]
    names = ("product_forward", "product_prefix") if arity > _SAME_UP_TO else ("product_forward",)
    return [by_hand.compile_by_hand(name, cc, width, arity) for name in names for width in widths]


def own_kernels(arities: Sequence[int], n: int, cc: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """The CUDA kernels that the command launches, each with its arity; needs no GPU."""
    function: Any = differentiable_broadcast(checking.product)
    xs = [np.empty((n, n), np.float32) for _ in range(max(arities))]
    for arity in arities:
        yield f"arity {arity}", function.explain(*xs[:arity], wrt=range(arity), cc=cc).cuda
