"""`dualbcast sweep`: a variadic function's value and Jacobian, checked and timed arity by arity."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np
from rich.console import RenderableType

from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli import by_hand, models, plots, report
from dualbcast.cli.checking import check_by_differences, check_product
from dualbcast.cli.measure import Device, Rotation, choose_device, copies
from dualbcast.cli.options import capability, function_name, measuring_options, numbers
from dualbcast.cli.profiling import profile
from dualbcast.cli.report import Column, Row
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.program.typed_product import Backend
from dualbcast.runtime.cuda import launch as cuda_launch

__all__ = ["DEFAULT_ARITIES", "hand_kernels", "own_kernels", "sweep"]

DEFAULT_ARITIES = "1:16,18,20,24,28,32"
_MOST_LANES = 32  # arity times elements a thread, by hand: the sums and the products all stay in registers
_SAME_BELOW = 2  # up to here the two ways by hand to compute partials are one

_DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
_ARITY = Column("arity", "arity")
_OPERATIONS = (Column("arithmetic", "+ - * /"), Column("transcendental", "tran-\nscend."))
# Shown where there are any.
_ON_A_GPU = (
    Column("by_hand_seconds", "C++ by\nhand, ms", "{:.3f}", 1e3),
    Column("by_hand_ratio", "ratio", "{:.2f}"),
    Column("achieved_occupancy", "achieved\noccup.", "{:.0%}"),
    Column("compute_share", "com-\npute", "{:.0%}"),
    Column("dram_share", "DRAM", "{:.0%}"),
)


@dataclass
class _Sweep:
    """What every row of one sweep has in common."""

    device: Device
    function: Any
    exact: Any  # the same function in Python, for the check by differences; None for the product, which has a reference
    name: str
    n: int
    dtype: str
    repeat: int
    min_time: float
    capabilities: Sequence[tuple[int, int]]
    bandwidth: float = 0.0
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        return f"{self.name}: value and all partials, {self.n} by {self.n} {self.dtype}"

    def table(self, rows: Sequence[Row]) -> RenderableType:
        """The measured columns, and those of one or two compute capabilities."""
        check = Column("error_ulp", "error\nulp", "{:.2f}")
        if self.exact is not None:
            check = Column("error_relative", "error\nrel.", "{:.0e}")
        columns = [_ARITY, *report.TIMING_COLUMNS, *_OPERATIONS, check]
        columns += [column for column in _ON_A_GPU if any(row.get(column.key) is not None for row in rows)]
        if self.resources_inline:
            columns += self._resource_columns()
        notes = report.machine_notes(self.device, self.bandwidth, rows)
        return report.build_table(columns, rows, self.title, [*notes, *self.notes])

    @property
    def resources_inline(self) -> bool:
        """Whether the columns of the compute capabilities fit beside the others, or need a table of their own."""
        on_a_gpu = 40 if self.device.backend == "cuda" else 0
        return 66 + on_a_gpu + 21 * len(self.capabilities) <= report.width()

    def resource_table(self, rows: Sequence[Row]) -> RenderableType:
        """Only the columns of the compute capabilities."""
        return report.build_table([_ARITY, *self._resource_columns()], rows, "Compiled for CUDA")

    def _resource_columns(self) -> list[Column]:
        columns = []
        for key in map(_key, self.capabilities):
            columns += [
                Column(f"{key}_registers", f"{key}\nregs"),
                Column(f"{key}_spill_bytes", "spill\nbytes"),
                Column(f"{key}_occupancy", "occu-\npancy", "{:.0%}"),
            ]
        return columns

    def measure(self, xs: Sequence[Any], doing: Callable[[str], None]) -> Row:
        """Compile, check and time the function of these arguments."""
        arity = len(xs)
        every = range(arity)  # whatever a decorated function says of itself
        doing(f"arity {arity}: compiling")
        start = time.perf_counter()
        value, jacobian = self.function.value_and_jacobian(*xs, wrt=every)
        first_call = time.perf_counter() - start
        doing(f"arity {arity}: checking")
        row = {"arity": arity, **self._check(xs, value, jacobian)}
        doing(f"arity {arity}: timing")
        explanation = self.function.explain(*xs, wrt=every)
        moved = explanation.bytes_read + explanation.bytes_written
        sets = copies(self.device, xs, explanation.bytes_written)
        timing = self.device.time(self._rotation(sets), self.repeat, self.min_time)
        row["arrays_in_turn"] = len(sets)
        row |= report.timing_fields(timing, self.n**2, moved, self.bandwidth)
        row |= {"first_call_seconds": first_call}
        row |= {"arithmetic": explanation.arithmetic, "transcendental": explanation.calls}
        if self.has_by_hand:
            doing(f"arity {arity}: CUDA C++ by hand")
            row |= self._by_hand(sets, timing.median)
        for cc in self.capabilities:
            doing(f"arity {arity}: compiling for {_key(cc)}")
            row |= self._resources(xs, cc)
        return row

    def _rotation(self, sets: Sequence[Sequence[Any]]) -> Rotation:
        """The calls for each of these arrays, with outputs of their own."""

        def prepared(xs: Sequence[Any]) -> Callable[[], Any]:
            out = self.function.value_and_jacobian(*xs, wrt=range(len(xs)))
            return lambda: self.function.value_and_jacobian(*xs, wrt=range(len(xs)), out=out)

        return Rotation([prepared(xs) for xs in sets])

    @property
    def is_product(self) -> bool:
        """Whether it is the paper's product on a GPU, which is compared with kernels by hand, and profiled."""
        return self.device.backend == "cuda" and self.exact is None and self.dtype == "float32"

    @property
    def has_by_hand(self) -> bool:
        """Whether there are kernels by hand to compare with."""
        return self.is_product and by_hand.available()

    def _by_hand(self, sets: Sequence[Sequence[Any]], seconds: float) -> Row:
        """The fastest of the kernels by hand, all checked."""
        found: list[tuple[float, by_hand.HandKernel]] = []
        for kernel in hand_kernels(len(sets[0]), self.n * self.n, cuda_launch.current_cc()):

            def prepared(xs: Sequence[Any], kernel: by_hand.HandKernel = kernel) -> Callable[[], Any]:
                out = [xs[0].copy() for _ in range(len(xs) + 1)]

                def call() -> Any:
                    by_hand.launch_product(kernel, xs, out)
                    return out

                return call

            rotation = Rotation([prepared(xs) for xs in sets])
            out = rotation.turn()[0]
            check_product(self.device, sets[0], out[0], out[1:])
            found.append((self.device.time(rotation, self.repeat, self.min_time).median, kernel))
        best, kernel = min(found, key=lambda one: one[0])
        return {
            "by_hand_seconds": best,
            "by_hand_ratio": best / seconds,
            "by_hand_kernel": kernel.label,
            "by_hand_registers": kernel.registers,
            "by_hand_spill_bytes": kernel.spill_bytes,
        }

    def profile(self, rows: Sequence[Row], doing: Callable[[str], None]) -> None:
        """Add what the hardware's counters say, where they can be read."""
        if not self.is_product:
            return
        doing("profiling with Nsight Compute")
        found, why = profile([row["arity"] for row in rows], self.n)
        for row, metrics in zip(rows, found, strict=bool(found)):
            row |= metrics
        if why:
            self._note(why)

    def _check(self, xs: Sequence[Any], value: Any, jacobian: Any) -> dict[str, Any]:
        if self.exact is None:
            error, tolerance = check_product(self.device, xs, value, jacobian)
            return {"error_ulp": error, "tolerance_ulp": tolerance}
        found = check_by_differences(self.exact, self.device, xs, value, jacobian)
        self._note("Checked on 32 elements against float64 values and central differences.")
        if found.skipped:
            self._note("Numbers near a kink, or not finite, were left out of the check; - says that all were.")
        return {"error_relative": found.error, "compared": found.compared, "skipped": found.skipped}

    def _resources(self, xs: Sequence[Any], cc: tuple[int, int]) -> dict[str, Any]:
        try:
            kernel = self.function.explain(*xs, wrt=range(len(xs)), cc=cc).cuda
        except MissingDependencyError as error:
            self._note(" ".join(str(error).split()))
            return {}
        found = {
            f"{_key(cc)}_registers": kernel.registers,
            f"{_key(cc)}_spill_bytes": kernel.spill_stores + kernel.spill_loads,
        }
        try:
            found[f"{_key(cc)}_occupancy"] = kernel.occupancy()
        except BackendError as error:  # a GPU that is newer than the table
            self._note(str(error))
        return found

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def hand_kernels(arity: int, size: int, cc: tuple[int, int]) -> list[by_hand.HandKernel]:
    """The kernels by hand of a product, in the widths that registers suffice for and whole threads fit."""
    widths = [width for width in (1, 2, 4) if (width == 1 or width * arity <= _MOST_LANES) and size % width == 0]
    names = ("product_forward", "product_prefix") if arity > _SAME_BELOW else ("product_forward",)
    return [by_hand.compile_by_hand(name, cc, width, arity) for name in names for width in widths]


def own_kernels(arities: Sequence[int], n: int, cc: tuple[int, int]) -> Iterator[tuple[str, Any]]:
    """The CUDA kernels that the command launches, with what each is of; needs no GPU."""
    function: Any = differentiable_broadcast(models.product)
    xs = [np.empty((n, n), np.float32) for _ in range(max(arities))]
    for arity in arities:
        yield f"arity {arity}", function.cuda_resources(*xs[:arity], wrt=range(arity), cc=cc)


def _key(cc: tuple[int, int]) -> str:
    return f"sm_{cc[0]}{cc[1]}"


@click.command(short_help="Time value and Jacobian over the number of arguments.")
@click.option(
    "--arity",
    type=numbers,
    metavar="A:B",
    default=DEFAULT_ARITIES,
    show_default=True,
    help="Numbers of arguments: A:B, one, or a list.",
)
@click.option("--n", type=click.IntRange(1), default=1024, show_default=True, help="The arrays are n by n.")
@click.option("--dtype", type=click.Choice(list(_DTYPES)), default="float32", show_default=True, help="Of the arrays.")
@click.option(
    "--function",
    "user_function",
    type=function_name,
    metavar="MODULE:NAME",
    help="Sweep this function of any number of arguments (def f(*xs)); MODULE may be the path of a .py file.",
)
@click.option(
    "--cc",
    "capabilities",
    type=capability,
    metavar="X.Y",
    multiple=True,
    help="Also compile for this compute capability (no GPU needed): registers, spills, occupancy. Repeatable.",
)
@measuring_options
def sweep(
    arity: tuple[int, ...],
    n: int,
    dtype: str,
    user_function: Callable[..., Any] | None,
    capabilities: tuple[tuple[int, int], ...],
    backend: Backend,
    repeat: int,
    min_time: float,
    seed: int,
    json_path: Path | None,
    csv_path: Path | None,
    plot_path: Path | None,
) -> None:
    """Time a function's value and Jacobian for one number of arguments after another.

    The function is ∏ tanh(g(x)), with g(x) = x if x > ½ else -x, over random x between -2 and 2, unless --function
    names another. One kernel computes the value and all partials. They are checked (the product against a float64
    reference over all elements, another function against central differences on a few), then timed with their output
    arrays reused. Exit status 1 means that a result was wrong.

    \b
    Columns:
      time       median over the samples; ns per element is that over n²
      moved      each array read once and each written once
      of copy    bytes moved per second, as a share of a large copy in this
                 run with as many threads
      + - * /    arithmetic operations an element
      transcend. calls of transcendental functions an element
      error      the largest: in ulps of the value, or for a partial of the
                 product of the other factors; relative with --function
      regs …     for --cc, and for a GPU that it runs on: registers a thread,
                 bytes spilled to memory, theoretical occupancy

    On a GPU also the fastest of the same written by hand in CUDA C++, if it is run from a clone, with its time over
    ours; and by Nsight Compute, if ncu is on the path, achieved occupancy and the utilisation of compute and DRAM.
    """
    if plot_path is not None:
        plots.require()
    device = choose_device(backend)
    if device.backend == "cuda":
        capabilities = (cuda_launch.current_cc(), *capabilities)
    function, exact = _compiled(user_function or models.product, device.backend)
    setup = _Sweep(
        device=device,
        function=function,
        exact=None if user_function is None else exact,
        name="∏ tanh(g(x))" if user_function is None else getattr(user_function, "__name__", "function"),
        n=n,
        dtype=dtype,
        repeat=repeat,
        min_time=min_time,
        capabilities=tuple(dict.fromkeys(capabilities)),
    )
    generator = np.random.default_rng(seed)
    xs: list[Any] = []

    def save(rows: Sequence[Row]) -> None:
        if csv_path is not None:
            report.write_csv(csv_path, rows)
        if json_path is None:
            return
        parameters = {"arity": arity, "n": n, "dtype": dtype, "function": setup.name, "seed": seed}
        parameters |= {"repeat": repeat, "min_time": min_time}
        parameters |= {"cc": [f"{cc[0]}.{cc[1]}" for cc in setup.capabilities]}
        extra = {"copy_bytes_per_second": setup.bandwidth, "notes": setup.notes}
        report.write_json(json_path, report.record("sweep", device, parameters, rows, **extra))

    with report.Run(len(arity), setup.table, save) as run:
        run.doing("copying, to know the bandwidth")
        setup.bandwidth = device.copy_bandwidth(min_time)
        for count in arity:
            while len(xs) < count:
                x = generator.uniform(-2, 2, (n, n)).astype(np.float32).astype(_DTYPES[dtype])
                xs.append(device.array(x))
            row = setup.measure(xs[:count], run.doing)
            run.done(row, f"arity {count}: checked; {row['seconds'] * 1e3:.3f} ms")
        setup.profile(run.rows, run.doing)
        # Once more: other work on the machine may have slowed the first.
        setup.bandwidth = max(setup.bandwidth, device.copy_bandwidth(min_time))
        run.hold_against(setup.bandwidth)
    report.show(setup.table(run.rows))
    if not setup.resources_inline:
        report.show(setup.resource_table(run.rows))
    save(run.rows)
    if plot_path is not None:
        plots.plot_sweep(plot_path, run.rows, device, setup.bandwidth, setup.capabilities, setup.title)


def _compiled(function: Callable[..., Any], backend: Backend) -> tuple[Any, Any]:
    """The function on the chosen backend, and in Python for the check; a decorated one keeps its own options."""
    scalar = getattr(function, "__wrapped__", function)
    decorated = function is not scalar and backend != "python"
    chosen = function if decorated else differentiable_broadcast(backend=backend)(scalar)
    return chosen, differentiable_broadcast(backend="python")(scalar)
