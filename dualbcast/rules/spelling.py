"""The name of a library's function in messages: a dotted name that a user can write."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

# The attributes by which a callable names the one inside it; and the deepest nesting, since an object may have any
# attribute.
_INNER = ("__func__", "__wrapped__", "py_func")
_DEEPEST = 4


def leads_to(outer: Any, function: Any, depth: int = _DEEPEST) -> bool:
    """Whether one callable is the other, or a method or a wrapper of it."""
    if outer is function or not callable(outer) or depth == 0:
        return outer is function
    return any(leads_to(getattr(outer, name, None), function, depth - 1) for name in _INNER)


def home(value: Any) -> str:
    """The dotted name under which a library shows a function or another object; empty where none does."""
    name = getattr(value, "__name__", None)
    origin = getattr(value, "__module__", None) or type(value).__module__
    if not isinstance(name, str):
        return _home_of_object(value, origin)
    if "." in name or not name.isidentifier():
        return ""
    package = origin.partition(".")[0]
    # A ufunc does not name its library.
    anywhere = getattr(value, "__module__", None) is None
    names = [
        f"{key}.{name}"
        for key, module in list(sys.modules.items())
        if isinstance(module, ModuleType)
        and _is_public(key)
        and (key.partition(".")[0] == package or (anywhere and _is_installed(module)))
        and leads_to(vars(module).get(name), value)
    ]
    # Other libraries export NumPy's functions, too.
    return min(names, key=lambda path: (not path.startswith("numpy."), path.count("."), len(path), path), default="")


def _home_of_object(value: Any, origin: str) -> str:
    """The name of an object without `__name__`, such as a distribution of SciPy's, in the modules around its class."""
    parts = origin.split(".")
    for count in range(len(parts), 0, -1):
        module = sys.modules.get(path := ".".join(parts[:count]))
        if module is not None and _is_public(path) and _is_installed(module):
            for name, other in list(vars(module).items()):
                if other is value and not name.startswith("_"):
                    return f"{path}.{name}"
    return ""


def _is_public(path: str) -> bool:
    return not any(part.startswith("_") for part in path.split("."))


def _is_installed(module: ModuleType) -> bool:
    """Whether a module is a library's, and not the user's own."""
    return "-packages" in (getattr(module, "__file__", None) or "")
