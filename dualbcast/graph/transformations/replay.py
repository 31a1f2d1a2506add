"""Programs without Variables, made of a recording: a Python function that is straight-line code.

Comes in: the entries of a recording. Goes out: a function of the arguments' arrays that gives those of the results.
Small arrays have fixed memory, so runs of kernels become batches, and views are made once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from dualbcast.graph.fused_region import parts_of, value_and_jacobian_of
from dualbcast.graph.linalg.products import MATMUL
from dualbcast.graph.recording import Entry, Recorder, Slot, require_same
from dualbcast.graph.shapes import SUM, is_for_kernels, spread
from dualbcast.program.element import Element
from dualbcast.runtime.buffer_pool import Lease
from dualbcast.runtime.cpu.batch import Batch

# Arguments and results of so many bytes have fixed memory.
FIXED_BYTES = 1 << 17


# What makes the code of a call's result from the code of its arrays, with a function that names constants.
Assemble = Callable[[list[str], Callable[[Any], str]], str]


class Program:
    """A recording that runs again. `arguments` and `results` are the slots of the arrays of a call and of its result;
    in the place of a result that does not depend on the arguments there is its array."""

    def __init__(
        self, recorder: Recorder, arguments: Sequence[Slot], results: Sequence[Any], assemble: Assemble
    ) -> None:
        self._recorder, self._results = recorder, results
        # By slot: the array with fixed memory, or the name of a variable.
        self._values: dict[Slot, Any] = {}
        self._scope: dict[str, Any] = {"copyto": np.copyto, "matmul": np.matmul, "add_reduce": np.add.reduce}
        self._lines: list[str] = []
        # By variable the last line that uses it.
        self._last_use: dict[str, int] = {}
        self._batch = Batch()
        self._lock = threading.Lock()
        live = self._live(results)
        used = _slots((*results, *[(each.inputs, tuple(each.static.values())) for each in live]))
        for at, slot in enumerate(arguments):
            if slot in used:
                self._store(slot, f"a{at}", recorder.arrays[slot], is_argument=True)
        for entry in live:
            self._emit(entry)
        self._end_batch()
        returned = assemble([self._result(each, arguments) for each in results], self._named)
        self.text = "\n    ".join(["def replay(arguments):", *self._body(len(arguments)), f"return {returned}"])
        exec(compile(self.text, "<replay>", "exec"), self._scope)
        self._replay: Callable[[list[Any]], Any] = self._scope["replay"]
        del self._recorder, self._values, self._results

    def _body(self, count: int) -> list[str]:
        """All lines, and after the last use of a variable one that lets its array go."""
        body = [f"{''.join(f'a{at}, ' for at in range(count))}= arguments"] if count else []
        kept = {self._values[each] for each in _slots(tuple(self._results)) if isinstance(self._values[each], str)}
        ends: dict[int, list[str]] = {}
        for name, last in self._last_use.items():
            if name[0] == "v" and name not in kept:
                ends.setdefault(last, []).append(f"{name} = None")
        for number, line in enumerate(self._lines):
            body += [line, *ends.get(number, [])]
        return body

    def run(self, arguments: list[Any]) -> tuple[Any, ...] | None:
        """The results as a tuple of one item; None if another thread is running the program."""
        if not self._lock.acquire(False):
            return None
        try:
            return (self._replay(arguments),)
        finally:
            self._lock.release()

    def _live(self, results: Sequence[Any]) -> list[Entry]:
        """The entries that the results depend on, and those that say whether the program is still right."""
        needed, live = _slots(tuple(results)), list[Entry]()
        for entry in reversed(self._recorder.entries):
            if entry.function is require_same or not needed.isdisjoint(entry.outputs):
                live.append(entry)
                needed.update(_slots((entry.inputs, tuple(entry.static.values()))))
        return live[::-1]

    # --- arrays -------------------------------------------------------------------------------------------------------

    def _named(self, value: Any) -> str:
        """A name for an object that stays the same."""
        name = f"k{len(self._scope)}"
        self._scope[name] = value
        return name

    def _code(self, value: Any) -> str:
        """The code for an argument of an entry."""
        if isinstance(value, Slot):
            own = self._values[value]
            if isinstance(own, str):
                self._last_use[own] = len(self._lines)
                return own
            return self._named(own)
        if type(value) in (list, tuple) and _slots(value):
            return f"{type(value).__name__}(({''.join(self._code(each) + ', ' for each in value)}))"
        return self._named(value)

    def _store(self, slot: Slot, code: str, example: Any, is_argument: bool = False) -> None:
        """Give a slot the array that some code makes: with fixed memory if it is small, else in a variable."""
        fixed = np.empty_like(example) if example.nbytes <= FIXED_BYTES else None
        if fixed is not None and fixed.strides == example.strides:
            fixed[...] = example
            self._values[slot] = fixed
            self._lines.append(f"copyto({self._named(fixed)}, {code})")
            return
        self._values[slot] = code if is_argument else f"v{slot}"
        if not is_argument:
            self._lines.append(f"v{slot} = {code}")

    def _result(self, value: Any, arguments: Sequence[Slot]) -> str:
        """The code for a result: an array of its own, or a scalar."""
        code = self._code(value)
        example = self._recorder.arrays[value] if isinstance(value, Slot) else value
        if example.ndim == 0:
            return f"{code}[()]"
        is_variable = isinstance(value, Slot) and isinstance(self._values[value], str) and value not in arguments
        is_lone = is_variable and [each for each in self._results if isinstance(each, Slot)].count(value) == 1
        owns_memory = example.base is None or isinstance(example.base, Lease)
        return code if is_lone and owns_memory else f"{code}.copy('K')"

    def _fixed(self, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The arguments with arrays in the place of Slots; None if some have no fixed memory."""
        values = tuple([self._values[each] if isinstance(each, Slot) else each for each in inputs])
        return None if any(isinstance(each, str) for each in values) else values

    # --- entries ------------------------------------------------------------------------------------------------------

    def _end_batch(self) -> None:
        if self._batch.count:
            self._lines.append(f"{self._named(self._batch.runner())}()")
            self._batch = Batch()

    def _emit(self, entry: Entry) -> None:
        """Add the code of an entry."""
        arrays = self._recorder.arrays
        fixed = None if _slots(tuple(entry.static.values())) else self._fixed(entry.inputs)
        if entry.function is parts_of and fixed is not None and self._add_to_batch(entry, fixed):
            return
        is_view = not entry.in_place and entry.is_single and self._is_view(entry)
        if is_view and fixed is not None:
            self._values[entry.outputs[0]] = entry.function(*fixed, **entry.static)
            return
        self._end_batch()
        if entry.in_place:
            self._lines.append(self._call(entry))
            self._values[entry.outputs[0]] = self._values[entry.inputs[0]]
        elif not entry.is_single:
            names = [f"v{slot}" for slot in entry.outputs]
            self._values.update(zip(entry.outputs, names, strict=True))
            self._lines.append(f"{', '.join(names)}, = {self._call(entry)}")
        elif not self._emit_out(entry, arrays[entry.outputs[0]], fixed):
            self._store(entry.outputs[0], self._call(entry), arrays[entry.outputs[0]])

    def _is_view(self, entry: Entry) -> bool:
        arrays = self._recorder.arrays
        inputs = [arrays[each] for each in entry.inputs if isinstance(each, Slot)]
        return any(np.may_share_memory(arrays[entry.outputs[0]], each) for each in inputs)

    def _example(self, entry: Entry) -> Any:
        """The first input as it was recorded."""
        first = entry.inputs[0]
        return self._recorder.arrays[first] if isinstance(first, Slot) else first

    def _emit_out(self, entry: Entry, example: Any, fixed: tuple[Any, ...] | None) -> bool:
        """Add the code of a function of NumPy's that writes to an array with fixed memory, if there is one."""
        function = getattr(entry.function, "__wrapped__", entry.function)
        out = np.empty(example.shape, example.dtype)
        if out.nbytes > FIXED_BYTES or out.strides != example.strides:
            return False
        if function is MATMUL.forward:
            first, second = map(self._code, entry.inputs)
            line = f"matmul({first}, {second}, {self._named(out)})"
        elif function is spread and fixed is not None:
            aligned = fixed[0].reshape(entry.static["aligned"])
            if not np.may_share_memory(aligned, fixed[0]):
                return False
            line = f"copyto({self._named(out)}, {self._named(aligned)})"
        elif function is SUM.forward and example.dtype.char in "fd" and not is_for_kernels(self._example(entry)):
            axes, keepdims = self._named(entry.static["axes"]), entry.static["keepdims"]
            line = f"add_reduce({self._code(entry.inputs[0])}, {axes}, None, {self._named(out)}, {keepdims})"
        else:
            return False
        self._lines.append(line)
        out[...] = example
        self._values[entry.outputs[0]] = out
        return True

    def _call(self, entry: Entry) -> str:
        """The code of a call that makes new arrays."""
        function = entry.function
        if function in (parts_of, value_and_jacobian_of):
            function = _launcher(entry, [self._recorder.arrays[x] if isinstance(x, Slot) else x for x in entry.inputs])
            return f"{self._named(function)}({', '.join(map(self._code, entry.inputs))})"
        varying = {name: each for name, each in entry.static.items() if _slots(each)}
        options = {name: each for name, each in entry.static.items() if name not in varying}
        arguments = [self._code(each) for each in entry.inputs]
        arguments += [f"{name}={self._code(each)}" for name, each in varying.items()]
        return f"{self._named(partial(function, **options) if options else function)}({', '.join(arguments)})"

    def _add_to_batch(self, entry: Entry, values: tuple[Any, ...]) -> bool:
        element: Element = entry.static["element"]
        path = element.path_of_parts(values, entry.static["dtypes"], entry.static["shapes"])
        added = None if path is None or path.results.is_checked else self._batch.add(path, values)
        if path is None or added is None:
            return False
        outputs, after = added
        for slot, array in zip(entry.outputs, path.results.arrays_of_parts(outputs), strict=True):
            if array.flags.writeable:  # else it is a constant
                array[...] = self._recorder.arrays[slot]
            self._values[slot] = array
        if after:
            self._end_batch()
            self._lines += [f"{self._named(each)}()" for each in after]
        return True


def _slots(value: Any) -> set[Slot]:
    """The Slots in nested tuples and lists."""
    if isinstance(value, Slot):
        return {value}
    return set().union(*map(_slots, value)) if type(value) in (tuple, list) else set()


def _launcher(entry: Entry, example: Sequence[Any]) -> Callable[..., Any]:
    """A function that makes the launch of an entry for other arrays of the same forms."""
    function, static = entry.function, entry.static
    element: Element = static["element"]
    if function is parts_of:
        path = element.path_of_parts(tuple(example), static["dtypes"], static["shapes"])
    else:
        call = element.prepare("value_and_jacobian", tuple(example), static["wrt"])
        path = call.fast_path(tuple(example))

    def launch(*values: Any) -> Any:
        outputs = None if path is None or path.results.is_checked else path.run(values)
        if path is None or outputs is None:
            return function(*values, **static)
        return path.results.arrays_of_parts(outputs) if function is parts_of else outputs

    return launch
