"""Counts what a GPU would do for a call.

Comes in: a compiled kernel, the plan of its launch, and its text with the places that its lines come from. Goes out: a
`CountedLaunch`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from dualbcast import disk_cache
from dualbcast.codegen.cuda import build as cuda_build
from dualbcast.codegen.text_places import Place
from dualbcast.counting import executor
from dualbcast.counting.counted_launch import CountedLaunch
from dualbcast.counting.counter import Counts
from dualbcast.counting.launch import launch_of, ptx_of
from dualbcast.counting.lines import instructions_of, lines_of
from dualbcast.counting.operands import PtxError
from dualbcast.errors import ArgumentError, BackendError, DualbcastError, Location
from dualbcast.kernel_spec import KernelSource
from dualbcast.runtime.cuda.kernel import CudaKernel
from dualbcast.runtime.launch_plan import Plan

# A launch of so many elements takes minutes, and is not to be interrupted.
MOST_ELEMENTS = 1 << 26


def check_countable(plan: Plan) -> None:
    """Refuse a launch that is none, or too large, or that there is no compiler for: compiling kernels takes seconds."""
    total = plan.geometry.total
    if not total or not plan.targets:
        raise ArgumentError("there is nothing to count: this call launches no kernel, since it stores no number")
    if total > MOST_ELEMENTS:
        raise ArgumentError(
            f"counted=True runs the kernel on this machine, and {total:,} elements are too many for that; give arrays "
            f"that broadcast to {MOST_ELEMENTS:,} at most, such as a part of these"
        )
    executor.compiler()


def count_launch(
    name: str, kernel: CudaKernel, plan: Plan, source: KernelSource, places: Sequence[Place], where: Location
) -> CountedLaunch:
    """Run a kernel on this machine, and count.

    Parameters
    ----------
    name : str
        The function's name.
    kernel : CudaKernel
    plan : Plan
        As `planned_for_gpu` makes it.
    source : KernelSource
        The kernel's text as it is made now. That of the kernel may be from the cache on disk, and have the comments of
        another function.
    places : sequence of Place
        Where each line of this text comes from.
    where : Location
        The place of the user's function.
    """
    ptx, notes = _text_with_lines(kernel, source)
    launch = launch_of(name, kernel, plan, ptx)
    try:
        counts = launch.count()
    except PtxError as error:
        raise BackendError(f"what the kernel of {name} does cannot be counted: {error}") from error
    if notes:
        places = []
    if plan.geometry.split is not None:
        notes.append("sums: a second pass, CuPy's, adds up the partial sums of blocks; it is not counted")
    return CountedLaunch(
        **{each.name: getattr(counts, each.name) for each in fields(Counts)},
        lines=lines_of(counts, cuda_build.text_of(source), places[: len(source.text.splitlines())], where.filename),
        elements=plan.geometry.total,
        grid=launch.grid,
        block=launch.block,
        notes=tuple(notes),
    )


def _text_with_lines(kernel: CudaKernel, source: KernelSource) -> tuple[str, list[str]]:
    """The PTX of a kernel, with lines only if its instructions are those of the text without, which is what launches
    run; and else a note that says why there are none."""
    options = kernel.cc, kernel.fastmath
    key = disk_cache.key("PTX with lines", disk_cache.STAMP, repr(source), repr(options), cuda_build.toolchain())
    shipped = ptx_of(kernel)
    try:
        lined = disk_cache.fetch(key, lambda: cuda_build.build(source, *options, ptx=True, lines=True)[0])
    except DualbcastError as error:  # the kernel has compiled without lines
        return shipped, [f"without lines: {str(error).splitlines()[0]}"]
    ptx = lined.decode().rstrip("\0")
    if instructions_of(ptx) != instructions_of(shipped):
        return shipped, ["without lines: with them these compilers make other instructions"]
    return ptx, []
