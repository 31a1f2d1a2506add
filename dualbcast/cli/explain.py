"""`dualbcast explain`: the kernel that a call of a function runs, in figures, and the IR after each pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import click

from dualbcast.api.inspection import PRODUCTS, Show
from dualbcast.cli.options import capability, function_name


@click.command(short_help="Show what a call of a function will run.")
@click.argument("function", metavar="MODULE:FUNCTION", type=function_name)
@click.argument("dtypes", metavar="[DTYPE]...", nargs=-1)
@click.option("--wrt", multiple=True, metavar="NAME", help="A parameter to differentiate in; all floats by default.")
@click.option("--product", type=click.Choice(PRODUCTS), default="value_and_jacobian", show_default=True)
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
    """Show what a call of FUNCTION will run: operations, bytes, branches.

    Each DTYPE stands for a contiguous array of it, and the last one for those of all further parameters. By default all
    are float64.
    """
    from dualbcast import differentiable_broadcast
    from dualbcast.api.function import BroadcastFunction

    broadcast = function if isinstance(function, BroadcastFunction) else differentiable_broadcast(function)
    given = list(dtypes or ("float64",))
    given += given[-1:] * (_parameters(broadcast) - len(given))
    click.echo(broadcast.explain(*given, wrt=wrt or None, product=product, cc=cc, passes=passes))


def _parameters(function: Callable[..., Any]) -> int:
    """The number of arguments that a call must give by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return sum(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)
