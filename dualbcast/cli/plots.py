"""The picture of a sweep over the number of arguments, and the figure that all pictures begin with."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualbcast.cli.report import Experiment, Row
from dualbcast.disk_cache import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's palette, told apart with any colour vision.
MEASURED, REFERENCE, ALARM = "#0072B2", "#6B6B6B", "#D55E00"
SERIES = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def new_figure(panels: tuple[int, int], experiment: Experiment) -> tuple[Figure, list[Axes]]:
    """A figure of rows by columns panels under the experiment's title and a line that names the machine."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows, columns = panels
    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(5.6 * columns, 0.9 + 3.5 * rows), layout=layout, dpi=150)
    text = f"{experiment.title}\n{experiment.machine}"
    figure.suptitle(text, x=0.012, ha="left", fontsize=12, linespacing=1.4)
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


def plot_sweep(path: Path, sweep: Experiment, compiled: Sequence[str]) -> None:
    """Draw the time per element and the share of a copy's bandwidth; registers and occupancy too where they are known.

    `compiled` has the compute capabilities, such as `sm_90`.
    """
    rows = sweep.rows
    keys = [key for key in compiled if _has(rows, f"{key}_registers")]
    figure, axes = new_figure((2 if keys else 1, 2), sweep)
    from matplotlib.ticker import MaxNLocator

    arity = [row["arity"] for row in rows]
    for ax in axes:
        ax.set_xlabel("arity (number of arguments)")
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlim(min(arity) - 0.6, max(arity) + 0.6)
    _draw_time(axes[0], rows, sweep.bandwidth)
    _draw_share(axes[1], sweep)
    if keys:
        _draw_resources(axes[2], axes[3], rows, keys)
    save_figure(figure, path)


def _has(rows: Sequence[Row], key: str) -> bool:
    return any(row.get(key) is not None for row in rows)


def _line(ax: Axes, rows: Sequence[Row], key: str, mark: str, scale: float = 1.0, **style: Any) -> None:
    """Draw a column over the arity, if any row has it; a gap where one has not."""
    if _has(rows, key):
        heights = [float("nan") if row.get(key) is None else scale * row[key] for row in rows]
        ax.plot([row["arity"] for row in rows], heights, mark, **style)


def _finish(ax: Axes, title: str, unit: str, top: float | None = None, legend: Any = None) -> None:
    """Title, vertical axis from zero, and the place of the legend of a panel."""
    ax.set_title(title, loc="left", fontsize=11)
    ax.set_ylabel(unit)
    ax.set_ylim(0, top)
    if legend is not None:
        ax.legend(frameon=False, fontsize=9, loc=legend)


def _draw_time(ax: Axes, rows: Sequence[Row], bandwidth: float) -> None:
    timed = ("seconds", "seconds_lower_quartile", "seconds_upper_quartile", "by_hand_seconds")
    scaled: list[Row] = []
    for row in rows:
        # The time of an element in nanoseconds, for each second of the whole.
        factor = row["ns_per_element"] / row["seconds"]
        times = {key: row[key] * factor for key in timed if row.get(key) is not None}
        scaled.append({"arity": row["arity"], "floor": row["bytes"] / bandwidth * factor} | times)
    _line(ax, scaled, "floor", "--", color=REFERENCE, label="moving the bytes at copy bandwidth")
    lower, upper = ([row[f"seconds_{which}_quartile"] for row in scaled] for which in ("lower", "upper"))
    ax.fill_between([row["arity"] for row in rows], lower, upper, color=MEASURED, alpha=0.2, linewidth=0)
    _line(ax, scaled, "seconds", "o-", color=MEASURED, label="measured (median, quartiles)")
    _line(ax, scaled, "by_hand_seconds", "s--", color=ALARM, markersize=4, label="CUDA C++ by hand")
    _finish(ax, "Time", "time per element [ns]", legend="best")


def _draw_share(ax: Axes, sweep: Experiment) -> None:
    ax.axhline(100, linestyle="--", color=REFERENCE)
    place = ax.get_yaxis_transform()
    ax.text(0.99, 100, "a large copy", transform=place, ha="right", va="bottom", color=REFERENCE)
    title, inside = "Bandwidth", [row["arity"] for row in sweep.rows if sweep.fits_cache(row)]
    if inside:
        ax.axvspan(sweep.rows[0]["arity"] - 0.6, max(inside) + 0.5, color="#EEEEEE", zorder=0)
        title += f" (shaded: fits in {sweep.device.cache_bytes / 2**20:.0f} MiB of cache)"
    _line(ax, sweep.rows, "copy_share", "o-", 100, color=MEASURED)
    highest = max(110.0, *(100 * row["copy_share"] for row in sweep.rows))
    _finish(ax, title, "share of copy bandwidth [%]", highest * 1.05)


def _draw_resources(registers: Axes, occupancy: Axes, rows: Sequence[Row], keys: Sequence[str]) -> None:
    spills = [(row["arity"], row[f"{key}_registers"]) for key in keys for row in rows if row.get(f"{key}_spill_bytes")]
    for number, key in enumerate(keys):
        # Lines that lie on each other differ in mark and size too.
        style: dict[str, Any] = {"color": SERIES[number % len(SERIES)], "markersize": max(3, 7 - 1.5 * number)}
        style["label"] = f"{key} (compute capability {key[3:-1]}.{key[-1]})"
        mark = "os^Dv"[number % 5] + ("-" if number == 0 else "--")
        _line(registers, rows, f"{key}_registers", mark, **style)
        _line(occupancy, rows, f"{key}_occupancy", mark, 100, **style)
    if spills:
        registers.plot(*zip(*spills, strict=True), "s", color=ALARM, markersize=9, fillstyle="none", label="spills")
    _line(occupancy, rows, "achieved_occupancy", "x-", 100, color=REFERENCE, label="achieved")
    _line(occupancy, rows, "compute_share", "+:", 100, color=REFERENCE, label="compute utilisation")
    title = "Registers" + ("" if spills else " (no spills)")
    _finish(registers, title, "registers per thread", legend="lower right")
    _finish(occupancy, "Occupancy", "theoretical occupancy [%]", 105, legend="lower right")
