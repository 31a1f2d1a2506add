"""Calls of a function with `print` or `assert` in it: these statements run first, and then the kernel without them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from dualbcast.adapters import adapter_of
from dualbcast.api.foreign_calls import ForeignSpecialisation
from dualbcast.api.specialisation import Specialisation
from dualbcast.program.debug_statements import DebugStatements
from dualbcast.program.element import Derivation, Ran, Summed
from dualbcast.program.products import Which
from dualbcast.runtime.arguments import is_array


class DebugSpecialisation(Specialisation):
    """A function whose statements speak, for calls whose arguments have the same forms."""

    @cached_property
    def _statements(self) -> DebugStatements:
        element = self.element
        return DebugStatements(self.program.noted(), element.names, element.label, element.options)

    def speak(self, values: tuple[Any, ...]) -> None:
        """Run the statements for the arguments of a call, if its arrays are on the host, or with the option `debug`."""
        adapter = adapter_of(values, self.element.names)
        if adapter is not None:
            found = adapter.on_host(self.element, values)
            if found is not None:
                self._statements.run(*found)
        elif self.element.options.debug or not any(is_array(value, "cupy") for value in values):
            self._statements.run(values)

    def run(self, which: Which, values: tuple[Any, ...], out: tuple[Any, ...] | None = None, forms: Any = None) -> Ran:
        self.speak(values)
        return super().run(which, values, out, forms)

    def forward(
        self, derivation: Derivation, values: tuple[Any, ...], tangents: list[Any], new: tuple[Any, ...] = ()
    ) -> Ran:
        self.speak(values)
        return super().forward(derivation, values, tangents, new)

    def back(self, derivation: Derivation, values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        # The pullback of `vjp` follows a call that has run them.
        if derivation == "value_and_pullback":
            self.speak(values)
        return super().back(derivation, values, cotangents)

    def sums(self, derivation: Summed | None, values: tuple[Any, ...], weights: Any = None) -> Ran:
        self.speak(values)
        return super().sums(derivation, values, weights)


class ForeignDebugSpecialisation(DebugSpecialisation, ForeignSpecialisation):
    """The same for calls on arrays of another library's."""

    def _call(self, function: object, specialisation: object, values: tuple[Any, ...], out: Any) -> Any:
        self.speak(values)
        return super()._call(function, specialisation, values, out)
