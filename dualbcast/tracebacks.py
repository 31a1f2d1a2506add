"""What a user sees of a traceback: the frames of their own code, and the names of their notebook's cells."""

from __future__ import annotations

import builtins
import contextlib
import os
import re
import sys
from types import FrameType, TracebackType
from typing import Any

PACKAGE = os.path.join(os.path.dirname(__file__), "")
# Which modules show code to a user and run it: their frames are above the user's.
_SHELLS = ("IPython", "ipykernel")


def without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of this package; as it is if the environment has DUALBCAST_TRACEBACK=full."""
    if os.environ.get("DUALBCAST_TRACEBACK") == "full":
        return trace
    kept, is_hidden = [], False
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        # A function with a decorator of contextlib's has a frame of that module above it.
        is_hidden = file.startswith(PACKAGE) or (is_hidden and file == contextlib.__file__)
        if not is_hidden:
            kept.append(trace)
        trace = trace.tb_next
    following = None
    for each in reversed(kept):
        following = TracebackType(following, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return following


def handled_by_callers(error: BaseException) -> BaseException | None:
    """The exception in the contexts of an error that a caller of this package is handling: it has caught it, and still
    runs. Those that were caught and left behind in this package, or in what it called, are passed over."""
    running = set()
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            running.add(frame)
        frame = frame.f_back
    context = error.__context__
    while context is not None:
        if context.__traceback__ is not None and context.__traceback__.tb_frame in running:
            return context
        context = context.__context__
    return None


def user_frames(trace: TracebackType | None) -> list[TracebackType]:
    """The entries of a traceback for code of the user's, the outermost first: also without the frames of IPython."""
    entries: list[TracebackType] = []
    trace = without_own_frames(trace)
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).partition(".")[0] not in _SHELLS:
            entries.append(trace)
        trace = trace.tb_next
    return entries


def running_shell() -> Any:
    """The shell of IPython that runs in this process; None if there is none."""
    # While it runs a cell, a shell has its function among the builtins; the module's knows one shell of a process only.
    find = getattr(builtins, "get_ipython", None) or getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if find is None else find()


def place_of(filename: str, line: int) -> str:
    """A line as messages call it: by the name of the cell, or else the name of the file."""
    cell = cell_name(filename)
    return f"{filename}:{line}" if cell is None else f"{cell}, line {line}"


def cell_name(filename: str) -> str | None:
    """The name that a notebook shows for the file name under which it compiled a cell, such as "Cell [5]"."""
    compiler: Any = getattr(running_shell(), "compile", None)
    if hasattr(compiler, "format_code_name"):
        found = compiler.format_code_name(filename)
        return None if found is None else " ".join(found).replace("In[", "[")
    numbered = re.fullmatch(r"<ipython-input-(\d+)-\w+>", filename)  # before IPython 8
    return None if numbered is None else f"Cell [{numbered[1]}]"
