"""The interface of compiler and runtime: the layout a kernel is specialised on, how it is called, and its text."""

from __future__ import annotations

import marshal
from typing import NamedTuple, TypeVar

# The most elements of a row whose terms are stored before they are added up, where outputs are summed.
TILE = 1024
# The most elements of a row before the next row, where accumulators lie along it: they stay in the second-level cache.
PANEL = 8 * TILE
# The most bytes of terms on the stack, of all sums: they stay in the first-level cache, and a thread may have 32 KiB in
# all. And the fewest bytes for each sum, which are some vectors.
_BYTES_OF_TERMS, _BYTES_OF_A_SUM = 16384, 256


def tile_length(sums: int, itemsize: int) -> int:
    """The most terms of each of some sums at a time."""
    length = TILE
    while length * itemsize > _BYTES_OF_A_SUM and length * itemsize * sums > _BYTES_OF_TERMS:
        length //= 2
    return length


def neighbour(name: str, lane: int) -> str:
    """The name of an array or an output for an element after the first one of a CUDA thread, such as `x+2`."""
    return f"{name}+{lane}" if lane else name


class Layout(NamedTuple):
    """How a kernel walks its arguments: the part of the shapes and strides that it is specialised on.

    The iteration space has `rank` >= 1 coalesced dimensions, outermost first. Arguments with the same strides share an
    *address class*, and with it one index computation. A class is a string of one character a dimension:
    `1` unit stride (innermost only), `s` a stride given at run time, `0` the argument does not span the dimension.
    An input that does not span a dimension is broadcast along it; an output is the sum over it.
    """

    rank: int
    classes: tuple[str, ...]  # the address classes in order of their first use
    which: tuple[int, ...]  # the position in `classes` of each pointer argument, inputs first and then outputs
    # Whether an index can exceed 2**31 - 1 (CUDA kernels use 32-bit index arithmetic otherwise).
    wide: bool = False
    # How many neighbouring elements of the innermost dimension a CUDA thread computes. If more than one, every argument
    # has unit stride or none there, and sizes, strides and addresses suit accesses of so many elements.
    lanes: int = 1
    values: tuple[int, ...] = ()  # which inputs a CUDA kernel is given as numbers, and not as the addresses of any
    # Whether each sum is that of a whole row of the innermost dimension. A CPU kernel then writes the sums. It does not
    # add them to what is there, nor hand rounding errors over.
    whole_rows: bool = False

    @property
    def stride_count(self) -> int:
        """How many run-time strides the kernel takes: one for each `s`, class by class, outermost first."""
        return sum(pattern.count("s") for pattern in self.classes)

    def summed(self, inputs: int) -> tuple[int, ...]:
        """Which outputs are sums, where the first `inputs` arguments are inputs.

        Examples
        --------
        >>> Layout(2, ("s1", "01", "00"), (0, 0, 1, 2)).summed(inputs=1)
        (1, 2)
        """
        outputs = enumerate(self.which[inputs:])
        return tuple([position for position, which in outputs if "0" in self.classes[which]])

    def indexed(self, inputs: int) -> tuple[int, ...]:
        """The positions of the classes that the element function takes an index of: those that span a dimension and
        belong to more than sums.

        Examples
        --------
        >>> Layout(2, ("s1", "00", "01"), (0, 1, 0, 2)).indexed(inputs=2)
        (0,)
        """
        summed = {inputs + position for position in self.summed(inputs)}
        used = {which for position, which in enumerate(self.which) if position not in summed}
        return tuple([position for position in sorted(used) if self.classes[position].strip("0")])


class KernelSpec(NamedTuple):
    """How a compiled CPU kernel is called: its parameters are (start, stop), then sizes, strides and pointers.

    Where outputs are summed there is no (start, stop): the kernel adds the sums over the whole space to what is there,
    unless the layout has `whole_rows`.
    """

    element: str  # the name of the scalar function
    dtype: str  # the compute dtype, "float32" or "float64"
    # The dtype name that each pointer argument is stored as: float64 for a summed output. Where sums of float64 are
    # compensated, the rounding errors follow the outputs, in an array for each, unless the layout has `whole_rows`.
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layout: Layout
    # How many vectors of a row's elements are computed side by side; 0 if elements are computed one by one.
    vectors: int = 0

    @property
    def summed(self) -> tuple[int, ...]:
        """Which outputs are sums; their terms are of the compute dtype."""
        return self.layout.summed(len(self.inputs))


class KernelSource(NamedTuple):
    """A product of a scalar function as text for Python or Numba-CUDA, with all that is needed to compile it."""

    # A Python module: constants, helper functions and the element function. That takes the indices of `Layout.indexed`,
    # the index of terms if it has some (not on a GPU), and a pointer for each input and output.
    text: str
    # The functions of `text`, callees before callers; the last is the element function.
    functions: tuple[str, ...]
    # For CUDA the name of the kernel, an `extern "C" __global__` function in `shell` of sizes, strides and pointers.
    entry: str
    dtype: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layout: Layout
    shell: str = ""  # for `cuda`, the CUDA C++ text around the element function

    @property
    def identity(self) -> str:
        """All of it that compiled code can depend on: everything but the comments, which quote the user's file."""
        lines = (line.partition("  # ")[0].rstrip() for line in self.text.splitlines() if line.lstrip()[:1] != "#")
        code = "\n".join(lines)
        return repr(self._replace(text=code))

    @property
    def summed(self) -> tuple[int, ...]:
        """Which outputs are sums; the element function hands their terms over in the compute dtype."""
        return self.layout.summed(len(self.inputs))

    @property
    def element(self) -> str:
        """The name of the element function."""
        return self.functions[-1]


_Kernel = TypeVar("_Kernel", KernelSource, KernelSpec)


def packed(kernel: KernelSource | KernelSpec, code: bytes) -> bytes:
    """What describes a kernel, and its machine code, as an entry of the cache on disk."""
    return marshal.dumps((*kernel._replace(layout=None), tuple(kernel.layout), code))  # type: ignore[arg-type]


def unpacked(kind: type[_Kernel], entry: bytes) -> tuple[_Kernel, bytes]:
    """The description, of this type, and the machine code of an entry."""
    *fields, layout, code = marshal.loads(entry)
    return kind(*fields)._replace(layout=Layout(*layout)), code
