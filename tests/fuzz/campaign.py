"""A million random programs: ranges of seeds, each in a process of its own, from where the log ends.

Nine programs in ten are compiled without LLVM's optimisation of machine code, and one product of theirs is examined
beside value and Jacobian; the tenth goes the ordinary way, as in the test suite.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import click
import numpy as np
from choices import drawn, shrunk
from examine import Mismatch, Tally, compare, examine, expectations
from forced_ways import WAYS, forced
from log import Log
from products import PRODUCTS, examine_products
from program import Program
from session import limit

from dualbcast.codegen.llvm import build as llvm_build
from dualbcast.codegen.llvm import target as llvm_target

__all__ = ["Failure", "examine_drawn", "main", "run_range"]

# One program in so many goes the ordinary way, and one in so many of these is examined thoroughly.
ORDINARY, THOROUGH = 10, 8
# Seeds in a range.
RANGE = {"programs": 200, "graphs": 100}
# Seconds of processor time for a program, and in all that pass before its process is given up.
LONGEST, LOST = 60.0, 900.0
# What JAX compiles for one operation is kept for the next process, however short it took.
KEPT_BY_JAX = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
# How often the last bits are disturbed to see whether a mismatch is one.
SURE = 40


@dataclass(frozen=True)
class Failure:
    """A seed that failed: the error, and the program with a smaller one that fails, too."""

    seed: int
    error: str
    program: dict[str, Any] | None = None
    small: dict[str, Any] | None = None


# --- one program -----------------------------------------------------------------------------------------------------


def examine_drawn(program: Program, seed: int, tally: Tally, runs: int = 2) -> None:
    """Raise `Mismatch` where a program is compiled to something else than what it says; `seed` decides what is done."""
    np.seterr(all="ignore")
    expected = expectations(program, tally, runs)
    turn = seed // ORDINARY
    if seed % ORDINARY == 0:
        examine(program, tally, thorough=turn % THOROUGH == 0, expected=expected)
        examine_products(program, expected, tally, (PRODUCTS[turn % len(PRODUCTS)],), "cpu", 1)
        tally.ordinary += 1
        return
    with _hasty():
        compare(program, "cpu", expected, tally)
        backend = "cpu" if turn % 3 == 0 else "python"
        with forced("natural" if backend == "cpu" else [*WAYS][program.salt % len(WAYS)]):
            examine_products(program, expected, tally, (PRODUCTS[seed % len(PRODUCTS)],), backend, 1)


@contextlib.contextmanager
def _hasty() -> Iterator[None]:
    """Machine code is made without optimisation, which takes a quarter less time in all."""
    global _machine
    if _machine is None:
        _machine = llvm_target.machine(own=True, opt=0, jit=True)
    with mock.patch.object(llvm_build, "host", return_value=_machine):
        yield


_machine: Any = None


def _program(seed: int, tally: Tally) -> Failure | None:
    program, choices = drawn(seed)

    def error_of(program: Program) -> Exception | None:
        try:
            with limit(LONGEST):
                examine_drawn(program, seed, Tally(), SURE)
        except Exception as error:
            return error
        return None

    try:
        with limit(LONGEST):
            examine_drawn(program, seed, tally)
    except Exception as first:
        error = error_of(program)
        if error is None:
            tally.skipped[f"{type(first).__name__}: nothing more when looked at closely"] += 1
            return None
        kind = type(error)
        small = shrunk(program, choices, lambda smaller: isinstance(error_of(smaller), kind))
        return Failure(seed, _said(error_of(small) or error), asdict(program), asdict(small))
    return None


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _graph(seed: int, tally: Tally) -> Failure | None:
    from graphs import described, examine_graph

    try:
        with limit(LONGEST):
            examine_graph(seed, tally)
    except Exception as error:
        return Failure(seed, _said(error), {"text": described(seed)})
    return None


EXAMINE: dict[str, Callable[[int, Tally], Failure | None]] = {"programs": _program, "graphs": _graph}


# --- a range of them -------------------------------------------------------------------------------------------------


def run_range(kind: str, seeds: range, apart: bool = True) -> tuple[Tally, list[Failure], float]:
    """What some seeds have shown, which of them failed, and how much processor time that took."""
    tally, failures, seconds, deaths = Tally(), [], 0.0, 0
    while seeds:
        last = None
        for seed, failure, seen, took in (_apart if apart else _here)(kind, seeds):
            failures += [failure] if failure else []
            last, counts, spent = seed, seen, took
        if last is not None:
            tally, seconds = tally + counts, seconds + spent
        seeds = range(seeds.start if last is None else last + 1, seeds.stop)
        if seeds:
            deaths = deaths + 1 if last is None else 1
            if deaths > 3:
                raise RuntimeError(f"no process gets through any of the {kind}: see what it has printed")
            failures.append(Failure(seeds.start, "the process died of it, or it does not end"))
            seeds = seeds[1:]
    return tally, failures, seconds


Step = tuple[int, Failure | None, Tally, float]


def _here(kind: str, seeds: Iterable[int]) -> Iterator[Step]:
    tally, began = Tally(), time.process_time()
    for seed in seeds:
        failure = EXAMINE[kind](seed, tally)
        yield seed, failure, tally, time.process_time() - began


def _apart(kind: str, seeds: Iterable[int]) -> Iterator[Step]:
    """The same in another process, with a cache of its own: all that compiling leaves behind goes with it."""
    processes = multiprocessing.get_context("fork")
    receiver, sender = processes.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="dualbcast-fuzz-") as folder:

        def work() -> None:
            os.environ["DUALBCAST_CACHE_DIR"] = folder
            for step in _here(kind, seeds):
                sender.send(step)

        gc.freeze()
        process = processes.Process(target=work)
        process.start()
        sender.close()
        try:
            while receiver.poll(LOST):
                yield receiver.recv()
        except EOFError:
            pass
        finally:
            process.kill()
            process.join()


# --- all of them -----------------------------------------------------------------------------------------------------


def _version() -> str:
    """The commit, and whether files have changed since."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _todo(log: Log, kind: str, count: int, shard: tuple[int, int]) -> Iterator[range]:
    size, done = RANGE[kind], log.done(kind)
    at, of = shard
    for number, first in enumerate(range(0, count, size)):
        if number % of == at and first not in done:
            yield range(first, min(first + size, count))


def _note(log: Log, kind: str, seeds: range, version: str) -> list[Failure]:
    tally, failures, seconds = run_range(kind, seeds)
    for failure in failures:
        log.append(what="failure", kind=kind, version=version, **asdict(failure))
        click.echo(f"{kind} {failure.seed}: {failure.error[:300]}")
    log.append(
        what="range",
        kind=kind,
        version=version,
        first=seeds.start,
        counts=tally.counts(),
        comparisons=dict(tally.comparisons),
        skipped=dict(tally.skipped),
        seconds=round(seconds, 2),
    )
    return failures


# The compiler refused the program, Python found a wrong type in it, or it did not end.
_OF_THE_GENERATOR = "CompileError", "TypeError", "TimeoutError"


def _again(log: Log, version: str) -> None:
    """Examine what is open, as it is in the log.

    Some errors may be the generator's: it gives another program then, and the program is drawn from its seed again.
    """
    for kind in RANGE:
        for seed, entry in log.summary(kind).failed.items():
            if kind == "programs" and entry["program"] and not entry["error"].startswith(_OF_THE_GENERATOR):
                fields = {name: tuple(v) if isinstance(v, list) else v for name, v in entry["program"].items()}
                error = ""
                try:
                    with limit(LONGEST):
                        examine_drawn(Program(**fields), seed, Tally(), SURE)
                except Exception as raised:
                    error = _said(raised)
            else:
                _, failures, _ = run_range(kind, range(seed, seed + 1))
                error = failures[0].error if failures else ""
            if not error:
                log.append(what="passed", kind=kind, version=version, seed=seed)
            click.echo(f"{kind} {seed}: {error[:300] or 'passes now'}")


def _shard(_: Any, __: Any, text: str) -> tuple[int, int]:
    at, _, of = text.partition("/")
    if not (at.isdigit() and of.isdigit() and int(at) < int(of)):
        raise click.BadParameter("write it as 0/2: the first of two")
    return int(at), int(of)


@click.command(help="Examine random programs, from where the log ends.")
@click.option("--log", "path", required=True, metavar="FILE", help="JSON lines, which are appended to.")
@click.option("--programs", default=0, metavar="N", help="The seeds 0 to N - 1 of scalar functions.")
@click.option("--graphs", default=0, metavar="N", help="The seeds 0 to N - 1 of graphs.")
@click.option(
    "--shard", default="0/1", metavar="I/N", callback=_shard, help="Every N-th range of seeds, from the I-th."
)
@click.option("--minutes", default=float("inf"), help="Begin no range after that.")
@click.option("--again", is_flag=True, help="Examine again what has failed.")
@click.option("--summary", is_flag=True, help="Only say what the log says.")
def main(
    path: str, programs: int, graphs: int, shard: tuple[int, int], minutes: float, again: bool, summary: bool
) -> None:
    log, version, until = Log(path), _version(), time.monotonic() + 60 * minutes
    if again:
        _again(log, version)
    if not summary:
        _warm()
        with mock.patch.dict(os.environ, KEPT_BY_JAX, JAX_COMPILATION_CACHE_DIR=f"{log.path.resolve()}.jax"):
            for kind, count in (("programs", programs), ("graphs", graphs)):
                for seeds in _todo(log, kind, count, shard):
                    if time.monotonic() > until:
                        break
                    _note(log, kind, seeds, version)
    for kind in RANGE:
        found = log.summary(kind)
        if found.counts:
            click.echo(f"{kind}: {found}")
            for seed, entry in found.failed.items():
                small = entry["small"] or entry["program"] or {}
                click.echo(f"\nopen: seed {seed}: {entry['error']}\n{small.get('text', '')}")


def _warm() -> None:
    """What a process imports and compiles before its first kernel, so that those forked from it need not."""
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, DUALBCAST_CACHE_DIR=folder):
        for seed in (0, 1, 2):
            with contextlib.suppress(Mismatch):
                examine_drawn(drawn(seed)[0], seed, Tally())
