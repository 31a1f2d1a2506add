"""What `--counted` shows: the experiments' kernels counted on their PTX, without a GPU and without a clock."""

from __future__ import annotations

import functools
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from rich.console import Group

from dualbcast.cli import measure, report
from dualbcast.cli.options import capability
from dualbcast.cli.report import Column, Row
from dualbcast.counting import executor
from dualbcast.counting.counter import SECTOR, Counts, total
from dualbcast.counting.devices import DEVICES
from dualbcast.counting.launch import Launch, count_together

__all__ = ["ROOFLINES", "CountedReport", "Counting", "counted_row", "counting_options", "is_default", "measured_by"]

ROOFLINES = tuple(Column(f"{name}_seconds", f"{name}\nµs, least", "{:.1f}", 1e6) for name in DEVICES)
MEASURED = Column("measured_seconds", "measured\nµs", "{:.1f}", 1e6)
_NOTES = (
    "Counted, not timed: warp instructions of the PTX, sectors of 32 bytes. Of DRAM: each sector once a launch. "
    "Least time: by published bandwidth or issue rate, whichever takes longer."
)


def counted_row(launches: Sequence[Launch]) -> tuple[Row, Counts]:
    """The fields of a row about launches, one after the other, and their counts."""
    counts, (read, written) = count_together(launches)
    every = total(counts)
    row: Row = {
        "launches": every.launches,
        "issued": every.issued,
        "lane_share": every.lane_share,
        "branches": every.branches,
        "divergent": every.divergent,
        "sectors_read": every.sectors_read,
        "sectors_written": every.sectors_written,
        "sectors": every.sectors,
        "repeated": every.repeated,
        "dram_read": every.dram_read,
        "dram_written": every.dram_written,
        "dram_sectors": every.dram_sectors,
        "dram_bytes": every.dram_bytes,
        "kept_bytes": SECTOR * (read + written),
        "bank_conflicts": every.bank_conflicts,
        "registers": max(launch.registers for launch in launches),
        "lanes": max(launch.lanes for launch in launches),
    }
    for name, device in DEVICES.items():
        bounds = [device.roofline(each) for each in counts]  # a launch waits for the one before
        row[f"{name}_seconds"] = sum(bound.seconds for bound in bounds)
        row[f"{name}_bound"] = bounds[0].bound if len({bound.bound for bound in bounds}) == 1 else "both"
    return row, every


@dataclass(kw_only=True)
class CountedReport:
    """A counted run of an experiment.

    Attributes
    ----------
    command, title : str
    columns : sequence of Column
    parameters : dict
        The values of the command's options.
    json_path, csv_path : Path or None
        The files to write.
    measured : dict
        Seconds that an earlier run has measured on a GPU, by the values of `keys` of its rows.
    keys : tuple of str
        The fields that tell a row from others.
    """

    command: str
    title: str
    columns: Sequence[Column]
    parameters: dict[str, Any]
    keys: tuple[str, ...]
    json_path: Path | None = None
    csv_path: Path | None = None
    measured: dict[tuple[Any, ...], float] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=lambda: [_NOTES])
    started: float = field(default_factory=time.monotonic)

    def doing(self, step: str) -> None:
        """Say the step that begins."""
        print(step, file=sys.stderr, flush=True)

    def add(self, row: Row) -> None:
        """Add a finished row."""
        seconds = self.measured.get(tuple(row[key] for key in self.keys))
        self.rows.append(row if seconds is None else row | {"measured_seconds": seconds})

    def finish(self) -> None:
        """Show the table, and write the files."""
        took = time.monotonic() - self.started
        title = f"{self.title}: counted"
        columns = [*self.columns, MEASURED] if self.measured else self.columns
        report.show(Group(report.build_table(columns, self.rows, title, [*self.notes, f"Counted in {took:.0f} s."])))
        if self.csv_path is not None:
            report.write_csv(self.csv_path, self.rows)
        if self.json_path is not None:
            report.write_json(self.json_path, self.record(took))

    def record(self, took: float) -> dict[str, Any]:
        """The contents of the JSON file."""
        return {
            "command": self.command,
            "arguments": sys.argv[1:],
            "counted": True,
            "seconds": took,
            "versions": measure.versions(),
            "commit": measure.commit(),
            "parameters": self.parameters,
            "devices": {name: device.source for name, device in DEVICES.items()},
            "notes": self.notes,
            "rows": self.rows,
        }


def measured_by(path: Path | None, keys: Sequence[str]) -> dict[tuple[Any, ...], float]:
    """The seconds of the rows of a JSON file that the same command has written on a GPU."""
    if path is None:
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    if found.get("backend") != "cuda":
        raise click.BadParameter(
            f"{path} has been measured on {found.get('device', 'an unknown device')}, not on a GPU."
        )
    return {tuple(row.get(key) for key in keys): row["seconds"] for row in found["rows"]}


@dataclass(frozen=True)
class Counting:
    """What the options about counting say: see `counting_options`.

    Attributes
    ----------
    cc : tuple of int
        The compute capability to compile for.
    measured : Path or None
        The JSON file of an earlier run on a GPU.
    """

    cc: tuple[int, int]
    measured: Path | None


def counting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about counting to a command, which gets a `Counting` or None as `counting`."""
    counted = "Count the kernels' instructions and sectors on their PTX, and time nothing. Needs gcc, and no GPU."
    earlier = "With --counted: beside them show the times of this JSON file, by the same command on a GPU."
    target = "With --counted: the compute capability to compile for (9.0)."
    path = click.Path(exists=True, dir_okay=False, path_type=Path)

    @functools.wraps(command)
    def with_counting(
        *, counted: bool, measured_path: Path | None, counted_cc: tuple[int, int] | None, **given: Any
    ) -> None:
        if not counted and (measured_path or counted_cc):
            raise click.UsageError("--measured and --counted-cc go with --counted.")
        if counted and given["plot_path"] is not None:
            raise click.UsageError("There is no picture of what is counted: leave out --plot.")
        if counted and executor.COMPILER is None:
            raise click.ClickException("Counting translates kernels to C: install gcc.")
        command(counting=Counting(counted_cc or (9, 0), measured_path) if counted else None, **given)

    options = [
        click.option("--counted", is_flag=True, help=counted),
        click.option("--measured", "measured_path", type=path, metavar="FILE", help=earlier),
        click.option("--counted-cc", type=capability, metavar="X.Y", help=target),
    ]
    for option in reversed(options):
        with_counting = option(with_counting)
    return with_counting


def is_default(name: str) -> bool:
    """Whether an option of the command that runs was not given."""
    return click.get_current_context().get_parameter_source(name) == ParameterSource.DEFAULT
