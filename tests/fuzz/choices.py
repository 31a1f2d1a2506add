"""Programs from plain random choices, in a tenth of the time that Hypothesis takes; and smaller ones that fail, too.

A seed is a program with every version of Hypothesis. A program is the list of its choices, so one that fails is made
smaller as Hypothesis does it: choices are left out or made simpler, and what a smaller list gives is tried.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from grammar import Make, Writer
from program import Program, written

__all__ = ["drawn", "redrawn", "shrunk"]

SHAPES = ((24,), (4, 6), (2, 3, 4), (24,), (3, 8), (1, 24))
FLOATS = ("float64", "float64", "float64", "float32")
INTS = ("int64", "int64", "int32", "int16", "int8")
# What float32 arrays are not widened by.
NARROW = ("int16", "int8")

# How many choices are left out at a time, where one before them says that they are made.
LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


class Choices(Writer):
    """A writer that notes its choices; the first are given, and what more it needs is drawn, or is the simplest."""

    def __init__(self, given: Sequence[int] = (), generator: random.Random | None = None) -> None:
        super().__init__(None, 0)
        self.given, self.generator = given, generator
        self.made: list[int] = []
        self.spans: list[tuple[int, int]] = []

    def below(self, count: int) -> int:
        if count <= 1:
            return 0
        at = len(self.made)
        if at < len(self.given):
            choice = min(self.given[at], count - 1)
        else:
            choice = self.generator.randrange(count) if self.generator else 0
        self.made.append(choice)
        return choice

    def part(self, make: Make, *args: Any) -> Any:
        start = len(self.made)
        result = make(self, *args)
        self.spans.append((start, len(self.made)))
        return result


def drawn(seed: int) -> tuple[Program, list[int]]:
    """The program of a seed, and the choices that it is made of."""
    generator = random.Random(seed)
    writer = Choices(generator=generator)
    return _dressed(written(writer), generator), writer.made


def _dressed(program: Program, generator: random.Random) -> Program:
    """The same program with arrays of mixed dtypes, in several layouts, and of the edges of the format."""
    single = program.single
    if len(program.kinds) == 1:
        program = replace(program, scalar=None)
    dtypes = tuple(
        "bool"
        if kind == "bool"
        else ("float32" if single else generator.choice(FLOATS))
        if kind == "float"
        else generator.choice(NARROW if single else INTS)
        for kind in program.kinds
    )
    arrays = [dtype for at, dtype in enumerate(dtypes) if at != program.scalar]
    single = bool(arrays) and np.result_type(np.float16, *map(np.dtype, arrays)).itemsize < 8
    return replace(
        program,
        single=single,
        dtypes=dtypes,
        shape=generator.choice(SHAPES),
        layout=generator.random() < 0.5,
        edges=generator.choice((0.0, 0.1, 0.3)),
        salt=generator.randrange(1 << 30),
    )


def redrawn(like: Program, choices: Sequence[int]) -> tuple[Program, Choices]:
    """The program of a list of choices, called as another is where it has these parameters."""
    writer = Choices(choices)
    program = written(writer)
    same = program.kinds == like.kinds
    dtypes = like.dtypes if same else ()
    return replace(
        program,
        single=like.single,
        scalar=like.scalar if same else None,
        dtypes=dtypes,
        shape=like.shape,
        layout=like.layout,
        edges=like.edges,
        salt=like.salt,
    ), writer


def shrunk(program: Program, choices: list[int], fails: Callable[[Program], bool], seconds: float = 120.0) -> Program:
    """A small program that fails, too, found by leaving choices out for so long, in processor time."""
    best, (again, writer) = program, redrawn(program, choices)
    until = time.process_time() + seconds
    if again.text != program.text:
        return program

    def attempt(candidate: list[int]) -> bool:
        nonlocal best, choices, writer
        if time.process_time() > until or candidate == choices:
            return False
        try:
            smaller, other = redrawn(program, candidate)
        except Exception:
            return False
        if (len(smaller.text), other.made) >= (len(best.text), choices) or not fails(smaller):
            return False
        best, choices, writer = smaller, other.made, other
        return True

    improved = True
    while improved and time.process_time() < until:
        improved = False
        for start, stop in sorted(writer.spans, key=lambda span: span[0] - span[1]):
            improved |= attempt(choices[:start] + choices[stop:]) or attempt([*choices[:start], 0, *choices[stop:]])
            inner = [span for span in writer.spans if start < span[0] and span[1] < stop]
            improved |= any(attempt(choices[:start] + choices[a:b] + choices[stop:]) for a, b in inner[-3:])
        for at in range(len(choices) - 1, -1, -1):
            if at < len(choices):
                improved |= attempt(choices[:at] + choices[at + 1 :])
            # What a choice asks for is gone with it: the functions before `f`, of which it is the number.
            for gone in LENGTHS:
                if at < len(choices) and choices[at] > 0:
                    improved |= attempt([*choices[:at], 0, *choices[at + 1 + gone :]])
    return best
