"""The `python` backend: runs a product's text as ordinary Python on NumPy scalars, one element after another.

Slow and easy to step through: the executable meaning of the text that the other backends compile, and their oracle.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast import disk_cache
from dualbcast.errors import kernel_fault
from dualbcast.kernel_spec import KernelSource
from dualbcast.runtime.cpu.tile_packing import Copied, Packing, Panel

if TYPE_CHECKING:
    from dualbcast.runtime.reduction_blocks import Block

__all__ = ["PythonKernel", "compile_kernel", "launch"]

_NUMPY = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "atanh": np.arctanh,
    "fabs": np.fabs,
    "pow": np.power,
    **{
        name: getattr(np, name)
        for name in (
            *("cbrt", "ceil", "copysign", "cos", "cosh", "exp", "exp2", "expm1", "floor", "fmod", "hypot", "log"),
            *("log10", "log1p", "log2", "nextafter", "rint", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
        )
    },
}


def _tgamma(x: float) -> float:
    if x == 0:
        return math.copysign(math.inf, x)
    try:
        return math.gamma(x)
    except OverflowError:
        return math.inf
    except ValueError:  # at the poles, and at -inf
        return math.nan


def _lgamma(x: float) -> float:
    try:
        return math.lgamma(x)
    except (OverflowError, ValueError):
        return math.inf


_MATH: dict[str, Callable[[float], float]] = {
    "erf": math.erf,
    "erfc": math.erfc,
    "lgamma": _lgamma,
    "tgamma": _tgamma,
}


def _namespace(dtype: str) -> dict[str, Any]:
    """The meaning of a text's free names for a compute dtype."""
    scalar = {"float32": np.float32, "float64": np.float64}[dtype]

    def rounded(function: Callable[[float], float]) -> Callable[[Any], Any]:
        return lambda x: scalar(function(float(x)))

    def load(p: _Pointer, k: int) -> Any:
        return np.float32(p[k])

    def store(p: _Pointer, k: int, value: Any) -> None:
        p[k] = value

    return {
        "float32": np.float32,
        "float64": np.float64,
        # Unlike np.int64(x), astype gives an integer for infinities and NaN as a machine conversion does.
        "int64": lambda x: np.asarray(x).astype(np.int64)[()],
        "uint8": np.uint8,
        # Loop counters wrap around and divide as the machine's integers do.
        "range": lambda *bounds: map(np.int64, range(*map(int, bounds))),
        # The terms of a sum, and what they add up to.
        "scratch": lambda dtype, length: np.zeros(length, dtype),
        "sum_terms": lambda terms, count: terms[:count].sum(dtype=np.float64),
        "muladd": lambda a, b, c: a * b + c,
        "mulsub": lambda a, b, c: a * b - c,
        "submul": lambda a, b, c: c - a * b,
        **{f"load_{half}": load for half in ("float16", "bfloat16")},
        **{f"store_{half}": store for half in ("float16", "bfloat16")},
        **_NUMPY,
        **{name: rounded(function) for name, function in _MATH.items()},
    }


class _Pointer:
    """Memory around an array's first element, addressed in elements as a C pointer would be."""

    def __init__(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        low = sum(min(0, step) * (size - 1) for step, size in zip(array.strides, array.shape, strict=True))
        high = sum(max(0, step) * (size - 1) for step, size in zip(array.strides, array.shape, strict=True))
        forward: tuple[Any, ...] = tuple(slice(None, None, -1 if step < 0 else 1) for step in array.strides)
        lowest = array[(*forward, ...)]
        self._origin = offset - low // array.itemsize
        self._memory = np.lib.stride_tricks.as_strided(
            lowest, ((high - low) // array.itemsize + 1,), (array.itemsize,), writeable=array.flags.writeable
        )

    def __getitem__(self, k: int) -> Any:
        return self._memory[self._origin + k]

    def __setitem__(self, k: int, value: Any) -> None:
        self._memory[self._origin + k] = value


class PythonKernel:
    """A product's text, executed.

    Parameters
    ----------
    source : KernelSource
    keep : bool
        Whether its text is put into a file, so that tracebacks, debuggers and profilers show it.
    """

    def __init__(self, source: KernelSource, keep: bool = True) -> None:
        self.source = source
        name = f"{source.element}_{disk_cache.key(source.text)[:16]}.py"
        filename = disk_cache.write_text(name, source.text) if keep else f"<{name}>"
        namespace = _namespace(source.dtype)
        try:
            exec(compile(source.text, filename, "exec"), namespace)
        except Exception as error:
            raise kernel_fault(source.element, "Python", filename, error) from None
        self._entry: Callable[..., None] = namespace[source.entry]

    def __call__(self, start: int, stop: int, ints: Sequence[int], arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run the elements from `start` to `stop`."""
        with np.errstate(all="ignore"):
            self._entry(start, stop, *ints, *map(_Pointer, arrays))

    def run_block(self, block: Block, arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run a block, where the kernel sums."""
        with np.errstate(all="ignore"):
            self._entry(*block.ints, *map(_Pointer, arrays, block.offsets))

    def run_panel(self, panel: Panel, ints: Sequence[int], arrays: Sequence[np.ndarray[Any, Any]]) -> None:
        """Run a panel, where inputs are packed."""
        pointers = list(map(_Pointer, arrays))
        packing = panel.packing
        for i, j in itertools.product(range(panel.rows), range(0, panel.columns, packing.columns)):
            at, count = panel.start + i * panel.step + j, min(packing.columns, panel.columns - j)
            given = list(pointers)
            for position, offset, row in zip(packing.inputs, panel.offsets, packing.strides, strict=True):
                first = offset + packing.offset(row, i) + j * row[-1]
                tile = _elements(pointers[position], first, row[-1], count)
                given[position] = _Pointer(np.array(tile, arrays[position].dtype), -at)
            terms = {position: np.empty(count) for position, _ in packing.sums}
            given = [_Pointer(terms[k], -at) if k in terms else pointer for k, pointer in enumerate(given)]
            with np.errstate(all="ignore"):
                self._entry(at, at + count, *ints, *given[: len(self.source.inputs + self.source.outputs)])
                for position, over in packing.sums:
                    # Each panel may have sums over rows of its own: here all are in the first's.
                    first = at // packing.columns if over == "columns" else 0
                    added = terms[position] if over == "rows" else terms[position].sum(keepdims=True)
                    arrays[position][first : first + len(added)] += added


def compile_kernel(source: KernelSource, keep: bool = True) -> PythonKernel:
    """The kernel of `source`; see `PythonKernel`."""
    return PythonKernel(source, keep)


def _copy(packing: Packing, at: int, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An input whose elements are all in order; `at` is its place among the packed ones."""
    pointer, row, copy = _Pointer(array), packing.strides[at], np.empty(math.prod(packing.sizes), array.dtype)
    for panel in packing:
        for i in range(panel.rows):
            start, first = panel.start + i * panel.step, panel.offsets[at] + packing.offset(row, i)
            copy[start : start + panel.columns] = _elements(pointer, first, row[-1], panel.columns)
    return copy


def _elements(pointer: _Pointer, first: int, step: int, count: int) -> list[Any]:
    return [pointer[first + k * step] for k in range(count)]


def launch(
    kernel: PythonKernel,
    total: int,
    ints: Sequence[int],
    arrays: Sequence[np.ndarray[Any, Any]],
    blocks: Sequence[Block] | Copied | Packing | None = None,
) -> None:
    """Run all elements, by `blocks` where there are; `arrays` are the inputs and then what it writes."""
    if isinstance(blocks, Copied):
        arrays = list(arrays)
        for at, position in enumerate(blocks.inputs.inputs):
            arrays[position] = _copy(blocks.inputs, at, arrays[position])
        blocks = blocks.blocks
    if blocks is not None:
        for block in blocks:
            if isinstance(block, Panel):
                kernel.run_panel(block, ints, arrays)
            else:
                kernel.run_block(block, arrays)
    elif total:
        kernel(0, total, ints, arrays)
