"""The command group: which commands there are, and how one ends that the package refuses."""

from __future__ import annotations

from typing import Any

import click

from dualbcast.cli.divergence import divergence
from dualbcast.cli.explain import explain
from dualbcast.cli.hmlstm import hmlstm
from dualbcast.cli.info import info
from dualbcast.cli.sweep import sweep
from dualbcast.errors import DualbcastError

__all__ = ["group"]


class _Group(click.Group):
    """A group whose commands end with a message and status 1, and no traceback, where the package raised on purpose,
    a file cannot be used, or memory is short."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (DualbcastError, OSError) as error:
            raise click.ClickException(str(error)) from error
        except MemoryError as error:  # CuPy's are such, too
            raise click.ClickException(f"There is not enough memory; give a smaller --n. {error}".rstrip()) from error


@click.group(cls=_Group, name="dualbcast", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dualbcast")
def group() -> None:
    """Broadcast a scalar Python function and get its value and exact Jacobian from one kernel.

    Each command says more with --help. Results are checked before they are timed; a wrong one ends with status 1.
    """


group.add_command(sweep)
group.add_command(hmlstm)
group.add_command(divergence)
group.add_command(explain)
group.add_command(info)
