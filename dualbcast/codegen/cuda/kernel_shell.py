"""The CUDA C++ kernels around element functions, which are compiled from Python and linked in.

A kernel finds the thread's element, turns it into one index for each address class, and hands over the pointers. Where
outputs are summed, a thread block takes a tile of the innermost dimension and goes through a span of the outermost. Its
sums have their own place among the partial sums, which a second pass adds up: the order of additions is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dualbcast.kernel_spec import Layout

# 8 warps: a launch fills every multiprocessor evenly, and even 255 registers a thread leave room for one block.
THREADS_PER_BLOCK = 256

_C_TYPES = {"float32": "float", "float64": "double", "bool": "unsigned char"}
_C_TYPES |= dict.fromkeys(("float16", "bfloat16"), "unsigned short")
for _bits, _whole in ((8, "char"), (16, "short"), (32, "int"), (64, "long long")):
    _C_TYPES |= {f"int{_bits}": f"signed {_whole}", f"uint{_bits}": f"unsigned {_whole}"}

# Sums over the threads of a block that have the same place along y, along x, and over all of them; the results are in
# the first thread along x, the first along y, and the first. Every thread of the block must call them. The block has
# powers of two of threads along x and y, and THREADS_PER_BLOCK in all.
_SUMS = """\
static __device__ double sum_lanes(double value, unsigned int width)
{
    for (unsigned int step = width / 2; step > 0; step /= 2) value += __shfl_down_sync(0xffffffffu, value, step, width);
    return value;
}

static __device__ double sum_along_x(double value, double* shared)
{
    if (blockDim.x <= 32) return sum_lanes(value, blockDim.x);
    value = sum_lanes(value, 32);
    const unsigned int row = threadIdx.y * (blockDim.x / 32);
    if (threadIdx.x % 32 == 0) shared[row + threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) for (unsigned int warp = 1; warp < blockDim.x / 32; ++warp) value += shared[row + warp];
    __syncthreads();
    return value;
}

static __device__ double sum_along_y(double value, double* shared)
{
    for (unsigned int step = blockDim.y / 2; step > 0; step /= 2) {
        shared[threadIdx.y * blockDim.x + threadIdx.x] = value;
        __syncthreads();
        if (threadIdx.y < step) value += shared[(threadIdx.y + step) * blockDim.x + threadIdx.x];
        __syncthreads();
    }
    return value;
}

static __device__ double sum_block(double value, double* shared)
{
    return sum_along_y(sum_along_x(value, shared), shared);
}
"""

# Knuth's two-sum; and a sum with its rounding error, which is NaN where the sum is infinite.
_COMPENSATED = """\
static __device__ void add_to(double& sum, double& rest, double term)
{
    const double old = sum;
    sum = old + term;
    const double part = sum - old;
    rest += (old - (sum - part)) + (term - part);
}

static __device__ double complete(double sum, double rest)
{
    return rest - rest == 0.0 ? sum + rest : sum;
}
"""


def cuda_shell(
    layout: Layout, entry: str, inputs: Sequence[str], outputs: Sequence[str], dtype: str = "float32"
) -> str:
    """The CUDA C++ text of the kernel `entry`, whose element function is linked in as `{entry}_element`.

    Its parameters are the sizes (outermost first), the run-time strides in elements (class by class, outermost first),
    the pointers of `inputs` (or the numbers themselves) and of `outputs`. With several lanes the innermost size, and
    the strides of classes that span the innermost dimension, are in groups of so many elements.

    A thread computes one element or group. The innermost dimension lies along x of the grid, all others together along
    y and z, so that rows need no division: only rank 3 and above divides, once for each dimension in the middle.

    Where outputs are summed, `span` follows the sizes: the length of the outermost dimension that a block goes through.
    The terms have the compute dtype. The pointer of a sum is to partial sums in float64, each of which is written once;
    `runtime.cuda.grid` says how many there are. A ValueError refuses a name that is no C identifier.
    """
    if not (entry.isascii() and entry.isidentifier()):
        raise ValueError(f"{entry!r} cannot name a CUDA kernel")
    # 64-bit strides may be negative, so indices are signed.
    size, index = ("long long", "long long") if layout.wide else ("unsigned int", "int")
    summed = layout.summed(len(inputs))
    element, arguments = [], []
    for number in layout.indexed(len(inputs)):
        text = _class_index(number, layout.classes[number], index)
        is_grouped = layout.lanes > 1 and layout.classes[number][-1] == "1"
        element.append(f"{index} k{number}")
        arguments.append(f"({text}) * {layout.lanes}" if is_grouped else text)
    parameters = [f"{size} n{dimension}" for dimension in range(layout.rank)] + [f"{size} span"] * bool(summed)
    for number, pattern in enumerate(layout.classes):
        parameters += [f"{index} s{number}_{dimension}" for dimension, kind in enumerate(pattern) if kind == "s"]
    for at, stored in enumerate([*inputs, *outputs]):
        output = at - len(inputs)
        name, kind = (f"in{at}", f"const {_C_TYPES[stored]}") if output < 0 else (f"out{output}", _C_TYPES[stored])
        parameter, argument = f"{kind}* __restrict__ {name}", name
        if output in summed:
            kind, parameter, argument = _C_TYPES[dtype], f"double* __restrict__ {name}", f"&term_{name}"
        if at in layout.values:
            # Each thread has a copy of a number: the compilers see that no one else has its address, and leave it.
            parameter, argument = f"{kind} {name}", f"&{name}"
        element.append(f"{kind}* {name}")
        parameters.append(parameter)
        arguments.append(argument)
    call = f"{entry}_element({', '.join(arguments)});"
    body = _summing(layout, len(inputs), dtype, size, index, call) if summed else [*_position(layout.rank, size), call]
    return "\n".join(
        [
            *([_SUMS] if summed else []),
            *([_COMPENSATED] if summed and dtype == "float64" else []),
            f'extern "C" __device__ void {entry}_element({", ".join(element)});',
            "",
            f'extern "C" __global__ void __launch_bounds__({THREADS_PER_BLOCK})',
            f"{entry}({', '.join(parameters)})",
            "{",
            *(f"    {line}" for line in body),
            "}",
            "",
        ]
    )


def _summing(layout: Layout, inputs: int, dtype: str, size: str, index: str, call: str) -> list[str]:
    """The C++ lines of a kernel that sums; `call` is that of the element function."""
    rank, inner, summed = layout.rank, layout.rank - 1, layout.summed(inputs)
    before, within, after = list[str](), list[str](), list[str]()
    for output in summed:
        which = layout.which[inputs + output]
        pattern = layout.classes[which]
        at = _sum_place(pattern, _class_index(which, pattern, index))
        parts = _steps(f"out{output}", pattern, at, dtype == "float64", f"i{inner} < n{inner}")
        for lines, part in zip((before, within, after), parts, strict=True):
            lines += part
    active = "i0 < stop" if rank == 1 else f"i{inner} < n{inner} && i0 < stop"
    along = "x" if rank == 1 else "y"
    return [
        *([f"__shared__ double shared[{THREADS_PER_BLOCK}];"] if "shared" in "".join(within + after) else []),
        *_block(rank, size),
        *before,
        f"for ({size} base = chunk * span; base < stop; base += blockDim.{along}) {{",
        f"    const {size} i0 = base + threadIdx.{along};",
        f"    const bool active = {active};",
        *(f"    {_C_TYPES[dtype]} term_out{output} = 0;" for output in summed),
        f"    if (active) {call}",
        *(f"    {line}" for line in within),
        "}",
        *after,
    ]


def _sum_place(pattern: str, sums: str) -> str:
    """A sum's place among the partial sums of its output, at the thread's place in the space."""
    rank = len(pattern)
    # The block's place along the dimensions that are summed: numbers, and how many of them there are.
    across = [("chunk", "chunks")] if pattern[0] == "0" else []
    across += [(f"i{d}", f"n{d}") for d in range(1, rank - 1) if pattern[d] == "0"]
    across += [("blockIdx.x", "gridDim.x")] if rank > 1 and pattern[-1] == "0" else []
    part = ""
    for number, many in across:
        part = f"({part} * {many} + {number})" if part else f"(long long){number}"
    lengths = " * ".join(f"n{d}" for d in range(rank) if pattern[d] != "0")
    return " + ".join(filter(None, [f"{part} * {lengths}" if part and lengths else part, sums]))


def _steps(
    name: str, pattern: str, place: str, compensated: bool, inside: str
) -> tuple[list[str], list[str], list[str]]:
    """The lines for one sum before, in and after the loop; `inside` tests that the thread has a place along x."""
    term, total = f"term_{name}", f"sum_{name}"
    inner = pattern[-1] != "0"
    if pattern[0] != "0":
        if inner:  # summed over the spans of other blocks
            return [], [f"if (active) {name}[{place}] = {term};"], []
        reduced = f"const double {total} = sum_along_x({term}, shared);"
        return [], [reduced, f"if (threadIdx.x == 0 && i0 < stop) {name}[{place}] = {total};"], []
    first = f"threadIdx.y == 0 && {inside}" if inner else "threadIdx.x == 0 && threadIdx.y == 0"
    reduce = "sum_along_y" if inner else "sum_block"
    start = [f"double {total} = 0.0, rest_{name} = 0.0;" if compensated else f"double {total} = 0.0;"]
    step = [f"add_to({total}, rest_{name}, {term});" if compensated else f"{total} += {term};"]
    whole = f"complete({total}, rest_{name})" if compensated else total
    return start, step, [f"{total} = {reduce}({whole}, shared);", f"if ({first}) {name}[{place}] = {total};"]


def _class_index(number: int, pattern: str, index: str) -> str:
    """The C++ expression of an address class's index."""
    terms = {"1": "({1})i{0}", "s": "({1})i{0} * s{2}_{0}"}
    return " + ".join(terms[kind].format(d, index, number) for d, kind in enumerate(pattern) if kind != "0")


def _block_indices(size: str) -> tuple[str, str]:
    """A block's place along x and z."""
    # Products of two 32-bit built-in values would wrap around where the sizes are 64-bit.
    return ("blockIdx.x", "blockIdx.z") if size == "unsigned int" else (f"({size})blockIdx.x", f"({size})blockIdx.z")


def _divided(rest: str, parts: Sequence[tuple[str, str]], last: str, size: str) -> list[str]:
    """The C++ lines that divide a number into places, given by their names and how many there are of each, fastest
    first; what is left in the end is `last`."""
    lines = []
    for position, (place, count) in enumerate(parts, 1):
        quotient = last if position == len(parts) else f"rest{position}"
        lines.append(f"const {size} {quotient} = {rest} / {count};")
        lines.append(f"const {size} {place} = {rest} - {quotient} * {count};")
        rest = quotient
    return lines


def _position(rank: int, size: str) -> list[str]:
    """The C++ lines that give the thread its place `i0 … i{rank-1}` in the iteration space, or end it outside."""
    x, z = _block_indices(size)
    inner = rank - 1
    lines = [f"const {size} i{inner} = {x} * blockDim.x + threadIdx.x;"]
    if rank == 1:
        return [*lines, f"if (i{inner} >= n{inner}) return;"]
    outer = "i0" if rank == 2 else "outer"
    return [
        *lines,
        f"const {size} {outer} = ({z} * gridDim.y + blockIdx.y) * blockDim.y + threadIdx.y;",
        f"if (i{inner} >= n{inner} || {outer} >= {' * '.join(f'n{d}' for d in range(inner))}) return;",
        *_divided(outer, [(f"i{d}", f"n{d}") for d in range(inner - 1, 0, -1)], "i0", size),
    ]


def _block(rank: int, size: str) -> list[str]:
    """The lines that give a block its span of the outermost dimension and its place in those between, and a thread its
    place in the innermost."""
    x, z = _block_indices(size)
    inner = rank - 1
    parts = [("chunk", "chunks"), *((f"i{d}", f"n{d}") for d in range(inner - 1, 1, -1))]
    outer = "outer" if rank > 2 else "chunk"
    return [
        *([] if rank == 1 else [f"const {size} i{inner} = {x} * blockDim.x + threadIdx.x;"]),
        f"const {size} chunks = (n0 + span - 1) / span;",
        f"const {size} {outer} = {z} * gridDim.y + blockIdx.y;",
        f"if ({outer} >= {' * '.join(['chunks', *(f'n{d}' for d in range(1, inner))])}) return;",
        *(_divided(outer, parts, "i1", size) if rank > 2 else []),
        f"const {size} stop = n0 - chunk * span < span ? n0 : chunk * span + span;",
    ]
