"""Turns a saved run (pytest bench --benchmark-only --benchmark-json=run.json) into docs/benchmarks.md.

python bench/table.py run.json
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"

# The rows that do what the others of their group do.
OURS = (
    "bench_dualbcast[",
    "bench_dualbcast_jacobian",
    "bench_dualbcast_from_disk",
    "bench_dualbcast_vjp",
    "bench_fused",
)

HEAD = """\
# Benchmarks

Medians of one run of

    pip install -e '.[bench]'
    pytest bench --benchmark-only --benchmark-json=run.json
    python bench/table.py run.json

on {machine}, with {versions}.

The ratio is to dualbcast's value and Jacobian (for a fresh process, with the kernel on disk): above 1 is slower. What
each row computes is in [bench/README.md](../bench/README.md); every result was checked against a float64 reference
first. Outputs are fresh in every system, but for the rows that say otherwise. JAX is used as `jit` of `vmap` of
`value_and_grad`.

| benchmark | what | median | ratio |
| --- | --- | ---: | ---: |
"""


def duration(seconds: float) -> str:
    """A time in a unit that gives three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.1e} s"


def page(run: dict[str, Any]) -> str:
    """The text of docs/benchmarks.md."""
    info = run["machine_info"]
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in run["benchmarks"]:
        groups[row["group"]].append(row)
    lines = []
    for group in sorted(groups):
        rows = sorted(groups[group], key=lambda row: row["stats"]["median"])
        ours = next(
            row["stats"]["median"] for row in rows if row["name"].startswith(OURS) and "[out" not in row["name"]
        )
        for row in rows:
            median = row["stats"]["median"]
            name = row["name"].removeprefix("bench_").partition("[")[0].replace("_", " ")
            detail = " (out= reused)" if "[out" in row["name"] else ""
            lines.append(f"| {group} | {name}{detail} | {duration(median)} | {median / ours:.2f} |")
    machine = ", ".join([info["processor"], f"{info['threads']} threads", *(gpu["name"] for gpu in info["gpus"])])
    versions = ", ".join(f"{name} {version}" for name, version in sorted(info["versions"].items()))
    return HEAD.format(machine=machine, versions=versions) + "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))), encoding="utf-8")
