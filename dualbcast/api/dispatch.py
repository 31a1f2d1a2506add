"""From a call to its kernel: the function lowered for the form of the call, then specialised for its arrays.

A call comes in as its arguments. Out go the `Specialisation` of calls like it, which has the fast paths to their
kernels, and the values of all parameters, captured arrays among them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import getitem
from types import CellType
from typing import Any

import numpy as np

from dualbcast.api.binding import Binder, Form, Wrt, named_in
from dualbcast.errors import ArgumentError, CompileError, ShapeError
from dualbcast.foreign_objects import recorder_of
from dualbcast.frontend.lower import Lowered, lower
from dualbcast.program.element import Call, Derivation, Element, Ran, run_call
from dualbcast.program.outputs import Results, Shape, broadcasts_to
from dualbcast.program.products import Options, Which, output_dtypes
from dualbcast.rules.guards import ABSENT, Capture
from dualbcast.runtime.arguments import DType, Kind, Signature, array_kind, beside, forms_of, no_derivative, sign
from dualbcast.runtime.iteration_space import result_shape
from dualbcast.runtime.launch_plan import FastPath, Recent


class Dispatch:
    """Finds the specialisation of each call of a function.

    `wrt` is the default of a call's `wrt`, as `wrt_key` gives it; `partials` has the arguments of a partial derivative,
    taken one after the other, and is empty for the function itself.
    """

    def __init__(self, binder: Binder, options: Options, wrt: Any, partials: tuple[str | int, ...] = ()) -> None:
        self.binder, self.options, self.wrt, self.partials = binder, options, wrt, partials
        # The function lowered, by the form of a call and the kinds of its arrays.
        self.programs: dict[tuple[Form, tuple[Kind, ...]], Program] = {}
        # By the form of a call, the directions of its derivatives, and the forms of its arrays. Where the function
        # captures arrays, that entry is the latest specialisation of the program, and the key with the forms of the
        # captured arrays has the right one.
        self.specialisations: Recent[Specialisation] = Recent()

    def wrt_of(self, wrt: Wrt) -> Any:
        """A call's `wrt`, or else the default, as a key."""
        return self.wrt if wrt is None else wrt_key(wrt)

    def asked(self, *wrt: Any) -> tuple[Any, ...]:
        """All arguments that a call differentiates in, with `partials`; a default number that is named is an array."""
        items = [each if isinstance(each, tuple) else (each,) for each in wrt if each is not None]
        return (*self.partials, *[name for each in items for name in each])

    def find(
        self, args: tuple[Any, ...], named: dict[str, Any], wrt: Any, gradient: Any = None
    ) -> tuple[Specialisation, tuple[Any, ...]]:
        """The specialisation for a call, and the values of its parameters.

        `wrt` names the arguments to differentiate in, as `wrt_key` gives them; None stands for all of a float dtype.
        `gradient` names, for products of a Hessian with tangents, the arguments of the gradient, and is else None.
        """
        if not named and gradient is None and len(args) in self.binder.plain:
            form, values = self.binder.plain[len(args)], args
        else:
            asked = wrt if gradient is None and not self.partials else self.asked(wrt, gradient)
            form, values = self.binder.bind(args, named, asked)
        key: Any = (form, wrt, gradient, forms_of(values))
        specialisation = self.specialisations.get(key)
        if specialisation is not None:
            captured = specialisation.program.captured()
            if captured is not None:
                if not captured:
                    return specialisation, values
                exact = self.specialisations.get((key, forms_of(captured)))
                if exact is not None and exact.program is specialisation.program:
                    return exact, (*values, *captured)
        specialisation, values_and_captured = self.specialise(form, values, wrt, gradient)
        if len(values_and_captured) > len(values):
            exact_key = key, forms_of(values_and_captured[len(values) :])
            self.specialisations.keep(exact_key, specialisation)
        return self.specialisations.keep(key, specialisation), values_and_captured

    def specialise(
        self, form: Form, values: tuple[Any, ...], wrt: Any, gradient: Any = None
    ) -> tuple[Specialisation, tuple[Any, ...]]:
        """A new specialisation for a call that is bound, and the values of all parameters."""
        program, captured = self._program(form, values)
        values = (*values, *captured)
        names = program.element.names
        signature = sign(values, names)
        first = directions(wrt, form, names, signature, self.binder)
        second = first if gradient is None else directions(gradient, form, names, signature, self.binder)
        return Specialisation(program, signature, first, second, recorder_of(values)), values

    def _program(self, form: Form, values: tuple[Any, ...]) -> tuple[Program, tuple[Any, ...]]:
        """The function lowered for values of these kinds, anew where a guard fails; and the captured arrays."""
        kinds = sign(values, form.names).kinds
        program = self.programs.get((form, kinds))
        captured = None if program is None else program.captured()
        if program is not None and captured is not None:
            return program, captured
        remaining = iter(kinds)
        arguments = [next(remaining) if slot is None else slot for slot in form.slots]
        try:
            lowered = lower(self.binder.function, arguments, array_kind)
        except CompileError as error:
            # The compiler's frames would hide the user's lines, which the message shows.
            raise error.with_traceback(None) from None
        captured = tuple(capture.value for capture in lowered.arrays.values())
        names = (*form.names, *lowered.arrays)
        element = Element(lowered.function, names, self.binder.name, self.options)
        for wrt in self.partials:
            positions = directions(wrt, form, names, sign((*values, *captured), names), self.binder)
            if len(positions) != 1:
                raise ArgumentError(f"partial({wrt!r}) names {len(positions)} arguments of this call; name one of them")
            element = element.derive("partial", positions)
        program = self.programs[form, kinds] = Program(element, lowered)
        return program, captured


class Program:
    """A function lowered for one form of call and the kinds of its arrays: `element`, of these and captured arrays."""

    __slots__ = ("_captures", "_guards", "_kinds", "element")

    def __init__(self, element: Element, lowered: Lowered) -> None:
        self.element = element
        # Each with what reads it without a call of Python code, since every call of the function does that.
        self._guards = tuple((_reader(guard), guard.value, guard) for guard in lowered.guards)
        # Without references to the arrays: they may be large, and the names may be given others.
        self._captures = tuple(capture._replace(value=None) for capture in lowered.arrays.values())
        params = lowered.function.params
        self._kinds = tuple(param.kind for param in params[len(params) - len(self._captures) :])

    def captured(self) -> tuple[Any, ...] | None:
        """The captured arrays as they are now; None where the function must be lowered anew, because a guard does not
        hold or a captured array is of another kind."""
        try:
            for read, value, guard in self._guards:
                if read() is not value and not guard.holds():
                    return None
            if not self._captures:
                return ()
            arrays = tuple([capture.read() for capture in self._captures])
        except Exception:  # a name is gone, or a property raises; the front end will report it at its line
            return None
        return arrays if tuple(map(array_kind, arrays)) == self._kinds else None


def _reader(guard: Capture) -> Callable[[], Any]:
    """What reads a captured object as it is now."""
    if guard.attribute:
        return partial(getattr, guard.place, guard.key)
    if isinstance(guard.place, CellType):
        return partial(getattr, guard.place, "cell_contents")
    if guard.value is ABSENT:
        return partial(guard.place.get, guard.key, ABSENT)
    return partial(getitem, guard.place, guard.key)


class Specialisation:
    """A function for all calls of one form whose arguments, and captured arrays, have the same forms.

    `wrt` has the positions of the parameters to differentiate in: those that have tangents, or are to get cotangents.
    `gradient` has, for products of a Hessian with tangents, those whose gradient is meant. Where Variables of a graph
    are among the values, `recorder` is how the graph makes the call.
    """

    def __init__(
        self, program: Program, signature: Signature, wrt: tuple[int, ...], gradient: tuple[int, ...], recorder: Any
    ) -> None:
        self.program, self.element = program, program.element
        self.signature, self.wrt, self.gradient, self.recorder = signature, wrt, gradient, recorder
        self.dtypes = output_dtypes([output.value.kind for output in self.element.function.outputs], signature)
        # The dtypes of the tangents and cotangents of the arguments in `wrt`.
        self.tangent_dtypes = tuple([_tangent_dtype(signature, at) for at in wrt])
        # By the product, and the forms of tangents, of cotangents or of the arrays of `out=`.
        self._paths: Recent[FastPath] = Recent()
        # The rule that makes a value and a Jacobian of a kernel's outputs, kept by `given_outputs` from its first call.
        self.rule: Results | None = None

    def prepare(self, which: Which, values: tuple[Any, ...], out: tuple[Any, ...] | None = None) -> Call:
        """The call of a product of the element function itself; see `Element.prepare`."""
        wrt = () if which == "value" else self.wrt
        return self.element.prepare(which, values, wrt, signature=self.signature, out=out)

    def run(self, which: Which, values: tuple[Any, ...], out: tuple[Any, ...] | None = None) -> Ran:
        """Make that call; `out` has the arrays to write to, in the order in which the kernel stores them."""
        if out is None:
            return run_call(self._paths, which, values, (), self.prepare, which, values)
        return run_call(self._paths, (which, forms_of(out)), values, out, self.prepare, which, values, out)

    def forward(self, derivation: Derivation, values: tuple[Any, ...], tangents: list[Any]) -> Ran:
        """Values with tangents, or the Jacobian of tangents."""
        given = self._tangents(values, tangents)
        arguments, key = (*values, *given), (derivation, forms_of(given))
        return run_call(self._paths, key, arguments, (), self.prepare_derived, derivation, arguments)

    def back(self, derivation: Derivation, values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of parameters for cotangents of all outputs, or the outputs and then these."""
        given = self._of_floats(cotangents)
        key = derivation, forms_of(given)
        if key not in self._paths:
            # Checked cotangents have a form of their own; a call whose cotangents have it already is not checked.
            given = self._cotangents(given, values)
            key = derivation, forms_of(given)
        arguments = (*values, *given)
        results, outputs = run_call(self._paths, key, arguments, (), self.prepare_derived, derivation, arguments)
        return results.parts(outputs)

    def prepare_derived(self, derivation: Derivation, values: tuple[Any, ...]) -> Call:
        """The call of a derived function for values and then tangents or cotangents."""
        element = self.element.derive(derivation, self.wrt)
        if derivation == "tangent":
            return element.prepare("jacobian", values, self.gradient)
        if derivation == "pushforward":
            return element.prepare("parts", values)
        shapes: tuple[Shape | None, ...] = tuple([_shape_of(values[at]) for at in self.wrt])
        dtypes = self.tangent_dtypes
        if derivation == "value_and_pullback":
            shapes = ((None,) * len(self.dtypes)) + shapes
            dtypes = (*self.dtypes, *dtypes)
        return element.prepare("parts", values, (), dtypes, shapes)

    def _of_floats(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of the float outputs from those of all outputs."""
        structure, floats = self.element.function.structure, self.element.floats
        if len(given) == 1 and structure.holds(given[0]):
            given = structure.flatten(given[0], "the cotangent")
        if len(given) != structure.count:
            raise ArgumentError(f"{structure.count} cotangents are needed, one for each output; got {len(given)}")
        return given if len(floats) == len(given) else tuple([given[at] for at in floats])

    def _cotangents(self, given: tuple[Any, ...], values: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of the float outputs, checked, in the dtype of the result."""
        count, checked = self.element.function.structure.count, []
        shape = result_shape(tuple([(_shape_of(value), (), None) for value in values]), self.element.names)
        for at, cotangent in zip(self.element.floats, given, strict=True):
            name = f"the cotangent of output {at}" if count > 1 else "the cotangent"
            if cotangent is None:
                raise ArgumentError(f"{name} is None; give zeros where it is zero")
            cotangent = _converted(cotangent, self.signature.result_dtype, name)
            if cotangent.shape != shape:
                raise ShapeError(f"{name} has shape {cotangent.shape}; it must have that of the output, {shape}")
            checked.append(cotangent)
        return tuple(checked)

    def _tangents(self, values: tuple[Any, ...], given: list[Any]) -> tuple[Any, ...]:
        """The tangents, checked, in the dtypes that do not change that of the result."""
        if not given:
            raise ArgumentError("no argument has a tangent; give at least one")
        if len(self.wrt) != len(given):
            raise ArgumentError(
                "a tangent is for one argument, and an argument has one tangent; name each argument once"
            )
        checked = []
        for at, tangent, dtype in zip(self.wrt, given, self.tangent_dtypes, strict=True):
            if type(tangent) is not np.ndarray or tangent.dtype != dtype:
                tangent = _converted(tangent, dtype, f"the tangent of {self.element.names[at]}")
            own, shape = _shape_of(values[at]), tangent.shape
            if shape != own and not broadcasts_to(shape, own):
                raise ShapeError(
                    f"the tangent of {self.element.names[at]} has shape {shape}, "
                    f"which does not broadcast to that of the argument, {own}"
                )
            checked.append(tangent)
        return tuple(checked)


def _shape_of(value: Any) -> Shape:
    """The shape of an array or a number."""
    return getattr(value, "shape", ())


def _tangent_dtype(signature: Signature, at: int) -> DType:
    """The dtype of an argument's tangents and cotangents: its own; for Python numbers and uint64 that of the result."""
    token = signature.tokens[at]
    if isinstance(token, type) or token.kind in "iu":
        return signature.result_dtype
    # Kernels write in the machine's byte order.
    return token if token.isnative else token.newbyteorder("=")


def _converted(value: Any, dtype: DType, name: str) -> Any:
    """An array or a number in a float dtype."""
    token = sign((value,), (name,)).tokens[0]
    if isinstance(token, type):
        return dtype.type(value)
    if token == dtype:
        return value
    with beside((value,)):
        return value.astype(dtype)


# --- wrt --------------------------------------------------------------------------------------------------------------


def wrt_key(wrt: Any) -> str | int | tuple[Any, ...] | None:
    """`wrt=` as part of a key; `directions` checks that it names arguments."""
    if wrt is None or isinstance(wrt, str):
        return wrt
    if type(wrt) is tuple:
        for item in wrt:
            if type(item) is not str:
                break
        else:
            return wrt
    if isinstance(wrt, int | np.integer):
        return _position(wrt)
    try:
        items = tuple(_position(item) if isinstance(item, int | np.integer) else item for item in wrt)
        hash(items)
    except TypeError:
        raise ArgumentError(f"wrt={wrt!r} does not name arguments; give names or positions: wrt=('x', 1)") from None
    return items


def _position(item: Any) -> int:
    if isinstance(item, bool):  # True would be 1 in a key
        raise ArgumentError(f"wrt={item!r} is no argument; give names or positions")
    return int(item)


def directions(
    wanted: Any, form: Form, names: tuple[str, ...], signature: Signature, binder: Binder
) -> tuple[int, ...]:
    """The positions in `names`, the arguments and then the captured arrays, of those to differentiate in.

    Raises ArgumentError where `wanted` names something else, or something that carries no derivative.
    """
    kinds = signature.kinds
    if wanted is None:
        return tuple(position for position, _ in enumerate(form.names) if kinds[position] == "float")
    positions: list[int] = []
    for item, name in named_in(wanted, form.parameters, form.spread, binder.vararg):
        if name in names:
            positions.append(names.index(name))
        elif name in binder.static:
            raise ArgumentError(f"wrt={item!r}: {name} is static, so there is no derivative in it")
        elif name in form.parameters:
            raise ArgumentError(f"wrt={item!r}: {name} is no array or number in this call, so it carries no derivative")
        else:
            raise ArgumentError(f"wrt={item!r} is no argument of this call; they are {', '.join(names) or 'none'}")
    for position in positions:
        if kinds[position] != "float":
            raise ArgumentError(f"{no_derivative(names[position], signature.tokens[position])}, or leave it out")
    return tuple(dict.fromkeys(positions))
