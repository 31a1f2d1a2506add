"""The picture of a sweep over the number of arguments, and the figure that all pictures begin with."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dualbcast.cli.measure import Device
from dualbcast.cli.report import Row, fits_cache
from dualbcast.disk_cache import write_whole

LegendPlace = Literal["best", "lower right"]

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any colour vision.
MEASURED, REFERENCE, ALARM = "#0072B2", "#6B6B6B", "#D55E00"
SERIES = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def new_figure(panels: tuple[int, int], title: str, device: Device, bandwidth: float) -> tuple[Figure, list[Axes]]:
    """A figure of rows by columns panels under a title and a line that names the machine."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows, columns = panels
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(5.6 * columns, 0.9 + 3.5 * rows), layout=layout, dpi=150)
    threads = f", {device.threads} threads" if device.threads else ""
    machine = f"{device.name}, {device.backend} backend{threads}; a large copy moves {bandwidth / 1e9:.1f} GB/s"
    figure.suptitle(f"{title}\n{machine}", x=0.012, ha="left", fontsize=12, linespacing=1.4)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#DDDDDD", linewidth=0.8)
        ax.set_axisbelow(True)
    return figure, axes


def save_figure(figure: Figure, path: Path) -> None:
    """Write the figure in the format of the file's ending, all of it or nothing."""
    picture = io.BytesIO()
    figure.savefig(picture, format=path.suffix[1:].lower())
    write_whole(path, picture.getvalue())


def plot_sweep(
    path: Path,
    rows: Sequence[Row],
    device: Device,
    bandwidth: float,
    capabilities: Sequence[tuple[int, int]],
    title: str,
) -> None:
    """Draw the time per element and the share of a copy's bandwidth; with capabilities registers and occupancy too."""
    keys = [f"sm_{major}{minor}" for major, minor in capabilities]
    keys = [key for key in keys if _has(rows, f"{key}_registers")]
    figure, axes = new_figure((2 if keys else 1, 2), title, device, bandwidth)
    arity = [row["arity"] for row in rows]
    from matplotlib.ticker import MaxNLocator

    for ax in axes:
        ax.set_xlabel("arity (number of arguments)")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlim(min(arity) - 0.6, max(arity) + 0.6)
    _time_panel(axes[0], rows, arity, bandwidth)
    _share_panel(axes[1], rows, arity, device)
    if keys:
        _register_panel(axes[2], rows, arity, keys)
        _occupancy_panel(axes[3], rows, arity, keys)
    save_figure(figure, path)


def _values(rows: Sequence[Row], key: str, scale: float = 1.0) -> list[float]:
    """The figures of a column; NaN where a row has none, which leaves a gap in the line."""
    return [float("nan") if row.get(key) is None else scale * row[key] for row in rows]


def _has(rows: Sequence[Row], key: str) -> bool:
    return any(row.get(key) is not None for row in rows)


def _finish_panel(ax: Axes, title: str, unit: str, legend: LegendPlace | None = None) -> None:
    """Title and vertical axis of a panel, and the place of its legend."""
    ax.set_title(title, loc="left", fontsize=11)
    ax.set_ylabel(unit)
    if legend is not None:
        ax.legend(frameon=False, fontsize=9, loc=legend)


def _time_panel(ax: Axes, rows: Sequence[Row], arity: list[int], bandwidth: float) -> None:
    elements = [row["seconds"] / row["ns_per_element"] * 1e9 for row in rows]

    def per_element(seconds: Sequence[float]) -> list[float]:
        return [each / count * 1e9 for each, count in zip(seconds, elements, strict=True)]

    floor = per_element(_values(rows, "bytes", 1 / bandwidth))
    ax.plot(arity, floor, "--", color=REFERENCE, label="moving the bytes at copy bandwidth")
    lower, upper = (per_element(_values(rows, f"seconds_{which}_quartile")) for which in ("lower", "upper"))
    ax.fill_between(arity, lower, upper, color=MEASURED, alpha=0.2, linewidth=0)
    measured = per_element(_values(rows, "seconds"))
    ax.plot(arity, measured, "o-", color=MEASURED, label="measured (median, quartiles)")
    if _has(rows, "by_hand_seconds"):
        by_hand = per_element(_values(rows, "by_hand_seconds"))
        ax.plot(arity, by_hand, "s--", color=ALARM, markersize=4, label="CUDA C++ by hand")
    ax.set_ylim(bottom=0)
    _finish_panel(ax, "Time", "time per element [ns]", legend="best")


def _share_panel(ax: Axes, rows: Sequence[Row], arity: list[int], device: Device) -> None:
    share = _values(rows, "copy_share", 100)
    ax.axhline(100, linestyle="--", color=REFERENCE)
    ax.annotate(
        "a large copy", (0.99, 100), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=REFERENCE
    )
    inside = [count for count, row in zip(arity, rows, strict=True) if fits_cache(row, device)]
    title = "Bandwidth"
    if inside:
        ax.axvspan(min(arity) - 0.6, max(inside) + 0.5, color="#EEEEEE", zorder=0)
        title += f" (shaded: fits in {device.cache_bytes / 2**20:.0f} MiB of cache)"
    ax.plot(arity, share, "o-", color=MEASURED)
    ax.set_ylim(0, max(110.0, *share) * 1.05)
    _finish_panel(ax, title, "share of copy bandwidth [%]")


def _style(number: int, key: str) -> dict[str, Any]:
    """The style of a compute capability's line: lines that lie on each other differ in mark and size too."""
    return {
        "color": SERIES[number % len(SERIES)],
        "marker": "os^Dv"[number % 5],
        "markersize": max(3, 7 - 1.5 * number),
        "linestyle": "-" if number == 0 else "--",
        "label": f"{key} (compute capability {key[3:-1]}.{key[-1]})",
    }


def _register_panel(ax: Axes, rows: Sequence[Row], arity: list[int], keys: Sequence[str]) -> None:
    spills: list[tuple[int, float]] = []
    for number, key in enumerate(keys):
        registers = _values(rows, f"{key}_registers")
        ax.plot(arity, registers, **_style(number, key))
        points = zip(rows, arity, registers, strict=True)
        spills += [(count, height) for row, count, height in points if row.get(f"{key}_spill_bytes")]
    if spills:
        spilling, heights = zip(*spills, strict=True)
        ax.plot(spilling, heights, "s", color=ALARM, markersize=9, fillstyle="none", label="spills")
    ax.set_ylim(bottom=0)
    _finish_panel(ax, "Registers" + ("" if spills else " (no spills)"), "registers per thread", legend="lower right")


def _occupancy_panel(ax: Axes, rows: Sequence[Row], arity: list[int], keys: Sequence[str]) -> None:
    for number, key in enumerate(keys):
        ax.plot(arity, _values(rows, f"{key}_occupancy", 100), **_style(number, key))
    for key, mark, label in (("achieved_occupancy", "x-", "achieved"), ("compute_share", "+:", "compute utilisation")):
        if _has(rows, key):
            ax.plot(arity, _values(rows, key, 100), mark, color=REFERENCE, label=label)
    ax.set_ylim(0, 105)
    _finish_panel(ax, "Occupancy", "theoretical occupancy [%]", legend="lower right")
