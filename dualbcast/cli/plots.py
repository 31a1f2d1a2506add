"""The picture of a sweep over the number of arguments, and the figure that all pictures begin with."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualbcast.cli.measure import Device
from dualbcast.cli.report import Row, fits_cache, written
from dualbcast.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["ALARM", "MEASURED", "REFERENCE", "SERIES", "new_figure", "plot_sweep", "require", "save_figure"]

# Okabe and Ito's palette, told apart with any colour vision.
MEASURED, REFERENCE, ALARM = "#0072B2", "#6B6B6B", "#D55E00"
SERIES = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def require() -> None:
    """Raise MissingDependencyError unless matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib", "--plot", '"dualbcast[plot]"')


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
    """Write the figure as its file's ending says: all of it or nothing."""
    written(path, lambda target: figure.savefig(target))


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
    keys = [key for key in keys if any(row.get(f"{key}_registers") is not None for row in rows)]
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


def _time_panel(ax: Axes, rows: Sequence[Row], arity: list[int], bandwidth: float) -> None:
    elements = [row["seconds"] / row["ns_per_element"] * 1e9 for row in rows]

    def per_element(key: str) -> list[float]:
        return [row[key] / count * 1e9 for row, count in zip(rows, elements, strict=True)]

    floor = [row["bytes"] / bandwidth / count * 1e9 for row, count in zip(rows, elements, strict=True)]
    ax.plot(arity, floor, "--", color=REFERENCE, label="moving the bytes at copy bandwidth")
    ax.fill_between(
        arity,
        per_element("seconds_lower_quartile"),
        per_element("seconds_upper_quartile"),
        color=MEASURED,
        alpha=0.2,
        linewidth=0,
    )
    ax.plot(arity, per_element("seconds"), "o-", color=MEASURED, label="measured (median, quartiles)")
    if any(row.get("by_hand_seconds") for row in rows):
        by_hand = [float("nan") if row.get("by_hand_seconds") is None else row["by_hand_seconds"] for row in rows]
        times = [seconds / count * 1e9 for seconds, count in zip(by_hand, elements, strict=True)]
        ax.plot(arity, times, "s--", color=ALARM, markersize=4, label="CUDA C++ by hand")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("time per element [ns]")
    ax.set_title("Time", loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9)


def _share_panel(ax: Axes, rows: Sequence[Row], arity: list[int], device: Device) -> None:
    share = [row["copy_share"] * 100 for row in rows]
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
    ax.set_ylabel("share of copy bandwidth [%]")
    ax.set_title(title, loc="left", fontsize=11)


def _style(number: int, key: str) -> dict[str, Any]:
    """How a compute capability is drawn: lines that lie on each other differ in mark and size too."""
    return {
        "color": SERIES[number % len(SERIES)],
        "marker": "os^Dv"[number % 5],
        "markersize": max(3, 7 - 1.5 * number),
        "linestyle": "-" if number == 0 else "--",
        "label": f"{key} (compute capability {key[3:-1]}.{key[-1]})",
    }


def _register_panel(ax: Axes, rows: Sequence[Row], arity: list[int], keys: Sequence[str]) -> None:
    spilled = False
    for number, key in enumerate(keys):
        registers = [row.get(f"{key}_registers") for row in rows]
        ax.plot(arity, [float("nan") if count is None else count for count in registers], **_style(number, key))
        places = [k for k, row in enumerate(rows) if row.get(f"{key}_spill_bytes")]
        if places:
            x, y = [arity[k] for k in places], [float(registers[k] or 0) for k in places]
            mark = "_spills" if spilled else "spills"  # an underscore keeps it out of the legend
            ax.plot(x, y, "s", color=ALARM, markersize=9, fillstyle="none", linestyle="none", label=mark)
            spilled = True
    ax.set_ylim(bottom=0)
    ax.set_ylabel("registers per thread")
    ax.set_title("Registers" + ("" if spilled else " (no spills)"), loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9, loc="lower right")


def _occupancy_panel(ax: Axes, rows: Sequence[Row], arity: list[int], keys: Sequence[str]) -> None:
    for number, key in enumerate(keys):
        share = [row.get(f"{key}_occupancy") for row in rows]
        values = [float("nan") if value is None else 100 * value for value in share]
        ax.plot(arity, values, **_style(number, key))
    for key, mark, label in (("achieved_occupancy", "x-", "achieved"), ("compute_share", "+:", "compute utilisation")):
        if any(row.get(key) is not None for row in rows):
            values = [float("nan") if row.get(key) is None else 100 * row[key] for row in rows]
            ax.plot(arity, values, mark, color=REFERENCE, label=label)
    ax.set_ylim(0, 105)
    ax.set_ylabel("theoretical occupancy [%]")
    ax.set_title("Occupancy", loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9, loc="lower right")
