"""From a call to its kernel: the function lowered for the form of the call, then specialised for its arrays.

A call comes in as its arguments. Out go the `Specialisation` of calls like it, which has the fast paths to their
kernels, and the values of all parameters, captured arrays among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn, cast

import numpy as np

from dualbcast.adapters import Adapter, adapter_for, adapter_of
from dualbcast.api.binding import Binder, Form, Wrt, named_in
from dualbcast.api.complex_arguments import is_complex, parts_named, split
from dualbcast.api.specialisation import Program, Specialisation
from dualbcast.api.whole_arrays import places_along, without_block
from dualbcast.errors import ArgumentError, CompileError
from dualbcast.foreign_objects import plain_arrays, recorder_of
from dualbcast.frontend.arrays.signatures import Core
from dualbcast.frontend.lower import Argument, WholeArray, lower
from dualbcast.frontend.values import Axes, Static
from dualbcast.ir.nodes import Function, numbers
from dualbcast.program.core_results import cores_of
from dualbcast.program.element import Element
from dualbcast.program.products import Options
from dualbcast.runtime.arguments import Kind, Signature, array_kind, forms_of, no_derivative, sign
from dualbcast.runtime.launch_plan import Recent

# The options of the decorator that a call may have, too.
_OF_CALLS = frozenset({"check", "debug"})


class WholeCall:
    """A call of a function with whole arrays on another library's: its adapter makes it, and that library derivatives.

    It stands for a specialisation of which there is no other product than the value.
    """

    def __init__(self, adapter: Adapter, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        self._adapter, self._args, self._named = adapter, args, named

    def recorder(self, function: Any, _specialisation: object, _values: object, out: Any) -> Any:
        """The result of the call."""
        if out is not None:
            self._refuse("out= takes arrays of NumPy's and CuPy's")
        assert self._adapter.with_whole is not None
        return self._adapter.with_whole(function, self._args, self._named)

    def _refuse(self, what: str) -> NoReturn:
        raise ArgumentError(
            f"{what}, and this call of a function with whole arrays is on arrays of {self._adapter.name}'s. Call the "
            f"function alone, without signature=, and differentiate its result with {self._adapter.name}; or pass "
            "arrays of NumPy's."
        )

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse("this method takes arrays of NumPy's and CuPy's")


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
        # Of a function with core dimensions, the calls that take addresses alone; False where a form has none.
        self.direct: Recent[Any] = Recent()
        # The options that a call may have, where they are no parameters; and for calls that have some.
        self._of_calls = _OF_CALLS - self.binder.signature.parameters.keys()
        self._others: dict[Options, Dispatch] = {}

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
            if self.binder.whole:
                adapter = next(filter(None, map(adapter_for, (*args, *named.values()))), None)
                if adapter is not None and adapter.with_whole is not None:
                    # Before options are taken off: the call is made again, on other arrays.
                    return cast(Specialisation, WholeCall(adapter, args, named)), ()
                if adapter is not None:
                    args, named = self.binder.with_plain_whole(args, named)
            if not self._of_calls.isdisjoint(named):
                options = {name: named[name] for name in self._of_calls & named.keys()}
                others = {name: value for name, value in named.items() if name not in options}
                return self._with_options(options).find(args, others, wrt, gradient)
            asked = wrt if gradient is None and not self.partials else self.asked(wrt, gradient)
            form, values = self.binder.bind(args, named, asked)
        key: Any = (form, wrt, gradient, forms_of(values))
        specialisation = self.specialisations.get(key)
        if specialisation is None:
            given, values = values, plain_arrays(values, form.names)
            if any(map(is_complex, values)):
                form, values = split(form, values)
            if values is not given:  # lists and the like have become arrays, which an earlier call may have had
                key = (form, wrt, gradient, forms_of(values))
                specialisation = self.specialisations.get(key)
        found = None if specialisation is None else self._with_captured(specialisation, key, values)
        if found is not None:
            return found
        specialisation, values_and_captured = self.specialise(form, values, wrt, gradient)
        if len(values_and_captured) > len(values):
            exact_key = key, forms_of(values_and_captured[len(values) :])
            self.specialisations.keep(exact_key, specialisation)
        return self.specialisations.keep(key, specialisation), values_and_captured

    def _with_captured(
        self, specialisation: Specialisation, key: Any, values: tuple[Any, ...]
    ) -> tuple[Specialisation, tuple[Any, ...]] | None:
        """The specialisation for the arrays that the function captures now, and all values; None if there is none."""
        captured = specialisation.program.captured(values)
        if captured is None:
            return None
        if not captured:
            return specialisation, values
        exact = self.specialisations.get((key, forms_of(captured)))
        return (exact, (*values, *captured)) if exact is not None and exact.program is specialisation.program else None

    def _with_options(self, options: dict[str, Any]) -> Dispatch:
        """The same with options that a call has given."""
        chosen = self.options.debugged(**options)
        other = self._others.get(chosen)
        return other or self._others.setdefault(chosen, Dispatch(self.binder, chosen, self.wrt, self.partials))

    def specialise(
        self, form: Form, values: tuple[Any, ...], wrt: Any, gradient: Any = None
    ) -> tuple[Specialisation, tuple[Any, ...]]:
        """A new specialisation for a call that is bound, and the values of all parameters."""
        adapter = adapter_of(values, form.names)
        program, captured = self._program(form, values, adapter)
        values = (*values, *captured)
        names = program.element.names
        signature = _signature(values, names, adapter)
        first = directions(wrt, form, names, signature, self.binder)
        second = first if gradient is None else directions(gradient, form, names, signature, self.binder)
        recorder = recorder_of(values)
        foreign = adapter if recorder is None else None
        speaks = program.speaks and self.options.debug is not False
        if foreign is None and not speaks:
            return Specialisation(program, signature, first, second, recorder), values
        # Imported here: most functions neither print nor assert, and most processes have no arrays of other libraries.
        from dualbcast.api.debug_calls import DebugSpecialisation, ForeignDebugSpecialisation
        from dualbcast.api.foreign_calls import ForeignSpecialisation

        if foreign is not None:
            kind = ForeignDebugSpecialisation if speaks else ForeignSpecialisation
            return kind(program, signature, first, second, foreign), values
        return DebugSpecialisation(program, signature, first, second, recorder), values

    def _program(self, form: Form, values: tuple[Any, ...], adapter: Adapter | None) -> tuple[Program, tuple[Any, ...]]:
        """The function lowered for values of these kinds, anew where a guard fails; and the captured arrays."""
        kinds = _signature(values, form.names, adapter).kinds
        program = self.programs.get((form, kinds))
        captured = None if program is None else program.captured(values)
        if program is not None and captured is not None:
            return program, captured
        remaining = iter(kinds)
        arguments = [_argument(slot, remaining) for slot in form.slots]
        try:
            lowered = lower(self.binder.function, arguments, array_kind, form.returns)
        except CompileError as error:
            # The compiler's frames would hide the user's lines, which the message shows.
            raise error.with_traceback(None) from None
        captured = tuple(capture.value for capture in lowered.arrays.values())
        broadcast = [value for at, value in enumerate((*values, *captured)) if at not in dict(form.whole)]
        captured = (*captured, *places_along(lowered.axes, broadcast))
        names = (*form.names, *lowered.arrays, *[f"index({axis})" for axis in lowered.axes])
        function, cores = lowered.function, None
        if form.returns is not None:
            cores = cores_of(names, function.structure)
            function = replace(function, structure=numbers(len(function.outputs)))
        element = Element(function, names, self.binder.name, self.options, cores)
        for wrt in self.partials:
            positions = directions(wrt, form, names, _signature((*values, *captured), names, adapter), self.binder)
            if len(positions) != 1:
                named = " and ".join(names[at] for at in positions)
                found = f"{len(positions)} arguments of this call{named and ', '}{named}"
                raise ArgumentError(f"partial({wrt!r}) names {found}; name one of them")
            if positions[0] in dict(form.whole):
                raise without_block(names[positions[0]])
            element = element.derive("partial", positions)

        def noted() -> Function:
            again = lower(self.binder.function, arguments, array_kind, form.returns, notes=True).function
            return replace(again, structure=function.structure)

        program = self.programs[form, kinds] = Program(element, lowered, form.whole, form.pairs, noted)
        return program, captured


def _argument(slot: Static | Core | Axes | str | None, kinds: Iterator[Kind]) -> Argument:
    """A parameter as the front end wants it; `kinds` has those of arrays and of the lengths of whole ones."""
    if isinstance(slot, Static):
        return slot
    if isinstance(slot, Core):
        return slot.taken_from(kinds)
    kind = next(kinds)
    if slot is None:
        return kind
    if isinstance(slot, str):
        next(kinds)
        return "complex"
    for _ in range(slot.ndim):
        next(kinds)
    return WholeArray(kind, slot)


def _signature(values: tuple[Any, ...], names: tuple[str, ...], adapter: Adapter | None) -> Signature:
    """The signature of the arguments, promoted by the rules of their library."""
    if adapter is None or not adapter.promotes:
        return sign(values, names)
    tokens = [sign((value,), (name,)).tokens[0] for value, name in zip(values, names, strict=True)]
    return replace(sign(adapter.promoted(values), names), tokens=tuple(tokens))


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
    kinds, whole = signature.kinds, [place for place, _ in form.whole]
    if wanted is None:
        return tuple(at for at, _ in enumerate(form.names) if kinds[at] == "float" and at not in whole)
    positions: list[int] = []
    for item, name in named_in(wanted, form.parameters, form.spread, binder.vararg):
        # One, or both parts of a complex number; or those of each element of its core.
        bases = name, *parts_named(str(name))
        own = [at for at, each in enumerate(names) if each == name or each.partition("[")[0] in bases]
        if own:
            positions += own
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
