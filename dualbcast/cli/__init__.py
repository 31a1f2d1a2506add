"""The command line.

Comes in: the arguments of `dualbcast sweep`, `explain`, `info` or `cache`. Goes out: tables, pictures, JSON and CSV
files.
"""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    # Imported here, so that importing a module beside it does not import click and rich.
    from dualbcast.cli.app import group

    group(prog_name="dualbcast")
