"""The command line as tests run it, and what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import click
import numpy as np
from click.testing import CliRunner, Result

from dualbcast.cli.app import group
from dualbcast.runtime.cuda import launch as cuda_launch

QUICK = ("--repeat", "1", "--min-time", "0")


HAS_GPU = cuda_launch.available()


def run(*arguments: str | Path, status: int = 0, commands: click.Group = group) -> Result:
    """Run a command and assert how it ends."""
    result = CliRunner().invoke(commands, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def body(text: str) -> list[list[str]]:
    """The cells of the table's rows: the lines that begin with a number."""
    return [line.split() for line in text.splitlines() if re.match(r"\s+\d", line)]


def colours(path: Path) -> int:
    """How many distinct colours a picture has."""
    from matplotlib.image import imread

    pixels = imread(path)
    assert pixels.shape[0] > 400
    assert pixels.shape[1] > 800
    return len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0))
