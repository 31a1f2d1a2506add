"""The course and the output of a measuring command: its steps with their progress, its table, and its files."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Literal

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from dualbcast.cli import measure
from dualbcast.cli.measure import Device, Timing
from dualbcast.cli.options import output_file, picture_file
from dualbcast.disk_cache import write_whole
from dualbcast.progress import progress_bar
from dualbcast.runtime.cpu.policy import get_num_threads, last_level_cache

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: the key in a row, the heading, and how it is shown; a missing value is a dash."""

    key: str
    heading: str
    format: str = "{}"
    scale: float = 1.0
    left: bool = False

    def text(self, row: Row) -> str:
        """The cell's text."""
        value = row.get(self.key)
        if value is None:
            return "-"
        return self.format.format(value if self.scale == 1 else value * self.scale)


def build_table(columns: Sequence[Column], rows: Sequence[Row], title: str, lines: Sequence[str] = ()) -> Group:
    """A table of the rows between a title and notes; where the line is short, several tables below each other.

    The columns up to the last that is aligned left, and at least the first one, name the row: each table begins with
    them. No text is ever cut; a table that is still too wide goes beyond the end of the line.
    """
    widths = [2 + max(map(len, (*each.heading.split("\n"), *map(each.text, rows)))) for each in columns]
    names = max((at for at, column in enumerate(columns) if column.left), default=0) + 1
    parts: list[list[Column]] = []
    room = 0
    for column, width in zip(columns[names:], widths[names:], strict=True):
        if width > room:
            parts.append([*columns[:names]])
            room = line_width() - 1 - sum(widths[:names])
        parts[-1].append(column)
        room -= width
    return Group(Text(title, style="bold"), *(_table(part, rows) for part in parts), notes(lines))


def _table(columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        justify: Literal["left", "right"] = "left" if column.left else "right"
        table.add_column(column.heading, justify=justify, no_wrap=True, vertical="bottom")
    for row in rows:
        table.add_row(*(column.text(row) for column in columns))
    return table


def notes(lines: Sequence[str]) -> RenderableType:
    """Lines under a table."""
    return Group(*(Text(line, style="dim") for line in lines))


def line_width() -> int:
    """The characters in a line of standard output; 120 where it is not a terminal."""
    console = Console()
    return console.width if console.is_terminal else 120


def size_text(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def show(table: RenderableType) -> None:
    """Print to standard output, in lines as long as they are."""
    Console(width=10_000).print(table)


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a JSON file, all of it or nothing."""
    text = json.dumps(contents, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, f"{text}\n".encode())


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as CSV under a heading line, all of it or nothing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, text.getvalue().encode())


TIMING_COLUMNS = (
    Column("seconds", "time\nms", "{:.3f}", 1e3),
    Column("ns_per_element", "ns per\nelement", "{:.3f}"),
    Column("bytes", "moved\nMB", "{:.1f}", 1e-6),
    Column("bytes_per_second", "GB/s", "{:.1f}", 1e-9),
    Column("copy_share", "of\ncopy", "{:.0%}"),
)


@dataclass(kw_only=True)
class Experiment:
    """A measuring command at work: its device, its options, the rows that it has measured, and how they are shown.

    Each command has a class of its own with its settings, its title, its columns, and what its JSON file has besides.
    """

    command: ClassVar[str]
    device: Device
    repeat: int = 5
    min_time: float = 0.2
    seed: int = 0
    json_path: Path | None = None
    csv_path: Path | None = None
    plot_path: Path | None = None
    title: str = ""  # of the table and the picture
    columns: Sequence[Column] = ()
    bandwidth: float = 0.0  # bytes per second of a large copy, which `running` measures
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    _step: str = "starting"
    _progress: Progress = field(default_factory=progress_bar)

    def parameters(self) -> dict[str, Any]:
        """The values of the command's own options."""
        raise NotImplementedError

    def figures(self) -> dict[str, Any]:
        """What the JSON file has besides the rows, the parameters and the machine."""
        return {"notes": self.notes}

    def plot(self, path: Path) -> None:
        """Draw the picture of the rows."""
        raise NotImplementedError

    def table(self, rows: Sequence[Row]) -> RenderableType:
        """The columns of the rows, and the notes."""
        return build_table(self.columns, rows, self.title, [*self.machine_notes(rows), *self.notes])

    def note(self, text: str) -> None:
        """Show a line under the table, once."""
        if text not in self.notes:
            self.notes.append(text)

    def timing_fields(self, timing: Timing, elements: int, moved: int) -> Row:
        """The fields of a row about its timing: seconds, and the bytes moved compared with the bandwidth of a copy."""
        speed = moved / timing.seconds
        per_element = timing.seconds / elements * 1e9
        moving = {"bytes": moved, "bytes_per_second": speed, "copy_share": speed / self.bandwidth}
        return asdict(timing) | {"ns_per_element": per_element} | moving

    def fits_cache(self, row: Row) -> bool:
        """Whether the cache holds all arrays that the calls of a row use in turn."""
        return bool(row["bytes"] and row["bytes"] * row.get("arrays_in_turn", 1) < self.device.cache_bytes)

    @property
    def machine(self) -> str:
        """The machine and the bandwidth of a copy in one line."""
        threads = f" ({self.device.threads} threads)" if self.device.threads else ""
        speed = f"{self.bandwidth / 1e9:.1f} GB/s"
        return f"{self.device.name}, {self.device.backend} backend{threads}; a large copy moves {speed}."

    def machine_notes(self, rows: Sequence[Row]) -> list[str]:
        """The lines under a table about the machine, and what it may have done to the figures."""
        notes = [self.machine]
        if any(self.fits_cache(row) for row in rows):
            size = self.device.cache_bytes / 2**20
            notes.append(f"Arrays that fit in the cache ({size:.0f} MiB) can be moved faster than a large copy.")
        if any(row["seconds"] > 1.5 * row["seconds_best"] for row in rows):
            notes.append(
                "In some rows the median is over 1.5 times the best: the machine was busy with other work too."
            )
        return notes

    def doing(self, step: str) -> None:
        """Show the step that begins."""
        self._step = step
        for task in self._progress.task_ids:
            self._progress.update(task, description=step, refresh=True)

    def add(self, rows: Sequence[Row], summary: str) -> None:
        """Add the rows of a finished step, and show its summary."""
        self.rows += rows
        self.save()
        for task in self._progress.task_ids:
            self._progress.advance(task)
        self._say(summary)

    def _say(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def save(self) -> None:
        """Write the rows so far, so that a later failure does not lose them."""
        if self.csv_path is not None:
            write_csv(self.csv_path, self.rows)
        if self.json_path is not None:
            write_json(self.json_path, self.record())

    def record(self) -> dict[str, Any]:
        """The contents of the JSON file: the command, the date, the machine, the versions, and the rows."""
        measuring = {"seed": self.seed, "repeat": self.repeat, "min_time": self.min_time}
        return {
            "command": self.command,
            "arguments": sys.argv[1:],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {
                "cpu": measure.cpu_model(),
                "threads": get_num_threads(),
                "cache_bytes": last_level_cache(),
                "gpus": [asdict(gpu) for gpu in measure.gpus()],
            },
            "backend": self.device.backend,
            "device": self.device.name,
            "driver": {"release": measure.driver_release(), "cuda": measure.driver_version()},
            "versions": measure.versions(),
            "commit": measure.commit(),
            "parameters": self.parameters() | measuring,
            "copy_bytes_per_second": self.bandwidth,
            **self.figures(),
            "rows": self.rows,
        }

    @contextmanager
    def running(self, steps: int) -> Iterator[None]:
        """Run the steps of the command; at the end the table is shown, and the files and the picture are written.

        Rows are added `steps` times. After an error the rows that were finished are shown, and the step that was not.
        """
        self._progress.add_task(self._step, total=steps)
        try:
            with self._progress:
                self.doing("copying, to know the bandwidth")
                self.bandwidth = self.device.copy_bandwidth(self.min_time)
                yield
                # Measured once more, since other work on the machine may have slowed the first copy.
                self.bandwidth = max(self.bandwidth, self.device.copy_bandwidth(self.min_time))
        except BaseException:
            if self.rows:
                show(self.table(self.rows))
            self._say(f"Not finished: {self._step}")
            raise
        for row in self.rows:
            if row["bytes_per_second"]:
                row["copy_share"] = row["bytes_per_second"] / self.bandwidth
        show(self.table(self.rows))
        self.save()
        if self.plot_path is not None:
            self.plot(self.plot_path)


def measuring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every measuring command has: the backend, and fields of `Experiment`."""
    backends, seconds = click.Choice(["auto", "cpu", "cuda", "python"]), click.FloatRange(0)
    where = "Where to run; auto is the GPU where there is one, else the CPU. python is slow: use a small --n."
    enough, long = "Take at least this many samples.", "Measure each row for at least this long."
    files = (
        ("json", output_file, "Write all figures, the machine and the versions as JSON."),
        ("csv", output_file, "Write the rows as CSV."),
        ("plot", picture_file, "Draw a picture (.png, .svg or .pdf)."),
    )
    options = [
        click.option("--backend", type=backends, default="auto", help=where),
        click.option("--repeat", type=click.IntRange(1), default=Experiment.repeat, help=enough),
        click.option("--min-time", type=seconds, default=Experiment.min_time, metavar="SECONDS", help=long),
        click.option("--seed", type=int, default=Experiment.seed, help="Seed of the random inputs."),
        *(click.option(f"--{kind}", f"{kind}_path", type=of, metavar="FILE", help=text) for kind, of, text in files),
    ]
    for option in reversed(options):
        command = option(command)
    return command
