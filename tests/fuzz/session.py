"""One seed, one program: runs the programs of a range of seeds, and has Hypothesis shrink the first that fails.

A seed's random bytes are Hypothesis's choices, through its interface for external fuzzers; what fails goes to its
database, from where an ordinary run of the property takes it up and shrinks it.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from examine import Tally, examine
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.database import InMemoryExampleDatabase
from program import Program, programs

__all__ = ["Found", "fuzz", "program_of"]

# More than the largest program takes.
BYTES = 1 << 15
# Every so many programs are held against finite differences too.
DIFFERENCES_EVERY = 16


class Found(AssertionError):  # noqa: N818
    """A program on which a backend is wrong, or the compiler fails."""

    def __init__(self, seed: int, program: Program, error: BaseException, original: Program) -> None:
        super().__init__(seed, program, error)
        self.seed, self.program, self.error, self.original = seed, program, error, original

    def __str__(self) -> str:
        return (
            f"seed {self.seed} (alone: pytest tests/fuzz --fuzz 1 --fuzz-seed {self.seed})\n\n{self.program}\n"
            f"{type(self.error).__name__}: {self.error}\n\nbefore shrinking:\n\n{self.original}"
        )


def _property(run: Callable[[Program], None]) -> Any:
    quiet = settings(
        database=InMemoryExampleDatabase(),
        phases=(Phase.reuse, Phase.shrink),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    return quiet(given(programs())(run))


def _draw(wanted: Any, seed: int) -> None:
    wanted.hypothesis.fuzz_one_input(random.Random(seed).randbytes(BYTES))


def program_of(seed: int) -> Program:
    """The program of a seed."""
    found: list[Program] = []
    _draw(_property(lambda program: found.append(program)), seed)
    return found[0]


def fuzz(seeds: Iterable[int], *, cpu: bool = True, shrink: bool = True) -> Tally:
    """Examine the program of each seed; raises `Found` at the first that fails."""
    tally, failed, differences = Tally(), [], False

    def run(program: Program) -> None:
        try:
            examine(program, Tally() if failed else tally, cpu=cpu, differences=differences)
        except Exception as error:
            failed.append((program, error))
            raise

    wanted = _property(run)
    for seed in seeds:
        differences = seed % DIFFERENCES_EVERY == 0
        try:
            _draw(wanted, seed)
        except Exception:
            if not failed:
                raise  # the generator itself
        if failed:
            original = failed[0][0]
            if shrink:
                with contextlib.suppress(Exception):
                    wanted()  # the smallest comes last
            program, error = failed[-1]
            raise Found(seed, program, error, original) from error
    return tally


if __name__ == "__main__":
    import sys

    first, count = int(sys.argv[1]), int(sys.argv[2])
    started = time.perf_counter()
    for at in range(first, first + count):
        try:
            fuzz([at], shrink="--shrink" in sys.argv)
        except Found as found:
            print(found)
    print(time.perf_counter() - started)
