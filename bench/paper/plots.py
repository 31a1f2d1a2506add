"""The pictures of the implementations of the cell update and of diverging control."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dualbcast.cli.plots import ALARM, MEASURED, REFERENCE, SERIES, new_figure, save_figure
from dualbcast.cli.report import Experiment

__all__ = ["plot_divergence", "plot_hmlstm"]


def plot_hmlstm(path: Path, experiment: Experiment) -> None:
    """Draw the cell update: for each mode the speedup over separate kernels, and the share of the copy bandwidth."""
    figure, axes = new_figure((2, 2), experiment)
    rows = experiment.rows
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
        share.axhline(100, linestyle="--", color=REFERENCE)
        share.set_ylabel("share of copy bandwidth [%]")
        share.set_ylim(bottom=0)
        for ax in (speed, share):
            ax.set_xscale("log", base=2)
            ax.set_xticks(sizes, [f"{n}²" for n in sizes])
            ax.set_xlabel("elements")
    save_figure(figure, path)


def plot_divergence(path: Path, experiment: Experiment) -> None:
    """Draw the cell update by the layout of control: time with branches and by masks, and the bytes moved."""
    figure, (time_ax, moved_ax) = new_figure((1, 2), experiment)
    rows = experiment.rows
    place = range(len(rows))
    names = [f"{row['control']}\n{row['pattern']}" for row in rows]
    for offset, key, color, label in (
        (-0.2, "seconds", MEASURED, "branches"),
        (0.2, "masks_seconds", REFERENCE, "masks: all is read"),
    ):
        heights = [row[key] * 1e3 for row in rows]
        bars = time_ax.bar([k + offset for k in place], heights, 0.38, color=color, label=label)
        time_ax.bar_label(bars, [f"{height:.3g}" for height in heights], padding=2, fontsize=9)
    time_ax.set_ylabel("time [ms]")
    time_ax.set_title("Time", loc="left", fontsize=11)
    time_ax.margins(y=0.2)
    time_ax.legend(frameon=False, fontsize=9, loc="upper left", ncols=2)
    moved = [row["bytes"] / 1e6 for row in rows]
    bars = moved_ax.bar(list(place), moved, 0.5, color=MEASURED)
    moved_ax.bar_label(bars, [f"{-row['saved']:.0%}".replace("-0%", "0%") for row in rows], padding=2, fontsize=9)
    moved_ax.axhline(max(row["bytes"] / (1 - row["saved"]) for row in rows) / 1e6, linestyle="--", color=REFERENCE)
    moved_ax.set_ylabel("bytes needed [MB]")
    moved_ax.set_title("Traffic (dashed: everything is read)", loc="left", fontsize=11)
    moved_ax.margins(y=0.12)
    for ax in (time_ax, moved_ax):
        ax.set_xticks(list(place), names)
        ax.set_xlabel("control by")
    save_figure(figure, path)


def _line(number: int) -> dict[str, Any]:
    """How the lines of implementations are drawn: the first is ours."""
    colors = (MEASURED, ALARM, *SERIES)
    return {"color": colors[number % len(colors)], "marker": "os^Dvp<>"[number % 8], "markersize": 5}
