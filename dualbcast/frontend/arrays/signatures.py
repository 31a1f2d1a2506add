"""Core dimensions in the front end: parameters that are small arrays, and what a function returns as such.

A parameter's shape comes in, and an array of parameters goes out; a returned value and the core dimensions of the
outputs come in, and arrays of these shapes go out.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from dualbcast.complex_numbers import Complex
from dualbcast.frontend.arrays.vectors import Dims, array_named, array_of, atoms_of, filled, of_one_kind, of_parts
from dualbcast.frontend.environment import Environment
from dualbcast.frontend.values import Record, Value, complex_number, describe, is_complex
from dualbcast.ir.nodes import Kind, Structure, Var


class Core(NamedTuple):
    """A parameter that is an array of this shape, with elements of one kind. Those of a complex one are two parameters
    each: first come the real parts of all, and then the imaginary parts."""

    shape: tuple[int, ...]
    is_complex: bool = False
    kind: Kind = "float"

    def taken_from(self, kinds: Iterator[Kind]) -> Core:
        """With the kind of its elements, of which `kinds` has one for each parameter."""
        own = [next(kinds) for _ in range(math.prod(self.shape) * (1 + self.is_complex))]
        return self._replace(kind=own[0] if own else "float")

    def parameters(self, env: Environment, name: str, params: list[Var]) -> Value:
        """The array, whose elements are new parameters."""

        def parameter(_index: tuple[int, ...], label: str) -> Var:
            params.append(Var(env.names.fresh(label), self.kind))
            env.taken.add(label)
            return params[-1]

        if not self.is_complex:
            return array_named(name, self.shape, parameter)
        parts = [array_named(f"{name}_{part}", self.shape, parameter) for part in Complex.fields]
        return of_parts(env, parts, env.frame.node)


def returned(env: Environment, outputs: Sequence[Dims], value: Value, node: ast.AST) -> Value:
    """What a function returns, as arrays of the shapes that its signature says."""
    if len(outputs) == 1:
        return _output(env, value, outputs[0], {}, "the returned value", node)
    if not isinstance(value, Record) or value.is_iterator or len(value) != len(outputs):
        problem = f"the signature has {len(outputs)} outputs, and this returns {describe(value)}"
        env.fail(node, problem, "a tuple with one item for each output")
    sizes: dict[str, int] = {}
    pairs = enumerate(zip(value, outputs, strict=True))
    return value.like([_output(env, item, dims, sizes, f"output {at}", node) for at, (item, dims) in pairs])


def _output(env: Environment, value: Value, dims: Dims, sizes: dict[str, int], label: str, node: ast.AST) -> Value:
    atoms = atoms_of(env, value, node)
    wanted = tuple([sizes.get(each, each) if isinstance(each, str) else each for each in dims])
    fits = len(wanted) == atoms.ndim and all(
        isinstance(own, str) or own == size for own, size in zip(wanted, atoms.shape, strict=False)
    )
    if not fits:
        has = "is a number" if not atoms.ndim else f"has shape {atoms.shape}"
        listed = f"({', '.join(map(str, wanted))}{',' * (len(wanted) == 1)})"
        needs = f"has shape {listed}" if wanted else "is a number"
        env.fail(node, f"{label} {has}, and by the signature it {needs}", "an array of that shape, or nested tuples")
    sizes.update((each, size) for each, size in zip(dims, atoms.shape, strict=True) if isinstance(each, str))
    return array_of(of_one_kind(env, atoms, node))


def with_real_elements(env: Environment, array: Record, node: ast.AST) -> Record:
    """An array of complex numbers as a complex number of arrays, which results are put together from; any other as it
    is."""
    atoms = atoms_of(env, array, node)
    if not any(map(is_complex, atoms.flat)):
        return array
    parts = zip(*of_one_kind(env, atoms, node).flat, strict=True)
    return complex_number([array_of(filled(atoms.shape, items)) for items in parts])


class CoreOutput(NamedTuple):
    """An output that is an array: its shape, the position of its first number among those of all outputs, and how many
    it has."""

    shape: tuple[int, ...]
    first: int
    size: int


def core_outputs(structure: Structure) -> tuple[Structure, list[CoreOutput]]:
    """The structure of a function's result with each array as one leaf, and those arrays in order."""
    found: list[CoreOutput] = []

    def walk(part: Structure) -> Structure:
        if part.type is None or part.type is np.ndarray:
            first = found[-1].first + found[-1].size if found else 0
            shape = _shape(part)
            found.append(CoreOutput(shape, first, math.prod(shape)))
            return Structure()
        return Structure(part.type, tuple(map(walk, part.parts)), part.fields)

    return walk(structure), found


def _shape(part: Structure) -> tuple[int, ...]:
    return () if part.type is None else (len(part.parts), *(_shape(part.parts[0]) if part.parts else ()))
