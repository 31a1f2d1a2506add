"""Element functions: IR that broadcasts over arrays, its products for dtypes, and the functions derived from it.

Comes in: values in the order of the parameters. Goes out: arrays that a kernel has written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Literal

import numpy as np

from dualbcast.errors import ArgumentError, CompileError, nested_too_deeply
from dualbcast.ir.nodes import Function, Kind, Structure
from dualbcast.ir.traversal import floats, statements
from dualbcast.program import products
from dualbcast.program.jacobian import Jacobian
from dualbcast.program.launch import Call, Shape, run_call
from dualbcast.program.products import Which
from dualbcast.program.typed_product import Options, TypedProduct, collection_postponed, limit
from dualbcast.runtime.arguments import DType, Signature, classify, forms_of
from dualbcast.runtime.launch_plan import FastPath, Recent, plan

Derivation = Literal["partial", "select", "pushforward", "tangent", "pullback", "value_and_pullback"]


def output_dtypes(kinds: Iterable[Kind], signature: Signature) -> tuple[DType, ...]:
    """The dtypes of outputs of these kinds for the arguments of a call."""
    by_kind = {"float": signature.result_dtype, "int": np.dtype(np.int64), "bool": np.dtype(np.bool_)}
    return tuple([by_kind[kind] for kind in kinds])


class Element:
    """A function of numbers in IR that broadcasts over arrays.

    Attributes
    ----------
    function : Function
        Its IR.
    names : tuple of str
        The parameters' names in messages.
    label : str
        The function's name in messages.
    options : Options
    length : int
        How many statements it has.
    floats : tuple of int
        The positions of the outputs that are floats.
    """

    def __init__(self, function: Function, names: tuple[str, ...], label: str, options: Options) -> None:
        self.function, self.names, self.label, self.options = function, names, label, options
        self.length, self.floats = 1 + sum(1 for _ in statements(function.body)), floats(function)
        self._products: dict[tuple[Any, ...], TypedProduct] = {}
        self._derived: dict[tuple[Derivation, tuple[int, ...]], Element] = {}
        self._paths: Recent[FastPath] = Recent()

    def derive(self, derivation: Derivation, wrt: tuple[int, ...]) -> Element:
        """A function derived from this one, as an element function again.

        Parameters
        ----------
        derivation : str
            From the same parameters: the "partial" of every output in one parameter, or "select", some of the outputs.
            From the parameters and then the tangents of those at `wrt`: the "tangent" of every output, or
            "pushforward", the outputs and then their tangents. From the parameters and then the cotangents of the float
            outputs: the "pullback", which gives the cotangents of the parameters at `wrt`, or "value_and_pullback", the
            outputs and then those.
        wrt : tuple of int
            Positions of parameters; of outputs for "select".
        """
        element = self._derived.get((derivation, wrt))
        if element is None:
            with plain_errors(self.function):
                function = _derived(derivation, self.function, wrt)
            tangents = tuple(param.name for param in function.params[len(self.names) :])
            label = self.label
            if derivation != "select":
                label += f": {derivation.replace('_', ' ')} in {', '.join(self.names[at] for at in wrt)}"
            element = self._derived[derivation, wrt] = Element(function, (*self.names, *tangents), label, self.options)
        return element

    def select(self, outputs: tuple[int, ...]) -> Element:
        """Some of the outputs only."""
        return self if outputs == tuple(range(len(self.function.outputs))) else self.derive("select", outputs)

    @cached_property
    def _identity(self) -> str:
        return products.identity(self.function)

    def specialise(
        self, which: Which, signature: Signature, wrt: tuple[int, ...] = (), dtypes: tuple[DType, ...] | None = None
    ) -> TypedProduct:
        """A product for the dtypes of a call; `which` and `wrt` are as for `products.make_product`.

        For "parts", `dtypes` says which dtype each output is stored in; otherwise the arguments decide.
        """
        key = which, signature, wrt, dtypes
        if key in self._products:
            return self._products[key]
        with plain_errors(self.function), collection_postponed():
            identity = self._identity
            product = products.product(self.function, which, wrt, identity)
        limited, max_iterations = None, self.options.max_iterations
        if max_iterations is not None:
            product, limited = limit(product, max_iterations, self.label)
        stored = list(output_dtypes(product.kinds, signature))
        if limited is not None:
            stored[-1] = limited.dtype
        if dtypes is not None:
            for place, block in product.blocks.items():
                if block.stored is not None:
                    stored[block.stored] = dtypes[place[0]]
        within = f" in {', '.join(self.names[at] for at in wrt)}" if wrt else ""
        subject = "value" if which == "parts" else which.replace("_", " ")
        title = f"{self.label}: {subject}{within}; {signature.compute}"
        identity = identity and f"{which} {wrt} {max_iterations} {identity}"
        spec = self._products[key] = TypedProduct(
            product, wrt, tuple(stored), signature, title, self.options, self.names, identity, limited
        )
        return spec

    def prepare(
        self,
        which: Which,
        values: tuple[Any, ...],
        wrt: tuple[int, ...] = (),
        dtypes: tuple[DType, ...] | None = None,
        shapes: tuple[Shape | None, ...] | None = None,
        signature: Signature | None = None,
        out: Any = None,
    ) -> Call:
        """A product with arguments, ready to run; `which`, `wrt` and `dtypes` are as for `specialise`.

        Parameters
        ----------
        shapes : tuple of (tuple of int or None), optional
            For "parts": for each output None, or the shape of an array that broadcasts to the result's shape; the
            output is summed over the dimensions that the array does not span.
        signature : Signature, optional
            Of the values, where it is known.
        out : optional
            The arrays to write to, in the structure that the function returns; for a Jacobian the pair of that and a
            `Jacobian`.
        """
        operands = classify(values, self.names, signature)
        spec = self.specialise(which, operands.signature, wrt, dtypes)
        sums = None
        if shapes is not None:
            blocks = spec.product.blocks.items()
            sums = tuple([shapes[place[0]] for place, block in blocks if block.stored is not None])
        given = flatten_out(which, out, spec.product.structure)
        if spec.limit is not None:
            sums = None if sums is None else (*sums, None)
            given = None if given is None else (*(given if isinstance(given, tuple) else (given,)), None)
        is_interpreted = self.options.backend == "python"
        planned = plan(operands, spec.dtypes, given, sums, spec.product.work, is_interpreted)
        return Call(spec, operands, planned, dtypes, shapes)

    def parts(
        self,
        values: tuple[Any, ...],
        dtypes: tuple[DType, ...] | None = None,
        shapes: tuple[Shape | None, ...] | None = None,
    ) -> tuple[Any, ...]:
        """The outputs for these arguments, from one launch; see `prepare`. One that is the same number everywhere is a
        read-only view of that number.
        """
        key = dtypes, shapes, forms_of(values)
        results, outputs = run_call(self._paths, key, values, (), self.prepare, "parts", values, (), dtypes, shapes)
        return results.parts(outputs)


@contextmanager
def plain_errors(function: Function) -> Iterator[None]:
    """A block in which the compiler works on a function: its errors leave it without the compiler's own frames, which
    would only hide the user's lines."""
    try:
        yield
    except CompileError as error:
        raise error.with_traceback(None) from None
    except RecursionError:
        raise nested_too_deeply(function.location) from None


def _derived(derivation: Derivation, function: Function, wrt: tuple[int, ...]) -> Function:
    # Imported here, since most processes derive nothing.
    from dualbcast.autodiff.differentiate import partial_of, pullback_of, pushforward_of
    from dualbcast.ir.compose import restrict
    from dualbcast.ir.simplification import simplify

    if derivation == "partial":
        return partial_of(function, *wrt)
    if derivation == "select":
        return simplify(restrict(function, wrt))
    if derivation in ("pushforward", "tangent"):
        return pushforward_of(function, wrt, values=derivation == "pushforward")
    return pullback_of(function, wrt, values=derivation == "value_and_pullback")


def flatten_out(which: Which, out: Any, structure: Structure) -> Any:
    """The arrays of `out=` in the order in which the kernel stores them; None stands for one to be allocated."""
    if out is None:
        return None
    if which == "value":
        # Another structure is refused later, where arrays are checked.
        return structure.flatten(out, "out=") if structure.holds(out) else out
    if not (isinstance(out, tuple) and len(out) == 2 and isinstance(out[1], Jacobian)):
        raise ArgumentError("out= must be the pair (value, Jacobian) that an earlier call returned")
    return (*structure.flatten(out[0], "the value in out="), *out[1]._stored)
