"""The command line: `python -m bench.formulas`, in a clone of the repository."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import click

import bench.formulas.compare  # noqa: F401

import constants  # isort: skip
from bench.formulas.corpus import load

PEERS = "jax,torch,drjit"


@click.command()
@click.option("--half", type=click.Choice(["tune", "report"]), help="Only this half of the corpus.")
@click.option("--only", multiple=True, metavar="NAME", help="Only these formulas or fields; may be repeated.")
@click.option("--size", default=1 << 20, show_default=True, help="The number of elements.")
@click.option("--peers", default=PEERS, show_default=True, help="The systems to compare with, separated by commas.")
@click.option("--threads", default=constants.THREADS, show_default=True, help="The threads of each system.")
@click.option("--json", "file", type=click.Path(path_type=Path), help="Add the results to those in this file.")
@click.option("--table", "shown", is_flag=True, help="Measure nothing; show the table of the file.")
@click.option("--check", "checked", is_flag=True, help="Time nothing; check the results of all forms.")
@click.option("--list", "listed", is_flag=True, help="Measure nothing; name the formulas with their sources.")
@click.option("--first", is_flag=True, help="Time first results without a cache instead, ours and Dr.Jit's.")
def main(
    half: str | None,
    only: tuple[str, ...],
    size: int,
    peers: str,
    threads: int,
    file: Path | None,
    shown: bool,
    checked: bool,
    listed: bool,
    first: bool,
) -> None:
    """Time published formulas, value and all partials, in dualbcast, JAX, torch.compile and Dr.Jit.

    A ratio is a system's time divided by dualbcast's: above 1, dualbcast is faster. `floor` is the share of the time
    that memory alone takes.
    """
    # Before the modules are imported that take it from there.
    constants.THREADS = threads
    import systems

    systems.settle()
    _keep_freed_memory()
    chosen = [
        formula
        for formula in load().values()
        if half in (None, formula.half) and (not only or formula.name in only or formula.field in only)
    ]
    if listed:
        for formula in chosen:
            click.echo(f"{formula.half:6} {formula.field:16} {formula.name:34} {formula.dtype}  {formula.source}")
        return
    if first:
        from bench.formulas.compare.first_result import first_results

        click.echo(first_results([formula.name for formula in chosen]))
        return

    from bench.formulas.compare.measure import measure
    from bench.formulas.compare.report import table

    results = json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else {}
    for formula in chosen if not shown else []:
        systems_to_compare = tuple(filter(None, peers.split(",")))
        results[formula.name] = measure(formula, size, systems_to_compare, click.echo, timed=not checked)
        if file and not checked:
            unfinished = file.with_suffix(".part")
            unfinished.write_text(json.dumps(results, indent=1), encoding="utf-8")
            os.replace(unfinished, file)
    if checked:
        return
    names = {formula.name for formula in chosen}
    click.echo(table({name: result for name, result in results.items() if name in names}))


def _keep_freed_memory() -> None:
    """Let glibc keep freed blocks, as dualbcast and Dr.Jit do: else JAX and PyTorch would get new pages at a call."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # not glibc
        return
    trim_threshold, top_pad, mmap_threshold, most_arenas = -1, -2, -3, -8
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 512 << 20)
    mallopt(mmap_threshold, 32 << 20)
    mallopt(most_arenas, 1)


if __name__ == "__main__":
    main(prog_name="python -m bench.formulas")
