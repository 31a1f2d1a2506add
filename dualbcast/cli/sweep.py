"""`dualbcast sweep`: a variadic function's value and Jacobian, checked and timed arity by arity."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import ml_dtypes
import numpy as np
from rich.console import RenderableType

from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli import checking, plots, report
from dualbcast.cli.measure import Device, Rotation, copies
from dualbcast.cli.options import Measuring, capability, function_name, measuring_options, numbers, with_options
from dualbcast.cli.report import Column, Row
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.program.products import Backend
from dualbcast.runtime.cuda import launch as cuda_launch

DEFAULT_ARITIES = "1:16,18,20,24,28,32"
_DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}
_ARITY = Column("arity", "arity")
_OPERATIONS = (Column("arithmetic", "+ - * /"), Column("transcendental", "tran-\nscend."))


@dataclass
class Sweep:
    """The settings of one sweep, which all its rows share, and its notes."""

    device: Device
    function: Any
    exact: Any  # the same function in Python, for the check by differences; None for the product, which has a reference
    name: str
    n: int
    dtype: str
    options: Measuring
    capabilities: Sequence[tuple[int, int]]
    bandwidth: float = 0.0
    arities: Sequence[int] = ()
    comparison_columns: Sequence[Column] = ()  # of figures that an experiment puts beside those of the kernel
    notes: list[str] = field(default_factory=list)
    command = "sweep"

    def parameters(self) -> dict[str, Any]:
        """The values of the command's own options."""
        capabilities = [f"{major}.{minor}" for major, minor in self.capabilities]
        return {"arity": self.arities, "n": self.n, "dtype": self.dtype, "function": self.name, "cc": capabilities}

    def figures(self) -> dict[str, Any]:
        """The notes under the table."""
        return {"notes": self.notes}

    @property
    def title(self) -> str:
        """The heading of the table and the picture."""
        return f"{self.name}: value and all partials, {self.n} by {self.n} {self.dtype}"

    def table(self, rows: Sequence[Row]) -> RenderableType:
        """The measured columns, and those of one or two compute capabilities."""
        check = Column("error_ulp", "error\nulp", "{:.2f}")
        if self.exact is not None:
            check = Column("error_relative", "error\nrel.", "{:.0e}")
        columns = [_ARITY, *report.TIMING_COLUMNS, *_OPERATIONS, check]
        columns += [c for c in self.comparison_columns if any(row.get(c.key) is not None for row in rows)]
        if self.resources_inline:
            columns += self._resource_columns()
        notes = report.machine_notes(self.device, self.bandwidth, rows)
        return report.build_table(columns, rows, self.title, [*notes, *self.notes])

    @property
    def resources_inline(self) -> bool:
        """Whether the columns of the compute capabilities fit beside the others, without a table of their own."""
        return 66 + 8 * len(self.comparison_columns) + 21 * len(self.capabilities) <= report.width()

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
        every = range(arity)  # a decorated function may have a `wrt` of its own
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
        timing = self.device.time(self._rotation(sets), self.options.repeat, self.options.min_time)
        row["arrays_in_turn"] = len(sets)
        row |= report.timing_fields(timing, self.n**2, moved, self.bandwidth)
        row |= {"first_call_seconds": first_call}
        row |= {"arithmetic": explanation.arithmetic, "transcendental": explanation.calls}
        for cc in self.capabilities:
            doing(f"arity {arity}: compiling for {_key(cc)}")
            row |= self._resources(xs, cc)
        return row

    def _rotation(self, sets: Sequence[Sequence[Any]]) -> Rotation:
        """A call for each set of arrays, with outputs of its own."""

        def prepared(xs: Sequence[Any]) -> Callable[[], Any]:
            out = self.function.value_and_jacobian(*xs, wrt=range(len(xs)))
            return lambda: self.function.value_and_jacobian(*xs, wrt=range(len(xs)), out=out)

        return Rotation([prepared(xs) for xs in sets])

    def finish(self, rows: Sequence[Row], doing: Callable[[str], None]) -> None:
        """Add figures that an experiment reads for all rows together."""

    def _check(self, xs: Sequence[Any], value: Any, jacobian: Any) -> dict[str, Any]:
        if self.exact is None:
            error, tolerance = checking.check_product(self.device, xs, value, jacobian)
            return {"error_ulp": error, "tolerance_ulp": tolerance}
        check = checking.check_by_differences(self.exact, self.device, xs, value, jacobian)
        self.note("Checked on 32 elements against float64 values and central differences.")
        if check.skipped:
            self.note("Numbers near a kink, or not finite, were left out of the check; - says that all were.")
        return {"error_relative": check.error, "compared": check.compared, "skipped": check.skipped}

    def _resources(self, xs: Sequence[Any], cc: tuple[int, int]) -> dict[str, Any]:
        try:
            kernel = self.function.explain(*xs, wrt=range(len(xs)), cc=cc).cuda
        except MissingDependencyError as error:
            self.note(" ".join(str(error).split()))
            return {}
        resources = {
            f"{_key(cc)}_registers": kernel.registers,
            f"{_key(cc)}_spill_bytes": kernel.spill_stores + kernel.spill_loads,
        }
        try:
            resources[f"{_key(cc)}_occupancy"] = kernel.occupancy()
        except BackendError as error:  # a GPU that is newer than the table
            self.note(str(error))
        return resources

    def note(self, text: str) -> None:
        """Show a line under the table, once."""
        if text not in self.notes:
            self.notes.append(text)


def _key(cc: tuple[int, int]) -> str:
    return f"sm_{cc[0]}{cc[1]}"


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a sweep."""
    options = [
        click.option(
            "--arity",
            "arities",
            type=numbers,
            metavar="A:B",
            default=DEFAULT_ARITIES,
            help="Numbers of arguments: A:B, one, or a list.",
        ),
        click.option("--n", type=click.IntRange(1), default=1024, help="The arrays are n by n."),
        click.option("--dtype", type=click.Choice(list(_DTYPES)), default="float32", help="Of the arrays."),
        click.option(
            "--function",
            "user_function",
            type=function_name,
            metavar="MODULE:NAME",
            help="Sweep this function of any number of arguments (def f(*xs)); MODULE may be the path of a .py file.",
        ),
        click.option(
            "--cc",
            "capabilities",
            type=capability,
            metavar="X.Y",
            multiple=True,
            help="Also compile for this compute capability (no GPU needed): registers, spills, occupancy. Repeatable.",
        ),
        measuring_options,
    ]
    return with_options(options, command)


@click.command(short_help="Time value and Jacobian over the number of arguments.")
@sweep_options
def sweep(**given: Any) -> None:
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
    """
    run_sweep(**given)


def run_sweep(
    options: Measuring,
    arities: tuple[int, ...],
    n: int,
    dtype: str,
    user_function: Callable[..., Any] | None,
    capabilities: tuple[tuple[int, int], ...],
    kind: type[Sweep] = Sweep,
) -> None:
    """Run the command; an experiment gives a kind of sweep that measures more."""
    device = report.device_for(options)
    if device.backend == "cuda":
        capabilities = (cuda_launch.current_cc(), *capabilities)
    function, exact = _compiled(user_function or checking.product, device.backend)
    setup = kind(
        device=device,
        function=function,
        exact=None if user_function is None else exact,
        name="∏ tanh(g(x))" if user_function is None else getattr(user_function, "__name__", "function"),
        n=n,
        dtype=dtype,
        options=options,
        capabilities=tuple(dict.fromkeys(capabilities)),
        arities=arities,
    )
    generator = np.random.default_rng(options.seed)
    xs: list[Any] = []
    with report.running(setup, len(arities)) as run:
        for arity in arities:
            while len(xs) < arity:
                x = generator.uniform(-2, 2, (n, n)).astype(np.float32).astype(_DTYPES[dtype])
                xs.append(device.array(x))
            row = setup.measure(xs[:arity], run.doing)
            run.add([row], f"arity {arity}: checked; {row['seconds'] * 1e3:.3f} ms")
        setup.finish(run.rows, run.doing)
    if not setup.resources_inline:
        report.show(setup.resource_table(run.rows))
    if options.plot_path is not None:
        plots.plot_sweep(options.plot_path, run.rows, device, setup.bandwidth, setup.capabilities, setup.title)


def _compiled(function: Callable[..., Any], backend: Backend) -> tuple[Any, Any]:
    """The function on the chosen backend, and in Python for the check; a decorated one keeps its own options."""
    scalar = getattr(function, "__wrapped__", function)
    decorated = function is not scalar and backend != "python"
    chosen = function if decorated else differentiable_broadcast(backend=backend)(scalar)
    return chosen, differentiable_broadcast(backend="python")(scalar)
