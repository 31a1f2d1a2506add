"""`dualbcast cache`: the folder of the compiled kernels, and their number and size."""

from __future__ import annotations

import click

from dualbcast import disk_cache
from dualbcast.cli.report import size_text


def contents() -> tuple[str, str]:
    """The folder of the cache, and its entries and size in words."""
    info = disk_cache.info()
    return str(info.directory), f"{info.entries} entries, {size_text(info.bytes)}"


@click.command(short_help="Show or clear the cache of compiled kernels.")
@click.option("--clear", is_flag=True, help="Delete all entries first.")
def cache(clear: bool) -> None:
    """Show the folder of the cache of compiled kernels, the number of its entries, and its size.

    Processes that have loaded a kernel can still use it after --clear.
    """
    if clear:
        disk_cache.clear()
    folder, size = contents()
    click.echo(folder)
    click.echo(size + (", just cleared" if clear else ""))
