"""The commands about the cache of compiled kernels: what it holds, and how to make it smaller or empty."""

from __future__ import annotations

import click

from dualbcast import disk_cache
from dualbcast.cli.options import size
from dualbcast.cli.report import size_text


def contents() -> tuple[str, str]:
    """The folder of the cache; its entries, its size and its limit in words."""
    found = disk_cache.info()
    most = "no limit" if found.limit is None else f"limit {size_text(found.limit)}"
    return str(found.directory), f"{found.entries} entries, {size_text(found.bytes)} ({most})"


@click.group(short_help="Show, clear or prune the cache of compiled kernels.")
def cache() -> None:
    """Show, clear or prune the cache of compiled kernels.

    It never holds more than DUALBCAST_CACHE_LIMIT, by default 1G: what has not been used for the longest time is
    deleted first. DUALBCAST_CACHE_DIR names another folder.
    """


@cache.command()
def info() -> None:
    """Show the folder of the cache, the number of its entries, its size and its limit."""
    click.echo("\n".join(contents()))


@cache.command()
def clear() -> None:
    """Delete everything in the cache. Processes that have loaded a kernel can still use it."""
    disk_cache.clear()
    click.echo("\n".join(contents()))


@cache.command()
@click.option("--limit", type=size, metavar="SIZE", help="What may be left, such as 200M; by default the limit.")
def prune(limit: int | None) -> None:
    """Delete what has not been used for the longest time, until no more than SIZE is left."""
    most = disk_cache.limit() if limit is None else limit
    if most is None:
        raise click.UsageError("The cache has no limit. Give one with --limit.")
    pruned = disk_cache.prune(most)
    click.echo(f"{pruned.deleted} files deleted, {size_text(pruned.deleted_bytes)}")
    click.echo("\n".join(contents()))
