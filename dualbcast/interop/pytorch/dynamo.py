"""Calls of a BroadcastFunction in what `torch.compile` traces. It is imported while TorchDynamo traces one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch._dynamo import graph_break, nonstrict_trace, trace_rules

from dualbcast.api.function import FUNCTIONS, BroadcastFunction
from dualbcast.errors import DualbcastError, FailedAssertion, RaisedError
from dualbcast.interop.pytorch.operations import Symbol

_SYMBOLS = {torch.SymFloat: float, torch.SymInt: int}


def call(function: BroadcastFunction, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The result of a method whose results are tensors. TorchDynamo traces this function."""
    results = _traced(id(function), method, _without_none(arguments), _without_none(named))
    for problem, result in results.items():
        if not problem:
            return result
        # A function that may have several graphs makes the call itself, and raises our error.
        graph_break(msg=problem)
    return None


def refuse() -> None:
    """Break the graph where a method does not return tensors alone. TorchDynamo traces this function."""
    graph_break(
        msg="this method of a BroadcastFunction does not return tensors alone, as a graph of torch.compile has to. "
        "Call it outside of the compiled function, or take jvp, value_and_vjp or torch.func.jacrev inside"
    )


def _skip_all_else(package: str, folder: Path) -> None:
    """Have TorchDynamo trace no function of a package but those that stand in place of others.

    Folders are named as a whole where that is possible, since TorchDynamo compiles one long regular expression anew
    for each name.
    """
    traced = {Path(__file__), Path(__file__).with_name("traced.py")}
    for path in folder.iterdir():
        is_module = path.suffix == ".py" and path.stem != "__init__"
        if any(path in file.parents for file in traced):
            _skip_all_else(f"{package}.{path.stem}", path)
        elif path not in traced and (is_module or (path / "__init__.py").exists()):
            trace_rules.add(f"{package}.{path.stem}")


_skip_all_else("dualbcast", Path(__file__).parents[2])


def _without_none(value: Any) -> Any:
    """Arguments with empty dicts in place of None, which TorchDynamo does not take."""
    if value is None:
        return {}
    if isinstance(value, tuple):
        return tuple([_without_none(each) for each in value])
    if isinstance(value, list):
        return [_without_none(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_none(each) for name, each in value.items()}
    return value


def _restored(value: Any) -> Any:
    """Arguments with None in place of empty dicts, and a `Symbol` for a number that is not known yet."""
    kind = _SYMBOLS.get(type(value))
    if kind is not None:
        return Symbol(value, kind)
    if type(value) in (tuple, list):
        return type(value)(map(_restored, value))
    if type(value) is dict:
        return {name: _restored(each) for name, each in value.items()} or None
    return value


@nonstrict_trace  # type: ignore[untyped-decorator]
def _traced(number: int, method: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The result for the function with this `id` under the key "", or the text of an error as a key.

    TorchDynamo does not look into this function, and calls it with tensors that have no memory. It would not show what
    is raised here, and takes no text as a result, but as a key.
    """
    function = FUNCTIONS[number]
    try:
        return {"": getattr(function, method)(*_restored(arguments), **(_restored(named) or {}))}
    except (FailedAssertion, RaisedError):  # of the user's statements, where the backend `eager` runs this on numbers
        raise
    except DualbcastError as error:
        return {f"{type(error).__name__}: {error}": ()}
