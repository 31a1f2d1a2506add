"""Every CUDA kernel that the experiments launch, compiled without a GPU, with registers and spills."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gpu_sums
import numpy as np

from bench.paper import by_hand, divergence, implementations, sweep
from bench.paper.implementation import MODES
from bench.paper.traffic import control_values
from dualbcast.cli import report
from dualbcast.cli import sweep as package_sweep
from dualbcast.cli.options import numbers
from dualbcast.cli.report import Column, Row

_COLUMNS = [
    Column("part", "part", left=True),
    Column("kernel", "kernel", left=True),
    Column("lanes", "elements\na thread"),
    Column("registers", "regs"),
    Column("spill_bytes", "spill\nbytes"),
]
# Rows of 64 elements suit the widest accesses; rows of 63 none.
_SIZES = (64, 63)


def compiled(cc: tuple[int, int], doing: Callable[[str], None] = lambda _: None) -> list[Row]:
    """One row for each kernel, in all variants; those that are the same machine code once."""
    rows: list[Row] = []
    seen: set[Any] = set()
    for part, name, kernel in _all(cc):
        doing(f"{part}: {name}")
        written = isinstance(kernel, by_hand.HandKernel)
        key = kernel.image, kernel.name if written else ""  # all kernels by hand of one width are in one image
        if key in seen:
            continue
        seen.add(key)
        rows.append(
            {
                "part": part,
                "kernel": name,
                "lanes": kernel.width if written else getattr(kernel.source.layout, "lanes", 1),
                "registers": kernel.registers,
                "spill_bytes": kernel.spill_bytes if written else kernel.spill_stores + kernel.spill_loads,
                "by_hand": written,
                "image": kernel.image,
            }
        )
    return rows


def _all(cc: tuple[int, int]) -> Iterator[tuple[str, str, Any]]:
    arities = numbers(package_sweep.DEFAULT_ARITIES)
    for n in _SIZES:
        gates = [np.empty((n, n), np.float32) for _ in range(5)]
        controls = control_values(np.random.default_rng(0), n, "rows", "random")
        for mode in MODES:
            for name, kernel in implementations.own_kernels([*gates[:4], *controls, gates[4]], mode, cc):
                yield "hmlstm", f"{mode}, {name}: {kernel.source.entry}", kernel
            for hand in implementations.hand_kernels(mode, n, cc):
                yield "hmlstm", f"{mode}, by hand: {hand.name}", hand
        for name, kernel in divergence.own_kernels(n, cc):
            yield "divergence", name, kernel
        for name, kernel in sweep.own_kernels(arities, n, cc):
            yield "sweep", name, kernel
        for arity in arities:
            for hand in sweep.hand_kernels(arity, n * n, cc):
                yield "sweep", f"arity {arity}, by hand: {hand.name}", hand
    for name, kernel in gpu_sums.own_kernels(cc):
        yield "sums", name, kernel


def show(rows: list[Row], cc: tuple[int, int]) -> None:
    """Print them."""
    spilled = [f"{row['part']}: {row['kernel']}, {row['lanes']} a thread" for row in rows if row["spill_bytes"]]
    notes = [f"{len(rows)} kernels; registers are spilled to memory by: {'; '.join(spilled) or 'none'}."]
    report.show(report.build_table(_COLUMNS, rows, f"Compiled for compute capability {cc[0]}.{cc[1]}", notes))
