"""The output of a command: its table, and its JSON and CSV files."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table
from rich.text import Text

from dualbcast.cli import machine
from dualbcast.cli.measure import Device, Timing

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
        chosen: list[Column] = []
        for column in self._others:
            if chosen and self._width(console, [*chosen, column]) > options.max_width:
                yield from self._rendered(console, chosen, options)
                chosen = []
            chosen.append(column)
        yield from self._rendered(console, chosen, options)

    def _rendered(self, console: Console, others: Sequence[Column], options: ConsoleOptions) -> Iterator[Any]:
        width = max(options.max_width, self._width(console, others))
        yield from console.render(self._table(others), options.update(width=width, max_width=width))

    def _width(self, console: Console, others: Sequence[Column]) -> int:
        table = self._table(others)
        return table.__rich_measure__(console, console.options.update(max_width=10_000)).maximum

    def _table(self, others: Sequence[Column]) -> Table:
        columns = [*self._names, *others]
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
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
            "cpu": machine.cpu_model(),
            "threads": machine.threads(),
            "cache_bytes": machine.cache_bytes(),
            "gpus": [asdict(gpu) for gpu in machine.gpus()],
        },
        "backend": device.backend,
        "device": device.name,
        "driver": {"release": machine.driver_release(), "cuda": machine.driver_version()},
        "versions": machine.versions(),
        "commit": machine.commit(),
        "parameters": dict(parameters),
        **more,
        "rows": [dict(row) for row in rows],
    }


def write_json(path: Path, contents: Mapping[str, Any]) -> None:
    """Write a JSON file, all of it or nothing."""
    text = json.dumps(contents, indent=2, ensure_ascii=False, allow_nan=False)
    write_whole(path, lambda target: target.write_text(text + "\n", encoding="utf-8"))


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as CSV under a heading line, all of it or nothing."""
    keys = list(dict.fromkeys(key for row in rows for key in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, keys, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_whole(path, lambda target: target.write_text(text.getvalue(), encoding="utf-8"))


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` with a temporary file beside `path`, then rename that: a reader never sees half a file."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        # mkstemp makes files private; an ordinary one has the mode that the umask leaves.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
