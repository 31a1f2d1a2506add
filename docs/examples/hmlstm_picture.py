"""The picture of a run: its losses, and a text that was held out with the ends of segments that the layers found."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hmlstm import LAYERS, Array, Parameters, forgotten, read
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from dualbcast import graph

# Okabe and Ito's colours, which can be told apart with any colour vision.
_LOSS, _HELD_OUT, _GREY = "#56B4E9", "#0072B2", "#6B6B6B"
_LAYER = ("#0072B2", "#D55E00")
_COLUMNS, _LINES = 78, 6


def segments(p: Parameters, one_hot: Array, slope: Array) -> Array:
    """Where the layers find the end of a segment: bools of shape (layer, character), for characters read in a row."""
    with graph.no_grad():
        memory = forgotten(1, p["own0"].shape[0])
        _, _, boundaries = read(p, one_hot[:, None], memory, slope)
    return np.array([[z.item() == 1 for z in each] for each in boundaries]).T


def draw(path: Path, state: Any, text: Any, settings: Any) -> None:
    """Draw the picture of a run that has made some steps."""
    count = _COLUMNS * _LINES
    numbers = text.held_out[: 2 * count]
    found = segments(state.p, text.one_hot(numbers), settings.slope(state.step))[:, count:]
    shown = "".join(text.symbols[number] for number in numbers[count:])

    layout = ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.12)
    figure = Figure(figsize=(11.2, 7.4), layout=layout, dpi=150)
    above, below = figure.subplots(2, 1, height_ratios=(3, 4))
    _curve(above, state, text, settings)
    _text(below, shown, found)
    figure.savefig(path)


def _curve(ax: Any, state: Any, text: Any, settings: Any) -> None:
    steps, losses = np.arange(1, state.step + 1), np.array(state.losses)
    at, bits = np.array(state.held_out)[:, :2].T
    ax.plot(steps, losses, color=_LOSS, linewidth=0.6)
    ax.plot(at, bits, color=_HELD_OUT, marker="o", markersize=3)
    ax.axhline(text.unigram, color=_GREY, linestyle="--", linewidth=1)
    ax.set_ylim(min(1.5, losses.min() - 0.1), text.unigram + 0.5)
    ax.set_xlim(0, state.step * 1.12)
    for label, y, color in (
        ("frequencies of\ncharacters alone", text.unigram - 0.3, _GREY),
        (f"held out: {bits[-1]:.2f}", bits[-1] + 0.08, _HELD_OUT),
        ("each step", losses[-settings.every :].mean() - 0.12, _LOSS),
    ):
        ax.text(state.step * 1.01, y, label, color=color, va="center")
    ax.set_xlabel("training step")
    ax.set_ylabel("bits per character")
    ax.set_title("Predicting the next character of Python's reference manual", loc="left", fontsize=12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.8)
    ax.set_axisbelow(True)


def _text(ax: Any, shown: str, found: Array) -> None:
    ax.set_title("A text that was held out, and the ends of segments that were found in it", loc="left", fontsize=12)
    for layer in range(LAYERS - 1):
        ax.text(_COLUMNS - 19 + 11 * layer, -1.02, f"layer {layer + 1}", color=_LAYER[layer], va="center")
        _mark(ax, _COLUMNS - 21 + 11 * layer, -1.02, _LAYER[layer])
    for at, character in enumerate(shown):
        line, column = divmod(at, _COLUMNS)
        style = {"color": _GREY} if character == "\n" else {}
        ax.text(column, line, "↵" if style else character, family="monospace", ha="center", va="center", **style)
        for layer in range(LAYERS - 1):
            if found[layer, at]:
                _mark(ax, column, line + 0.36 + 0.2 * layer, _LAYER[layer])
    ax.set_xlim(-1, _COLUMNS)
    ax.set_ylim(_LINES, -0.6)
    ax.axis("off")


def _mark(ax: Any, column: float, y: float, color: str) -> None:
    ends = [column - 0.4, column + 0.4]
    ax.plot(ends, [y, y], color=color, linewidth=3, solid_capstyle="butt", clip_on=False)
