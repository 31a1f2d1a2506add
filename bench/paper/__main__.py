"""The command line: `python -m bench.paper hmlstm|divergence|sweep`, in a clone of the repository."""

from __future__ import annotations

import click

from bench.paper.divergence import divergence
from bench.paper.hmlstm import hmlstm
from bench.paper.sweep import sweep
from dualbcast.cli.app import CONTEXT_SETTINGS, CommandGroup

__all__ = ["group"]


@click.group(cls=CommandGroup, name="bench.paper", context_settings=CONTEXT_SETTINGS)
def group() -> None:
    """The experiments of Revels, Besard, Churavy, De Sutter and Vielma (2018).

    Each command says more with --help. Results are checked before they are timed; a wrong one ends with status 1.
    """


for command in (hmlstm, divergence, sweep):
    group.add_command(command)

if __name__ == "__main__":
    group(prog_name="python -m bench.paper")
