"""The `python` backend: runs a product's text as ordinary Python on NumPy scalars, one element after another.

Slow and easy to step through: the executable meaning of the text that the other backends compile, and their oracle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any

import numpy as np

from dualbcast import disk_cache
from dualbcast.errors import kernel_fault
from dualbcast.kernel_spec import KernelSource

if TYPE_CHECKING:
    from dualbcast.runtime.reduction_blocks import Split

_NUMPY = (
    *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "exp"),
    *("exp2", "expm1", "fabs", "floor", "fmod", "hypot", "log", "log10", "log1p", "log2", "nextafter", "pow", "rint"),
    *("sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
)


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


_LONGEST = 2**48

_MATH = {"erf": math.erf, "erfc": math.erfc, "lgamma": _lgamma, "tgamma": _tgamma}


def namespace(dtype: str) -> dict[str, Any]:
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
        "muladd": lambda a, b, c: a * b + c,
        "mulsub": lambda a, b, c: a * b - c,
        "submul": lambda a, b, c: c - a * b,
        **{f"load_{half}": load for half in ("float16", "bfloat16")},
        **{f"store_{half}": store for half in ("float16", "bfloat16")},
        **{name: getattr(np, name) for name in _NUMPY},
        **{name: rounded(function) for name, function in _MATH.items()},
    }


class _Pointer:
    """Memory around an array's first element, addressed in elements as a C pointer would be."""

    def __init__(self, array: np.ndarray[Any, Any], offset: int = 0) -> None:
        spans = [step * (size - 1) for step, size in zip(array.strides, array.shape, strict=True)]
        low, high = (sum(limit(0, span) for span in spans) for limit in (min, max))
        forward: tuple[Any, ...] = tuple(slice(None, None, -1 if step < 0 else 1) for step in array.strides)
        lowest = array[(*forward, ...)]
        self._origin = offset - low // array.itemsize
        # An argument without axes may be the first element of a whole array, whose kernels know its length.
        length = (high - low) // array.itemsize + 1 if array.ndim else _LONGEST
        self._memory = np.lib.stride_tricks.as_strided(
            lowest, (length,), (array.itemsize,), writeable=array.flags.writeable
        )

    def __getitem__(self, k: int) -> Any:
        return self._memory[self._origin + k]

    def __setitem__(self, k: int, value: Any) -> None:
        self._memory[self._origin + k] = value


class PythonKernel:
    """A product's text, executed; `keep` puts it into a file, so that tracebacks, debuggers and profilers show it."""

    def __init__(self, source: KernelSource, keep: bool = True) -> None:
        self.source = source
        name = f"{source.element}_{disk_cache.key(source.text)[:16]}.py"
        filename = disk_cache.write_text(name, source.text) if keep else f"<{name}>"
        names = namespace(source.dtype)
        try:
            with np.errstate(over="ignore"):  # a constant that float32 does not reach is infinite
                exec(compile(source.text, filename, "exec"), names)
        except Exception as error:
            raise kernel_fault(source.element, "Python", filename, error) from None
        self._element: Callable[..., None] = names[source.element]

    def launch(
        self, total: int, ints: Sequence[int], arrays: Sequence[np.ndarray[Any, Any]], split: Split | None = None
    ) -> None:
        """Run all elements, by blocks where the kernel sums; `arrays` are the inputs and then those that it writes."""
        with np.errstate(all="ignore"):
            if split is None:
                pointers = [_Pointer(array) for array in arrays]
                for indices in self._indices(ints) if total else ():
                    self._element(*indices, *pointers)
                return
            for block in split.blocks:
                self._sum(block.ints, [*map(_Pointer, arrays, block.offsets)])

    def _indices(self, ints: Sequence[int], every: bool = False) -> Iterator[list[int]]:
        """For each element its index in the classes that the element function knows, or in `every` class."""
        layout = self.source.layout
        flat = iter(ints[layout.rank :])
        strides = [[next(flat) if kind == "s" else int(kind) for kind in pattern] for pattern in layout.classes]
        known = range(len(strides)) if every else layout.indexed(len(self.source.inputs))
        for place in np.ndindex(*ints[: layout.rank]):
            yield [sum(map(mul, place, strides[at])) for at in known]

    def _sum(self, ints: Sequence[int], pointers: list[_Pointer]) -> None:
        """Add the sums over a block to the accumulators; sums of float64 are compensated by Knuth's two-sum."""
        source, inputs = self.source, len(self.source.inputs)
        which, summed = source.layout.which, [inputs + position for position in source.summed]
        lost = pointers[len(which) :]
        given = pointers[: len(which)]
        terms = {at: np.zeros(1, source.dtype) for at in summed}
        for at, term in terms.items():
            given[at] = _Pointer(term)
        for indices, every in zip(self._indices(ints), self._indices(ints, every=True), strict=True):
            self._element(*indices, 0, *given)
            for position, (at, (term,)) in enumerate(terms.items()):
                k, sums = every[which[at]], pointers[at]
                old = sums[k]
                sums[k] = new = old + np.float64(term)
                if lost:
                    part = new - old
                    lost[position][k] += (old - (new - part)) + (term - part)
