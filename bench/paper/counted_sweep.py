"""The counted table of `sweep`: the product of N factors with all partials, on the oldest and the newest usual GPU."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.paper import launches
from bench.paper.counted import CountedReport, counted_row, measured_by
from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli import checking
from dualbcast.cli.report import Column
from dualbcast.counting.counter import Memory
from dualbcast.counting.devices import DEVICES
from dualbcast.counting.launch import Launch

__all__ = ["count_sweep"]

_ON = ("V100", "H100")
_COLUMNS = (
    Column("arity", "arity"),
    *(
        column
        for name in _ON
        for column in (
            Column(f"{name}_lanes", f"{name}: el.\na thread"),
            Column(f"{name}_registers", "regs"),
            Column(f"{name}_occupancy", "occu-\npancy", "{:.0%}"),
            Column(f"{name}_issued_per_element", "instr.\nan el.", "{:.1f}"),
            Column(f"{name}_dram_per_element", "DRAM B\nan el.", "{:.1f}"),
            Column(f"{name}_least_seconds", "least\nµs", "{:.1f}", 1e6),
            Column(f"{name}_limit", "by"),
        )
    ),
)


def count_sweep(
    arities: Sequence[int],
    n: int,
    seed: int,
    measured: Path | None,
    json_path: Path | None = None,
    csv_path: Path | None = None,
) -> CountedReport:
    """Count the value and all partials of the product, for each arity and device."""
    devices = {name: DEVICES[name] for name in _ON}
    compiled = {name: launches.capability_for(device) for name, device in devices.items()}
    found = CountedReport(
        command="sweep",
        title=f"∏ tanh(g(x)): value and all partials, {n} by {n} float32",
        columns=_COLUMNS,
        parameters={"arity": arities, "n": n, "seed": seed, "cc": compiled},
        keys=("arity",),
        json_path=json_path,
        csv_path=csv_path,
        measured=measured_by(measured, ("arity",)),
    )
    found.notes.append("Instructions and sectors are those of the PTX for the H100; the assembler differs.")
    for name, cc in compiled.items():
        if cc != devices[name].cc:
            found.notes.append(
                f"{name}: the installed compiler does not know {devices[name].cc[0]}.{devices[name].cc[1]}, so its "
                "registers and occupancy are not known here; CUDA 12 compiles for it."
            )
    generator = np.random.default_rng(seed)
    function: Any = differentiable_broadcast(checking.product)
    xs: list[Any] = []
    for arity in arities:
        found.doing(f"arity {arity}")
        while len(xs) < arity:
            xs.append(Memory.aligned(generator.uniform(-2, 2, (n, n)).astype(np.float32)))
        row: dict[str, Any] = {"arity": arity}
        first: Launch | None = None
        counts: dict[str, Any] = {}
        for name, device in reversed(devices.items()):
            given = f"arity {arity}", function, xs[:arity], compiled[name], range(arity), "value_and_jacobian"
            launch = launches.own(*given, like=first)
            if first is None or launch.ptx != first.ptx:
                counts, _ = counted_row([launch])
            first = first or launch
            if compiled[name] == device.cc:  # the assembler chooses registers by the limits of a capability
                row |= {f"{name}_registers": launch.registers, f"{name}_occupancy": launch.occupancy(device.cc)}
            row |= {
                f"{name}_lanes": launch.lanes,
                # Instructions of threads, had all lanes an element: 32 times those of warps.
                f"{name}_issued_per_element": 32 * counts["issued"] / n**2,
                f"{name}_sectors_per_element": counts["sectors"] / n**2,
                f"{name}_dram_per_element": counts["dram_bytes"] / n**2,
                f"{name}_least_seconds": counts[f"{name}_seconds"],
                f"{name}_limit": counts[f"{name}_bound"],
            }
        found.add(row)
    found.finish()
    return found
