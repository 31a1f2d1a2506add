"""Kernels' texts run by others than the CPU backend: by Python, on NumPy's numbers, and by Numba."""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from cpu_kernels import Kernel

from dualbcast.kernel_spec import KernelSource
from dualbcast.runtime import interpreter

Arrays = list[np.ndarray[Any, Any]]
STORED = {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}
INTEGERS = [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
# The mathematics that everybody computes to the same bits.
EXACT = ("sqrt", "fabs", "floor", "ceil", "trunc", "rint", "copysign")


def outputs_of(source: Any, size: int) -> Arrays:
    return [np.full(size, 7, STORED.get(name, name)) for name in source.outputs]


def converted(name: str) -> Callable[[Any], Any]:
    return lambda x: np.asarray(x).astype(name)[()]


PYTHON = {
    "select": lambda test, then, orelse: then if test else orelse,
    "bool": converted("bool"),
    **{name: converted(name) for name in INTEGERS},
}


def by_python(source: Kernel, *inputs: np.ndarray[Any, Any]) -> Arrays:
    """The outputs of a kernel of rank 1, its text executed."""
    namespace = interpreter.namespace(source.program.spec.dtype) | PYTHON
    outputs = outputs_of(source.program.spec, inputs[0].size)
    with np.errstate(all="ignore"):
        exec(source.text, namespace)
        pointers = [interpreter._Pointer(array) for array in (*inputs, *outputs)]
        for k in range(inputs[0].size):
            namespace["element"](k, *pointers)
    return outputs


class _Wrapping(ast.NodeTransformer):
    """Literals as NumPy's integers, which wrap around, and which divided by zero are zero: Python's are others."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int:
            return node
        return ast.Call(ast.Name("int64", ast.Load()), [node], [])


def with_wrapping_literals(source: Kernel) -> Kernel:
    return source._replace(text=ast.unparse(ast.fix_missing_locations(_Wrapping().visit(ast.parse(source.text)))))


@functools.cache
def numba_names() -> dict[str, Any]:
    """What a text calls, for Numba."""
    import numba

    names = {name: getattr(numba.types, name) for name in ("float32", "float64", *INTEGERS)}
    names |= {name: getattr(np, name) for name in EXACT}
    names["select"] = numba.njit(lambda test, then, orelse: then if test else orelse)
    return names


def calls(source: KernelSource) -> set[str]:
    """The names that a text calls, and does not define."""
    tree = ast.parse(source.text)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return called - {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def suits_numba(source: KernelSource) -> bool:
    """Whether Numba has to find the same bits."""
    return calls(source) <= numba_names().keys() | {"range", "min"}


def by_numba(source: KernelSource, *inputs: np.ndarray[Any, Any]) -> Arrays:
    """The outputs of a text of rank 1, compiled by Numba, with arrays for pointers."""
    import numba

    namespace = dict(numba_names())
    exec(source.text, namespace)
    for name in source.functions:
        namespace[name] = numba.njit(error_model="numpy")(namespace[name])
    element, outputs = namespace[source.element], outputs_of(source, inputs[0].size)
    # As literals Numba would take the bounds for numbers without a sign.
    for k in range(inputs[0].size):
        element(np.int64(k), *inputs, *outputs)
    return outputs


def assert_same_bits(found: Arrays, wanted: Arrays) -> None:
    """Where both are NaN, any will do; zeros have their signs."""
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        if one.dtype.kind == "f":
            nan = np.isnan(other)
            np.testing.assert_array_equal(np.isnan(one), nan)
            np.testing.assert_array_equal(np.signbit(one[~nan]), np.signbit(other[~nan]))
        np.testing.assert_array_equal(one, other)
