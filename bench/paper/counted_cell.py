"""The kernels of the HM-LSTM experiments as launches, and the counted tables of `hmlstm` and `divergence`."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.paper import launches, models
from bench.paper.counted import ROOFLINES, CountedReport, Counting, counted_row, measured_by
from bench.paper.implementation import MODES, WRT, Mode
from bench.paper.reverse import ReverseCell
from bench.paper.traffic import control_values, gate_values
from dualbcast.api.function import differentiable_broadcast
from dualbcast.cli.report import Column
from dualbcast.counting.counter import Memory
from dualbcast.counting.launch import Launch

__all__ = ["arrays_of", "count_divergence", "count_hmlstm", "fused", "implementations", "reverse"]

Array = NDArray[Any]
_FUSED, _MASKS, _TRITON = "fused forward mode", "masks, one kernel", "Triton, where"
_COUNTS = (
    Column("issued", "warp\ninstructions", "{:,}"),
    Column("lane_share", "active\nlanes", "{:.0%}"),
    Column("divergent", "divergent\nbranches", "{:,}"),
    Column("sectors", "sectors\nasked for", "{:,}"),
    Column("repeated", "by a warp\nrepeated", "{:,}"),
    Column("dram_sectors", "sectors\nof DRAM", "{:,}"),
)
_CELL_COLUMNS = (
    Column("mode", "mode"),
    Column("n", "n"),
    Column("implementation", "implementation", left=True),
    Column("launches", "laun-\nches"),
    *_COUNTS,
    Column("issued_ratio", "instr.\nover ours", "{:.3f}"),
    Column("sectors_ratio", "asked for\nover ours", "{:.3f}"),
    Column("dram_ratio", "DRAM\nover ours", "{:.3f}"),
    Column("kept_ratio", "if all is\nkept", "{:.3f}"),
    *ROOFLINES,
)
_DIVERGENCE_COLUMNS = (
    Column("n", "n"),
    Column("control", "control by", left=True),
    Column("pattern", "pattern", left=True),
    *_COUNTS,
    Column("issued_overhead", "instr. over\nuniform", "{:+.1%}"),
    Column("sectors_overhead", "asked for\nover uni.", "{:+.1%}"),
    Column("dram_overhead", "DRAM over\nuniform", "{:+.1%}"),
    Column("masks_issued_ratio", "masks:\ninstr.", "{:.2f}"),
    Column("masks_dram_ratio", "masks:\nDRAM", "{:.2f}"),
    *ROOFLINES,
)


def arrays_of(n: int, control: str, pattern: str, seed: int, run: int = 1) -> list[Array]:
    """c, f, i, g, z, zb and a cotangent, where allocations of a GPU begin."""
    generator = np.random.default_rng(seed)
    gates = gate_values(generator, n, 5)
    controls = control_values(generator, n, control, pattern, run)
    return [Memory.aligned(array) for array in (*gates[:4], *controls, gates[4])]


def fused(name: str, scalar: Any, arrays: Sequence[Array], mode: Mode, cc: tuple[int, int]) -> Launch:
    """The launch of the one kernel of ours for the derivatives of a scalar function."""
    product = "jacobian" if mode == "derivatives" else "value_and_vjp"
    cotangents = [] if mode == "derivatives" else arrays[6:]
    return launches.own(name, differentiable_broadcast(scalar), arrays[:6], cc, WRT, product, cotangents)


def reverse(arrays: Sequence[Array], mode: Mode, cc: tuple[int, int]) -> list[Launch]:
    """The launches of the reverse mode, of which each reads what others have written."""
    known = dict(zip(("c", "f", "i", "g", "z", "zb", "bar"), arrays, strict=True))
    found = []
    for function, names, result in ReverseCell("auto", mode != "derivatives").steps():
        found.append(launches.own(result, function, [known[name] for name in names], cc))
        known[result] = found[-1].arrays[-1]
    return found


def implementations(arrays: Sequence[Array], mode: Mode, cc: tuple[int, int]) -> Iterator[tuple[str, list[Launch]]]:
    yield _FUSED, [fused(_FUSED, models.cell_update, arrays, mode, cc)]
    yield "reverse, XLA's kernels", reverse(arrays, mode, cc)
    yield _MASKS, [fused(_MASKS, models.cell_update_by_masks, arrays, mode, cc)]
    n, z = arrays[0].shape[1], arrays[4]
    if z.shape[1] == 1:
        entry = "hm_lstm_derivatives" if mode == "derivatives" else "hm_lstm_value_and_pullback"
        given, results = (arrays[:6], 4) if mode == "derivatives" else (arrays, 5)
        for width in (1, 4):
            if n % width == 0:
                name = f"CUDA C++, {width} a thread"
                yield name, [launches.by_hand_cell(name, given, results, cc, width, entry)]
        if mode == "derivatives" and importlib.util.find_spec("triton"):
            from bench.paper.triton_cell import where_launch

            yield _TRITON, [where_launch(_TRITON, given, cc)]


def count_hmlstm(
    sizes: Sequence[int],
    control: str,
    pattern: str,
    seed: int,
    counting: Counting,
    json_path: Path | None = None,
    csv_path: Path | None = None,
) -> CountedReport:
    """Count all implementations at all sizes, in both modes."""
    cc = counting.cc
    keys = ("n", "mode", "implementation")
    found = CountedReport(
        command="hmlstm",
        title=f"HM-LSTM cell update, float32, {pattern} control by {control}, compiled for {cc[0]}.{cc[1]}",
        columns=_CELL_COLUMNS,
        parameters={"n": sizes, "control": control, "pattern": pattern, "seed": seed, "cc": f"{cc[0]}.{cc[1]}"},
        keys=keys,
        json_path=json_path,
        csv_path=csv_path,
        measured=measured_by(counting.measured, keys),
    )
    for n in sizes:
        arrays = arrays_of(n, control, pattern, seed)
        for mode in MODES:
            ours: dict[str, Any] = {}
            for name, launched in implementations(arrays, mode, cc):
                found.doing(f"n = {n}, {mode}: {name}")
                row, _ = counted_row(launched)
                ours = ours or row
                ratios = {
                    "issued_ratio": row["issued"] / ours["issued"],
                    "sectors_ratio": row["sectors"] / ours["sectors"],
                    "dram_ratio": row["dram_sectors"] / ours["dram_sectors"],
                    "kept_ratio": row["kept_bytes"] / ours["kept_bytes"],
                }
                found.add({"mode": mode, "n": n, "implementation": name} | row | ratios)
    found.finish()
    return found


def count_divergence(
    sizes: Sequence[int],
    runs: Sequence[tuple[str, int]],
    controls: Sequence[str],
    seed: int,
    counting: Counting,
    json_path: Path | None = None,
    csv_path: Path | None = None,
) -> CountedReport:
    """Count the derivatives for each layout of control; `runs` are the patterns with how many neighbours share."""
    cc = counting.cc
    keys = ("n", "control", "pattern")
    found = CountedReport(
        command="divergence",
        title=f"HM-LSTM cell update: ∂/∂(c, f, i, g), float32, by how control is laid out, for {cc[0]}.{cc[1]}",
        columns=_DIVERGENCE_COLUMNS,
        parameters={"n": sizes, "runs": dict(runs), "seed": seed, "cc": f"{cc[0]}.{cc[1]}"},
        keys=keys,
        json_path=json_path,
        csv_path=csv_path,
        # The rows of a timed run have no n: all of them are for one.
        measured={(sizes[0], *key): seconds for key, seconds in measured_by(counting.measured, keys[1:]).items()},
    )
    found.notes.append(
        "The paper measured +30 % for random over uniform control on a V100; it does not say the layout."
    )
    for n in sizes:
        for control in controls:
            uniform: dict[str, Any] | None = None
            for pattern, run in runs:
                if control == "rows" and pattern == "uniform":
                    continue  # the elements of a row share their control as it is
                found.doing(f"n = {n}, control by {control}, {pattern}")
                arrays = arrays_of(n, control, "random", seed, run)
                row, _ = counted_row([fused("branches", models.cell_update, arrays, "derivatives", cc)])
                masks, _ = counted_row([fused("masks", models.cell_update_by_masks, arrays, "derivatives", cc)])
                if uniform is not None:
                    for name in ("issued", "sectors", "dram_sectors"):
                        key = f"{name.removesuffix('_sectors')}_overhead"
                        row[key] = row[name] / uniform[name] - 1
                row["masks_issued_ratio"] = masks["issued"] / row["issued"]
                row["masks_dram_ratio"] = masks["dram_sectors"] / row["dram_sectors"]
                uniform = row if pattern == "uniform" else uniform
                found.add({"n": n, "control": control, "pattern": pattern} | row)
    found.finish()
    return found
