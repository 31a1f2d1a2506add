"""Command-line values: lists of numbers, compute capabilities, output files, and a user's function as MODULE:NAME."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from dualbcast.program.products import Backend

_PICTURES = (".png", ".svg", ".pdf")


def numbers(text: str) -> tuple[int, ...]:
    """Positive integers from `3`, `1,2,4`, `1:16` (both ends included) or a mixture; ascending, each once."""
    chosen: set[int] = set()
    for part in text.split(","):
        first, colon, last = part.partition(":")
        try:
            start = int(first)
            stop = int(last) if colon else start
        except ValueError:
            raise click.BadParameter(f"{part!r} is neither a number nor A:B.") from None
        if start < 1 or stop < start:
            raise click.BadParameter(f"{part!r} must be positive, the smaller number first.")
        chosen.update(range(start, stop + 1))
    return tuple(sorted(chosen))


def capability(text: str) -> tuple[int, int]:
    """A CUDA compute capability such as `9.0`."""
    major, dot, minor = text.partition(".")
    if not (dot and major.isdecimal() and minor.isdecimal()):
        raise click.BadParameter(f"{text!r} is not a compute capability such as 9.0.")
    return int(major), int(minor)


def output_file(text: str) -> Path:
    """A file to write; its folder is looked at before anything is measured."""
    path = Path(text)
    if not path.parent.is_dir():
        raise click.BadParameter(f"There is no folder {str(path.parent)!r}.")
    if path.is_dir():
        raise click.BadParameter(f"{text!r} is a folder.")
    return path


def picture_file(text: str) -> Path:
    """A picture to write: PNG, SVG or PDF by its ending."""
    path = output_file(text)
    if path.suffix.lower() not in _PICTURES:
        raise click.BadParameter(f"{text!r} must end in {', '.join(_PICTURES)}.")
    return path


def function_name(text: str) -> Callable[..., Any]:
    """The function that `MODULE:NAME` names; MODULE can be imported or is the path of a Python file."""
    module_name, colon, name = text.rpartition(":")
    if not (colon and module_name and name):
        raise click.BadParameter(f"{text!r} is not MODULE:NAME.")
    try:
        module = _load(module_name)
    except Exception as error:  # a user's module may raise anything
        raise click.BadParameter(f"Importing {module_name!r} failed: {type(error).__name__}: {error}") from error
    function = getattr(module, name, None)
    if not callable(function):
        raise click.BadParameter(f"{module_name!r} has no function {name!r}.")
    return function  # type: ignore[no-any-return]


def _load(name: str) -> ModuleType:
    if not name.endswith(".py"):
        # As `python -m` does: modules of the current folder can be named.
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(name)
    path = Path(name).resolve()
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {name}")
    # Not under the file's own name, which may be that of an installed module.
    spec = importlib.util.spec_from_file_location(f"_user_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass(frozen=True)
class Measuring:
    """The values of the options that every measuring command has."""

    backend: Backend = "auto"
    repeat: int = 5
    min_time: float = 0.2
    seed: int = 0
    json_path: Path | None = None
    csv_path: Path | None = None
    plot_path: Path | None = None


def measuring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that every measuring command has: the fields of `Measuring`."""
    default, backends = Measuring(), click.Choice(["auto", "cpu", "cuda", "python"])
    where = "Where to run; auto is the GPU where there is one, else the CPU. python is slow: use a small --n."
    least, at_least = "Measure each row for at least this long.", "Take at least this many samples."
    options = [
        click.option("--backend", type=backends, default=default.backend, help=where),
        click.option("--repeat", type=click.IntRange(1), default=default.repeat, help=at_least),
        click.option("--min-time", type=click.FloatRange(0), default=default.min_time, metavar="SECONDS", help=least),
        click.option("--seed", type=int, default=default.seed, help="Seed of the random inputs."),
        *(
            click.option(f"--{kind}", f"{kind}_path", type=file, metavar="FILE", help=text)
            for kind, file, text in (
                ("json", output_file, "Write all figures, the machine and the versions as JSON."),
                ("csv", output_file, "Write the rows as CSV."),
                ("plot", picture_file, "Draw a picture (.png, .svg or .pdf)."),
            )
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command
