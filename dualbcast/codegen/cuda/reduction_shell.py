"""The CUDA C++ kernel around an element function some of whose outputs are summed.

A thread block takes a tile of the innermost dimension and goes through a span of the outermost. Its sums have their own
place among the partial sums, which are added up in a second pass: the order of all additions is fixed.
"""

from __future__ import annotations

from collections.abc import Sequence

from dualbcast.codegen.cuda.kernel_shell import (
    C_TYPES,
    THREADS_PER_BLOCK,
    class_index,
    half_access,
    handed_over,
    kernel_lines,
    pointer_types,
    size_and_index,
    strides_of,
)
from dualbcast.kernel_spec import Layout

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


def summing_shell(layout: Layout, entry: str, dtype: str, inputs: Sequence[str], outputs: Sequence[str]) -> str:
    """The CUDA C++ text of the kernel `entry`, whose element function is linked in as `{entry}_element`.

    Its parameters are those of `cuda_shell`, with `span` after the sizes: the length of the outermost dimension that a
    block goes through. The pointer of a summed output is to partial sums in float64, each of which is written once;
    `runtime.reduction_blocks` says how many there are.

    Parameters
    ----------
    layout : Layout
        Of the arguments; some outputs do not span all dimensions.
    entry : str
        The kernel's name: a C identifier that CUDA C++ does not use itself.
    dtype : str
        The compute dtype, which terms have.
    inputs, outputs : sequence of str
        The dtype name that each pointer argument is stored as; it is ignored for summed outputs.
    """
    size, index = size_and_index(layout)
    real, rank, count = C_TYPES[dtype], layout.rank, len(inputs)
    summed = {f"out{i}": layout.which[count + i] for i in layout.summed(count)}
    types = pointer_types(inputs, outputs)

    indexed = [(number, layout.classes[number]) for number in layout.indexed(count)]
    element = [f"{index} k{number}" for number, _ in indexed]
    element += [f"{real + '*' if name in summed else kind} {name}" for name, kind in types.items()]
    arguments = [class_index(number, pattern, index) for number, pattern in indexed]
    given = {}
    for at, (name, kind) in enumerate(types.items()):
        partial, term = f"double* __restrict__ {name}", f"&term_{name}"
        given[name] = (partial, term) if name in summed else handed_over(kind, name, at in layout.values)
    arguments += [text for _, text in given.values()]
    parameters = [*(f"{size} n{dimension}" for dimension in range(rank)), f"{size} span"]
    parameters += [
        f"{index} {stride}" for number, pattern in enumerate(layout.classes) for stride in strides_of(number, pattern)
    ]
    parameters += [parameter for parameter, _ in given.values()]

    def place(name: str) -> str:
        """A sum's place among the partial sums of its output, at the thread's place in the space."""
        pattern = layout.classes[summed[name]]
        # The block's place along the dimensions that are summed: numbers, and how many of them there are.
        across = [("chunk", "chunks")] if pattern[0] == "0" else []
        across += [(f"i{d}", f"n{d}") for d in range(1, rank - 1) if pattern[d] == "0"]
        across += [("blockIdx.x", "gridDim.x")] if rank > 1 and pattern[-1] == "0" else []
        part = ""
        for number, many in across:
            part = f"({part} * {many} + {number})" if part else f"(long long){number}"
        sums = class_index(summed[name], pattern, index)
        lengths = " * ".join(f"n{d}" for d in range(rank) if pattern[d] != "0")
        return " + ".join(filter(None, [f"{part} * {lengths}" if part and lengths else part, sums]))

    inner = rank - 1
    before, within, after = [], [], []
    for name, which in summed.items():
        pattern = layout.classes[which]
        before_it, within_it, after_it = _steps(name, pattern, place(name), dtype == "float64", f"i{inner} < n{inner}")
        before += before_it
        within += within_it
        after += after_it
    active = "i0 < stop" if rank == 1 else f"i{inner} < n{inner} && i0 < stop"
    along = "x" if rank == 1 else "y"
    body = [
        *(["__shared__ double shared[" + str(THREADS_PER_BLOCK) + "];"] if "shared" in "".join(within + after) else []),
        *_block(rank, size),
        *before,
        f"for ({size} base = chunk * span; base < stop; base += blockDim.{along}) {{",
        f"    const {size} i0 = base + threadIdx.{along};",
        f"    const bool active = {active};",
        *(f"    {real} term_{name} = 0;" for name in summed),
        f"    if (active) {entry}_element({', '.join(arguments)});",
        *(f"    {line}" for line in within),
        "}",
        *after,
    ]
    halves = half_access([*inputs, *(kind for i, kind in enumerate(outputs) if f"out{i}" not in summed)])
    compensated = [_COMPENSATED] if dtype == "float64" else []
    return "\n".join([*halves, _SUMS, *compensated, *kernel_lines(entry, element, parameters, body)])


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


def _block(rank: int, size: str) -> list[str]:
    """The lines that give a block its span of the outermost dimension and its place in those between, and a thread its
    place in the innermost."""
    wide = size != "unsigned int"
    x, z = (f"({size})blockIdx.x", f"({size})blockIdx.z") if wide else ("blockIdx.x", "blockIdx.z")
    inner = rank - 1
    lines = [] if rank == 1 else [f"const {size} i{inner} = {x} * blockDim.x + threadIdx.x;"]
    middle = range(1, inner)
    number = "outer" if middle else "chunk"
    lines += [
        f"const {size} chunks = (n0 + span - 1) / span;",
        f"const {size} {number} = {z} * gridDim.y + blockIdx.y;",
        f"if ({number} >= {' * '.join(['chunks', *(f'n{d}' for d in middle)])}) return;",
    ]
    if middle:
        lines += [f"const {size} rest0 = outer / chunks;", f"const {size} chunk = outer - rest0 * chunks;"]
    rest = "rest0"
    for dimension in reversed(middle):
        if dimension == 1:
            lines.append(f"const {size} i1 = {rest};")
            break
        lines.append(f"const {size} rest{dimension} = {rest} / n{dimension};")
        lines.append(f"const {size} i{dimension} = {rest} - rest{dimension} * n{dimension};")
        rest = f"rest{dimension}"
    lines.append(f"const {size} stop = n0 - chunk * span < span ? n0 : chunk * span + span;")
    return lines
