"""Turns a saved run (pytest bench --benchmark-only --benchmark-json=run.json) into docs/guides/benchmarks.md.

python bench/table.py run.json
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from constants import FAR, FLOOR, TURNS

PAGE = Path(__file__).parent.parent / "docs" / "guides" / "benchmarks.md"
OURS = "dualbcast"
PEERS = ("drjit", "jax", "torch", "warp", "numpy")
GOAL = 1.3
AT_FLOOR = 0.75  # the share of the floor from which on memory is the limit

# The limit, if it is not memory, where the fastest peer is not 1.3 times slower, by the beginning of the case's name.
NOTES = {
    "first result of a fresh process, HM-LSTM cell, empty": "LLVM's time for vectors, imports",
    "first result of a fresh process, product of 32 tanh, empty": "LLVM's time for vectors, which grows with the text",
    "first result of a fresh process": "imports: NumPy, the package",
    "Kepler": "32 orbits iterate together until the last is done; the peer has no derivatives in its loop",
    "Black-Scholes": "one chain of exp, log, erfc and divisions, each of which waits for the one before",
    "oscillator": "values are rounded as NumPy's; the peer, with tangents by hand, fuses products with sums",
    "4 by 4": "Python's share of a call",
}

HEAD = """\
# Benchmarks

The figures are those of one run of

    pip install -e '.[bench]'
    pytest bench --benchmark-only --benchmark-json=run.json
    python bench/table.py run.json

on {processor} ({cache} of last-level cache), two cores, two threads for each system, with {versions}.

[bench/README.md](../../bench/README.md) describes the cases. Every result was checked against a float64 reference
before it was timed. Outputs are new arrays in every system, except in rows that say otherwise. Each case was written
for a peer in every form that its users would choose; its row has the fastest form, with its name. **A ratio is a time
divided by dualbcast's: if it is above 1, dualbcast is faster.**

The systems take turns at each case, {turns} times. Systems that need {far:g} times as long
as the fastest take only one. A time is the median of the turns' medians, and a ratio is the median of the turns'
ratios. The spread of the ratios over the turns is noise of the machine.

## Against the fastest peer

| case | dualbcast | fastest peer | ratio | over the turns | limit |
| --- | ---: | --- | ---: | --- | --- |
{summary}

dualbcast is the fastest in {won} of {cases} cases, and at least {goal} times as fast as the fastest peer in {reached}.

## Against memory

The floor is a C program on two threads (`bench/floor.c`) that reads and writes as many arrays and computes nothing. It
uses the same arrays at each call, and takes its turns with the systems. **If a kernel reaches 100% of the floor, no
program that reads and writes these arrays could be faster.** With control by rows, a kernel leaves out the inputs that
a row does not use, but the floor reads them. So the share of such a kernel can be larger.

Each input and output is counted once; a copy counts the bytes read and the bytes written. The copy is
`numpy.copyto` of 256 MiB on two threads: {bandwidth:.1f} GB/s in this run. Arrays that stay in the cache can be faster.

| case | dualbcast | GB/s | share of the copy | floor | share of the floor |
| --- | ---: | ---: | ---: | ---: | ---: |
{shares}

## All rows

| case | system | form | median | ratio |
| --- | --- | --- | ---: | ---: |
{rows}
"""


@dataclass(frozen=True)
class Row:
    """A row of the table; `medians` by turn."""

    label: str
    form: str
    moved: int
    medians: dict[int, float]

    @property
    def median(self) -> float:
        """Seconds."""
        return median(self.medians.values())

    def ratios(self, other: Row) -> list[float]:
        """Its time over another's, in each turn that both had."""
        return [self.medians[turn] / other.medians[turn] for turn in self.medians.keys() & other.medians.keys()]


def duration(seconds: float) -> str:
    """A time in a unit that gives three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs"


def note(group: str, share: float) -> str:
    """The limit of a comparison that does not reach the goal; `share` is that of the floor."""
    if share >= AT_FLOOR:
        return f"memory: {share:.0%} of the floor"
    known = next((NOTES[start] for start in sorted(NOTES, key=len, reverse=True) if group.startswith(start)), "")
    return known or (f"memory and arithmetic: {share:.0%} of the floor" if math.isfinite(share) else "")


def groups_of(run: dict[str, Any]) -> dict[str, list[Row]]:
    """The rows by comparison, in the order of the run, the fastest first."""
    groups: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in run["benchmarks"]:
        extra = row["extra_info"]
        if "label" not in extra:  # it compares no systems
            continue
        first = Row(extra["label"], extra.get("form", ""), extra.get("moved", 0), {})
        merged = groups[row["group"]].setdefault(extra["label"], first)
        merged.medians[extra.get("turn", 0)] = row["stats"]["median"]
    return {group: sorted(rows.values(), key=lambda row: row.median) for group, rows in groups.items()}


def page(run: dict[str, Any]) -> str:
    """The text of docs/guides/benchmarks.md."""
    info, groups = run["machine_info"], groups_of(run)
    copy = next((row for rows in groups.values() for row in rows if row.label == "numpy.copyto"), None)
    bandwidth = copy.moved / copy.median if copy else float("nan")
    summary, shares, lines, ratios = [], [], [], []
    for group, rows in groups.items():
        ours = next((row for row in rows if row.label == OURS), None)
        peer = next((row for row in rows if row.label in PEERS), None)
        floor = next((row for row in rows if row.label == FLOOR), None)
        share = median(floor.ratios(ours)) if floor and ours else float("nan")
        for row in rows:
            ratio = f"{median(row.ratios(ours)):.2f}" if ours else ""
            lines.append(f"| {group} | {row.label} | {row.form} | {duration(row.median)} | {ratio} |")
        if ours and peer:
            every = peer.ratios(ours)
            ratio = median(every)
            ratios.append(ratio)
            among = f"{min(every):.2f} to {max(every):.2f}"
            limit = note(group, share) if ratio < GOAL else ""
            theirs = f"{peer.label}, {duration(peer.median)}"
            summary.append(f"| {group} | {duration(ours.median)} | {theirs} | {ratio:.2f} | {among} | {limit} |")
        if ours and ours.moved:
            rate = ours.moved / ours.median
            least = f"{duration(floor.median)} | {share:.0%}" if floor else "|"
            shares.append(
                f"| {group} | {duration(ours.median)} | {rate / 1e9:.1f} | {rate / bandwidth:.0%} | {least} |"
            )
    return HEAD.format(
        processor=info["processor"],
        cache=f"{info['cache'] >> 20} MiB",
        versions=", ".join(f"{name} {version}" for name, version in sorted(info["versions"].items())),
        summary="\n".join(summary),
        won=sum(ratio > 1 for ratio in ratios),
        reached=sum(ratio >= GOAL for ratio in ratios),
        goal=GOAL,
        turns=TURNS,
        far=FAR,
        cases=len(ratios),
        bandwidth=bandwidth / 1e9,
        shares="\n".join(shares),
        rows="\n".join(lines),
    )


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), encoding="utf-8")
