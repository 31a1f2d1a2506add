"""The pictures: time, bandwidth and resources over the number of arguments; the cell update beside NumPy by hand."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dualbcast.cli.measure import Device
from dualbcast.cli.report import Row, written
from dualbcast.errors import MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plot_hmlstm", "plot_sweep", "require"]

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
    inside = [count for count, row in zip(arity, rows, strict=True) if row["bytes"] < device.cache_bytes]
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
    ax.set_ylim(0, 105)
    ax.set_ylabel("theoretical occupancy [%]")
    ax.set_title("Occupancy", loc="left", fontsize=11)
    ax.legend(frameon=False, fontsize=9, loc="lower right")


def plot_hmlstm(path: Path, rows: Sequence[Row], device: Device, bandwidth: float, title: str) -> None:
    """Draw the cell update: time an element beside the same by hand, and the share of the copy bandwidth."""
    figure, (time_ax, share_ax) = _figure((1, 2), title, device, bandwidth)
    place = range(len(rows))
    names = [f"{row['n']}²" for row in rows]
    by_hand = "CuPy by hand" if device.backend == "cuda" else "NumPy by hand"
    for offset, key, color, label in (
        (-0.2, "seconds", _MEASURED, "dualbcast"),
        (0.2, "by_hand_seconds", _REFERENCE, by_hand),
    ):
        heights = [row[key] / row["n"] ** 2 * 1e9 for row in rows]
        bars = time_ax.bar([k + offset for k in place], heights, 0.38, color=color, label=label)
        time_ax.bar_label(bars, [f"{height:.2f}" for height in heights], padding=2, fontsize=9)
    time_ax.set_xticks(list(place), names)
    time_ax.set_ylabel("time per element [ns]")
    time_ax.set_title("Time", loc="left", fontsize=11)
    time_ax.margins(y=0.12)
    time_ax.legend(frameon=False, fontsize=9, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2, ncols=2)
    share = [row["copy_share"] * 100 for row in rows]
    bars = share_ax.bar(list(place), share, 0.5, color=_MEASURED)
    share_ax.bar_label(bars, [f"{value:.0f} %" for value in share], padding=2, fontsize=9)
    share_ax.axhline(100, linestyle="--", color=_REFERENCE)
    share_ax.set_xticks(list(place), names)
    share_ax.set_ylim(0, max(110.0, *share) * 1.1)
    share_ax.set_ylabel("share of copy bandwidth [%]")
    share_ax.set_title("Bandwidth", loc="left", fontsize=11)
    for ax in (time_ax, share_ax):
        ax.set_xlabel("elements")
    _save(figure, path)
