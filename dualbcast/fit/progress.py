"""A bar that counts the fits that have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dualbcast.progress import progress_bar


@contextmanager
def counted(count: int) -> Iterator[Callable[[int], None]]:
    """Shows the bar; the function that it gives is told how many more fits have ended."""
    with progress_bar() as bar:
        task = bar.add_task("fits", total=count)

        def advance(ended: int) -> None:
            bar.update(task, advance=ended, refresh=True)

        yield advance
