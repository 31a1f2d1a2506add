"""The free names of a kernel's text as LLVM IR: mathematics that LLVM can vectorise, 16-bit storage, sums."""

from __future__ import annotations

import functools
from collections.abc import Set

import llvmlite.binding as llvm
from llvmlite import ir

from dualbcast.codegen.llvm.typed_values import Operation, Storage
from dualbcast.codegen.mathlib import division as division_code
from dualbcast.codegen.mathlib import half_precision, libm
from dualbcast.codegen.mathlib import table as mathlib
from dualbcast.codegen.mathlib.library_calls import AROUND, declared, for_each
from dualbcast.codegen.mathlib.primitives import Emit, called, sign_of
from dualbcast.codegen.values import Value, intrinsic, is_single, lone

# What LLVM has an operation for, and so has the host.
_LLVM = ("sqrt", "fabs", "floor", "ceil", "trunc", "rint", "copysign")


@functools.cache
def names(vector: bool) -> dict[str, Operation | Storage]:
    """What a kernel's text calls.

    Parameters
    ----------
    vector : bool
        Whether calls may become calls of libmvec, which must then be loaded in the process that runs the kernel.
    """
    operations: dict[str, Operation | Storage] = {name: Operation(functools.partial(intrinsic, name)) for name in _LLVM}
    for name in libm.FUNCTIONS:
        call = _library_call(name, vector and name in libm.VECTORISED)
        around = AROUND.get(name) if vector else None
        operations[name] = Operation(around(call), is_long=True) if around else Operation(call)
    operations |= {name: Operation(mathlib.FUNCTIONS[name], is_long=True) for name in inlined()}
    return operations | {
        "divided": _quotient(),
        # A product and a sum, rounded once where the processor does that.
        "muladd": Operation(functools.partial(intrinsic, "fmuladd")),
        "mulsub": Operation(lambda a, b, c: intrinsic("fmuladd", a, b, -c)),
        "submul": Operation(lambda a, b, c: intrinsic("fmuladd", -a, b, c)),
        "nextafter": Operation(_nextafter),
        "load_float16": Storage(half_precision.from_float16, stores=False),
        "store_float16": Storage(half_precision.to_float16, stores=True),
        "load_bfloat16": Storage(half_precision.from_bfloat16, stores=False),
        "store_bfloat16": Storage(half_precision.to_bfloat16, stores=True),
    }


def inlined() -> Set[str]:
    """The functions that are not calls of the C library."""
    return mathlib.FUNCTIONS.keys() if mathlib.has_fma() else frozenset()


def _quotient() -> Operation:
    if not mathlib.has_fma():
        return DIVISION
    if division_code.divides_fast():
        return Operation(division_code.divided_by_constants)
    return Operation(division_code.divided, is_long=True)


# Of a, b and 1 / b.
DIVISION = Operation(lambda a, b, _: a / b)

# The sum of a row's first elements in float64, in an order that suits vectors but depends on nothing else: the function
# and the liberties that LLVM may take with its floats.
SUM_TERMS = """\
def sum_terms(terms, count):
    total = float64(0)
    for j in range(count):
        total += float64(terms[j])
    return total
"""
LIBERTIES = {"sum_terms": frozenset({"reassoc"})}


def _library_call(name: str, vector: bool) -> Emit:
    def emit(*arguments: Value) -> Value:
        kind, module = arguments[0].kind, arguments[0].builder.module
        precise = name + ("f" if is_single(kind) else "")
        if vector and arguments[0].is_vector:
            return _vector_call(precise, arguments)
        function = declared(module, libm.symbol(precise), lone(kind), len(arguments))
        return called(for_each(function, kind.count) if arguments[0].is_vector else function, *arguments)

    return emit


def _vector_call(name: str, arguments: tuple[Value, ...]) -> Value:
    """The values of libmvec's function for vectors, in halves where these are longer than the processor's."""
    kind, module = arguments[0].kind, arguments[0].builder.module
    version = _versions(name, kind.element, len(arguments)).get(kind.count)
    if version is not None:
        return called(declared(module, version, kind, len(arguments)), *arguments)
    half = kind.count // 2
    parts = [range(half), range(half, kind.count)]
    of_each = [tuple([value.shuffle(value, part) for value in arguments]) for part in parts]
    low, high = (_vector_call(name, part) for part in of_each)
    return low.shuffle(high, range(kind.count))


def _versions(name: str, kind: ir.Type, arity: int) -> dict[int, str]:
    """The functions of libmvec that compute C's `name`, by how many are a vector."""
    features = llvm.get_host_cpu_features()
    # The vector function ABI for x86-64: b is SSE, d AVX2 (glibc's also uses FMA), e AVX-512.
    sets = {"b": 128}
    if features.get("avx2") and features.get("fma"):
        sets["d"] = 256
    if features.get("avx512f") and features.get("avx512dq"):
        sets["e"] = 512
    counts = {letter: bits // (32 if is_single(kind) else 64) for letter, bits in sets.items()}
    return {lanes: f"_ZGV{letter}N{lanes}{'v' * arity}_{name}" for letter, lanes in counts.items()}


def _nextafter(x: Value, y: Value) -> Value:
    """The neighbour of x towards y: one more or one less in the bits, which order floats of one sign."""
    bits = x.bits()
    goes_away = (x < y) == (x > 0.0)
    stepped = goes_away.choose(bits + 1, bits - 1)
    smallest = sign_of(y.bits()) | 1
    moved = (x == 0.0).choose(smallest, stepped)
    result = (x == y).choose(y, moved.as_float())
    return x.unordered("uno", y).choose(x + y, result)
