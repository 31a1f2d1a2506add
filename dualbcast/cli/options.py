"""Command-line values: lists of numbers, capabilities, sizes, output files, and a user's function as MODULE:NAME."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from dualbcast import disk_cache
from dualbcast.errors import MissingDependencyError

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


def size(text: str) -> int:
    """A number of bytes, such as `500M` or `2G`."""
    try:
        most = disk_cache.parsed_limit(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}.") from None
    if most is None:
        raise click.BadParameter("Give a number of bytes, such as 500M or 2G.")
    return most


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
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingDependencyError("matplotlib", "--plot", '"dualbcast[plot]"')
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
