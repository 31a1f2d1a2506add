"""What a GPU would do for a call, counted on the PTX of its kernel.

Comes in: a call with arrays of NumPy's, and a compute capability. Goes out: the call as a GPU would get it, and what
was counted in all and by line.
"""

from __future__ import annotations

from dataclasses import fields, replace

from dualbcast import disk_cache
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.text_places import Place
from dualbcast.counting import executor
from dualbcast.counting.counted_launch import CountedLaunch
from dualbcast.counting.counter import Counts
from dualbcast.counting.launch import launch_of, planned_for_gpu, ptx_of
from dualbcast.counting.lines import instructions_of, lines_of
from dualbcast.errors import ArgumentError, BackendError
from dualbcast.program.element import Call
from dualbcast.runtime.cuda.kernel import CudaKernel

# A launch of so many elements takes minutes, and is not to be interrupted.
MOST_ELEMENTS = 1 << 26


def count_call(call: Call, cc: tuple[int, int]) -> tuple[Call, CountedLaunch]:
    """The call as it would be on a GPU, with arrays of NumPy's; and what was counted, for which its kernel has run."""
    geometry = call.plan.geometry
    if not geometry.total or not call.plan.targets:
        raise ArgumentError("there is nothing to count: this call launches no kernel, since it stores no number")
    if geometry.total > MOST_ELEMENTS:
        raise ArgumentError(
            f"counted=True runs the kernel on this machine, and {geometry.total:,} elements are too many for that; "
            f"give arrays that broadcast to {MOST_ELEMENTS:,} at most, such as a part of these"
        )
    executor.compiler()  # before the kernel is compiled, which takes seconds
    call = replace(call, plan=planned_for_gpu(call.plan))
    kernel = call.cuda_kernel(cc)
    ptx, name, places, notes = _text_with_lines(call, kernel)
    launch = launch_of(call.spec.label, kernel, call.plan, ptx)
    try:
        counts = launch.count()
    except executor.PtxError as error:
        raise BackendError(f"what the kernel of {call.spec.label} does cannot be counted: {error}") from error
    if call.plan.geometry.split is not None:
        notes.append("sums: a second pass, CuPy's, adds up the partial sums of blocks; it is not counted")
    whole = {each.name: getattr(counts, each.name) for each in fields(Counts)}
    lines = lines_of(counts, name, places, call.spec.product.function.location.filename)
    counted = CountedLaunch(
        **whole, lines=lines, elements=geometry.total, grid=launch.grid, block=launch.block, notes=tuple(notes)
    )
    return call, counted


def _text_with_lines(call: Call, kernel: CudaKernel) -> tuple[str, str, list[Place], list[str]]:
    """The PTX of a kernel, the file whose lines it names, where these come from, and notes.

    Lines are in it only if its instructions are those of the text without them, which is what launches run.
    """
    places: list[Place] = []
    # The kernel's own text may be from the cache, and then have another function's comments and lines.
    source = call.spec.source(kernel.source.layout, "cuda", None, places)
    options = kernel.cc, kernel.fastmath
    key = disk_cache.key("PTX with lines", disk_cache.STAMP, repr(source), repr(options), cuda_build.toolchain())
    shipped = ptx_of(kernel)
    try:
        lined = disk_cache.fetch(key, lambda: cuda_build.build(source, *options, ptx=True, lines=True)[0])
    except BackendError as error:
        return shipped, "", [], [f"without lines: {str(error).splitlines()[0]}"]
    ptx = lined.decode().rstrip("\0")
    if instructions_of(ptx) != instructions_of(shipped):
        return shipped, "", [], ["without lines: with them these compilers make other instructions"]
    return ptx, cuda_build.text_of(source), places[: len(source.text.splitlines())], []
