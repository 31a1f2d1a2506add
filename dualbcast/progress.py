"""The bar that shows how far a command or a fit is: in a terminal and in a notebook. In a log there is none."""

from __future__ import annotations

import html
from importlib import import_module
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


def progress_bar() -> Progress:
    """A bar on stderr, redrawn at each step and not by a thread of its own, which would disturb the measurement."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    kind = _NotebookBar if console.is_jupyter else Progress
    is_seen = console.is_jupyter or console.is_terminal
    return kind(*columns, console=console, auto_refresh=False, transient=True, disable=not is_seen)


class _NotebookBar(Progress):
    """A bar of HTML. That of rich needs ipywidgets in a notebook, and stays empty without."""

    _shown: Any = None

    def start(self) -> None:
        self._shown = import_module("IPython.display").display(self._html(), display_id=True)

    def refresh(self) -> None:
        if self._shown is not None:
            self._shown.update(self._html())

    def stop(self) -> None:
        self.refresh()
        self._shown = None

    def _html(self) -> Any:
        lines = [
            f'<div>{html.escape(task.description)} <progress value="{task.completed:g}" max="{task.total or 0:g}">'
            f"</progress> {task.completed:g}/{task.total or 0:g} in {task.elapsed or 0:.0f} s</div>"
            for task in self.tasks
        ]
        return import_module("IPython.display").HTML("".join(lines))
