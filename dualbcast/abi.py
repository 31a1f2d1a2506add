"""What the compiler hands to the runtime: the layout a kernel is specialised on, and its text with its signature."""

from __future__ import annotations

from dataclasses import dataclass, replace

__all__ = ["KernelSource", "Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a kernel walks its arguments: the part of the shapes and strides that it is specialised on.

    The iteration space has `rank` >= 1 coalesced dimensions, outermost first. Arguments with the same strides share an
    *address class*, and with it one index computation. A class is a string of one character a dimension:
    `1` unit stride (innermost only), `s` a stride given at run time, `0` the argument does not span the dimension.

    Attributes
    ----------
    rank : int
        Coalesced dimensions.
    classes : tuple of str
        The address classes in order of their first use.
    which : tuple of int
        For each pointer argument, inputs first and then outputs, the position of its class in `classes`.
    wide : bool
        Whether an index can exceed 2**31 - 1 (CUDA kernels use 32-bit index arithmetic otherwise).
    """

    rank: int
    classes: tuple[str, ...]
    which: tuple[int, ...]
    wide: bool = False

    @property
    def stride_count(self) -> int:
        """How many run-time strides the kernel takes: one for each `s`, class by class, outermost first."""
        return sum(pattern.count("s") for pattern in self.classes)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A product of a scalar function as text for one target, with all that is needed to compile and call it.

    Attributes
    ----------
    text : str
        A Python module: constants, helper functions, the element function and, for `python` and `cpu`, the entry.
    functions : tuple of str
        The functions of `text` other than the entry, callees before callers; the last is the element function.
    entry : str
        The name of the kernel: a Python function in `text`, or for `cuda` an `extern "C" __global__` one in `shell`.
        Its parameters are (start, stop) for `python` and `cpu`, then sizes, strides and pointers.
    dtype : str
        The compute dtype, "float32" or "float64".
    inputs, outputs : tuple of str
        The dtype name that each pointer argument is stored as.
    layout : Layout
        What the kernel is specialised on.
    shell : str
        For `cuda`, the CUDA C++ text around the element function.
    vectorise : bool
        Whether to vectorise over the elements; see `compiler.uniform`.
    """

    text: str
    functions: tuple[str, ...]
    entry: str
    dtype: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layout: Layout
    shell: str = ""
    vectorise: bool = True

    @property
    def identity(self) -> str:
        """All of it that compiled code can depend on: everything but the comments, which quote the user's file."""
        lines = (line.partition("  # ")[0].rstrip() for line in self.text.splitlines() if line.lstrip()[:1] != "#")
        code = "\n".join(lines)
        return repr(replace(self, text=code))

    @property
    def element(self) -> str:
        """The name of the element function."""
        return self.functions[-1]
