"""Small arrays while a function is lowered: vectors and matrices of known shapes, whose elements are numbers.

An array is a `Record` of NumPy's type: of numbers, real or complex, or of the arrays along its first axis. Operations
come in; out go arrays of the results of operations on numbers. What only moves elements, NumPy does itself, on arrays
of the numbers as objects.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeGuard, cast

import numpy as np

from dualbcast.complex_numbers import Complex
from dualbcast.frontend.environment import KNOWN_INDEX, Environment
from dualbcast.frontend.records import as_complex
from dualbcast.frontend.values import (
    Arguments,
    Partial,
    Range,
    Record,
    Static,
    Value,
    complex_number,
    describe,
    is_complex,
    without_name,
)
from dualbcast.ir.nodes import Atom, Const, Kind, Var
from dualbcast.ir.simplification import number
from dualbcast.rules.guards import Capture, ElementOf, PartsOf

# The lengths of core dimensions; one that only outputs have is a name, and the function decides it.
Dims = tuple[int | str, ...]
# An array of NumPy's with IR atoms and complex numbers as elements.
Atoms = np.ndarray[Any, np.dtype[Any]]

# The most elements of a captured array, which are parameters one by one.
LARGEST = 1024


def transpose(array: Atoms, *axes: Any) -> Atoms:
    """The method, which also takes the axes one by one, as NumPy's function does not."""
    return array.transpose(*axes)


def reshape(array: Atoms, *shape: Any, **order: Any) -> Atoms:
    """The method, which also takes the lengths one by one, as NumPy's function does not."""
    return array.reshape(*shape, **order)


# The methods of arrays as functions with the array as first argument; most are functions of NumPy's.
_NAMES = ("sum", "prod", "mean", "max", "min", "all", "any", "trace", "dot", "copy")
_METHODS: dict[str, Callable[..., Any]] = {"flatten": np.ravel} | {name: getattr(np, name) for name in _NAMES}
_METHODS |= {"transpose": transpose, "reshape": reshape}
_METHODS |= {name: getattr(np, name) for name in ("ravel", "diagonal", "swapaxes", "cumsum", "cumprod", "var", "std")}
_METHODS |= {name: getattr(np, name) for name in ("conj", "conjugate")}


def is_array(value: Value | None) -> TypeGuard[Record]:
    """Whether a value is a small array."""
    return isinstance(value, Record) and value.python_type is np.ndarray


def array_of(atoms: Atoms) -> Value:
    """Elements as a value: a number for an array without axes."""
    if atoms.ndim:
        return Record(np.ndarray, [array_of(atoms[at, ...]) for at in range(len(atoms))])
    return of_python(atoms.item())


def of_python(item: Any) -> Value:
    """A number of Python's, or one that is a value already, as a value."""
    if isinstance(item, complex):
        return complex_number([number(item.real), number(item.imag)])
    return item if isinstance(item, Atom | Record) else number(item)


def filled(shape: tuple[int, ...], items: Iterable[Any]) -> Atoms:
    """An array of objects of a shape, from its elements in C order."""
    every = [*items]
    atoms = np.empty(len(every), object)
    for at, item in enumerate(every):  # one by one, since NumPy would make an array of complex numbers, which are pairs
        atoms[at] = item
    return atoms.reshape(shape)


def atoms_of(env: Environment, value: Value, node: ast.AST) -> Atoms:
    """The elements of a number, an array, or nested tuples and lists of these, as NumPy makes an array of them."""
    if isinstance(value, Range) and (known := value.known()) is not None:
        return filled((len(known),), map(number, known))
    value = without_name(value)
    if isinstance(value, Record) and value.is_sequence:
        parts = [atoms_of(env, item, node) for item in value]
        shapes = {part.shape for part in parts}
        if len(shapes) > 1:
            listed = " and ".join(map(str, sorted(shapes)))
            env.fail(node, f"an array is made of parts of one shape, and these have shapes {listed}", "equal lengths")
        shape = (len(parts), *(shapes.pop() if shapes else ()))
        return filled(shape, [item for part in parts for item in part.flat])
    if isinstance(value, Atom) or is_complex(value):
        return filled((), [value])
    env.merged(value, node)
    env.fail(node, f"an array of numbers is needed here, and this is {describe(value)}", "numbers, or tuples of them")


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of an array or a number."""
    return (len(value), *(shape_of(value[0]) if value else ())) if is_array(value) else ()


def broadcast(env: Environment, values: Iterable[Value], node: ast.AST) -> list[Atoms]:
    """The elements of several values, broadcast as NumPy does it."""
    every = [atoms_of(env, value, node) for value in values]
    try:
        return cast("list[Atoms]", np.broadcast_arrays(*every))
    except ValueError:
        shapes = " and ".join(str(each.shape) for each in every)
        env.fail(node, f"arrays of shapes {shapes} do not broadcast together", "arrays whose shapes fit")


def elementwise(env: Environment, function: Callable[..., Value], values: Iterable[Value], node: ast.AST) -> Value:
    """A function of numbers on the elements of values that broadcast together. It may return several numbers.

    None is the same for all elements, as a bound of `numpy.clip` may be.
    """
    given, none = [*values], Static(None)
    every = broadcast(env, [value for value in given if value != none], node)
    flat = iter([each.flat for each in every])
    columns = [[none] * every[0].size if value == none else next(flat) for value in given]
    results = [function(*items) for items in zip(*columns, strict=True)]
    shape = every[0].shape
    return _gathered(env, shape, results, node)


def generalised(
    env: Environment, inputs: Sequence[Dims], function: Callable[..., Value], values: Sequence[Value], node: ast.AST
) -> Value:
    """A function with core dimensions, on values that may have axes before the cores, which broadcast together."""
    every, sizes, rests = [atoms_of(env, value, node) for value in values], dict[str, int](), list[tuple[int, ...]]()
    for atoms, dims in zip(every, inputs, strict=True):
        first = max(atoms.ndim - len(dims), 0)
        core = atoms.shape[first:]
        pairs = zip(dims, core, strict=False)
        wanted = tuple([sizes.setdefault(each, own) if isinstance(each, str) else each for each, own in pairs])
        if len(core) != len(dims) or wanted != core:
            listed = f"({','.join(map(str, dims))})"
            env.fail(node, f"an array of shape {atoms.shape} is given here for {listed}", "an array of that core")
        rests.append(atoms.shape[:first])
    try:
        shape = np.broadcast_shapes(*rests)
    except ValueError:
        env.fail(node, f"the axes before the cores, {' and '.join(map(str, rests))}, do not broadcast together")
    pairs_of = zip(every, rests, strict=True)
    wide = [np.broadcast_to(atoms, (*shape, *atoms.shape[len(rest) :])) for atoms, rest in pairs_of]
    results = [function(*[array_of(atoms[(*index, ...)]) for atoms in wide]) for index in np.ndindex(*shape)]
    return _gathered(env, shape, results, node) if shape else results[0]


def _gathered(env: Environment, shape: tuple[int, ...], results: Sequence[Value], node: ast.AST) -> Value:
    """An array of the results for each of its elements; of results that have parts, a record of such arrays."""
    first = results[0] if results else None
    if isinstance(first, Record) and not is_array(first) and not is_complex(first):
        columns = zip(*[cast(Record, result) for result in results], strict=True)
        return first.like([_gathered(env, shape, column, node) for column in columns])
    every = [atoms_of(env, result, node) for result in results]
    core = every[0].shape if every else ()
    return array_of(filled((*shape, *core), [item for atoms in every for item in atoms.flat]))


def moved(env: Environment, function: Callable[..., Any], values: Iterable[Value], node: ast.AST) -> Value:
    """The result of a function of NumPy's that only moves elements."""
    given = [*values]
    every = [atoms_of(env, value, node) for value in given]
    result = env.evaluate(node, function, *every)
    if not isinstance(result, np.ndarray):
        return array_of(filled((), [result]))
    shared = [value for value, atoms in zip(given, every, strict=True) if np.may_share_memory(result, atoms)]
    return view_of(array_of(result), shared)


def view_of(part: Value, whole: Sequence[Value]) -> Value:
    """A value that shares its elements with arrays, if they are some."""
    if isinstance(part, Record):
        part.bases = tuple(array for array in whole if isinstance(array, Record) and is_array(array))
    return part


def of_parts(env: Environment, parts: Sequence[Value], node: ast.AST) -> Value:
    """The array of complex numbers with these arrays of real and of imaginary parts."""
    real, imag = [atoms_of(env, part, node) for part in parts]
    return array_of(filled(real.shape, map(complex_number, zip(real.flat, imag.flat, strict=True))))


# --- captured arrays ------------------------------------------------------------------------------------------------


def array_named(name: str, shape: tuple[int, ...], item: Callable[[tuple[int, ...], str], Value]) -> Value:
    """An array of values that `item` makes for each index, and the name of the element there."""

    def part(index: tuple[int, ...]) -> Value:
        if len(index) == len(shape):
            return item(index, "_".join([name, *map(str, index)]))
        return Record(np.ndarray, [part((*index, at)) for at in range(shape[len(index)])])

    return part(())


def captured(env: Environment, capture: Capture, kind: Kind) -> Value | None:
    """A captured array as an array of the parameters for its elements; None where it is too large for that."""
    if capture.value.size > LARGEST:
        return None
    key = id(capture.place), capture.key
    if key not in env.cores and capture.value.dtype.kind == "c":
        parts = [captured(env, part, kind) for part in PartsOf(capture._replace(value=None)).captures()]
        env.cores[key] = of_parts(env, [part for part in parts if part is not None], env.frame.node)
    if key not in env.cores:
        place = ElementOf(capture._replace(value=None), tuple(capture.value.shape))

        def element(index: tuple[int, ...], _label: str) -> Var:
            path = f"{capture.path}[{','.join(map(str, index))}]" if index else capture.path
            return env.array(Capture(place, index, place[index], path), kind)

        env.cores[key] = array_named(capture.path, place.shape, element)
    return env.cores[key]


# --- attributes and items --------------------------------------------------------------------------------------------


def attribute(env: Environment, array: Record, node: ast.Attribute) -> Value:
    """`array.T`, `array.shape` and such, and its methods."""
    shape = shape_of(array)
    match node.attr:
        case "T":
            return moved(env, np.transpose, [array], node)
        case "shape":
            return Record(tuple, map(number, shape))
        case "ndim":
            return number(len(shape))
        case "size":
            return number(int(np.prod(shape)))
        case "real" | "imag":
            return real_or_imag(node.attr, env, node, array)
    if node.attr in _METHODS:
        return Partial(Static(_METHODS[node.attr]), Arguments((array,)))
    known = ", ".join(["T", "shape", "ndim", "size", "real", "imag", *_METHODS])
    env.fail(node, f"{describe(array)} has no {node.attr} in a kernel", f"one of {known}; or a function of NumPy's")


def real_or_imag(name: str, env: Environment, node: ast.AST, array: Value, /) -> Value:
    """The real or the imaginary parts of an array."""
    atoms, at = atoms_of(env, array, node), Complex.fields.index(name)
    parts = [cast(Record, as_complex(item))[at] for item in atoms.flat]
    return view_of(array_of(filled(atoms.shape, parts)), [array])


def rows_of(array: Record) -> tuple[Value, ...]:
    """The items of an array, of which those that are arrays share its elements."""
    return tuple([view_of(row.like(row), [array]) if is_array(row) else row for row in array])


def item_of(env: Environment, array: Record, index: Value, node: ast.Subscript) -> Value:
    """`array[index]`, by integers, slices, None and `...` that are known when the kernel is compiled."""
    problem = "an array can only be indexed by integers that are known when the kernel is compiled"
    if not _is_known(index):
        instead = "a for loop over the array, if/elif on the index, or the array as a parameter that is in whole="
        env.fail(node.slice, problem, instead, KNOWN_INDEX)
    key = env.known_object(index, node.slice, problem)
    atoms = atoms_of(env, array, node)
    try:
        chosen = atoms[key]
    except IndexError as error:
        env.fail(node, f"this index does not fit {describe(array)}: {error}", "an index inside the array")
    if not isinstance(chosen, np.ndarray):
        return of_python(chosen)
    return view_of(array_of(chosen), [array] if chosen.base is not None else [])


def _is_known(index: Value) -> bool:
    if isinstance(index, Record):
        return index.python_type in (tuple, list) and all(map(_is_known, index))
    return isinstance(index, Const | Static)


def index_of(env: Environment, node: ast.expr, part: Callable[[ast.expr], Value]) -> Value:
    """The value of an index that may have slices and `...`; `part` gives that of any other expression."""
    if isinstance(node, ast.Tuple):
        return Record(tuple, [index_of(env, item, part) for item in node.elts])
    if isinstance(node, ast.Constant) and node.value is Ellipsis:
        return Static(Ellipsis)
    if not isinstance(node, ast.Slice):
        return part(node)
    problem = "the bounds of a slice must be integers that are known when the kernel is compiled"
    bounds = [None if each is None else part(each) for each in (node.lower, node.upper, node.step)]
    known = [None if each is None else env.known_object(each, node, problem) for each in bounds]
    return Static(slice(*known))


# --- linear algebra --------------------------------------------------------------------------------------------------


def contracted(
    env: Environment, left: Value, right: Value, times: Callable[..., Value], plus: Callable[..., Value], node: ast.AST
) -> Value:
    """`left @ right`: the sum of products over the last axis of one and the last but one of the other."""
    a, b = (atoms_of(env, value, node) for value in (left, right))
    for each in (a, b):
        if each.ndim not in (1, 2):
            kind = "a number" if not each.ndim else f"an array of shape {each.shape}"
            env.fail(node, f"@ multiplies vectors and matrices, and this is {kind}", "* for numbers")
    if a.shape[-1] != b.shape[0]:
        env.fail(node, f"arrays of shapes {a.shape} and {b.shape} cannot be multiplied by @", "shapes that fit")
    rows, columns = np.atleast_2d(a), b if b.ndim == 2 else b[:, None]
    items: list[Value] = []
    for row in rows:
        for column in columns.T:
            total: Value = Const(0, "int")
            for at, (x, y) in enumerate(zip(row, column, strict=True)):
                total = plus(total, times(x, y)) if at else times(x, y)
            items.append(total)
    return array_of(filled(a.shape[:-1] + b.shape[1:], items))


# --- results ---------------------------------------------------------------------------------------------------------


def complex_of(env: Environment, item: Value, node: ast.AST) -> Value:
    """An element as a complex number."""
    return as_complex(env.convert(item, "float", node) if isinstance(item, Atom) else item)


def of_one_kind(env: Environment, atoms: Atoms, node: ast.AST) -> Atoms:
    """The elements of an array, converted to the widest kind among them."""
    if any(map(is_complex, atoms.flat)):
        return filled(atoms.shape, [complex_of(env, item, node) for item in atoms.flat])
    order: list[Kind] = ["bool", "int", "float"]
    kind: Kind = max((item.kind for item in atoms.flat), key=order.index, default="float")
    return filled(atoms.shape, [env.convert(item, kind, node) for item in atoms.flat])
