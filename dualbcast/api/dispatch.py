"""A call's element function with its arguments, and what is derived from it: tangents forward, cotangents back."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np

from dualbcast.errors import ArgumentError, ShapeError
from dualbcast.program.element import Element, flatten_out, output_dtypes
from dualbcast.program.jacobian import broadcasts_to
from dualbcast.program.launch import Call, Ran, Shape, run
from dualbcast.program.products import Which
from dualbcast.runtime.arguments import DType, Signature, classify, extended, sign
from dualbcast.runtime.call_key import forms_of
from dualbcast.runtime.cpu.fast_path import Recent, Way
from dualbcast.runtime.cuda.memory import are_on_device, beside
from dualbcast.runtime.iteration_space import form_of, result_shape

__all__ = ["Derived", "Located", "Pullback"]

Back = Literal["pullback", "value_and_pullback"]


class Derived(NamedTuple):
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
    dtypes : tuple of numpy.dtype
        Of the outputs.
    """

    __slots__ = ("_known", "_routes", "_shape", "dtypes", "element", "gradient", "signature", "wrt")

    def __init__(
        self,
        element: Element,
        signature: Signature,
        wrt: tuple[int, ...],
        gradient: tuple[int, ...],
        known: dict[tuple[Any, ...], Derived],
    ) -> None:
        self.element, self.signature, self.wrt, self.gradient = element, signature, wrt, gradient
        self.dtypes = output_dtypes([output.value.kind for output in element.function.outputs], signature)
        # What has been derived already, for all calls of this function, by what it is, dtypes and positions.
        self._known = known
        self._routes: Recent[Way] = Recent()
        self._shape: Shape | None = None

    def prepare(self, which: Which, values: tuple[Any, ...], out: Any = None) -> Call:
        """The call of a product of the element function itself; see `Element.prepare`."""
        wrt = () if which == "value" else self.wrt
        return self.element.prepare(which, values, wrt, signature=self.signature, out=out)

    def run(self, which: Which, values: tuple[Any, ...], out: Any = None) -> Ran:
        """Make that call."""
        if out is None:
            return run(self._routes, which, values, self._prepare, (which, None))
        given = flatten_out(which, out, self.element.function.structure)
        given = given if isinstance(given, tuple) else (given,)
        forms = forms_of(given)
        if {np.ndarray}.issuperset(map(type, given)) or are_on_device(given):
            return run(self._routes, (which, forms), values, self._prepare, (which, out), given)
        with beside((*values, *given)):
            call = self.prepare(which, values, out)
            outputs = call.run()
        return call.results, outputs

    def _prepare(self, which: Which, out: Any, values: tuple[Any, ...]) -> Call:
        return self.prepare(which, values, out)

    def derive(self, what: Literal["pushforward", "tangent", "pullback", "value_and_pullback"]) -> Derived:
        """A derivative of the element function, in `wrt`; what it is called there."""
        key = what, self.signature, self.wrt
        found = self._known.get(key)
        if found is None:
            element: Element = getattr(self.element, what)(self.wrt)
            cotangents = (self.signature.result_dtype,) * len(self.element.floats)
            extra = cotangents if what.endswith("pullback") else self.gradient_dtypes()
            found = Derived(element, extra, extended(self.signature, extra, element.names))
            self._known[key] = found
        return found

    def forward(self, what: Literal["pushforward", "tangent"], values: tuple[Any, ...], tangents: list[Any]) -> Ran:
        """Values with tangents, or the Jacobian of tangents."""
        found = self.derive(what)
        given = self._tangents(found.extra, values, tangents)
        every = (*values, *given)
        return run(self._routes, (what, forms_of(given)), every, self._forward, (what, found))

    def _forward(self, what: Literal["pushforward", "tangent"], found: Derived, values: tuple[Any, ...]) -> Call:
        which: Which = "parts" if what == "pushforward" else "jacobian"
        wrt = () if what == "pushforward" else self.gradient
        return found.element.prepare(which, values, wrt, signature=found.signature)

    def back(self, what: Back, values: tuple[Any, ...], cotangents: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of parameters for cotangents of all outputs, or the outputs and then these."""
        given = self._of_floats(cotangents)
        key = what, forms_of(given)
        if key not in self._routes:
            # As cotangents of the forms of the key they would be left as they are.
            given = self._checked(given, self._shape_of(values))
            key = what, forms_of(given)
        results, outputs = run(self._routes, key, (*values, *given), self._back, (what,))
        return results.parts(outputs)

    def _back(self, what: Back, values: tuple[Any, ...]) -> Call:
        found = self.derive(what)
        shapes: tuple[Shape | None, ...] = tuple([_shape_of(values[at]) for at in self.wrt])
        dtypes = self.gradient_dtypes()
        if what == "value_and_pullback":
            shapes = ((None,) * len(self.dtypes)) + shapes
            dtypes = (*self.dtypes, *dtypes)
        return found.element.prepare("parts", values, (), dtypes, shapes, found.signature)

    def _shape_of(self, values: tuple[Any, ...]) -> Shape:
        """The shape that the arguments broadcast to; that of the outputs."""
        if self._shape is None:
            with beside(values):
                operands = classify(values, self.element.names, self.signature)
            self._shape = result_shape(tuple(map(form_of, operands.arrays)), self.element.names)
        return self._shape

    def _of_floats(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """The cotangents of the float outputs from those of all outputs."""
        structure, floats = self.element.function.structure, self.element.floats
        if len(given) == 1 and structure.holds(given[0]):
            given = structure.flatten(given[0], "the cotangent")
        if len(given) != structure.count:
            raise ArgumentError(f"{structure.count} cotangents are needed, one for each output; got {len(given)}")
        return given if len(floats) == len(given) else tuple([given[at] for at in floats])

    def _checked(self, given: tuple[Any, ...], shape: Shape) -> tuple[Any, ...]:
        """The cotangents of the float outputs, in the dtype of the result."""
        count, dtype = self.element.function.structure.count, self.signature.result_dtype
        found = []
        for at, cotangent in zip(self.element.floats, given, strict=True):
            if type(cotangent) is not np.ndarray or cotangent.dtype != dtype or cotangent.shape != shape:
                name = f"the cotangent of output {at}" if count > 1 else "the cotangent"
                cotangent = _cotangent(cotangent, dtype, shape, name)
            found.append(cotangent)
        return tuple(found)

    def example(self, product: str, call: Call, values: tuple[Any, ...]) -> Call:
        """A call for a derived product, to be looked at; `call` is that of the value."""
        if product in ("vjp", "value_and_vjp"):
            back: Back = "pullback" if product == "vjp" else "value_and_pullback"
            zeros = [call.library.empty(call.shape, dtype) for dtype in self.derive(back).extra]
            return self._back(back, (*values, *zeros))
        shapes = [_shape_of(values[at]) for at in self.wrt]
        what: Literal["pushforward", "tangent"] = "pushforward" if product == "jvp" else "tangent"
        found = self.derive(what)
        tangents = [call.library.empty(shape, dtype) for shape, dtype in zip(shapes, found.extra, strict=True)]
        return self._forward(what, found, (*values, *tangents))

    def gradient_dtypes(self) -> tuple[DType, ...]:
        """The dtypes of the cotangents of arguments: their own; for Python numbers and uint64 that of the result."""
        return tuple([_gradient_dtype(self.signature, at) for at in self.wrt])

    def _tangents(self, dtypes: tuple[DType, ...], values: tuple[Any, ...], given: list[Any]) -> tuple[Any, ...]:
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
            own, shape = _shape_of(values[at]), tangent.shape
            if shape != own and not broadcasts_to(shape, own):
                raise ShapeError(
                    f"the tangent of {self.element.names[at]} has shape {shape}, "
                    f"which does not broadcast to that of the argument, {own}"
                )
            found.append(tangent)
        return tuple(found)


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
        located = self._located
        return located.back("pullback", self._values, cotangents)


def _shape_of(value: Any) -> Shape:
    """The shape of an array or a number."""
    return getattr(value, "shape", ())


def _gradient_dtype(signature: Signature, at: int) -> DType:
    token = signature.tokens[at]
    if isinstance(token, type) or token.kind in "iu":
        return signature.result_dtype
    # Kernels write in the machine's byte order.
    return token if token.isnative else token.newbyteorder("=")


def _cotangent(value: Any, dtype: DType, shape: Shape, name: str) -> Any:
    """A cotangent in the dtype of the result."""
    if value is None:
        raise ArgumentError(f"{name} is None; give zeros where it is zero")
    value = _converted(value, dtype, name)
    if value.shape != shape:
        raise ShapeError(f"{name} has shape {value.shape}; it must have that of the output, {shape}")
    return value


def _converted(value: Any, dtype: DType, name: str) -> Any:
    """An array or a number in a float dtype."""
    token = sign((value,), (name,)).tokens[0]
    if isinstance(token, type):
        return dtype.type(value)
    if token == dtype:
        return value
    with beside((value,)):
        return value.astype(dtype)
