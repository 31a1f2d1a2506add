"""The base of Jacobians and Hessians: blocks, found by output and argument."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from dualbcast.errors import ArgumentError, BlockKeyError, a_or_an
from dualbcast.ir.nodes import NUMBER, Structure
from dualbcast.program.outputs import Results, Shape
from dualbcast.runtime.arguments import beside, no_derivative


class Index:
    """How the blocks of derivatives are asked for: by output, which is a position or a label, and by argument."""

    # How many arguments a block is for, and how messages say what a key is.
    _order: int
    _keys: str

    def __init__(self, results: Results, stored: Sequence[Any]) -> None:
        # `stored` are the arrays that a kernel wrote, in its order. With `out=` it writes to them again.
        self._results, self._stored = results, stored

    @property
    def wrt(self) -> tuple[str, ...]:
        """The names of the arguments in which the derivatives are taken."""
        return self._results.wrt

    @property
    def structure(self) -> Structure:
        """The structure that the function returns."""
        return self._results.structure

    @property
    def shape(self) -> Shape:
        """The shape of each block, which is the result's."""
        return self._results.shape

    @property
    def outputs(self) -> int:
        """The number of outputs of the function."""
        return self.structure.count

    @property
    def labels(self) -> tuple[str, ...]:
        """For each output its fields and positions, joined by dots; "" if the function returns a number."""
        return self.structure.labels()

    def __getitem__(self, key: Any) -> Any:
        """The block of an output; or, if the key has no output, the structure of the blocks of all outputs."""
        order, results = self._order, self._results
        if order == 1 and type(key) is str and (known := results.stored_at.get(key)) is not None:
            return self._stored[known]
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) not in (order, order + 1):
            raise BlockKeyError(f"{a_or_an(type(self).__name__)} is indexed by {self._keys}, not {key!r}")
        arguments = list(map(self._argument, keys[-order:]))
        if order > 1:  # a block is for its arguments in the order of `wrt`
            arguments.sort(key=results.positions.index)
        if len(keys) > order:
            return self._block(self._output(keys[0]), *arguments)
        if order == 1 and type(key) is str and self.structure == NUMBER:
            stored = results.blocks[0, *arguments].stored
            if stored is not None:
                results.stored_at[key] = stored - results.begins[1]
        return self.structure.pack([self._block(output, *arguments) for output in range(self.outputs)])

    def _block(self, *place: int) -> Any:
        results = self._results
        stored, number = results.blocks[place]
        if stored is not None:
            return self._stored[stored - results.begins[self._order]]
        if place not in self._constants:
            with beside(self._stored):
                self._constants[place] = results.everywhere(number, results.signature.result_dtype, self.shape)
        return self._constants[place]

    @cached_property
    def _constants(self) -> dict[tuple[int, ...], Any]:
        """The blocks that are one number, as far as they have been asked for."""
        return {}

    def __repr__(self) -> str:
        counted = f"{self.outputs} output{'s' * (self.outputs != 1)}"
        return f"<{type(self).__name__} of {counted} in ({', '.join(self.wrt)}), shape {self.shape}>"

    def _repr_html_(self) -> str:
        from dualbcast.program.html_tables import derivatives_table  # which only notebooks need

        return derivatives_table(self)

    def stacked(self, output: int | str = 0) -> Any:
        """The blocks of one output as one array, with the arguments in the last axes.

        With n arguments in `wrt`, its shape is `(*shape, n)` for a Jacobian and `(*shape, n, n)` for a
        Hessian.
        """
        which, axes = self._output(output), [len(self.wrt)] * self._order
        blocks = [self[which, *arguments] for arguments in product(self.wrt, repeat=self._order)]
        if not blocks:
            return np.empty((*self.shape, *axes))
        with beside(self._stored):
            stacked = self._results.stack(blocks)
            return stacked if self._order == 1 else stacked.reshape(*self.shape, *axes)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """All blocks as one array: as `stacked`, with an axis for the outputs before that for the arguments."""
        self._check_on_host()
        if copy is False:
            raise ValueError("blocks are arrays of their own, so that one array of all is a copy; leave out copy=False")
        if self.structure == NUMBER:
            return np.asarray(self.stacked(), dtype)
        every_output = [self.stacked(output) for output in range(self.outputs)]
        return np.asarray(np.stack(every_output, axis=len(self.shape)), dtype)

    def _check_on_host(self) -> None:
        """Raise an ArgumentError where the blocks are not NumPy's."""
        if self._results.module != "numpy":
            raise ArgumentError(
                f"the blocks of this {type(self).__name__} are on a GPU; write cupy.asnumpy(….stacked()) to fetch them"
            )

    def _output(self, key: Any) -> int:
        if isinstance(key, str) and key and key in self.labels:
            return self.labels.index(key)
        if not _is_index(key) or not -self.outputs <= key < self.outputs:
            labels = ", ".join(filter(None, self.labels))
            raise BlockKeyError(
                f"there is no output {key!r}; the function has {self.outputs}{labels and ': ' + labels}"
            )
        return int(key) % self.outputs

    def _argument(self, key: Any) -> int:
        """The position among all parameters of an argument in `wrt`."""
        wrt, key = self.wrt, identifier(key)
        at = wrt.index(key) if isinstance(key, str) and key in wrt else key
        if _is_index(at) and -len(wrt) <= at < len(wrt):
            return self._results.positions[int(at)]
        kind, hint = type(self).__name__, hint_at_parts(key, wrt)
        raise BlockKeyError(f"this {kind} is in ({', '.join(wrt)}), not in {key!r}{hint or self._left_out(key)}")

    def _left_out(self, key: Any = None) -> str:
        """Why arguments are not in `wrt`, as the end of a sentence: the one with the name `key`, or else all."""
        names, signature = self._results.names, self._results.signature
        reasons = {
            name: f"for {name} give wrt={(*self.wrt, name)}" if kind == "float" else no_derivative(name, token)
            for name, kind, token in zip(names, signature.kinds, signature.tokens, strict=False)
            if name not in self.wrt
        }
        if isinstance(key, str):
            return f": {reasons[key]}" if key in reasons else ""
        return "".join(f"; {reason}" for reason in reasons.values())


def hint_at_parts(key: Any, wrt: Sequence[str]) -> str:
    """Which block is there for a complex argument, as the end of a sentence; nothing for any other key."""
    if f"{key}.real" not in wrt:
        return ""
    return f"; {key} is complex, and {key}.real has the complex derivative if the function is holomorphic"


def identifier(key: Any) -> Any:
    """A name as Python's parser reads it: it takes the sign of micro for the Greek letter, and so on (PEP 3131)."""
    return unicodedata.normalize("NFKC", key) if isinstance(key, str) and not key.isascii() else key


def _is_index(key: Any) -> bool:
    return isinstance(key, int | np.integer) and not isinstance(key, bool)
