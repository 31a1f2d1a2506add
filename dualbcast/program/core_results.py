"""Results of functions whose arguments and outputs are vectors and matrices: arrays with core dimensions last.

A kernel works on the elements of cores, each an array of its own. Their arrays come in; out go arrays that have the
core dimensions as their last axes, which share the memory of the elements' where a kernel wrote them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError, BlockKeyError, ShapeError, a_or_an
from dualbcast.frontend.arrays.signatures import core_outputs
from dualbcast.ir.nodes import NUMBER, Structure
from dualbcast.program.blocks import hint_at_parts, identifier
from dualbcast.program.outputs import Results, Shape, of_numbers
from dualbcast.program.products import Cores
from dualbcast.program.results import Hessian, Jacobian
from dualbcast.runtime.arguments import beside
from dualbcast.runtime.launch_plan import Recent

# The types of keys that are equal only if they mean the same; False is equal to 0.
_EXACT = {str, int}


class CoreArgument(NamedTuple):
    """An argument that results are in: its name, the shape of its core, and the positions of its elements."""

    name: str
    shape: Shape
    positions: tuple[int, ...]


def core_arguments(names: Sequence[str], positions: Sequence[int]) -> list[CoreArgument]:
    """The arguments whose elements are at some positions of `names`; an element without the others is an argument."""
    whole: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        whole.setdefault(name.partition("[")[0], []).append(at)
    found: list[CoreArgument] = []
    pending = list(positions)
    while pending:
        name = names[pending[0]]
        own = whole[name.partition("[")[0]]
        if "[" in name and pending[: len(own)] == own:
            last = names[own[-1]].partition("[")[2].rstrip("]")
            shape = tuple([int(each) + 1 for each in last.split(",")])
            found.append(CoreArgument(name.partition("[")[0], shape, tuple(own)))
        else:
            found.append(CoreArgument(name, (), (pending[0],)))
        del pending[: len(found[-1].positions)]
    return found


def cores_of(names: Sequence[str], structure: Structure) -> Cores:
    """The cores of a function with parameters of these names and results of this structure."""
    arguments, outputs = core_arguments(names, range(len(names))), core_outputs(structure)[1]
    return Cores(
        tuple([at for at, each in enumerate(arguments) for _ in each.positions]),
        tuple([at for at, each in enumerate(outputs) for _ in range(each.size)]),
    )


class View(NamedTuple):
    """A block as a view of the array that has all: where it is, the order of the axes there, and its core."""

    place: tuple[slice, ...]
    axes: tuple[int, ...]
    core: Shape

    def of(self, parts: Any, shape: Shape) -> Any:
        """The block, whose shape begins with `shape`."""
        return parts[self.place].transpose(self.axes).reshape(shape + self.core)


class CoreLayout:
    """Where the results of a function with core dimensions are among the outputs of its kernel."""

    def __init__(self, structure: Structure, names: Sequence[str], wrt: Sequence[int]) -> None:
        self.structure, self.outputs = core_outputs(structure)
        # The same with each complex output as one leaf, and the outputs that are its parts.
        self.whole, counts = of_numbers(self.structure)
        remaining = iter(self.outputs)
        self.numbers = [[*itertools.islice(remaining, count)] for count in counts]
        self.arguments = core_arguments(names, wrt)
        self.wrt = tuple([each.name for each in self.arguments])
        # The places among the arguments of the real parts of complex ones, where their imaginary parts follow.
        following = enumerate(itertools.pairwise(self.wrt))
        self.pairs = tuple([at for at, (one, other) in following if one == f"{other.removesuffix('.imag')}.real"])
        # Where the elements of each argument begin among all.
        self.begins = [0, *itertools.accumulate(len(each.positions) for each in self.arguments)]
        # How products are run, as far as they have been asked for.
        self.targets: dict[str, Any] = {}
        # The same of derived functions, and how their new arrays lie in memory.
        self.derived: Recent[Any] = Recent()
        self.memory: Any = None
        # The blocks that are views, by their order, the axes of the array that they are of, and the keys.
        self.views: dict[tuple[int, int, Any], View] = {}
        self._constants: dict[int, dict[tuple[int, ...], Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        # A copy of results does not run anything.
        return {**vars(self), "targets": {}, "derived": Recent(), "memory": None, "views": {}}

    def constants(self, results: Results, order: int) -> dict[tuple[int, ...], Any]:
        """By output and arguments, the blocks that are the same for all elements of the result, which no kernel writes:
        arrays of the core dimensions alone."""
        found = self._constants.get(order)
        if found is None:
            numbers = {place[:-1]: number for place, number in results.places(order)[1]}
            found = self._constants[order] = {}
            for arguments in itertools.product(range(len(self.arguments)), repeat=order):
                columns = [*itertools.product(*[range(*self.begins[at : at + 2]) for at in arguments])]
                for output, own in enumerate(self.outputs):
                    rows = range(own.first, own.first + own.size)
                    if (*columns[0], rows[0]) in numbers:
                        block = np.array([numbers[*each, row] for row in rows for each in columns])
                        found[output, *arguments] = block.reshape(self.core(output, arguments))
        return found

    def core(self, output: int, arguments: Sequence[int]) -> Shape:
        """The core dimensions of a block."""
        lengths = [length for at in arguments for length in self.arguments[at].shape]
        return (*self.outputs[output].shape, *lengths)

    def pack(self, parts: Sequence[Any], stack: Callable[[Sequence[Any]], Any]) -> Any:
        """The structure that the function returns, of arrays of the outputs' elements."""
        return self.structure.pack(joined(parts, [each.shape for each in self.outputs], stack))

    def weights(self, given: Any) -> list[Any]:
        """The elements of weights for all outputs; that of a complex element is the weight of both of its parts."""
        parts: list[Any] = []
        for array, own in zip(_arrays(self.whole, given, "weights", len(self.numbers)), self.numbers, strict=True):
            parts += parts_of(array, own[0].shape, "weights") * len(own)
        return parts

    def split(self, given: Any, name: str, or_none: bool = False) -> list[Any]:
        """The elements of arrays for all outputs, given in the structure that the function returns; with `or_none` None
        may stand for an array."""
        whole = _arrays(self.structure, given, name, len(self.outputs))
        parts: list[Any] = []
        for at, (array, each) in enumerate(zip(whole, self.outputs, strict=True)):
            of_output = f"{name} of output {at}" if len(whole) > 1 else name
            parts += [None] * each.size if array is None and or_none else parts_of(array, each.shape, of_output)
        return parts


def _arrays(structure: Structure, given: Any, name: str, count: int) -> Sequence[Any]:
    """The arrays, so many, that are given in a structure, or the only one."""
    whole: Sequence[Any] = structure.flatten(given, name) if structure.holds(given) else (given,)
    if len(whole) != count:
        raise ArgumentError(f"{name} has {len(whole)} arrays; one is needed for each of {count} outputs")
    return whole


def stacked(parts: Sequence[Any], core: Shape, stack: Callable[[Sequence[Any]], Any]) -> Any:
    """An array with core dimensions, from arrays of its elements; the only one itself where there is no core."""
    if not core:
        return parts[0]
    whole = stack(parts)
    return whole.reshape((*whole.shape[:-1], *core))


def joined(parts: Sequence[Any], cores: Sequence[Shape], stack: Callable[[Sequence[Any]], Any]) -> list[Any]:
    """Arrays with some core dimensions, from the arrays of all their elements."""
    found = iter(parts)
    return [stacked([next(found) for _ in range(math.prod(core))], core, stack) for core in cores]


def parts_of(array: Any, core: Shape, name: str) -> list[Any]:
    """The views of an array that each have one element of its core."""
    if not core:
        return [array]
    shape = tuple(np.shape(array))
    if shape[len(shape) - len(core) :] != core or len(shape) < len(core):
        raise ShapeError(f"{name} has shape {shape}, and its last axes must be {core}")
    if not hasattr(array, "reshape"):
        array = np.asarray(array)
    return [array[(..., *index)] for index in np.ndindex(*core)]


class CoreBlocks:
    """How blocks with core dimensions are asked for; see `Index`."""

    _order: int
    _of_elements: type[Jacobian] | type[Hessian]

    def __init__(self, results: Results, layout: CoreLayout, flat: Any = None, parts: Any = None) -> None:
        # Where a kernel wrote all blocks to one array, `parts` is that, with an axis for the elements of each argument,
        # one for those of outputs, and then those of the result. Blocks that are the same for all of these are not in
        # it.
        self._results, self._layout, self.parts = results, layout, parts
        if flat is not None:
            self._flat = flat

    @cached_property
    def _flat(self) -> Any:
        """The derivatives with a block for each element of outputs and arguments, here of the parts of one array."""
        return self._of_elements(self._results, [self.parts[place] for place in self._results.places(self._order)[0]])

    @property
    def wrt(self) -> tuple[str, ...]:
        """The names of the arguments in which the derivatives are taken."""
        return self._layout.wrt

    @property
    def shape(self) -> Shape:
        """The shape before the core dimensions, which is the result's."""
        return self._results.shape

    @property
    def structure(self) -> Structure:
        """The structure that the function returns."""
        return self._layout.structure

    @property
    def outputs(self) -> int:
        """The number of outputs of the function."""
        return len(self._layout.outputs)

    def __getitem__(self, key: Any) -> Any:
        order, keys = self._order, key if isinstance(key, tuple) else (key,)
        is_kept = self.parts is not None and {*map(type, keys)} <= _EXACT
        view = self._layout.views.get((order, self.parts.ndim, key)) if is_kept else None
        if view is not None:
            return view.of(self.parts, self._results.shape)
        if len(keys) not in (order, order + 1):
            what = "[argument] or [output, argument]" if order == 1 else "two arguments, after an output or not"
            raise BlockKeyError(f"{a_or_an(type(self).__name__)} is indexed by {what}, not {key!r}")
        arguments = [self._argument(each) for each in keys[-order:]]
        if len(keys) > order or self.structure == NUMBER:
            output = self._output(keys[0]) if len(keys) > order else 0
            if is_kept and (output, *arguments) not in self._layout.constants(self._results, order):
                self._layout.views[order, self.parts.ndim, key] = self._view(output, *arguments)
            return self._block(output, *arguments)
        return self.structure.pack([self._block(output, *arguments) for output in range(self.outputs)])

    def _view(self, output: int, *arguments: int) -> View:
        layout, own, order = self._layout, self._layout.outputs[output], len(arguments)
        columns = [slice(layout.begins[at], layout.begins[at + 1]) for at in arguments]
        axes = (*range(order + 1, self.parts.ndim), order, *range(order))
        return View((*columns, slice(own.first, own.first + own.size)), axes, layout.core(output, arguments))

    def _block(self, output: int, *arguments: int) -> Any:
        layout, results = self._layout, self._results
        own, core = layout.outputs[output], layout.core(output, arguments)
        if self.parts is not None:
            constant = layout.constants(results, len(arguments)).get((output, *arguments))
            if constant is not None:
                with beside((self.parts,)):
                    return results.everywhere(constant, results.signature.result_dtype, (*self.shape, *core))
            return self._view(output, *arguments).of(self.parts, self.shape)
        flat, within = self._flat, [layout.arguments[at] for at in arguments]
        parts = [
            flat._block(at, *place) for at in range(own.first, own.first + own.size) for place in self._places(within)
        ]
        with beside(parts):
            return stacked(parts, core, results.stack)

    def _places(self, within: Sequence[CoreArgument]) -> Iterator[tuple[int, ...]]:
        if len(within) == 1:
            yield from [(at,) for at in within[0].positions]
            return
        order = self._results.positions
        for one in within[0].positions:
            for other in within[1].positions:
                yield tuple(sorted((one, other), key=order.index))

    def _argument(self, key: Any) -> int:
        names, key = self.wrt, identifier(key)
        if isinstance(key, str) and key in names:
            return names.index(key)
        if isinstance(key, int | np.integer) and not isinstance(key, bool) and -len(names) <= key < len(names):
            return int(key) % len(names)
        raise BlockKeyError(
            f"this {type(self).__name__} is in ({', '.join(names)}), not in {key!r}{hint_at_parts(key, names)}"
        )

    def _output(self, key: Any) -> int:
        if isinstance(key, int | np.integer) and not isinstance(key, bool) and -self.outputs <= key < self.outputs:
            return int(key) % self.outputs
        labels = self.structure.labels()
        if isinstance(key, str) and key and key in labels:
            return labels.index(key)
        raise BlockKeyError(f"there is no output {key!r}; the function has {self.outputs}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """All blocks as one array, in which the elements of outputs, and of all arguments, are in one axis each; there
        is none for the output of a function that returns a number."""
        results, order = self._results, self._order
        if self.parts is None or results.module != "numpy":
            whole = self._flat.__array__(dtype, copy)
        elif copy is False:
            raise ValueError(
                "blocks that are constant are no part of the array that has the others; leave out copy=False"
            )
        else:
            for place, number in results.places(order)[1]:
                self.parts[place] = number
            whole = np.array(self.parts.transpose((*range(order + 1, self.parts.ndim), order, *range(order))), dtype)
        is_number = self.structure == NUMBER and not self._layout.outputs[0].shape
        axes = whole.ndim - len(self.shape) - order
        return whole[(slice(None),) * len(self.shape) + (0,)] if is_number and axes else whole

    def __repr__(self) -> str:
        counted = f"{self.outputs} output{'s' * (self.outputs != 1)}"
        shapes = ", ".join(f"{each.name}{each.shape or ''}" for each in self._layout.arguments)
        return f"<{type(self).__name__} of {counted} in ({shapes}), shape {self.shape}>"


class CoreJacobian(CoreBlocks, Mapping[str, Any]):
    """∂output/∂argument of a function with core dimensions: a mapping from arguments to blocks.

    The block of an output with core dimensions o and an argument with core dimensions i has shape `(*shape, *o, *i)`.
    It is indexed as a `Jacobian` is. Blocks are views of one array in which each element of a block is contiguous, so
    their core axes come first in memory.
    """

    _order, _of_elements = 1, Jacobian

    def __iter__(self) -> Iterator[str]:
        return iter(self.wrt)

    def __len__(self) -> int:
        return len(self.wrt)

    @property
    def stored(self) -> tuple[Any, ...]:
        """The arrays that the kernel has written, in its order."""
        return tuple(self._flat._stored)

    def matrix(self) -> Any:
        """All blocks as one matrix: its rows are the elements of the outputs, core by core; its columns those of the
        arguments. See `Jacobian.matrix`."""
        if self.parts is None or not self.parts.flags.c_contiguous or not self.parts.size:
            return self._flat.matrix()
        for place, number in self._results.places(1)[1]:
            self.parts[place] = number
        return self.parts.reshape(len(self.parts), -1).T

    def pushforward(self, *tangents: Any) -> Any:
        """The tangents of the outputs for tangents of the arguments in `wrt`, which have the arguments' cores."""
        if len(tangents) != len(self.wrt):
            raise ArgumentError(f"{len(self.wrt)} tangents are needed, for {', '.join(self.wrt)}; got {len(tangents)}")
        pairs = zip(tangents, self._layout.arguments, strict=True)
        parts = [
            part for tangent, each in pairs for part in parts_of(tangent, each.shape, f"the tangent of {each.name}")
        ]
        return self._layout.pack(self._flat.pushforward(*parts), self._results.stack)

    def pullback(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments in `wrt`, of their shapes, for cotangents of the outputs."""
        given = cotangents[0] if len(cotangents) == 1 else cotangents
        found = iter(self._flat.pullback(*self._layout.split(given, "the cotangent")))
        stack = self._results.stack
        return tuple(
            [stacked([next(found) for _ in each.positions], each.shape, stack) for each in self._layout.arguments]
        )


class CoreHessian(CoreBlocks):
    """∂²output/∂argument∂argument of a function with core dimensions.

    `H["x", "y"]` has shape `(*shape, *o, *i, *j)` for an output with core dimensions o, and x and y with i and j.
    """

    _order, _of_elements = 2, Hessian
