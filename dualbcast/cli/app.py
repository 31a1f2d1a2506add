"""The group of commands, and how a command ends with an error."""

from __future__ import annotations

from typing import Any

import click

from dualbcast.cli.cache import cache
from dualbcast.cli.explain import explain
from dualbcast.cli.info import info
from dualbcast.cli.sweep import sweep
from dualbcast.errors import DualbcastError


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


@click.group(cls=CommandGroup, name="dualbcast", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dualbcast")
def group() -> None:
    """Broadcast a scalar Python function and get its value and exact Jacobian from one kernel.

    Each command says more with --help. Results are checked before they are timed; a wrong one ends with status 1.
    """


group.add_command(sweep)
group.add_command(explain)
group.add_command(info)
group.add_command(cache)
