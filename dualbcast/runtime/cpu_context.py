"""Numba's code generator with what kernels use, which is numbers and ranges, and operations of our own for it.

All that Numba knows takes 0.25 seconds to import and install, more than it takes to compile a kernel.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from numba.core import fastmathpass, types, typing, utils
from numba.core.cpu import CPUContext
from numba.core.types.misc import unliteral
from numba.core.typing import builtins as _builtins  # noqa: F401
from numba.core.typing import templates
from numba.cpython import builtins, numbers, rangeobj, tupleobj  # noqa: F401

__all__ = ["Called", "context", "intrinsic"]


class _Typing(typing.Context):  # type: ignore[misc]
    """The types of operators, conversions, `range` and `min`."""

    def init(self) -> None:
        """Take what is there now."""
        known = templates.builtin_registry
        for template in known.functions:
            self.insert_function(template(self))
        for template in known.attributes:
            # To make one of these is to load all of Numba's other code generator.
            if not issubclass(template, templates._OverloadAttributeTemplate):
                self.insert_attributes(template(self))
        for value, kind in known.globals:
            before = self._lookup_global(value)
            if before is None:
                self.insert_global(value, kind)
            else:
                self._remove_global(value)
                self._insert_global(value, before.augment(kind))

    def refresh(self) -> None:
        """Nothing is to be added."""


class _Context(CPUContext):  # type: ignore[misc]
    """The code for them."""

    def load_additional_registries(self) -> None:
        """What the imports above have registered is all."""

    def post_lowering(self, mod: Any, _library: Any) -> None:
        """As Numba does, but without what counts references to objects; kernels have none."""
        if self.fastmath:
            fastmathpass.rewrite_module(mod, self.fastmath)


@functools.cache
def context() -> Any:
    """The one code generator of this process."""
    return _Context(_Typing(), "cpu")


class Called:
    """Something that compiled functions call; Numba takes it for one of its dispatchers."""

    is_compiling = False

    def __init__(self, function: Callable[..., Any], skipped: int = 0) -> None:
        self._name = function.__name__
        signature = utils.pysignature(function)
        self._parameters = signature.replace(parameters=list(signature.parameters.values())[skipped:])
        self._keys: dict[tuple[Any, ...], tuple[Any, object]] = {}
        self._numba_type_ = types.Dispatcher(self)  # type: ignore[type-var]

    def add(self, args: tuple[Any, ...], key: object) -> Any:
        """Make it callable with arguments of these types under `key`: the signature, or None where it is not."""
        raise NotImplementedError

    def get_call_template(self, args: Sequence[Any], _kws: Any) -> tuple[Any, Any, Any, Any]:
        """What a call with arguments of these types is."""
        args = tuple(args)
        found = self._keys.get(args)
        if found is None:
            key = object()
            signature = self.add(args, key)
            if signature is not None:
                found = self._keys[args] = self._keys[signature.args] = signature, key
        signatures = [] if found is None else [found[0]]
        name = f"CallTemplate({self._name})"
        template = typing.make_concrete_template(name, key=self._name, signatures=signatures)
        return template, self._parameters, args, {}

    def get_overload(self, args: Sequence[Any]) -> object:
        """What it is registered under for these types."""
        return self._keys[tuple(args)][1]

    def forget(self) -> None:
        """Take what has been registered out of Numba's tables."""
        for key in {key for _, key in self._keys.values()}:
            context().remove_user_function(key)


class _Intrinsic(Called):
    def __init__(self, define: Callable[..., Any]) -> None:
        super().__init__(define, skipped=1)
        self._define = define

    def add(self, args: tuple[Any, ...], key: object) -> Any:
        for types_of in (tuple(map(unliteral, args)), args):
            result = self._define(None, *types_of)
            if result is not None:
                signature, generate = result
                context()._defns[key].append(generate, signature.args)
                return signature
        return None


def intrinsic(define: Callable[..., Any]) -> Any:
    """An operation that is written in LLVM's terms, as `numba.extending.intrinsic` makes them.

    Parameters
    ----------
    define : function
        Of something that is None, and of the types of the arguments. Returns None where it does not take them, else the
        signature and what generates the code, a function of (context, builder, signature, arguments). Numbers in the
        text come as literal types if the plain ones are not taken.
    """
    return _Intrinsic(define)
