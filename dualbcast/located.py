"""A call's element function with its arguments, and what is derived from it: tangents forward, cotangents back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from dualbcast.call import Call
from dualbcast.element import Element
from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.jacobian import broadcasts_to
from dualbcast.products import Which
from dualbcast.runtime.operands import DType, Signature, sign

__all__ = ["Derived", "Located", "Pullback", "gradient_dtypes"]


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


@dataclass(frozen=True, slots=True)
class Located:
    """A call's element function with its arguments: the arrays and numbers, and the captured arrays.

    Attributes
    ----------
    element : Element
    values : tuple
    signature : Signature
    wrt : tuple of int
        The parameters to differentiate in: those that have tangents, or are to get cotangents.
    gradient : tuple of int
        For products of a Hessian with tangents, the parameters whose gradient is meant.
    known : dict
        What has been derived already, for all calls of this function, by what it is, dtypes and positions.
    """

    element: Element
    values: tuple[Any, ...]
    signature: Signature
    wrt: tuple[int, ...]
    gradient: tuple[int, ...]
    known: dict[tuple[Any, ...], Derived]

    def derive(self, what: Literal["pushforward", "tangent", "pullback"]) -> Derived:
        """A derivative of the element function, in `wrt`; what it is called there."""
        key = what, self.signature, self.wrt
        found = self.known.get(key)
        if found is None:
            element: Element = getattr(self.element, what)(self.wrt)
            cotangents = (self.signature.result_dtype,) * len(self.element.floats)
            extra = cotangents if what == "pullback" else gradient_dtypes(self)
            examples = [np.empty((), dtype) for dtype in extra]
            found = Derived(element, extra, sign((*self.values, *examples), element.names))
            self.known[key] = found
        return found

    def forward(self, what: Literal["pushforward", "tangent"], tangents: list[Any]) -> Call:
        """The call that gives values with tangents, or the Jacobian of tangents."""
        found = self.derive(what)
        given = _tangents(self, found.extra, tangents)
        which: Which = "parts" if what == "pushforward" else "jacobian"
        wrt = () if what == "pushforward" else self.gradient
        return found.element.prepare(which, (*self.values, *given), wrt, signature=found.signature)

    def example(self, product: str, call: Call) -> Call:
        """A call for a derived product, to be looked at; `call` is that of the value."""
        if product == "vjp":
            zeros = [call.library.empty(call.shape, dtype) for dtype in call.spec.dtypes]
            return Pullback(self, call.shape).prepare(*zeros)
        shapes = [np.shape(self.values[at]) for at in self.wrt]
        tangents = [
            call.library.empty(shape, dtype) for shape, dtype in zip(shapes, gradient_dtypes(self), strict=True)
        ]
        return self.forward("pushforward" if product == "jvp" else "tangent", tangents)


class Pullback:
    """Carries cotangents of a function's outputs back to its arguments; what `vjp` returns.

    Attributes
    ----------
    wrt : tuple of str
        The arguments that it gives cotangents of.
    shape : tuple of int
        What the cotangents of the outputs must have.
    """

    def __init__(self, located: Located, shape: tuple[int, ...]) -> None:
        self._located, self.shape = located, shape
        self._derived = located.derive("pullback")
        self._dtypes = gradient_dtypes(located)
        self._shapes = tuple([np.shape(located.values[at]) for at in located.wrt])
        self.wrt = tuple([located.element.names[at] for at in located.wrt])

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
        call = self.prepare(*cotangents)
        call.run()
        return call.results()

    def prepare(self, *cotangents: Any) -> Call:
        """The call that is about to run."""
        located, found = self._located, self._derived
        structure, floats = located.element.function.structure, located.element.floats
        if len(cotangents) == 1 and structure.holds(cotangents[0]):
            cotangents = structure.flatten(cotangents[0], "the cotangent")
        if len(cotangents) != structure.count:
            raise ArgumentError(f"{structure.count} cotangents are needed, one for each output; got {len(cotangents)}")
        given = []
        for at, dtype in zip(floats, found.extra, strict=True):
            name = "the cotangent" if structure.count == 1 else f"the cotangent of output {at}"
            if cotangents[at] is None:
                raise ArgumentError(f"{name} is None; give zeros where it is zero")
            cotangent = _converted(cotangents[at], dtype, name)
            if cotangent.shape != self.shape:
                raise ShapeError(f"{name} has shape {cotangent.shape}; it must have that of the output, {self.shape}")
            given.append(cotangent)
        values = (*located.values, *given)
        return found.element.prepare("parts", values, (), self._dtypes, self._shapes, found.signature)


def gradient_dtypes(located: Located) -> tuple[DType, ...]:
    """The dtypes of the cotangents of arguments: their own; for Python numbers and uint64 that of the result."""
    return tuple([_gradient_dtype(located.signature, at) for at in located.wrt])


def _gradient_dtype(signature: Signature, at: int) -> DType:
    token = signature.tokens[at]
    if isinstance(token, type) or token.kind in "iu":
        return signature.result_dtype
    # Kernels write in the machine's byte order.
    return token if token.isnative else token.newbyteorder("=")


def _tangents(located: Located, dtypes: tuple[DType, ...], given: list[Any]) -> list[Any]:
    """The tangents, checked, in the dtypes that do not change that of the result."""
    if not given:
        raise ArgumentError("no argument has a tangent; give at least one")
    if len(located.wrt) != len(given):
        raise ArgumentError("a tangent is for one argument, and an argument has one tangent; name each argument once")
    found = []
    for at, tangent, dtype in zip(located.wrt, given, dtypes, strict=True):
        name = f"the tangent of {located.element.names[at]}"
        tangent = _converted(tangent, dtype, name)
        own, shape = np.shape(located.values[at]), tangent.shape
        if shape != own and not broadcasts_to(shape, own):
            raise ShapeError(f"{name} has shape {shape}, which does not broadcast to that of the argument, {own}")
        found.append(tangent)
    return found


def _converted(value: Any, dtype: DType, name: str) -> Any:
    """An array or a number in a float dtype."""
    if type(value) is np.ndarray and value.dtype == dtype:
        return value
    token = sign((value,), (name,)).tokens[0]
    if isinstance(token, type):
        return dtype.type(value)
    return value if token == dtype else value.astype(dtype)
