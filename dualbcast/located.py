"""A call's element function with its arguments, and what is derived from it: tangents forward, cotangents back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dualbcast.call import Call, Ran, Shape, run
from dualbcast.element import Element
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.jacobian import broadcasts_to
from dualbcast.products import Which
from dualbcast.runtime.cuda_memory import beside
from dualbcast.runtime.operands import DType, Signature, extended, forms_of, sign
from dualbcast.runtime.route import Recent, Way

__all__ = ["Derived", "Located", "Pullback"]


@dataclass(frozen=True, slots=True)
class Derived:
    """A function derived from that of a call, for the call's dtypes.

    Attributes
    ----------
    element : Element
        Of the arguments, and then of tangents or cotangents.
    extra : tuple of numpy.dtype
        What those must have.
    signature : Signature
        Of the arguments and those.
    """

    element: Element
    extra: tuple[DType, ...]
    signature: Signature


class Located:
    """The element function of all calls whose arguments, and captured arrays, have the same forms.

    Attributes
    ----------
    element : Element
    signature : Signature
    wrt : tuple of int
        The parameters to differentiate in: those that have tangents, or are to get cotangents.
    gradient : tuple of int
        For products of a Hessian with tangents, the parameters whose gradient is meant.
    """

    __slots__ = ("_known", "_routes", "element", "gradient", "signature", "wrt")

    def __init__(
        self,
        element: Element,
        signature: Signature,
        wrt: tuple[int, ...],
        gradient: tuple[int, ...],
        known: dict[tuple[Any, ...], Derived],
    ) -> None:
        self.element, self.signature, self.wrt, self.gradient = element, signature, wrt, gradient
        # What has been derived already, for all calls of this function, by what it is, dtypes and positions.
        self._known = known
        self._routes: Recent[Way] = Recent()

    def prepare(self, which: Which, values: tuple[Any, ...], out: Any = None) -> Call:
        """The call of a product of the element function itself; see `Element.prepare`."""
        wrt = () if which == "value" else self.wrt
        return self.element.prepare(which, values, wrt, signature=self.signature, out=out)

    def run(self, which: Which, values: tuple[Any, ...], out: Any = None) -> Ran:
        """Make that call."""
        if out is None:
            return run(self._routes, which, values, lambda: self.prepare(which, values))
        with beside(values):
            call = self.prepare(which, values, out)
            outputs = call.run()
        return call.results, outputs

    def derive(self, what: Literal["pushforward", "tangent", "pullback"]) -> Derived:
        """A derivative of the element function, in `wrt`; what it is called there."""
        key = what, self.signature, self.wrt
        found = self._known.get(key)
        if found is None:
            element: Element = getattr(self.element, what)(self.wrt)
            cotangents = (self.signature.result_dtype,) * len(self.element.floats)
            extra = cotangents if what == "pullback" else self.gradient_dtypes()
            found = Derived(element, extra, extended(self.signature, extra, element.names))
            self._known[key] = found
        return found

    def forward(self, what: Literal["pushforward", "tangent"], values: tuple[Any, ...], tangents: list[Any]) -> Ran:
        """Values with tangents, or the Jacobian of tangents."""
        found = self.derive(what)
        given = self._tangents(found.extra, values, tangents)
        every = (*values, *given)
        return run(self._routes, (what, forms_of(given)), every, lambda: self._forward(what, found, every))

    def _forward(self, what: Literal["pushforward", "tangent"], found: Derived, values: tuple[Any, ...]) -> Call:
        which: Which = "parts" if what == "pushforward" else "jacobian"
        wrt = () if what == "pushforward" else self.gradient
        return found.element.prepare(which, values, wrt, signature=found.signature)

    def back(self, values: tuple[Any, ...], given: tuple[Any, ...], shapes: tuple[Shape, ...]) -> Ran:
        """The cotangents of parameters, which have these shapes, for cotangents of the float outputs."""
        every = (*values, *given)
        key = "pullback", forms_of(given)
        return run(self._routes, key, every, lambda: self._back(every, shapes))

    def _back(self, values: tuple[Any, ...], shapes: tuple[Shape, ...]) -> Call:
        found = self.derive("pullback")
        return found.element.prepare("parts", values, (), self.gradient_dtypes(), shapes, found.signature)

    def example(self, product: str, call: Call, values: tuple[Any, ...]) -> Call:
        """A call for a derived product, to be looked at; `call` is that of the value."""
        shapes = tuple([np.shape(values[at]) for at in self.wrt])
        if product == "vjp":
            zeros = [call.library.empty(call.shape, dtype) for dtype in self.derive("pullback").extra]
            return self._back((*values, *zeros), shapes)
        what: Literal["pushforward", "tangent"] = "pushforward" if product == "jvp" else "tangent"
        found = self.derive(what)
        tangents = [call.library.empty(shape, dtype) for shape, dtype in zip(shapes, found.extra, strict=True)]
        return self._forward(what, found, (*values, *tangents))

    def gradient_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the cotangents of arguments: their own; for Python numbers and uint64 that of the result."""
        return tuple([_gradient_dtype(self.signature, at) for at in self.wrt])

    def _tangents(self, dtypes: tuple[DType, ...], values: tuple[Any, ...], given: list[Any]) -> list[Any]:
        """The tangents, checked, in the dtypes that do not change that of the result."""
        if not given:
            raise ArgumentError("no argument has a tangent; give at least one")
        if len(self.wrt) != len(given):
            raise ArgumentError(
                "a tangent is for one argument, and an argument has one tangent; name each argument once"
            )
        found = []
        for at, tangent, dtype in zip(self.wrt, given, dtypes, strict=True):
            if type(tangent) is not np.ndarray or tangent.dtype != dtype:
                tangent = _converted(tangent, dtype, f"the tangent of {self.element.names[at]}")
            own, shape = np.shape(values[at]), tangent.shape
            if shape != own and not broadcasts_to(shape, own):
                raise ShapeError(
                    f"the tangent of {self.element.names[at]} has shape {shape}, "
                    f"which does not broadcast to that of the argument, {own}"
                )
            found.append(tangent)
        return found


class Pullback:
    """Carries cotangents of a function's outputs back to its arguments; what `vjp` returns.

    Attributes
    ----------
    shape : tuple of int
        What the cotangents of the outputs must have.
    """

    def __init__(self, located: Located, values: tuple[Any, ...], shape: Shape) -> None:
        self._located, self._values, self.shape = located, values, shape

    @property
    def wrt(self) -> tuple[str, ...]:
        """The arguments that it gives cotangents of."""
        return tuple([self._located.element.names[at] for at in self._located.wrt])

    def __repr__(self) -> str:
        return f"<Pullback of {self._located.element.label} to ({', '.join(self.wrt)}), shape {self.shape}>"

    def __call__(self, *cotangents: Any) -> tuple[Any, ...]:
        """The cotangents of the arguments.

        Parameters
        ----------
        *cotangents : array
            One for each output, of its shape; or one object such as the function returns, with them in it. Those of
            outputs that are integers or bools do not matter, and may be None.

        Returns
        -------
        tuple of array
            One for each argument in `wrt`, of its shape and dtype; that of a Python number has the dtype of the result.
            Where no output depends on the argument, it is a read-only view of one zero.

        Raises
        ------
        ArgumentError, ShapeError, DTypeError
            The cotangents do not fit; nothing has run.
        """
        located, values = self._located, self._values
        structure, floats = located.element.function.structure, located.element.floats
        if len(cotangents) == 1 and structure.holds(cotangents[0]):
            cotangents = structure.flatten(cotangents[0], "the cotangent")
        if len(cotangents) != structure.count:
            raise ArgumentError(f"{structure.count} cotangents are needed, one for each output; got {len(cotangents)}")
        dtype, shape = located.signature.result_dtype, self.shape
        given = []
        for at in floats:
            cotangent = cotangents[at]
            if type(cotangent) is not np.ndarray or cotangent.dtype != dtype or cotangent.shape != shape:
                cotangent = self._checked(cotangent, dtype, f" of output {at}" if structure.count > 1 else "")
            given.append(cotangent)
        shapes = tuple([np.shape(values[at]) for at in located.wrt])
        results, outputs = located.back(values, tuple(given), shapes)
        return results.parts(outputs)

    def _checked(self, cotangent: Any, dtype: DType, which: str) -> Any:
        """A cotangent in the dtype of the result."""
        name = f"the cotangent{which}"
        if cotangent is None:
            raise ArgumentError(f"{name} is None; give zeros where it is zero")
        cotangent = _converted(cotangent, dtype, name)
        if cotangent.shape != self.shape:
            raise ShapeError(f"{name} has shape {cotangent.shape}; it must have that of the output, {self.shape}")
        return cotangent


def _gradient_dtype(signature: Signature, at: int) -> DType:
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
    return value if token == dtype else value.astype(dtype)
