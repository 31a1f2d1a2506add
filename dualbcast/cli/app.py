"""The group of commands, how a command ends with an error, and the commands that measure nothing."""

from __future__ import annotations

import inspect
import platform
from collections.abc import Callable
from typing import Any

import click
from rich import box
from rich.table import Table

from dualbcast.api.function import BroadcastFunction, differentiable_broadcast
from dualbcast.api.inspection import PRODUCTS, Show
from dualbcast.cli import measure, report
from dualbcast.cli.cache import cache, contents
from dualbcast.cli.options import capability, function_name
from dualbcast.cli.sweep import sweep
from dualbcast.codegen import mathlib
from dualbcast.errors import DualbcastError
from dualbcast.runtime.cpu.policy import get_num_threads, last_level_cache


class CommandGroup(click.Group):
    """A group whose commands end with a message and status 1 instead of a traceback for the package's own errors, a
    file that cannot be used, and a lack of memory."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (DualbcastError, OSError) as error:
            raise click.ClickException(str(error)) from error
        except MemoryError as error:  # CuPy's are such, too
            raise click.ClickException(f"There is not enough memory; give a smaller --n. {error}".rstrip()) from error


# Of every group of commands; the commands have them from their group.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.group(cls=CommandGroup, name="dualbcast", context_settings=CONTEXT_SETTINGS)
@click.version_option(package_name="dualbcast")
def group() -> None:
    """Broadcast a scalar Python function and get its value and exact Jacobian from one kernel.

    The option --help of a command explains it. Results are checked before they are timed; after a wrong one the exit
    status is 1.
    """


group.add_command(sweep)
group.add_command(cache)


@group.command(short_help="Show the kernel that a call of a function will run.")
@click.argument("function", metavar="MODULE:FUNCTION", type=function_name)
@click.argument("dtypes", metavar="[DTYPE]...", nargs=-1)
@click.option("--wrt", multiple=True, metavar="NAME", help="A parameter to differentiate in; by default all floats.")
@click.option("--product", type=click.Choice(PRODUCTS), default="value_and_jacobian", help="What the call computes.")
@click.option("--cc", type=capability, metavar="X.Y", help="Compile for a GPU of this compute capability.")
@click.option("--passes", is_flag=True, help="Also show the IR after each pass of the compiler.")
def explain(
    function: Callable[..., Any],
    dtypes: tuple[str, ...],
    wrt: tuple[str, ...],
    product: Show,
    cc: tuple[int, int] | None,
    passes: bool,
) -> None:
    """Show the kernel that a call of FUNCTION will run: its operations, bytes and branches.

    Each DTYPE stands for a contiguous array. The last one also holds for all further parameters; by default float64.
    """
    broadcast = function if isinstance(function, BroadcastFunction) else differentiable_broadcast(function)
    given = list(dtypes or ("float64",))
    given += given[-1:] * (_required_positions(broadcast) - len(given))
    click.echo(broadcast.explain(*given, wrt=wrt or None, product=product, cc=cc, passes=passes))


def _required_positions(function: Callable[..., Any]) -> int:
    """The number of arguments that a call must give by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)


@group.command(short_help="Show versions, devices and the kernel cache.")
def info() -> None:
    """Show versions, processor, GPUs, and where the cache of compiled kernels is."""
    system = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}".rstrip(", ")
    cache_bytes = last_level_cache()
    host = {
        "system": system,
        "processor": measure.cpu_model(),
        "threads": str(get_num_threads()),
        "largest cache": report.size_text(cache_bytes) if cache_bytes else "unknown",
        "fused multiply-add": "yes" if mathlib.has_fma() else "no: elementary functions run one element at a time",
    }
    gpus = {f"GPU {number}": _gpu_text(gpu) for number, gpu in enumerate(measure.gpus())}
    if gpus:
        gpus["CUDA driver"] = f"supports CUDA {measure.driver_version()}"
    else:
        gpus["GPU"] = "none found (the extra cuda13 or cuda12 compiles kernels for one, to inspect them)"
    folder, size = contents()
    table = Table(box=box.SIMPLE, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for section in (measure.versions(), host, gpus, {"kernel cache": folder, "": size}):
        for name, text in section.items():
            table.add_row(name, text)
        table.add_section()
    report.show(table)


def _gpu_text(gpu: measure.Gpu) -> str:
    memory = report.size_text(gpu.memory)
    return f"{gpu.name}, compute capability {gpu.cc}, {gpu.multiprocessors} multiprocessors, {memory}"
