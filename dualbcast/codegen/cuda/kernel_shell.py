"""The CUDA C++ kernel around an element function: it finds the thread's element, turns it into one index for each
address class, and hands over the pointers. The element function itself is compiled from Python and linked in.
"""

from __future__ import annotations

from collections.abc import Sequence

from dualbcast.kernel_spec import Layout

# 8 warps: a launch fills every multiprocessor evenly, and even 255 registers a thread leave room for one block.
THREADS_PER_BLOCK = 256

C_TYPES = {
    "bool": "unsigned char",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned int",
    "uint64": "unsigned long long",
    "float16": "unsigned short",
    "bfloat16": "unsigned short",
    "float32": "float",
    "float64": "double",
}

# The hardware's conversions round to nearest even and keep NaN a NaN. No header is needed for them. Before 8.0 there is
# no instruction that makes a bfloat16: adding just under half of its last place, plus one if that place is odd, rounds.
_HALVES = {
    "float16": """\
extern "C" __device__ float from_float16(unsigned short bits)
{
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(bits));
    return v;
}

extern "C" __device__ unsigned short to_float16(float v)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
}
""",
    "bfloat16": """\
extern "C" __device__ float from_bfloat16(unsigned short bits)
{
    return __uint_as_float((unsigned int)bits << 16);
}

extern "C" __device__ unsigned short to_bfloat16(float v)
{
#if __CUDA_ARCH__ >= 800
    unsigned short bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(v));
    return bits;
#else
    const unsigned int bits = __float_as_uint(v);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return is_nan ? 0x7fff : (unsigned short)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
}
""",
}
_HALF_ACCESS = """\
extern "C" __device__ float load_{half}(const unsigned short* p, long long k)
{{
    return from_{half}(p[k]);
}}

extern "C" __device__ void store_{half}(unsigned short* p, long long k, float v)
{{
    p[k] = to_{half}(v);
}}
"""


def cuda_shell(layout: Layout, entry: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """The CUDA C++ text of the kernel `entry`, whose element function is linked in as `{entry}_element`.

    One thread computes one element, or `layout.lanes` neighbours. The innermost dimension lies along x of the grid, all
    others together along y and z (`runtime.cuda.launch` makes such a grid), so rows need no division; only rank 3 and
    above divides, once for each dimension between the outermost and the innermost.

    Parameters
    ----------
    layout : Layout
        What the kernel is specialised on. Indices are 32-bit, or 64-bit where it says `wide`; signed, so that strides
        may be negative.
    entry : str
        The kernel's name: a C identifier that CUDA C++ does not use itself.
    inputs, outputs : sequence of str
        The dtype name that each pointer argument is stored as. float16 and bfloat16 are 16-bit patterns, and the
        functions `load_float16(pointer, index)`, `store_float16(pointer, index, value)`, `from_float16(bits)` and
        `to_float16(value)` (and likewise for bfloat16) are defined for the element function to call.

    Returns
    -------
    str
        A translation unit without includes. The kernel's parameters are the sizes (outermost first), the run-time
        strides in elements (class by class, outermost first), the input pointers (the numbers themselves for
        `layout.values`) and the output pointers. With lanes the innermost size, and the strides of classes that span
        the innermost dimension, are in groups of so many elements.

    Examples
    --------
    >>> layout = Layout(rank=2, classes=("s1", "10"), which=(0, 1, 0))
    >>> print(cuda_shell(layout, "scale_rows", ("float32", "float32"), ("float32",)))  # doctest: +ELLIPSIS
    extern "C" __device__ void scale_rows_element(int k0, int k1, const float* in0, const float* in1, float* out0);
    <BLANKLINE>
    extern "C" __global__ void __launch_bounds__(256)
    scale_rows(unsigned int n0, unsigned int n1, int s0_0, const float* __restrict__ in0, ...
    {
        const unsigned int i1 = blockIdx.x * blockDim.x + threadIdx.x;
        const unsigned int i0 = (blockIdx.z * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;
        if (i1 >= n1 || i0 >= n0) return;
        scale_rows_element((int)i0 * s0_0 + (int)i1, (int)i0, in0, in1, out0);
    }
    <BLANKLINE>
    """
    size, index = size_and_index(layout)
    types = pointer_types(inputs, outputs)
    indexed = [(number, pattern) for number, pattern in enumerate(layout.classes) if pattern.strip("0")]

    element = [f"{index} k{number}" for number, _ in indexed]
    element += [f"{kind} {name}" for name, kind in types.items()]
    parameters = [f"{size} n{dimension}" for dimension in range(layout.rank)]
    parameters += [f"{index} {stride}" for number, pattern in indexed for stride in strides_of(number, pattern)]
    given = [handed_over(kind, name, at in layout.values) for at, (name, kind) in enumerate(types.items())]
    parameters += [parameter for parameter, _ in given]
    arguments = [class_index(number, pattern, index) for number, pattern in indexed] + [text for _, text in given]
    if layout.lanes > 1:
        arguments[: len(indexed)] = [
            f"({text}) * {layout.lanes}" if pattern[-1] == "1" else text
            for text, (_, pattern) in zip(arguments, indexed, strict=False)
        ]

    body = [*_position(layout.rank, size), f"{entry}_element({', '.join(arguments)});"]
    return "\n".join([*half_access([*inputs, *outputs]), *kernel_lines(entry, element, parameters, body)])


def size_and_index(layout: Layout) -> tuple[str, str]:
    """The C++ types of sizes, and of indices and strides."""
    return ("long long", "long long") if layout.wide else ("unsigned int", "int")


def pointer_types(inputs: Sequence[str], outputs: Sequence[str]) -> dict[str, str]:
    """The C++ types of pointers to arrays that are stored as these dtypes, by name."""
    types = {f"in{i}": f"const {C_TYPES[dtype]}*" for i, dtype in enumerate(inputs)}
    return types | {f"out{i}": f"{C_TYPES[dtype]}*" for i, dtype in enumerate(outputs)}


def kernel_lines(entry: str, element: Sequence[str], parameters: Sequence[str], body: Sequence[str]) -> list[str]:
    """The C++ lines of a kernel, with the declaration of its element function.

    Raises
    ------
    ValueError
        If `entry` is not an ASCII identifier.
    """
    if not (entry.isascii() and entry.isidentifier()):
        raise ValueError(f"{entry!r} cannot name a CUDA kernel")
    return [
        f'extern "C" __device__ void {entry}_element({", ".join(element)});',
        "",
        f'extern "C" __global__ void __launch_bounds__({THREADS_PER_BLOCK})',
        f"{entry}({', '.join(parameters)})",
        "{",
        *(f"    {line}" for line in body),
        "}",
        "",
    ]


def handed_over(kind: str, name: str, is_value: bool) -> tuple[str, str]:
    """The kernel's parameter for a pointer of the element function, and what it passes on for that.

    A number is copied to each thread: the compilers see that nobody else has its address, and keep it where it is.

    Examples
    --------
    >>> handed_over("const float*", "in0", True)
    ('const float in0', '&in0')
    """
    return (f"{kind.removesuffix('*')} {name}", f"&{name}") if is_value else (f"{kind} __restrict__ {name}", name)


def half_access(dtypes: Sequence[str]) -> list[str]:
    """The C++ functions that convert, load and store those of the dtypes that have 16 bits."""
    return [f"{text}\n{_HALF_ACCESS.format(half=half)}" for half, text in _HALVES.items() if half in dtypes]


def strides_of(number: int, pattern: str) -> list[str]:
    """The names of an address class's run-time strides."""
    return [f"s{number}_{dimension}" for dimension, kind in enumerate(pattern) if kind == "s"]


def class_index(number: int, pattern: str, index: str) -> str:
    """The C++ expression of an address class's index."""
    terms = {"1": "({1})i{0}", "s": "({1})i{0} * s{2}_{0}"}
    return " + ".join(terms[kind].format(d, index, number) for d, kind in enumerate(pattern) if kind != "0")


def _position(rank: int, size: str) -> list[str]:
    """The C++ lines that give the thread its place `i0 … i{rank-1}` in the iteration space, or end it outside."""
    # Products of two 32-bit built-in values would wrap around where the sizes are 64-bit.
    x, z = ("blockIdx.x", "blockIdx.z") if size == "unsigned int" else (f"({size})blockIdx.x", f"({size})blockIdx.z")
    inner = rank - 1
    lines = [f"const {size} i{inner} = {x} * blockDim.x + threadIdx.x;"]
    if rank == 1:
        return [*lines, f"if (i{inner} >= n{inner}) return;"]
    outer = "i0" if rank == 2 else "outer"
    lines.append(f"const {size} {outer} = ({z} * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;")
    lines.append(f"if (i{inner} >= n{inner} || {outer} >= {' * '.join(f'n{d}' for d in range(inner))}) return;")
    if rank == 2:
        return lines
    rest = outer
    for dimension in range(inner - 1, 0, -1):
        quotient = "i0" if dimension == 1 else f"rest{dimension}"
        lines.append(f"const {size} {quotient} = {rest} / n{dimension};")
        lines.append(f"const {size} i{dimension} = {rest} - {quotient} * n{dimension};")
        rest = quotient
    return lines
