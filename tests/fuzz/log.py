"""The log of a campaign: one JSON object a line, only ever appended to, by several processes at a time.

A line says what a range of seeds has shown, or that a seed failed, or that one that failed has passed since. So what is
to be done next is what no line speaks of, whoever was stopped, and where.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Log", "Summary"]

# What is counted, for people.
SAID = {
    "slopes": "derivatives that are not zero",
    "seconds": "second derivatives that are not zero",
    "differenced": "programs against finite differences too",
    "ordinary": "programs the ordinary way",
}


@dataclass
class Summary:
    """What a log says in all of one kind of programs.

    Attributes
    ----------
    counts : Counter
        Programs, points, derivatives that are not zero and so on.
    comparisons, skipped : Counter
        By what was compared, and by the reason.
    seconds : float
        Of processor time.
    failed : dict of int to dict
        The last failure of each seed that has one, but for those that have passed since.
    mended : int
        How many seeds have failed, and passed since.
    versions : set of str
        Of the package.
    """

    counts: Counter[str] = field(default_factory=Counter)
    comparisons: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    failed: dict[int, dict[str, Any]] = field(default_factory=dict)
    mended: int = 0
    versions: set[str] = field(default_factory=set)

    def __str__(self) -> str:
        """Some lines for people."""

        def listed(counts: Counter[str]) -> str:
            return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "none"

        first = ", ".join(f"{count:,} {SAID.get(name, name)}" for name, count in self.counts.items() if count)
        return (
            f"{first}, in {self.seconds / 3600:.1f} hours of processor time "
            f"({self.counts['programs'] / max(self.seconds, 1e-9):.1f} programs a second)\n"
            f"compared {sum(self.comparisons.values()):,}: {listed(self.comparisons)}\n"
            f"skipped {sum(self.skipped.values()):,}: {listed(self.skipped)}\n"
            f"failed {len(self.failed) + self.mended:,}: "
            f"{self.mended:,} have passed since, {len(self.failed):,} are open"
        )


class Log:
    """The log in a file, which is made when something is written."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def append(self, **entry: Any) -> None:
        """Add a line in one piece."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path, "ab+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = json.dumps(entry) + "\n"
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":  # whoever wrote last was stopped in the middle
                    text = "\n" + text
            file.write(text.encode())

    def entries(self) -> Iterator[dict[str, Any]]:
        """All lines that are whole."""
        if not self.path.exists():
            return
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    continue

    def done(self, kind: str) -> set[int]:
        """The first seeds of the ranges that are done."""
        return {entry["first"] for entry in self.entries() if entry["what"] == "range" and entry["kind"] == kind}

    def summary(self, kind: str) -> Summary:
        """All in all."""
        total = Summary()
        passed: set[int] = set()
        for entry in self.entries():
            if entry["kind"] != kind:
                continue
            total.versions.add(entry["version"])
            match entry["what"]:
                case "range":
                    total.counts.update(entry["counts"])
                    total.comparisons.update(entry["comparisons"])
                    total.skipped.update(entry["skipped"])
                    total.seconds += entry["seconds"]
                case "failure":
                    total.failed[entry["seed"]] = entry
                    passed.discard(entry["seed"])
                case "passed":
                    total.failed.pop(entry["seed"], None)
                    passed.add(entry["seed"])
        total.mended = len(passed)
        return total
