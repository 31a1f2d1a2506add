"""Compiled functions: steps of small arrays are recorded once, and then replayed without Variables.

Comes in: a function of arrays. Goes out: one with the same results, which keeps a program for each form of its
arguments, and runs the function itself where it has none.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import MethodType, NoneType
from typing import Any

import numpy as np
from numpy import ndarray

from dualbcast.adapters import is_lazy
from dualbcast.errors import ArgumentError, a_or_an, entry_point
from dualbcast.graph.arrays import (
    constants_of,
    is_array,
    is_complex,
    is_registered,
    kind_of,
    leaves,
    map_leaves,
    opened,
    parts_of_tree,
    rebuild,
)
from dualbcast.graph.frozen import thaw_on_failure
from dualbcast.graph.recording import Recorder
from dualbcast.graph.tape import STATE, setting
from dualbcast.graph.transformations.captures import Captures
from dualbcast.graph.transformations.replay import Program
from dualbcast.graph.variable import Variable
from dualbcast.runtime.launch_plan import Recent

# Arguments that a program is made for: their values are part of its key.
_STATIC = {
    bool,
    int,
    str,
    bytes,
    NoneType,
    np.bool_,
    *[np.dtype(f"{sign}int{8 << at}").type for sign in ("", "u") for at in range(4)],
}
_PLAIN = (bool, int, float, complex, str, bytes, np.generic)
# A program whose captures change so many times before it has run as often is given up.
_MOST_CHANGES = 8


class _Unfit(Exception):
    """An argument is of another library's arrays, or a Variable."""


class _Form:
    """What is known of calls whose arguments have one form."""

    def __init__(self, objects: list[Any]) -> None:
        # Arguments and attributes of them that are neither arrays nor numbers. They stay alive, since their ids are in
        # the key.
        self.objects = objects
        self.program: Program | None = None
        self.make: Callable[[], Program] | None = None
        self.captures: Captures | None = None
        self.is_warm, self.changes, self.runs = False, 0, 0
        # Why there is no program.
        self.reason = ""


@entry_point
def compile(function: Callable[..., Any]) -> Compiled:
    """The same function, which is recorded once for each form of its arguments, and then runs without Python's part.

    Recording takes most of the time of a step on small arrays. The second call with arguments of a form is recorded:
    which operations ran, on which arrays. Later ones check that nothing else has changed that the function can see, and
    run these operations again. The results are the same to the last bit.

    Parameters
    ----------
    function : callable
        It computes arrays by operations of the graph: `value_and_grad(loss)`, or a training step that calls such
        transformations. In it, all arrays among the arguments and in containers of them are Variables.
        It must be pure, as for `jax.jit`: its result depends on nothing but its arguments and what it captures, and it
        changes nothing.

    Returns
    -------
    Compiled
        A function of the same arguments. It returns what `function` does, with arrays in the place of Variables.

    Notes
    -----
    Numbers, texts and other arguments that are no arrays, and Python floats in which no derivative is taken, are part
    of the form. So are dtypes, shapes, strides and the structure of containers. Captured names, cells, containers,
    attributes and arrays are compared at every call, arrays by their contents.

    The function itself runs where there is no program: the first time; where it captures what cannot be watched, such
    as a generator of random numbers; where Python reads the value of a Variable, as `if` and `float` do; if it is
    called with Variables, with other arrays than NumPy's, or inside another transformation; and while `launches` lists
    kernels. `explain` says why. A program keeps memory for the small arrays of a call; two threads do not run it at
    once.

    Examples
    --------
    >>> import numpy as np
    >>> from dualbcast import graph
    >>> step = graph.compile(graph.value_and_grad(lambda w, x: np.sum(np.tanh(x * w))))
    >>> for _ in range(3):
    ...     value, gradient = step(np.array([1.0, 2.0]), np.array([0.5, 0.25]))
    >>> gradient.round(4)
    array([0.3932, 0.1966])
    >>> print(step.explain())
    1 form of arguments: replayed, 1 time
    """
    if not callable(function):
        raise ArgumentError(f"compile takes a function; this is {a_or_an(type(function).__name__)}")
    return Compiled(function)


class Compiled:
    """A function that `compile` has made."""

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._forms: Recent[_Form] = Recent()
        # The arguments in which a derivative is taken. Python floats in them are arrays.
        of, wrt = getattr(function, "differentiated", (None, ()))
        self._wrt = wrt if isinstance(wrt, list | tuple) else (wrt,)
        self._names = [*_parameters(of)] if any(isinstance(each, str) for each in self._wrt) else []

    def __repr__(self) -> str:
        return f"<compiled {getattr(self._function, '__qualname__', self._function)}>"

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> tuple[Any, ...]:
        return compile, (self._function,)

    def explain(self) -> str:
        """A line for each form of arguments so far: whether calls are replayed, or why not."""
        lines = []
        for form in self._forms.values():
            times = f"{form.runs} time{'s' if form.runs != 1 else ''}"
            lines.append(form.reason or (f"replayed, {times}" if form.runs else "to be recorded or replayed next"))
        return "\n".join(f"{at} form of arguments: {line}" for at, line in enumerate(lines, 1)) or "not called yet"

    def __call__(self, *args: Any, **named: Any) -> Any:
        """The result of the function."""
        if STATE.depth or STATE.is_compiling or STATE.observer is not None:
            return self._function(*args, **named)
        arrays: list[Any] = []
        objects: list[Any] = []
        key: list[Any] = [STATE.is_fusing, STATE.jacobian, STATE.is_recording]
        try:
            for at, each in enumerate(args):
                _flatten(each, self._is_in(at, len(args)), arrays, key, objects)
            for name, each in named.items():
                key.append(name)
                _flatten(each, name in self._wrt, arrays, key, objects)
            form = self._forms.get(tuple(key))
        except (_Unfit, TypeError):  # TypeError: a part of the key cannot be hashed
            return self._function(*args, **named)
        if form is None:
            form = self._forms.keep(tuple(key), _Form(objects))
        if form.captures is not None and (form.program or form.make) and not STATE.launches:
            if form.captures.hold():
                result = _replay(form, arrays)
                if result is not None:
                    return result[0]
            else:
                form.program = form.make = None
                form.changes += 1
                if form.changes >= _MOST_CHANGES and form.runs < 2 * form.changes:
                    form.reason = "what the function captures changes too often; pass it as an argument"
        return self._run(form, arrays, args, named)

    def _is_in(self, at: int, count: int) -> bool:
        """Whether a derivative is taken in an argument by its position, of so many."""
        return at in self._wrt or at - count in self._wrt or (at < len(self._names) and self._names[at] in self._wrt)

    def _run(self, form: _Form, arrays: list[Any], args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """The result of the function itself, which is recorded if that may help later."""
        is_recorded = form.is_warm and not (form.reason or form.program or form.make or STATE.launches)
        form.is_warm = True
        captures = None
        if is_recorded:
            objects = [*form.objects, *_visible((args, named))]
            among = [(f"the argument of type {type(each).__name__}", each) for each in objects]
            captures = Captures([("the function", self._function), *among])
        if captures is not None and captures.refusal:
            form.reason, captures = f"not replayed, since {captures.refusal}", None
        with thaw_on_failure():
            variables = [_variable(array) for array in arrays]
            remaining = iter(variables)

            def wrapped(tree: Any, is_wrt: bool) -> Any:
                return map_leaves(lambda _, leaf: next(remaining) if _is_traced(leaf, is_wrt) else leaf, tree)

            own = [wrapped(each, self._is_in(at, len(args))) for at, each in enumerate(args)]
            own_named = {name: wrapped(each, name in self._wrt) for name, each in named.items()}
            recorder = None if captures is None else Recorder()
            if captures is not None and recorder is not None:
                for each in captures.variables:
                    recorder.constant(each.array)
            slots = [] if recorder is None else [recorder.add(each.array) for each in variables]
            with setting(is_compiling=True, recorder=recorder):
                result = self._function(*own, **own_named)
                outputs = [leaf for leaf in leaves(result) if isinstance(leaf, Variable)]
                computed = [each.array for each in outputs]
            if any(each.tracked for each in outputs):
                form.reason = "not replayed, since the result carries derivatives of captured Variables"
                return result
            if captures is not None and recorder is not None:
                self._note(form, captures, recorder, result, computed, slots)
            return map_leaves(lambda _, leaf: _own(leaf) if isinstance(leaf, Variable) else leaf, result)

    def _note(
        self, form: _Form, captures: Captures, recorder: Recorder, result: Any, computed: list[Any], slots: list[Any]
    ) -> None:
        """Keep what has been recorded, if it may be replayed."""
        others = [leaf for leaf in leaves(result) if not isinstance(leaf, (Variable, *_PLAIN))]
        if others:
            recorder.stop(f"the result has {a_or_an(type(others[0]).__name__)}, which may change")
        if not captures.hold():
            recorder.stop("the function changes something that it captures")
        if recorder.reason:
            form.reason = f"not replayed, since {recorder.reason}"
            return
        results = [array if (slot := recorder.slot_of(array)) is None else slot for array in computed]
        structure = map_leaves(lambda _, leaf: _ARRAY if isinstance(leaf, Variable) else leaf, result)

        def assemble(codes: list[str], named: Callable[[Any], str]) -> str:
            return _assembled(structure, iter(codes), named)

        form.captures = captures
        form.make = partial(Program, recorder, slots, results, assemble)


def _replay(form: _Form, arrays: list[Any]) -> tuple[Any, ...] | None:
    """The result of a form's program, as a tuple of one item; None where the function is to be called itself."""
    if form.program is None and form.make is not None:
        try:
            form.program = form.make()
        except Exception as error:
            # It would fail again, so the function is not recorded any more.
            form.reason = f"not replayed, since no program could be made: {type(error).__name__}: {error}"
        form.make = None
    try:
        result = None if form.program is None else form.program.run(arrays)
    except Exception:
        # The function will raise it with its own lines. Some of what the program keeps may be half done.
        form.program = None
        return None
    except BaseException:
        form.program = None
        raise
    form.runs += result is not None
    return result


# The place of an array in the structure of a result.
_ARRAY = object()


def _parameters(function: Any) -> Iterable[str]:
    return inspect.signature(function).parameters


def _is_traced(leaf: Any, is_wrt: bool) -> bool:
    """Whether a leaf becomes a Variable in the function."""
    return isinstance(leaf, ndarray | np.floating) or (is_wrt and type(leaf) is float)


def _variable(array: Any) -> Variable:
    """A constant with an array that no other Variable has, and that is not the user's own object."""
    variable = Variable(array, tracked=False)
    if variable._value is array:
        variable._value = array.view()
    return variable


def _own(variable: Variable) -> Any:
    """The array of a Variable for the user, or a scalar."""
    array = variable.array
    if is_lazy(array):
        return array  # which does not change
    return array[()] if array.ndim == 0 else array.copy("K")


def _flatten(tree: Any, is_wrt: bool, arrays: list[Any], key: list[Any], objects: list[Any]) -> None:
    """Add the arrays in a container to `arrays`, and all that a program depends on to the key; what has its id there is
    added to `objects`."""
    kind = type(tree)
    if kind is ndarray and tree.dtype.kind != "c":
        arrays.append(tree)
        key += tree.shape
        key += tree.strides
        key.append(tree.dtype)
    elif kind in _STATIC and not (is_wrt and kind is complex):
        key.append((kind, tree))
    elif kind is float and not is_wrt:
        key.append((kind, repr(tree)))  # which tells 0.0 from -0.0
    elif kind is float or isinstance(tree, np.floating):
        arrays.append(np.asarray(tree))
        key.append((kind, "array"))
    elif is_complex(tree) and not isinstance(tree, Variable):
        key.append(kind)
        for part in (tree.real, tree.imag):
            _flatten(part, is_wrt, arrays, key, objects)
    else:
        parts = _parts(tree, kind, key, objects)
        if parts is None:
            key.append(id(tree))
            objects.append(tree)
        for part in parts or ():
            _flatten(part, is_wrt, arrays, key, objects)


def _parts(tree: Any, kind: type, key: list[Any], objects: list[Any]) -> Iterable[Any] | None:
    """The parts of a container, whose structure is added to the key; None for any other object."""
    key.append(kind)
    if kind is dict:
        key.append(tuple(tree))
        return tree.values()  # type: ignore[no-any-return]
    if kind is tuple or kind is list:
        key.append(len(tree))
        return tree  # type: ignore[no-any-return]
    if isinstance(tree, Variable) or is_array(tree) or hasattr(kind, "__array_ufunc__"):
        raise _Unfit
    container = kind_of(kind)
    if container not in ("leaf", "object"):
        pairs = dict(parts_of_tree(container, tree))
        key.append(tuple(pairs))
        if container in ("dict", "dataclass"):  # the function gets a copy with all attributes
            others = {name: each for name, each in getattr(tree, "__dict__", pairs).items() if name not in pairs}
            key += others
            key += [repr(each) if type(each) in (*_STATIC, float) else id(each) for each in others.values()]
            objects += others.values()
        return pairs.values()
    if is_registered(kind):
        _, opened_parts, structure = opened(tree)
        key.append(structure)
        return opened_parts
    return None


def _visible(tree: Any) -> Iterator[Any]:
    """What a function can read of an argument beside arrays and numbers: texts, the classes of containers, of which it
    may call methods, and what optree knows as constants of an object."""
    kind = type(tree)
    container = kind_of(kind)
    if container == "object":
        if is_registered(kind):
            yield from (kind, constants_of(tree))
            for part in opened(tree)[1]:
                yield from _visible(part)
    elif container != "leaf":
        yield kind
        for name, part in parts_of_tree(container, tree):
            yield name
            yield from _visible(part)
    elif isinstance(tree, str):
        yield tree


def _assembled(tree: Any, codes: Iterator[str], named: Callable[[Any], str]) -> str:
    """The code of a result like `tree`, from the codes of its arrays."""
    kind = type(tree)
    if tree is _ARRAY:
        return next(codes)
    if kind is dict:
        return f"{{{', '.join(f'{named(key)}: {_assembled(part, codes, named)}' for key, part in tree.items())}}}"
    if kind in (list, tuple):
        parts = "".join(_assembled(part, codes, named) + ", " for part in tree)
        return f"[{parts}]" if kind is list else f"({parts})"
    if kind_of(kind) == "leaf" or (kind_of(kind) == "object" and not is_registered(kind)):
        return named(tree)
    parts = "".join(_assembled(leaf, codes, named) + ", " for leaf in leaves(tree))
    return f"{named(partial(rebuild, tree))}([{parts}])"
