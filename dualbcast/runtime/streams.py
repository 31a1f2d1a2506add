"""Outputs that go past the cache: an optimised kernel, with streaming stores where it stores whole vectors.

A store to memory that is not in the cache reads the line first, and drives out what inputs would be read from; a
streaming store of a whole line does neither. LLVM does not vectorise loops with such stores, so they are put in later.
"""

from __future__ import annotations

import contextlib
import itertools
import platform
import re
from collections.abc import Sequence
from functools import cache as once
from pathlib import Path

from dualbcast.abi import Layout
from dualbcast.runtime.threads import allowed_cpus

__all__ = ["build", "goes_past_the_cache", "room"]

# Of the last-level cache, the most for each CPU that the process may use: a virtual machine is told of a cache that
# others use as well. On a Xeon of 105 MiB, of which 2 CPUs are ours, streaming pays from 40 MB on.
_PER_CPU = 1 << 24
# The bytes of the shortest vectors that are streamed. Shorter ones would leave lines half written in between.
_SHORTEST = 32
# In the text of a module: a function's parameters that are pointers, a pointer from another, and a store of a vector.
_PARAMETER = re.compile(r"ptr [^,%]*(%[^\s,)]+)")
_OFFSET = re.compile(r"  (%\S+) = getelementptr [^%]*ptr (%[^\s,]+),")
_STORE = re.compile(r"  store (<\d+ x \w+>) (.+), ptr (%[^\s,]+)")


def goes_past_the_cache(layout: Layout, total: int, itemsizes: Sequence[int], inputs: int) -> bool:
    """Whether the outputs of a launch are streamed: it moves more than the cache has room for, and stores vectors.

    Parameters
    ----------
    layout : Layout
        Of the kernel.
    total : int
        The number of elements.
    itemsizes : sequence of int
        The bytes of an element of each argument, inputs first.
    inputs : int
        How many of them are inputs.
    """
    patterns = [layout.classes[which] for which in layout.which]
    moved = total * sum(itertools.compress(itemsizes, ["0" not in pattern for pattern in patterns]))
    if moved <= room() or platform.machine() not in ("x86_64", "AMD64"):
        return False
    return all(pattern.endswith("1") for pattern in patterns[inputs:])


def room() -> int:
    """The bytes that may be thought to stay in the cache from one launch to the next."""
    return min(_last_level_cache(), _PER_CPU * allowed_cpus())


@once
def _last_level_cache() -> int:
    """The bytes of the processor's largest cache, as far as the system tells."""
    found = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            found.append(int(path.read_text().strip().removesuffix("K")) << 10)
    return max(found, default=1 << 25)


def build(bitcode: bytes, symbol: str, processor: str, features: str) -> bytes:
    """The object file of the optimised kernel `symbol` with streaming stores, which gives the same bits.

    A streaming store of a vector must be aligned to the vector's size. Whether it is, is asked at each store, which a
    store to memory hides, so that nothing is asked of where outputs, ranges, and rows begin.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(_rewritten(str(llvm.parse_bitcode(bitcode)), symbol))
    # As Numba has it on the processors that are asked for this.
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(processor, features, opt=3, reloc="static", jit=True)
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(module))


def _rewritten(text: str, symbol: str) -> str:
    """The module's text, with functions that are called instead of stores of vectors to parameters of `symbol`."""
    lines: list[str] = []
    kinds: dict[str, str] = {}
    pointers: set[str] = set()  # to outputs, or to somewhere in them
    group = ""
    for line in text.splitlines():
        if line.startswith("define "):
            pointers.clear()
            if f"@{symbol}(" in line or f'@"{symbol}"(' in line:
                pointers.update(_PARAMETER.findall(line))
                group = " ".join(re.findall(r"#\d+", line))
        elif pointers:
            if (found := _OFFSET.match(line)) and found[2] in pointers:
                pointers.add(found[1])
            elif (found := _STORE.match(line)) and found[3] in pointers and _size(found[1]) >= _SHORTEST:
                name = kinds.setdefault(found[1], f"@past.{len(kinds)}")
                line = f"  call void {name}({found[1]} {found[2]}, ptr {found[3]})"
            elif line.startswith("  ret "):
                # Streamed lines may be seen late by other threads but for this.
                lines.append("  fence seq_cst")
        lines.append(line)
    for kind, name in kinds.items():
        align = min(_size(kind), 64)
        lines.append(_STREAM.format(name=name, kind=kind, group=group, align=align, last=align - 1))
    return "\n".join(lines)


def _size(vector: str) -> int:
    """The bytes of a vector type."""
    count, kind = vector[1:-1].split(" x ")
    sizes = {"double": 64, "float": 32, "half": 16, "bfloat": 16}
    return int(count) * (sizes.get(kind) or int(kind[1:])) // 8


_STREAM = """\
define private void {name}({kind} %vector, ptr %to) alwaysinline {group} {{
  %place = ptrtoint ptr %to to i64
  %odd = and i64 %place, {last}
  %whole = icmp eq i64 %odd, 0
  br i1 %whole, label %past, label %through, !prof !{{!"branch_weights", i32 1000, i32 1}}
past:
  store {kind} %vector, ptr %to, align {align}, !nontemporal !{{i32 1}}
  ret void
through:
  store {kind} %vector, ptr %to, align 1
  ret void
}}
"""
