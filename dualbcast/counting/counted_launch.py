"""What a GPU would do for a launch, as `explain` shows it: data, rows of a table, and a picture."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dualbcast.codegen.cuda.build import optional
from dualbcast.counting.counter import Counts
from dualbcast.counting.devices import DEVICES, Roofline
from dualbcast.counting.lines import CountedLine

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_BAR = 10  # characters of a bar for all instructions
_LABEL = 56  # characters of a line in the picture
_EIGHTHS = " ▏▎▍▌▋▊▉"
# Okabe and Ito's palette, told apart with any colour vision.
_COLOURS = {"instructions": "#0072B2", "sectors": "#D55E00"}


@dataclass(frozen=True)
class CountedLaunch(Counts):
    """What warps would do in the launch of a call on a GPU: counted on the kernel's PTX, and not timed.

    It has all of `Counts`: `issued` instructions of warps, `lane_share`, `branches`, `divergent`, `sectors_read`,
    `sectors_written`, `repeated`, `dram_bytes` and more.

    Attributes
    ----------
    lines : tuple of CountedLine
        The same by line of the user's function, in the order of the file, and then what belongs to no line.
    elements : int
        The elements of the call.
    grid, block : tuple of int
        The blocks of the launch, and the threads of a block.
    notes : tuple of str
        What the counts leave out.

    Examples
    --------
    Of each warp eight lanes take the first branch, which reads a quarter of `a`. The last lane of all has no element:
    one warp has two divergent branches.

    >>> import numpy as np
    >>> from dualbcast import from_source
    >>> chosen = from_source('''
    ... def chosen(x, a):
    ...     if x > 0:
    ...         return np.tanh(a) / a
    ...     return x
    ... ''', namespace={"np": np})
    >>> x, a = np.where(np.arange(1023) % 32 < 8, 1, -1).astype("float32"), np.ones(1023, "float32")
    >>> counted = chosen.explain(x, a, product="value", cc=(9, 0), counted=True).counted
    >>> counted.warps, counted.sectors_read, counted.sectors_written, counted.divergent
    (32, 160, 128, 33)
    >>> [(line.line, line.sectors) for line in counted.lines if line.sectors]
    [(3, 128), (4, 32), (0, 128)]
    """

    lines: tuple[CountedLine, ...] = field(repr=False)
    elements: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    notes: tuple[str, ...] = ()

    @property
    def least_times(self) -> dict[str, Roofline]:
        """For each GPU the least seconds that its published bandwidth and issue rate allow; nothing has been timed."""
        return {name: device.roofline(self) for name, device in DEVICES.items()}

    def summary(self) -> list[str]:
        """The totals in a few lines."""
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        block = " x ".join(str(length) for length in self.block if length > 1) or "1"
        times = [f"{name} {_microseconds(least)} ({least.bound})" for name, least in self.least_times.items()]
        return [
            f"{self.elements:,} elements in {_many(blocks, 'block')} of {block} threads, {_many(self.warps, 'warp')}",
            f"{self.issued:,} instructions of warps, with {self.lane_share:.0%} of the lanes active; "
            f"{self.branches:,} branches, {self.divergent:,} of them divergent",
            f"{self.sectors_read:,} sectors read, {self.sectors_written:,} written, of which warps had asked for "
            f"{self.repeated:,} before; DRAM moves at least {self.dram_bytes:,} bytes",
            f"least time by published rates, not measured: {', '.join(times)}",
            *self.notes,
        ]

    def table(self) -> tuple[list[str], list[list[str]]]:
        """The heads and the cells of the table by line."""
        heads = ["instructions", "", "sectors", "active lanes", "divergent", "line"]
        rows = [
            [
                f"{each.instruction_share:.1%}",
                _bar(each.instruction_share),
                f"{each.sector_share:.1%}" if each.sectors else "",
                f"{each.lane_share:.0%}",
                f"{each.divergent:,}" if each.divergent else "",
                each.label,
            ]
            for each in self.lines
        ]
        return heads, rows

    def text(self) -> list[str]:
        """The lines of the table by line, in columns."""
        heads, rows = self.table()
        every = [heads, *rows]
        widths = [max(len(row[at]) for row in every) for at in range(len(heads))]
        bar, last = 1, len(heads) - 1
        return [
            "  ".join(
                cell if at == last else f"{cell:<{widths[at]}}" if at == bar else f"{cell:>{widths[at]}}"
                for at, cell in enumerate(row)
            ).rstrip()
            for row in every
        ]

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """A picture of the shares of instructions and sectors by line, which Matplotlib draws.

        Parameters
        ----------
        path : str or path-like, optional
            A file to write it to, in the format of its ending.

        Returns
        -------
        Figure
        """
        optional("matplotlib", "Matplotlib", "A picture of what was counted", '"dualbcast[plot]"')
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        figure = Figure(figsize=(9.0, 1.4 + 0.42 * len(self.lines)), layout=ConstrainedLayoutEngine(), dpi=150)
        ax = figure.subplots()
        places = range(len(self.lines))
        shares = {
            "instructions": [100 * each.instruction_share for each in self.lines],
            "sectors": [100 * each.sector_share for each in self.lines],
        }
        for offset, (name, values) in zip((-0.2, 0.2), shares.items(), strict=True):
            ax.barh([at + offset for at in places], values, 0.38, label=name, color=_COLOURS[name])
        labels = [_cut(each.label).replace("$", r"\$") for each in self.lines]
        ax.set_yticks(list(places), labels, family="monospace")
        for label in ax.get_yticklabels():
            label.set_horizontalalignment("left")
        # To the left edge of the longest, whose characters are 6.2 points wide.
        ax.tick_params(axis="y", length=0, pad=6.2 * max(len(_cut(each.label)) for each in self.lines) + 6)
        ax.invert_yaxis()
        ax.set_xlabel("% of the launch; counted, not timed")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, loc="lower right")
        if path is not None:
            figure.savefig(path)
        return figure


def _many(count: int, what: str) -> str:
    return f"{count:,} {what}{'s' * (count != 1)}"


def _microseconds(least: Roofline) -> str:
    microseconds = 1e6 * least.seconds
    return f"{microseconds:.2g} µs" if microseconds < 10 else f"{microseconds:,.0f} µs"


def _cut(label: str) -> str:
    """A label that leaves room for the bars."""
    return label if len(label) <= _LABEL else f"{label[: _LABEL - 1]}…"


def _bar(share: float) -> str:
    """A bar of blocks, in eighths of a character; something that is not zero has one eighth at least."""
    eighths = max(round(8 * _BAR * share), share > 0)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
