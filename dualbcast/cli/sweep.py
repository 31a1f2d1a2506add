"""`dualbcast sweep`: a variadic function's value and Jacobian, checked and timed arity by arity."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import ml_dtypes
import numpy as np

from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli import checking, plots, report
from dualbcast.cli.measure import choose_device, copies
from dualbcast.cli.options import capability, function_name, numbers
from dualbcast.cli.report import Column, Experiment, Row, measuring_options
from dualbcast.errors import BackendError, MissingDependencyError
from dualbcast.program.products import Backend
from dualbcast.runtime.cuda import launch as cuda_launch

DEFAULT_ARITIES = "1:16,18,20,24,28,32"
_DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32, "float64": np.float64}


@dataclass(kw_only=True)
class Sweep(Experiment):
    """A sweep over the number of arguments."""

    command = "sweep"
    function: Any
    exact: Any  # the same function in Python, for the check by differences; None for the product, which has a reference
    name: str
    n: int
    dtype: str
    capabilities: Sequence[tuple[int, int]]
    arities: Sequence[int]

    def __post_init__(self) -> None:
        self.title = f"{self.name}: value and all partials, {self.n} by {self.n} {self.dtype}"
        check = Column("error_ulp", "error\nulp", "{:.2f}")
        if self.exact is not None:
            check = Column("error_relative", "error\nrel.", "{:.0e}")
        operations = (Column("arithmetic", "+ - * /"), Column("transcendental", "tran-\nscend."))
        self.columns = [Column("arity", "arity"), *report.TIMING_COLUMNS, *operations, check]
        for cc in self.capabilities:
            key = _key(cc)
            self.columns += [
                Column(f"{key}_registers", f"{key}\nregs"),
                Column(f"{key}_spill_bytes", "spill\nbytes"),
                Column(f"{key}_occupancy", "occu-\npancy", "{:.0%}"),
            ]

    def parameters(self) -> dict[str, Any]:
        capabilities = [f"{major}.{minor}" for major, minor in self.capabilities]
        return {"arity": self.arities, "n": self.n, "dtype": self.dtype, "function": self.name, "cc": capabilities}

    def plot(self, path: Path) -> None:
        plots.plot_sweep(path, self, [_key(cc) for cc in self.capabilities])

    def measure(self, xs: Sequence[Any]) -> Row:
        """Compile, check and time the function of these arguments."""
        arity = len(xs)
        every = range(arity)  # a decorated function may have a `wrt` of its own
        self.doing(f"arity {arity}: compiling")
        start = time.perf_counter()
        value, jacobian = self.function.value_and_jacobian(*xs, wrt=every)
        first_call = time.perf_counter() - start
        self.doing(f"arity {arity}: checking")
        row = {"arity": arity, **self._check(xs, value, jacobian)}
        self.doing(f"arity {arity}: timing")
        explanation = self.function.explain(*xs, wrt=every)
        sets = copies(self.device, xs, explanation.bytes_written)
        turns = itertools.cycle([(each, self.function.value_and_jacobian(*each, wrt=every)) for each in sets])

        def call() -> None:
            arrays, out = next(turns)
            self.function.value_and_jacobian(*arrays, wrt=every, out=out)

        timing = self.device.time(call, self.repeat, self.min_time)
        row["arrays_in_turn"] = len(sets)
        row |= self.timing_fields(timing, self.n**2, explanation.bytes_read + explanation.bytes_written)
        row |= {"first_call_seconds": first_call}
        row |= {"arithmetic": explanation.arithmetic, "transcendental": explanation.calls}
        for cc in self.capabilities:
            self.doing(f"arity {arity}: compiling for {_key(cc)}")
            row |= self._resources(xs, cc)
        return row

    def _check(self, xs: Sequence[Any], value: Any, jacobian: Any) -> dict[str, Any]:
        if self.exact is None:
            error, tolerance = checking.check_product(self.device, xs, value, jacobian)
            return {"error_ulp": error, "tolerance_ulp": tolerance}
        check = checking.check_by_differences(self.exact, self.device, xs, value, jacobian)
        self.note("Checked on 32 elements against float64 values and central differences.")
        if check["skipped"]:
            self.note("Numbers near a kink, or not finite, were left out of the check; - says that all were.")
        return check

    def _resources(self, xs: Sequence[Any], cc: tuple[int, int]) -> dict[str, Any]:
        try:
            kernel = self.function.explain(*xs, wrt=range(len(xs)), cc=cc).cuda
        except MissingDependencyError as error:
            self.note(" ".join(str(error).split()))
            return {}
        resources = {"registers": kernel.registers, "spill_bytes": kernel.spill_stores + kernel.spill_loads}
        try:
            resources["occupancy"] = kernel.occupancy()
        except BackendError as error:  # a GPU that is newer than the table
            self.note(str(error))
        return {f"{_key(cc)}_{name}": figure for name, figure in resources.items()}


def _key(cc: tuple[int, int]) -> str:
    return f"sm_{cc[0]}{cc[1]}"


@click.command(short_help="Time value and Jacobian by the number of arguments.")
@click.option(
    "--arity",
    "arities",
    type=numbers,
    metavar="A:B",
    default=DEFAULT_ARITIES,
    help="The numbers of arguments: a range A:B, one number, or a list of these.",
)
@click.option("--n", type=click.IntRange(1), default=1024, help="The arrays are n by n.")
@click.option("--dtype", type=click.Choice(list(_DTYPES)), default="float32", help="The dtype of the arrays.")
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
    help="Also compile for this compute capability, for registers, spills and occupancy. Needs no GPU. Repeatable.",
)
@measuring_options
def sweep(**given: Any) -> None:
    """Time the value and the Jacobian of a function of N arguments, for several N.

    The function is ∏ tanh(g(x)), with g(x) = x if x > ½ else -x, over random x between -2 and 2, unless --function
    names another. One kernel computes the value and all partials. All elements of the product are checked against a
    float64 reference; another function is checked against central differences at a few elements. Then calls are timed,
    which reuse their output arrays. Exit status 1 means that a result was wrong.

    \b
    Columns:
      time       median of the samples; ns per element is the time over n²
      moved      bytes, if each array is read or written once
      of copy    bytes moved per second, as a share of a large copy in this
                 run with as many threads
      + - * /    arithmetic operations for each element
      transcend. calls of transcendental functions for each element
      error      the largest, in ulps of the value; for a partial in ulps of
                 the product of the other factors; relative with --function
      regs …     registers of a thread, bytes spilled to memory, theoretical
                 occupancy: for each --cc, and for the GPU of the run
    """
    run_sweep(Sweep, **given)


def run_sweep(
    kind: type[Sweep],
    arities: tuple[int, ...],
    n: int,
    dtype: str,
    user_function: Callable[..., Any] | None,
    capabilities: tuple[tuple[int, int], ...],
    backend: Backend,
    **measuring: Any,
) -> None:
    """Run the command; an experiment gives a kind of sweep that measures more."""
    device = choose_device(backend)
    if device.backend == "cuda":
        capabilities = (cuda_launch.current_cc(), *capabilities)
    function, exact = _compiled(user_function or checking.product, device.backend)
    setup = kind(
        **measuring,
        device=device,
        function=function,
        exact=None if user_function is None else exact,
        name="∏ tanh(g(x))" if user_function is None else getattr(user_function, "__name__", "function"),
        n=n,
        dtype=dtype,
        capabilities=tuple(dict.fromkeys(capabilities)),
        arities=arities,
    )
    generator = np.random.default_rng(setup.seed)
    xs: list[Any] = []
    with setup.running(len(arities)):
        for arity in arities:
            while len(xs) < arity:
                x = generator.uniform(-2, 2, (n, n)).astype(np.float32).astype(_DTYPES[dtype])
                xs.append(device.array(x))
            row = setup.measure(xs[:arity])
            setup.add([row], f"arity {arity}: checked; {row['seconds'] * 1e3:.3f} ms")


def _compiled(function: Callable[..., Any], backend: Backend) -> tuple[Any, Any]:
    """The function on the chosen backend, and in Python for the check; a decorated one keeps its own options."""
    scalar = getattr(function, "__wrapped__", function)
    decorated = function is not scalar and backend != "python"
    chosen = function if decorated else differentiable_broadcast(backend=backend)(scalar)
    return chosen, differentiable_broadcast(backend="python")(scalar)
