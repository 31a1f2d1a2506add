"""`dualbcast info`: versions, processor, GPUs, and the kernel cache."""

from __future__ import annotations

import platform

import click
from rich import box
from rich.table import Table

from dualbcast import disk_cache
from dualbcast.cli import cache, machine, report
from dualbcast.cli.report import size_text
from dualbcast.codegen.mathlib import libm


@click.command(short_help="Show versions, devices and the kernel cache.")
@click.option("--clear-cache", is_flag=True, help="Delete all cached kernels first.")
def info(clear_cache: bool) -> None:
    """Show versions, processor, GPUs, and where the cache of compiled kernels is."""
    if clear_cache:
        disk_cache.clear()
    table = Table(box=box.SIMPLE, show_header=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for name, version in machine.versions().items():
        table.add_row(name, version)
    table.add_section()
    table.add_row("system", f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}".rstrip(", "))
    table.add_row("processor", machine.cpu_model())
    table.add_row("threads", str(machine.threads()))
    table.add_row("largest cache", size_text(machine.cache_bytes()) if machine.cache_bytes() else "unknown")
    table.add_row("libmvec", "yes" if libm.has_libmvec() else "no: exp, tanh and the like run one element at a time")
    table.add_section()
    for number, gpu in enumerate(machine.gpus()):
        text = (
            f"{gpu.name}, compute capability {gpu.cc}, {gpu.multiprocessors} multiprocessors, {size_text(gpu.memory)}"
        )
        table.add_row(f"GPU {number}", text)
    if not machine.gpus():
        table.add_row("GPU", "none found (kernels can still be compiled and inspected for one)")
    else:
        table.add_row("CUDA driver", f"supports CUDA {machine.driver_version()}")
    table.add_section()
    folder, size = cache.contents()
    table.add_row("kernel cache", folder)
    table.add_row("", size + (", just cleared" if clear_cache else ""))
    report.show(table)
