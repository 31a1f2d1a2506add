"""Outputs that go past the cache: a CPU kernel is run tile by tile into the stack, and each tile streamed to its place.

A store to memory that is not in the cache reads the line first; a streaming store of a whole line does not. LLVM's
vectoriser does not take streaming stores, so the kernel stays as it is, and this writes the loop around it.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path

from dualbcast.abi import Layout
from dualbcast.runtime.native import compiled

__all__ = ["goes_past_the_cache", "last_level_cache", "loop"]

# How many times what the last-level cache holds a launch must move.
BEYOND = 4


def goes_past_the_cache(layout: Layout, ints: Sequence[int], total: int, itemsizes: Sequence[int], inputs: int) -> bool:
    """Whether the outputs of a launch are streamed: it moves far more than the cache holds, and they are contiguous.

    Parameters
    ----------
    layout : Layout
        Of the kernel.
    ints : sequence of int
        Sizes and strides.
    total : int
        The number of elements.
    itemsizes : sequence of int
        The bytes of an element of each argument, inputs first.
    inputs : int
        How many of them are inputs.
    """
    spans = ["0" not in layout.classes[which] for which in layout.which]
    moved = total * sum(itertools.compress(itemsizes, spans))
    if moved <= BEYOND * last_level_cache() or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return all(_is_linear(layout, ints, which) for which in set(layout.which[inputs:]))


def _is_linear(layout: Layout, ints: Sequence[int], which: int) -> bool:
    """Whether elements of an address class are where their linear index says."""
    pattern = layout.classes[which]
    if "0" in pattern or pattern[-1] != "1":
        return False
    first = layout.rank + sum(pattern.count("s") for pattern in layout.classes[:which])
    strides, step = ints[first : first + layout.rank - 1], 1
    for size, stride in zip(reversed(ints[1 : layout.rank]), reversed(strides), strict=True):
        step *= size
        if stride != step:
            return False
    return True


@once
def last_level_cache() -> int:
    """The bytes of the processor's largest cache, as far as the system tells."""
    found = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text().strip().removesuffix("K")) << 10)
    return max(found, default=1 << 25)


@once
def loop(integers: int, inputs: int, outputs: tuple[int, ...], tile: int) -> int:
    """The address of a loop around kernels of a signature.

    It is a function of the kernel's address, the length of a row, and the kernel's own parameters; outputs must be
    contiguous.

    Parameters
    ----------
    integers : int
        How many sizes and strides they take.
    inputs : int
        How many inputs.
    outputs : tuple of int
        The bytes of an element of each output.
    tile : int
        The elements of a tile. Tiles begin at multiples of it in their rows, as ranges do: see `cpu.launch`.
    """
    return compiled(_text(integers, inputs, outputs, tile), "streamed", optimise=True)


def _text(integers: int, inputs: int, outputs: tuple[int, ...], tile: int) -> str:
    """The loop in LLVM's language."""
    own = [f"i64 %n{k}" for k in range(integers)]
    read = [f"ptr %x{k}" for k in range(inputs)]
    written = [f"ptr %y{k}" for k in range(len(outputs))]
    fixed = ["ptr %kernel", "i64 %row", "ptr %result", "ptr %error", "i64 %start", "i64 %stop"]
    lines = [
        _COPY,
        f"define i32 @streamed({', '.join([*fixed, *own, *read, *written])}) {{",
        "entry:",
        *(f"  %t{k} = alloca [{size * tile} x i8], align 64" for k, size in enumerate(outputs)),
        "  %any = icmp slt i64 %start, %stop",
        "  br i1 %any, label %next, label %done",
        "next:",
        "  %at = phi i64 [ %start, %entry ], [ %end, %store ]",
        f"  %far = add i64 %at, {tile}",
        "  %column = urem i64 %far, %row",
        f"  %over = urem i64 %column, {tile}",
        "  %near = sub i64 %far, %over",
        "  %last = icmp sge i64 %far, %stop",
        "  %end = select i1 %last, i64 %stop, i64 %near",
    ]
    for k, size in enumerate(outputs):
        lines += [
            f"  %o{k} = mul i64 %at, {size}",
            f"  %m{k} = sub i64 0, %o{k}",
            f"  %p{k} = getelementptr i8, ptr %t{k}, i64 %m{k}",
        ]
    moved = [f"ptr %p{k}" for k in range(len(outputs))]
    arguments = ["ptr %result", "ptr %error", "i64 %at", "i64 %end", *own, *read, *moved]
    lines += [
        f"  %status = call i32 %kernel({', '.join(arguments)})",
        "  %good = icmp eq i32 %status, 0",
        "  br i1 %good, label %store, label %failed",
        "store:",
        "  %count = sub i64 %end, %at",
    ]
    for k, size in enumerate(outputs):
        lines += [
            f"  %c{k} = mul i64 %count, {size}",
            f"  %q{k} = getelementptr i8, ptr %y{k}, i64 %o{k}",
            f"  call void @stream(ptr %q{k}, ptr %t{k}, i64 %c{k})",
        ]
    lines += [
        "  %more = icmp slt i64 %end, %stop",
        "  br i1 %more, label %next, label %done",
        "failed:",
        "  ret i32 %status",
        "done:",
        # Streamed lines may be seen late by other threads but for this.
        "  fence seq_cst",
        "  ret i32 0",
        "}",
        "!0 = !{i32 1}",
    ]
    return "\n".join(lines)


# Copies bytes: those before the first whole line and after the last one as usual, the lines between past the cache.
_COPY = """\
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)

define private void @stream(ptr %to, ptr %from, i64 %bytes) noinline {
entry:
  %place = ptrtoint ptr %to to i64
  %negative = sub i64 0, %place
  %gap = and i64 %negative, 63
  %short = icmp ult i64 %bytes, %gap
  %lead = select i1 %short, i64 %bytes, i64 %gap
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %lead, i1 false)
  %left = sub i64 %bytes, %lead
  %whole = and i64 %left, -64
  %stop = add i64 %lead, %whole
  %any = icmp ugt i64 %whole, 0
  br i1 %any, label %line, label %rest
line:
  %k = phi i64 [ %lead, %entry ], [ %next, %line ]
  %source = getelementptr i8, ptr %from, i64 %k
  %target = getelementptr i8, ptr %to, i64 %k
  %data = load <8 x i64>, ptr %source, align 1
  store <8 x i64> %data, ptr %target, align 64, !nontemporal !0
  %next = add i64 %k, 64
  %again = icmp ult i64 %next, %stop
  br i1 %again, label %line, label %rest
rest:
  %after = getelementptr i8, ptr %to, i64 %stop
  %behind = getelementptr i8, ptr %from, i64 %stop
  %end = sub i64 %bytes, %stop
  call void @llvm.memcpy.p0.p0.i64(ptr %after, ptr %behind, i64 %end, i1 false)
  ret void
}
"""
