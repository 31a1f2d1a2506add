"""The course of a measuring command: a copy's bandwidth, then steps with their progress, then a table and files."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from dualbcast.cli import plots, report
from dualbcast.cli.measure import Device, choose_device
from dualbcast.cli.options import Measuring
from dualbcast.cli.report import Row


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

    Parameters
    ----------
    experiment : Experiment
    steps : int
        How many times rows are added.
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
            report.write_csv(options.csv_path, self.rows)
        if options.json_path is not None:
            parameters = {"seed": options.seed, "repeat": options.repeat, "min_time": options.min_time}
            parameters = experiment.parameters() | parameters
            figures = {"copy_bytes_per_second": experiment.bandwidth} | experiment.figures()
            record = report.record(experiment.command, experiment.device, parameters, self.rows, **figures)
            report.write_json(options.json_path, record)


def device_for(options: Measuring) -> Device:
    """The device of a command; raises before anything is measured if --plot has no matplotlib."""
    if options.plot_path is not None:
        plots.require()
    return choose_device(options.backend)


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
            report.show(experiment.table(run.rows))
        print(f"Not finished: {run.step}", file=sys.stderr, flush=True)
        raise
    run.live.stop()
    for row in run.rows:
        if row["bytes_per_second"]:
            row["copy_share"] = row["bytes_per_second"] / experiment.bandwidth
    report.show(experiment.table(run.rows))
    run.save()
