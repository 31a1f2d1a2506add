"""The course and the output of a measuring command: its steps with their progress, its table, and its JSON and CSV
files.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from dualbcast.cli import measure
from dualbcast.cli.measure import Device, Timing
from dualbcast.cli.options import Measuring
from dualbcast.disk_cache import write_whole
from dualbcast.errors import MissingDependencyError
from dualbcast.runtime.cpu.policy import get_num_threads

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
    """A table of the rows between a title and notes; where the line is short, several tables below each other."""
    return Group(Text(title, style="bold"), _Columns(columns, rows), notes(lines))


class _Columns:
    """Columns of text. Columns that do not fit in the line follow in a table below, after the same first columns.

    The first columns name the row: all up to the last that is aligned left, and at least one. No text is ever cut; a
    table that is still too wide goes beyond the end of the line.
    """

    def __init__(self, columns: Sequence[Column], rows: Sequence[Row]) -> None:
        names = max((at for at, column in enumerate(columns) if column.left), default=0) + 1
        self._names, self._others, self._rows = columns[:names], columns[names:], rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Any]:
        tables: list[list[Column]] = [[]]
        for column in self._others:
            if tables[-1] and self._width(console, [*tables[-1], column]) > options.max_width:
                tables.append([])
            tables[-1].append(column)
        for others in tables:
            width = max(options.max_width, self._width(console, others))
            yield from console.render(self._table(others), options.update(width=width, max_width=width))

    def _width(self, console: Console, others: Sequence[Column]) -> int:
        table = self._table(others)
        return table.__rich_measure__(console, console.options.update(max_width=10_000)).maximum

    def _table(self, others: Sequence[Column]) -> Table:
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
        columns = [*self._names, *others]
        for column in columns:
            justify: Literal["left", "right"] = "left" if column.left else "right"
            table.add_column(column.heading, justify=justify, no_wrap=True, vertical="bottom")
        for row in self._rows:
            table.add_row(*(column.text(row) for column in columns))
        return table


def notes(lines: Sequence[str]) -> RenderableType:
    """Lines under a table."""
    return Group(*(Text(line, style="dim") for line in lines))


def width() -> int:
    """The width of standard output in characters; 120 where it is not a terminal."""
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
    """Print to standard output."""
    Console(width=width()).print(table, crop=False)


def timing_fields(timing: Timing, elements: int, moved: int, bandwidth: float) -> dict[str, Any]:
    """The fields of a row about its timing: seconds, and the bytes moved compared with the bandwidth of a copy."""
    return {
        "seconds": timing.median,
        "seconds_best": timing.best,
        "seconds_lower_quartile": timing.lower,
        "seconds_upper_quartile": timing.upper,
        "samples": timing.samples,
        "ns_per_element": timing.median / elements * 1e9,
        "bytes": moved,
        "bytes_per_second": moved / timing.median,
        "copy_share": moved / timing.median / bandwidth,
    }


TIMING_COLUMNS = (
    Column("seconds", "time\nms", "{:.3f}", 1e3),
    Column("ns_per_element", "ns per\nelement", "{:.3f}"),
    Column("bytes", "moved\nMB", "{:.1f}", 1e-6),
    Column("bytes_per_second", "GB/s", "{:.1f}", 1e-9),
    Column("copy_share", "of\ncopy", "{:.0%}"),
)


def fits_cache(row: Row, device: Device) -> bool:
    """Whether the cache holds all arrays that the calls of a row use in turn."""
    return bool(row["bytes"] * row.get("arrays_in_turn", 1) < device.cache_bytes)


def machine_notes(device: Device, bandwidth: float, rows: Sequence[Row]) -> list[str]:
    """The lines under a table about the machine and the bandwidth of a copy."""
    threads = f" ({device.threads} threads)" if device.threads else ""
    notes = [f"{device.name}, {device.backend} backend{threads}; a large copy moves {bandwidth / 1e9:.1f} GB/s."]
    if any(fits_cache(row, device) for row in rows):
        size = device.cache_bytes / 2**20
        notes.append(f"Arrays that fit in the cache ({size:.0f} MiB) can be moved faster than a large copy.")
    if any(row["seconds"] > 1.5 * row["seconds_best"] for row in rows):
        notes.append("In some rows the median is over 1.5 times the best: the machine was busy with other work too.")
    return notes


def record(
    command: str, device: Device, parameters: Mapping[str, Any], rows: Sequence[Row], **more: Any
) -> dict[str, Any]:
    """The contents of a JSON file: the command, the date, the machine, the versions, and the rows."""
    return {
        "command": command,
        "arguments": sys.argv[1:],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": measure.cpu_model(),
            "threads": get_num_threads(),
            "cache_bytes": measure.cache_bytes(),
            "gpus": [asdict(gpu) for gpu in measure.gpus()],
        },
        "backend": device.backend,
        "device": device.name,
        "driver": {"release": measure.driver_release(), "cuda": measure.driver_version()},
        "versions": measure.versions(),
        "commit": measure.commit(),
        "parameters": dict(parameters),
        **more,
        "rows": [dict(row) for row in rows],
    }


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


# --- the course of a command ------------------------------------------------------------------------------------------


class Experiment(Protocol):
    """The settings that all rows of a command share, with its table and the contents of its JSON file."""

    command: str
    device: Device
    options: Measuring
    bandwidth: float  # bytes per second of a large copy, which `running` measures

    def table(self, rows: Sequence[Row]) -> RenderableType: ...

    def parameters(self) -> dict[str, Any]: ...

    def figures(self) -> dict[str, Any]: ...


class Run:
    """Progress of a command on stderr: a live table and a bar on a terminal, elsewhere a plain line for each step.

    Rows are added `steps` times.
    """

    def __init__(self, experiment: Experiment, steps: int) -> None:
        self.rows: list[Row] = []
        self.step = "starting"
        self._experiment = experiment
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=self._console,
            auto_refresh=False,
        )
        self._task = self._bar.add_task(self.step, total=steps)
        # Redrawn at each step and not by a thread of its own, which would disturb the measurement.
        self.live = Live(console=self._console, auto_refresh=False, transient=True, get_renderable=self._renderable)

    def _renderable(self) -> Group | Progress:
        if not self.rows:
            return self._bar
        room = max(1, self._console.height - 12)
        return Group(self._experiment.table(self.rows[-room:]), self._bar)

    def doing(self, step: str) -> None:
        """Show the step that begins."""
        self.step = step
        self._bar.update(self._task, description=step)
        self.live.refresh()

    def add(self, rows: Sequence[Row], summary: str) -> None:
        """Add the rows of a finished step; `summary` is the line shown where there is no terminal."""
        self.rows += rows
        self.save()
        self._bar.advance(self._task)
        self.live.refresh()
        if not self._console.is_terminal:
            print(summary, file=sys.stderr, flush=True)

    def save(self) -> None:
        """Write the rows so far, so that a later failure does not lose them."""
        experiment, options = self._experiment, self._experiment.options
        if options.csv_path is not None:
            write_csv(options.csv_path, self.rows)
        if options.json_path is not None:
            parameters = {"seed": options.seed, "repeat": options.repeat, "min_time": options.min_time}
            parameters = experiment.parameters() | parameters
            figures = {"copy_bytes_per_second": experiment.bandwidth} | experiment.figures()
            contents = record(experiment.command, experiment.device, parameters, self.rows, **figures)
            write_json(options.json_path, contents)


def device_for(options: Measuring) -> Device:
    """The device of a command; raises before anything is measured if --plot has no matplotlib."""
    if options.plot_path is not None and importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib", "--plot", '"dualbcast[plot]"')
    return measure.choose_device(options.backend)


@contextmanager
def running(experiment: Experiment, steps: int) -> Iterator[Run]:
    """Run the steps of a command; at the end the table is shown and the files are written.

    A command that ends with an error shows the rows that were finished and the step that was not.
    """
    run, seconds = Run(experiment, steps), experiment.options.min_time
    if run.live.console.is_terminal:
        run.live.start()
    try:
        run.doing("copying, to know the bandwidth")
        experiment.bandwidth = experiment.device.copy_bandwidth(seconds)
        yield run
        # Measured once more, since other work on the machine may have slowed the first copy.
        experiment.bandwidth = max(experiment.bandwidth, experiment.device.copy_bandwidth(seconds))
    except BaseException:
        run.live.stop()
        if run.rows:
            show(experiment.table(run.rows))
        print(f"Not finished: {run.step}", file=sys.stderr, flush=True)
        raise
    run.live.stop()
    for row in run.rows:
        if row["bytes_per_second"]:
            row["copy_share"] = row["bytes_per_second"] / experiment.bandwidth
    show(experiment.table(run.rows))
    run.save()
