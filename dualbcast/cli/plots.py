"""The pictures: the sweep over the number of arguments, the implementations of the cell update, and divergence."""

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

__all__ = ["plot_divergence", "plot_hmlstm", "plot_sweep", "require"]

# Okabe and Ito's palette, told apart with any colour vision.
_MEASURED, _REFERENCE, _ALARM = "#0072B2", "#6B6B6B", "#D55E00"
_SERIES = ("#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")


def require() -> None:
    """Raise MissingDependencyError unless matplotlib is installed."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib", "--plot", '"dualbcast[plot]"')


def _figure(panels: tuple[int, int], title: str, device: Device, bandwidth: float) -> tuple[Figure, list[Axes]]:
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


def _save(figure: Figure, path: Path) -> None:
    written(path, lambda target: figure.savefig(target))


def plot_sweep(
    path: Path,
    rows: Sequence[Row],
    device: Device,
    bandwidth: float,
    capabilities: Sequence[tuple[int, int]],
    title: str,
) -> None:
    """Draw a sweep: time an element and share of the copy bandwidth; registers and occupancy where compiled for."""
    keys = [f"sm_{major}{minor}" for major, minor in capabilities]
    keys = [key for key in keys if any(row.get(f"{key}_registers") is not None for row in rows)]
    figure, axes = _figure((2 if keys else 1, 2), title, device, bandwidth)
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
    _save(figure, path)


def _time_panel(ax: Axes, rows: Sequence[Row], arity: list[int], bandwidth: float) -> None:
    elements = [row["seconds"] / row["ns_per_element"] * 1e9 for row in rows]

    def per_element(key: str) -> list[float]:
        return [row[key] / count * 1e9 for row, count in zip(rows, elements, strict=True)]

    floor = [row["bytes"] / bandwidth / count * 1e9 for row, count in zip(rows, elements, strict=True)]
    ax.plot(arity, floor, "--", color=_REFERENCE, label="moving the bytes at copy bandwidth")
    ax.fill_between(
        arity,
        per_element("seconds_lower_quartile"),
        per_element("seconds_upper_quartile"),
        color=_MEASURED,
        alpha=0.2,
        linewidth=0,
    )
    ax.plot(arity, per_element("seconds"), "o-", color=_MEASURED, label="measured (median, quartiles)")
    if any(row.get("by_hand_seconds") for row in rows):
        by_hand = [float("nan") if row.get("by_hand_seconds") is None else row["by_hand_seconds"] for row in rows]
        times = [seconds / count * 1e9 for seconds, count in zip(by_hand, elements, strict=True)]
        ax.plot(arity, times, "s--", color=_ALARM, markersize=4, label="CUDA C++ by hand")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("time per element [ns]")
    ax.set_title("Time", loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9)


def _share_panel(ax: Axes, rows: Sequence[Row], arity: list[int], device: Device) -> None:
    share = [row["copy_share"] * 100 for row in rows]
    ax.axhline(100, linestyle="--", color=_REFERENCE)
    ax.annotate(
        "a large copy", (0.99, 100), xycoords=("axes fraction", "data"), ha="right", va="bottom", color=_REFERENCE
    )
    inside = [count for count, row in zip(arity, rows, strict=True) if fits_cache(row, device)]
    title = "Bandwidth"
    if inside:
        ax.axvspan(min(arity) - 0.6, max(inside) + 0.5, color="#EEEEEE", zorder=0)
        title += f" (shaded: fits in {device.cache_bytes / 2**20:.0f} MiB of cache)"
    ax.plot(arity, share, "o-", color=_MEASURED)
    ax.set_ylim(0, max(110.0, *share) * 1.05)
    ax.set_ylabel("share of copy bandwidth [%]")
    ax.set_title(title, loc="left", fontsize=11)


def _style(number: int, key: str) -> dict[str, Any]:
    """How a compute capability is drawn: lines that lie on each other differ in mark and size too."""
    return {
        "color": _SERIES[number % len(_SERIES)],
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
            ax.plot(x, y, "s", color=_ALARM, markersize=9, fillstyle="none", linestyle="none", label=mark)
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
            ax.plot(arity, values, mark, color=_REFERENCE, label=label)
    ax.set_ylim(0, 105)
    ax.set_ylabel("theoretical occupancy [%]")
    ax.set_title("Occupancy", loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9, loc="lower right")


def plot_hmlstm(path: Path, rows: Sequence[Row], device: Device, bandwidth: float, title: str) -> None:
    """Draw the cell update: for each mode the speedup over separate kernels, and the share of the copy bandwidth."""
    figure, axes = _figure((2, 2), title, device, bandwidth)
    modes = list(dict.fromkeys(row["mode"] for row in rows))
    sizes = sorted({row["n"] for row in rows})
    names = list(dict.fromkeys(row["implementation"] for row in rows))
    for column, mode in enumerate(modes):
        speed, share = axes[column], axes[2 + column]
        for number, name in enumerate(names):
            own = [row for row in rows if row["mode"] == mode and row["implementation"] == name]
            style = _line(number) | {"label": name}
            speed.plot([row["n"] for row in own], [row["speedup"] for row in own], **style)
            known = [row for row in own if row["copy_share"]]
            if known:
                share.plot([row["n"] for row in known], [row["copy_share"] * 100 for row in known], **style)
        speed.set_title(mode[0].upper() + mode[1:], loc="left", fontsize=11)
        speed.set_ylabel("speedup over the reverse kernels")
        speed.set_ylim(bottom=0)
        speed.legend(frameon=False, fontsize=9)
        share.axhline(100, linestyle="--", color=_REFERENCE)
        share.set_ylabel("share of copy bandwidth [%]")
        share.set_ylim(bottom=0)
        for ax in (speed, share):
            ax.set_xscale("log", base=2)
            ax.set_xticks(sizes, [f"{n}²" for n in sizes])
            ax.set_xlabel("elements")
    _save(figure, path)


def plot_divergence(path: Path, rows: Sequence[Row], device: Device, bandwidth: float, title: str) -> None:
    """Draw the cell update by the layout of control: time with branches and by masks, and the bytes moved."""
    figure, (time_ax, moved_ax) = _figure((1, 2), title, device, bandwidth)
    place = range(len(rows))
    names = [f"{row['control']}\n{row['pattern']}" for row in rows]
    for offset, key, color, label in (
        (-0.2, "seconds", _MEASURED, "branches"),
        (0.2, "masks_seconds", _REFERENCE, "masks: all is read"),
    ):
        heights = [row[key] * 1e3 for row in rows]
        bars = time_ax.bar([k + offset for k in place], heights, 0.38, color=color, label=label)
        time_ax.bar_label(bars, [f"{height:.3g}" for height in heights], padding=2, fontsize=9)
    time_ax.set_ylabel("time [ms]")
    time_ax.set_title("Time", loc="left", fontsize=11)
    time_ax.margins(y=0.2)
    time_ax.legend(frameon=False, fontsize=9, loc="upper left", ncols=2)
    moved = [row["bytes"] / 1e6 for row in rows]
    bars = moved_ax.bar(list(place), moved, 0.5, color=_MEASURED)
    moved_ax.bar_label(bars, [f"{-row['saved']:.0%}".replace("-0%", "0%") for row in rows], padding=2, fontsize=9)
    moved_ax.axhline(max(row["bytes"] / (1 - row["saved"]) for row in rows) / 1e6, linestyle="--", color=_REFERENCE)
    moved_ax.set_ylabel("bytes needed [MB]")
    moved_ax.set_title("Traffic (dashed: everything is read)", loc="left", fontsize=11)
    moved_ax.margins(y=0.12)
    for ax in (time_ax, moved_ax):
        ax.set_xticks(list(place), names)
        ax.set_xlabel("control by")
    _save(figure, path)


def _line(number: int) -> dict[str, Any]:
    """How the lines of implementations are drawn: the first is ours."""
    colors = (_MEASURED, _ALARM, *_SERIES)
    return {"color": colors[number % len(colors)], "marker": "os^Dvp<>"[number % 8], "markersize": 5}
