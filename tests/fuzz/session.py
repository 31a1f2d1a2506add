"""One seed, one program: runs the programs of a range of seeds, and has Hypothesis shrink the first that fails.

A seed's random bytes are Hypothesis's choices, through its interface for external fuzzers; what fails goes to its
database, from where an ordinary run of the property takes it up and shrinks it.
"""

from __future__ import annotations

import contextlib
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from examine import Tally, examine
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.database import InMemoryExampleDatabase
from program import Program, programs

__all__ = ["Found", "fuzz", "limit", "program_of"]

# More than the largest program takes.
BYTES = 1 << 15
# Seconds of processor time for one program.
LONGEST = 30.0
# Every so many programs are held against finite differences too, and the IR is checked after each pass.
THOROUGH_EVERY = 8


class Found(AssertionError):
    """A program on which a backend is wrong, or the compiler fails."""

    def __init__(self, seed: int, program: Program, error: BaseException, original: Program) -> None:
        super().__init__(seed, program, error)
        self.seed, self.program, self.error, self.original = seed, program, error, original

    def __str__(self) -> str:
        return (
            f"seed {self.seed} (alone: pytest tests/fuzz --fuzz 1 --fuzz-seed {self.seed})\n\n{self.program}\n"
            f"{type(self.error).__name__}: {self.error}\n\nBefore shrinking:\n\n{self.original}"
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


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Stop what takes more processor time than that, such as a loop that a wrong kernel does not end."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"this takes more than {seconds:g} s")

    if not hasattr(signal, "setitimer") or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def program_of(seed: int) -> Program:
    """The program of a seed."""
    found: list[Program] = []
    wanted = _property(lambda program: found.append(program))
    wanted.hypothesis.fuzz_one_input(random.Random(seed).randbytes(BYTES))
    return found[0]


def fuzz(seeds: Iterable[int], tally: Tally | None = None, *, cpu: bool = True, shrink: bool = True) -> Tally:
    """Examine the program of each seed; raises `Found` at the first that fails.

    Parameters
    ----------
    seeds : iterable of int
    tally : Tally, optional
        What was seen is added to it; also returned.
    cpu : bool
        Also compile for the CPU, which is most of the time.
    shrink : bool
        Look for the smallest program that fails, for minutes perhaps.
    """
    tally = Tally() if tally is None else tally
    failed: list[tuple[Program, Exception]] = []
    thorough = False

    def run(program: Program) -> None:
        try:
            with limit(LONGEST):
                examine(program, Tally() if failed else tally, cpu=cpu, thorough=thorough)
        except Exception as error:
            failed.append((program, error))
            raise

    wanted = _property(run)
    for seed in seeds:
        thorough = seed % THOROUGH_EVERY == 0
        try:
            wanted.hypothesis.fuzz_one_input(random.Random(seed).randbytes(BYTES))
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
