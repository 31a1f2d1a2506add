"""A primitive of JAX that makes a call with whole arrays on the host, in compiled functions too, and its rules.

Comes in: a call, or a derivative of one, and the shapes of its results. Goes out: arrays of JAX's, or tracers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from dualbcast.interop.bridge import Bridge, Pullback, Pushforward

_PRIMITIVE = Primitive("dualbcast_whole")
_PRIMITIVE.multiple_results = True
# The shape and the dtype of each result.
_Likes = tuple[tuple[tuple[int, ...], Any], ...]


def bind(call: Bridge, likes: _Likes, *operands: Any) -> list[Any]:
    """The results of a call."""
    found: list[Any] = _PRIMITIVE.bind(*operands, call=call, likes=likes)
    return found


def _likes(values: Sequence[Any]) -> _Likes:
    return tuple([(tuple(value.shape), value.dtype) for value in values])


def _on_host(*operands: Any, call: Bridge, likes: _Likes) -> list[Any]:
    found = call.evaluate(*map(np.asarray, operands))
    return [np.asarray(array, dtype) for array, (_, dtype) in zip(found, likes, strict=True)]


def _run(*operands: Any, **static: Any) -> list[Any]:
    return [*map(jnp.asarray, _on_host(*operands, **static))]


def _lowered(*operands: Any, call: Bridge, likes: _Likes) -> list[Any]:
    forms = [jax.ShapeDtypeStruct(*each) for each in likes]
    return list(jax.pure_callback(lambda *values: _on_host(*values, call=call, likes=likes), forms, *operands))


_PRIMITIVE.def_impl(_run)
_PRIMITIVE.def_abstract_eval(lambda *_, call, likes: [jax.core.ShapedArray(*each) for each in likes])  # noqa: ARG005
mlir.register_lowering(_PRIMITIVE, mlir.lower_fun(_lowered, multiple_results=True))


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, call: Bridge, likes: _Likes
) -> tuple[list[Any], list[Any]]:
    outputs = bind(call, likes, *primals)
    wanted = tuple([at for at, tangent in enumerate(tangents) if not isinstance(tangent, ad.Zero)])
    pushed = Pushforward(call, wanted, len(primals))
    moving = bind(pushed, tuple([likes[at] for at in call.floats]), *primals, *[tangents[at] for at in wanted])
    found: list[Any] = [ad.Zero(jax.typeof(output).to_tangent_aval()) for output in outputs]
    for at, tangent in zip(call.floats, moving, strict=True):
        found[at] = tangent
    return outputs, found


def _transpose(cotangents: Sequence[Any], *operands: Any, call: Bridge, likes: _Likes) -> list[Any]:
    """The cotangents of tangents, by the pullback; of cotangents, by the pushforward."""
    assert isinstance(call, Pullback | Pushforward), "a call is not linear"
    count, inputs = call.count, operands[: call.count]
    linear = [at for at, operand in enumerate(operands) if ad.is_undefined_primal(operand)]
    given = [
        jnp.zeros(*like) if isinstance(each, ad.Zero) else each for each, like in zip(cotangents, likes, strict=True)
    ]
    avals = [operands[at].aval for at in linear]
    found: list[Any] = [None] * len(operands)
    if isinstance(call, Pushforward):
        wanted = tuple([call.wanted[at - count] for at in linear])
        results = bind(Pullback(call.of, wanted, count), _likes(avals), *inputs, *given)
    else:
        every = [operand.aval if ad.is_undefined_primal(operand) else operand for operand in operands[count:]]
        pushed = bind(Pushforward(call.of, call.wanted, count), _likes(every), *inputs, *given)
        results = [pushed[at - count] for at in linear]
    for at, result in zip(linear, results, strict=True):
        found[at] = result
    return found


def _batch(
    operands: Sequence[Any], axes: Sequence[int | None], *, call: Bridge, likes: _Likes
) -> tuple[list[Any], list[int]]:
    """One call after the other: the elements of a batch may have whole arrays of their own."""
    pairs = list(zip(operands, axes, strict=True))

    def one(batched: Sequence[Any]) -> list[Any]:
        remaining = iter(batched)
        return bind(call, likes, *[each if axis is None else next(remaining) for each, axis in pairs])

    found = jax.lax.map(one, [jnp.moveaxis(each, axis, 0) for each, axis in pairs if axis is not None])
    return found, [0] * len(found)


ad.primitive_jvps[_PRIMITIVE] = _jvp
ad.primitive_transposes[_PRIMITIVE] = _transpose
batching.primitive_batchers[_PRIMITIVE] = _batch
