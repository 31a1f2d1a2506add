"""Recordings: what the graph computes from the arrays of a call, noted array by array while it runs.

Comes in: functions with the arrays that they are applied to. Goes out: a list of entries, from which `replay` makes a
program without Variables; or the reason why there is none.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dualbcast.graph.tape import STATE


class Slot(int):
    """The number of an array that depends on the arguments, in the place of that array."""

    __slots__ = ()


class Entry(NamedTuple):
    """A function that has been applied."""

    function: Callable[..., Any]
    # Arguments and options: Slots, and constants. A tuple of the options may have Slots as well.
    inputs: tuple[Any, ...]
    static: dict[str, Any]
    outputs: tuple[Slot, ...]
    # Whether the function gives one array, and not a sequence of them; and whether that is the first input, changed.
    is_single: bool
    in_place: bool


class Recorder:
    """A recording under way. Arrays that do not depend on the arguments are constants, and what gives them is not
    noted. An array of unknown origin ends the recording: it may depend on a value that Python has read."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        # Why the recording has ended; empty while it goes on.
        self.reason = ""
        # The arrays of the slots as they were computed.
        self.arrays: list[Any] = []
        # By the id of an array its slot, or None for a constant. The arrays are kept, so the ids stay theirs.
        self._slots: dict[int, Slot | None] = {}
        self._constants: list[Any] = []

    def add(self, array: Any) -> Slot:
        """A new slot for an array; it may have been the array of another one, which was changed in place."""
        slot = self._slots[id(array)] = Slot(len(self.arrays))
        self.arrays.append(array)
        return slot

    def constant(self, array: Any) -> None:
        """Note that an array does not depend on the arguments, unless it is known that it does."""
        if id(array) not in self._slots:
            self._slots[id(array)] = None
            self._constants.append(array)

    def stop(self, reason: str) -> None:
        """End the recording."""
        self.reason = self.reason or reason
        STATE.recorder = None

    def slot_of(self, array: Any) -> Slot | None:
        """The slot of an array, or None for a constant."""
        return self._slots.get(id(array))

    def perform(
        self, function: Callable[..., Any], values: Sequence[Any], static: dict[str, Any], in_place: bool
    ) -> Any:
        """Apply a function, and note it."""
        STATE.recorder = None
        try:
            result = function(*values, **static)
        except BaseException:
            # The caller may catch it, and what that does next is right for these values only.
            self.stop(f"{_name(function)} raised an error")
            raise
        STATE.recorder = self
        inputs = tuple(map(self._noted, values))
        options = {name: self._noted_option(each) for name, each in static.items()}
        is_single = not isinstance(result, list | tuple)
        arrays = [result] if is_single else result
        if not any(_has_slots(each) for each in (*inputs, *options.values())):
            for each in arrays:
                self.constant(each)
        elif any(type(each) is not np.ndarray for each in arrays):
            self.stop(f"{_name(function)} gave something else than NumPy's arrays")
        elif in_place or not all(id(each) in self._slots for each in arrays):
            outputs = tuple([self.add(each) for each in arrays])
            self.entries.append(Entry(function, inputs, options, outputs, is_single, in_place))
        return result

    def _noted(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if id(value) not in self._slots:
            self.stop("an operation takes an array whose origin is unknown; perhaps a Variable's array was read")
        slot = self._slots.get(id(value))
        return value if slot is None else slot

    def _noted_option(self, option: Any) -> Any:
        """An option with Slots in the place of arrays; of unknown arrays none can depend on the arguments."""
        if type(option) in (tuple, list):
            return type(option)(map(self._noted_option, option))
        if hasattr(option, "__array_ufunc__") and not isinstance(option, np.ndarray | np.generic):
            self.stop("an operation reads the value of a Variable among its options")
        slot = self._slots.get(id(option)) if isinstance(option, np.ndarray) else None
        return option if slot is None else slot


def _has_slots(value: Any) -> bool:
    return any(map(_has_slots, value)) if isinstance(value, tuple | list) else isinstance(value, Slot)


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", function))


def performed(function: Callable[..., Any], *values: Any, **static: Any) -> Any:
    """The result of a function of arrays, which the recording of this thread notes, if there is one.

    The function depends on nothing but its arguments, gives an array or a sequence of arrays, and changes none of those
    that it is given.
    """
    recorder = STATE.recorder
    if recorder is None:
        return function(*values, **static)
    return recorder.perform(function, values, static, in_place=False)


def changed(function: Callable[..., Any], array: Any, *values: Any, **static: Any) -> Any:
    """The result of a function that changes an array, which nobody else has, and returns it.

    A recording notes it as a new array. One that does not depend on the arguments is copied: it is needed again.
    """
    recorder = STATE.recorder
    if recorder is None:
        return function(array, *values, **static)
    if recorder.slot_of(array) is None:
        return performed(_on_a_copy, array, *values, change=function, **static)
    return recorder.perform(function, (array, *values), static, in_place=True)


def _on_a_copy(array: Any, *values: Any, change: Callable[..., Any], **static: Any) -> Any:
    return change(array.copy(), *values, **static)


def fresh_constant(array: Any) -> Any:
    """An array that a user's function takes from elsewhere than its arguments."""
    if STATE.recorder is not None:
        STATE.recorder.constant(array)
    return array


def read_by_python(what: str) -> None:
    """Note that Python reads the value of a Variable, so that what it does next may depend on it."""
    if STATE.recorder is not None:
        STATE.recorder.stop(f"{what} reads a Variable's value in Python")


def decided(function: Callable[..., Any], *values: Any, **static: Any) -> Any:
    """The number that a function of arrays gives to Python, which may do something else next where it is another one.

    So a program computes it again, and ends in an error if it has changed; then the user's function runs itself.
    """
    found = function(*values, **static)
    performed(require_same, *values, decide=function, found=found, **static)
    return found


def require_same(*values: Any, decide: Callable[..., Any], found: Any, **static: Any) -> Any:
    """An empty array, if a function still gives what was found when a program was recorded."""
    if decide(*values, **static) != found:
        raise ValueError("a number that Python goes by has changed")
    return np.empty(0)


def is_read_by_user() -> bool:
    """Whether the function two calls up is none of this package."""
    return not str(sys._getframe(2).f_globals.get("__name__", "")).startswith("dualbcast.")
