"""A primitive of JAX that applies an element function, and its rules: shapes, derivatives and batches.

The derivative of an element function is an element function, and so is the transpose of that: the rules bind the
primitive again, and derivatives of any order come by recursion. A Jacobian is stored where it is dear to compute anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching

from dualbcast.ir.nodes import Const
from dualbcast.program.element import Element
from dualbcast.program.products import every_result
from dualbcast.runtime.arguments import DType
from dualbcast.runtime.iteration_space import Shapes, result_shape


class Linear(NamedTuple):
    """How an element function that is linear in its last arguments was derived from `base`: it is the "tangent" or the
    "pullback" in the parameters `wrt`. All outputs of `base` are floats."""

    derivation: Literal["tangent", "pullback"]
    base: Element
    wrt: tuple[int, ...]

    @property
    def element(self) -> Element:
        """The element function."""
        return self.base.derive(self.derivation, self.wrt)


class Application(NamedTuple):
    """The parameters of the primitive: an element function, the dtype of each output, the shape that each is summed to
    (None where it is not summed), the dtype of the arithmetic; and, if it is linear, how it was derived."""

    element: Element
    dtypes: tuple[DType, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    compute: str
    linear: Linear | None = None

    def __call__(self, *operands: Any) -> list[Any]:
        """The outputs for arrays of JAX, or tracers."""
        outputs: list[Any] = PRIMITIVE.bind(*operands, application=self)
        return outputs

    def __repr__(self) -> str:
        return f"<{self.element.label}>"

    @property
    def sums(self) -> Shapes:
        """The shapes of sums, or None where nothing is summed."""
        return None if all(shape is None for shape in self.shapes) else self.shapes


PRIMITIVE = Primitive("dualbcast")
PRIMITIVE.multiple_results = True


def space_of(element: Element, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that arguments of these shapes broadcast to."""
    forms = [(shape, (), np.dtype(np.float32)) for shape in shapes]  # the dtypes do not matter
    return result_shape(tuple(forms), element.names)


def abstract(*avals: Any, application: Application) -> list[Any]:
    """The shapes and dtypes of the outputs."""
    space = space_of(application.element, [aval.shape for aval in avals])
    return [
        jax.core.ShapedArray(space if shape is None else shape, dtype)
        for shape, dtype in zip(application.shapes, application.dtypes, strict=True)
    ]


@lru_cache(maxsize=4096)
def _compiled(application: Application) -> Any:
    return jax.jit(application.__call__)


def _run(*operands: Any, application: Application) -> list[Any]:
    # Without `jit` the primitive would be run again, and so on: a kernel runs in compiled programs alone.
    with jax.disable_jit(False) if jax.config.jax_disable_jit else nullcontext():
        outputs: list[Any] = _compiled(application)(*operands)
    return outputs


PRIMITIVE.def_impl(_run)
PRIMITIVE.def_abstract_eval(abstract)


def runs_in_python(element: Element) -> bool:
    """Whether XLA calls Python: for the interpreter, and for kernels whose loops have a limit or whose results are
    checked, since only Python can raise an error that says where."""
    options = element.options
    return options.backend == "python" or options.max_iterations is not None or options.check is not None


# --- derivatives ------------------------------------------------------------------------------------------------------


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, application: Application) -> tuple[list[Any], list[Any]]:
    """The outputs, and their tangents by a function that is linear in those of the arguments."""
    wrt = tuple([at for at, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)])
    given = [tangents[at] for at in wrt]
    if _keeps(application, wrt):
        outputs, moving, results = _with_kept_jacobian(application, primals, wrt, given)
    else:
        outputs, (moving, results) = application(*primals), _tangents(application, primals, wrt, given)
    found: list[Any] = [ad.Zero(jax.typeof(output).to_tangent_aval()) for output in outputs]
    for at, tangent in zip(moving, results, strict=True):
        found[at] = tangent
    return outputs, found


def _tangents(
    application: Application, primals: Sequence[Any], wrt: tuple[int, ...], given: list[Any]
) -> tuple[tuple[int, ...], list[Any]]:
    """The outputs that have a tangent, and these tangents, for which the derivatives are computed anew."""
    element = application.element
    tangents = element.select(element.floats).derive("tangent", wrt).function.outputs
    moving = tuple([at for at, each in zip(element.floats, tangents, strict=True) if not _is_zero(each.value)])
    if not moving:
        return (), []
    linear = Linear("tangent", element.select(moving), wrt)
    dtypes = tuple([application.dtypes[at] for at in moving])
    shapes = tuple([application.shapes[at] for at in moving])
    tangent_of = Application(linear.element, dtypes, shapes, application.compute, linear)
    return moving, tangent_of(*primals, *given)


# The elements for which two ways are compared. How many a call has is not known: under `vmap` it seems to be one.
_TYPICAL_SIZE = 1 << 20


def _keeps(application: Application, wrt: tuple[int, ...]) -> bool:
    """Whether the Jacobian is computed with the outputs, for tangents and cotangents to be multiplied by it."""
    element = application.element
    options = element.options
    if application.sums is not None or options.jacobian == "recompute" or runs_in_python(element):
        return False
    if options.jacobian == "cache":
        return True
    # Imported here, since it needs the graph.
    from dualbcast.graph.checkpoint_policy import compare

    itemsize = np.dtype(application.compute).itemsize
    counts = len(element.function.params), len(wrt)
    read, gradients = (count * itemsize * _TYPICAL_SIZE for count in counts)
    return compare(element, wrt, _TYPICAL_SIZE, itemsize, read, gradients, "numpy").keeps


def _with_kept_jacobian(
    application: Application, primals: Sequence[Any], wrt: tuple[int, ...], given: list[Any]
) -> tuple[list[Any], tuple[int, ...], list[Any]]:
    """The outputs, those of them that have a tangent, and these tangents, all from one kernel and a contraction."""
    kept = _kept(application.element, wrt)
    compute, count = np.dtype(application.compute), len(application.dtypes)
    dtypes = (*application.dtypes, *[compute] * kept.blocks)
    outputs = Application(kept.element, dtypes, (None,) * len(dtypes), application.compute)(*primals)
    if kept.linear is None:
        return outputs, (), []
    moving = tuple([application.dtypes[at] for at in kept.moving])
    # The contraction has arguments that its tangents do not depend on.
    operands = [*outputs[count:], *[jnp.zeros((), compute)] * len(wrt), *given]
    if _space_of(operands) != outputs[0].shape:  # All blocks are numbers, and an argument without tangent is larger.
        operands[-1] = jnp.broadcast_to(operands[-1], outputs[0].shape)
    contraction = Application(kept.linear.element, moving, (None,) * len(moving), application.compute, kept.linear)
    return outputs[:count], kept.moving, contraction(*operands)


class _Kept(NamedTuple):
    """The `element` function that gives the outputs and then the `blocks` of the Jacobian that vary; the outputs
    `moving` that have a tangent; and the function of the blocks that is linear in the tangents of the arguments."""

    element: Element
    blocks: int
    moving: tuple[int, ...]
    linear: Linear | None


@lru_cache(maxsize=4096)
def _kept(element: Element, wrt: tuple[int, ...]) -> _Kept:
    from dualbcast.graph.lazy import contracted

    function, places = every_result(element.function, "value_and_jacobian", wrt)
    count = len(element.function.outputs)
    both = Element(function, element.names, f"{element.label}: value and Jacobian", element.options)
    blocks = {place: (at, function.outputs[at].value) for at, place in enumerate(places) if len(place) > 1}
    moving = tuple([i for i in range(count) if any(not _is_zero(blocks[i, p][1]) for p in wrt)])

    def number(i: int, p: int) -> float | None:
        value = blocks[i, p][1]
        return float(value.value) if isinstance(value, Const) else None

    # To contract with tangents is to contract the transposed Jacobian with cotangents.
    pattern = tuple([tuple([number(i, p) for i in moving]) for p in wrt])
    varying = [blocks[i, p][0] for p in wrt for i in moving if number(i, p) is None]
    linear = None
    if moving:
        contraction = contracted(pattern, element.label)
        linear = Linear("tangent", contraction, tuple(range(len(varying), len(varying) + len(wrt))))
    return _Kept(both.select((*range(count), *varying)), len(varying), moving, linear)


def _is_zero(value: Any) -> bool:
    return isinstance(value, Const) and value.value == 0


def _transpose(cotangents: Sequence[Any], *operands: Any, application: Application) -> list[Any]:
    """The cotangents of the arguments in which the function is linear, summed where those were broadcast."""
    linear = application.linear
    if linear is None:
        raise NotImplementedError(f"{application.element.label} is not linear, so that it has no transpose")
    count = len(linear.base.function.params)
    wanted = [at for at, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
    given = [at for at, cotangent in enumerate(cotangents) if not isinstance(cotangent, ad.Zero)]
    found: list[Any] = [ad.Zero(operand.aval) if ad.is_undefined_primal(operand) else None for operand in operands]
    if not wanted or not given:
        return found
    if wanted[0] < count:
        raise NotImplementedError(
            f"{application.element.label} is not linear in {application.element.names[wanted[0]]}"
        )
    directions = [at - count for at in wanted]
    if linear.derivation == "tangent":
        base = linear.base.select(tuple(given))
        derived = Linear("pullback", base, tuple([linear.wrt[at] for at in directions]))
    else:
        base = linear.base.select(tuple(directions))
        derived = Linear("tangent", base, tuple([linear.wrt[at] for at in given]))
    avals = [operands[at].aval for at in wanted]
    space = space_of(application.element, [jnp.shape(_aval(operand)) for operand in operands])
    values = [*operands[:count], *[cotangents[at] for at in given]]
    assert _space_of(values) == space, "every term of a sum is there"
    shapes = tuple([None if aval.shape == space else aval.shape for aval in avals])
    dtypes = tuple([np.dtype(aval.dtype) for aval in avals])
    results = Application(derived.element, dtypes, shapes, application.compute, derived)(*values)
    for at, result in zip(wanted, results, strict=True):
        found[at] = result
    return found


def _aval(operand: Any) -> Any:
    return operand.aval if ad.is_undefined_primal(operand) else operand


def _space_of(values: Sequence[Any]) -> tuple[int, ...]:
    return np.broadcast_shapes(*[jnp.shape(value) for value in values])


ad.primitive_jvps[PRIMITIVE] = _jvp
ad.primitive_transposes[PRIMITIVE] = _transpose


# --- batches ----------------------------------------------------------------------------------------------------------


def _batch(
    operands: Sequence[Any], axes: Sequence[int | None], *, application: Application
) -> tuple[list[Any], list[int]]:
    """Outputs with the axis of the batch in front, by broadcasting along it."""
    shapes = [
        jnp.shape(operand) if axis is None else (*operand.shape[:axis], *operand.shape[axis + 1 :])
        for operand, axis in zip(operands, axes, strict=True)
    ]
    rank = len(space_of(application.element, shapes))
    size = next(operand.shape[axis] for operand, axis in zip(operands, axes, strict=True) if axis is not None)
    moved = [
        operand if axis is None else jnp.moveaxis(operand, axis, 0).reshape(size, *[1] * (rank - len(shape)), *shape)
        for operand, axis, shape in zip(operands, axes, shapes, strict=True)
    ]
    sums = application.shapes
    wide = [None if own is None else (size, *[1] * (rank - len(own)), *own) for own in sums]
    outputs = application._replace(shapes=tuple(wide))(*moved)
    narrow = [output if own is None else output.reshape(size, *own) for output, own in zip(outputs, sums, strict=True)]
    return narrow, [0] * len(narrow)


batching.primitive_batchers[PRIMITIVE] = _batch
