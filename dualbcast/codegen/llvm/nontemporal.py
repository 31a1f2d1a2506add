"""What LLVM does not do for memory: in an optimised kernel, prefetches of what it loads, and streaming stores.

Loops with such stores are not vectorised, so they are put in later.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from dualbcast.codegen.llvm.row_loop import EDGE, WHOLE
from dualbcast.codegen.llvm.target import KERNEL, host
from dualbcast.codegen.llvm.vectorize import AHEAD, LINE

__all__ = ["build", "prefetching"]

# The bytes of the shortest vectors that are worth a prefetch. What is streamed fills a line of the cache: one that is
# streamed in two parts, with those of other outputs in between, is written twice (42 outputs: six times slower).
_SHORTEST = 32
# In the text of a module: a function's parameters that are pointers, a pointer from another, and accesses
# to vectors.
_PARAMETER = re.compile(r"ptr [^,%]*(%[^\s,)]+)")
_OFFSET = re.compile(r"  (%\S+) = getelementptr [^%]*ptr (%[^\s,]+),")
_LOAD = re.compile(r"  %\S+ = load (<\d+ x \w+>), ptr (%[^\s,]+)")
_STORE = re.compile(r"  store (<\d+ x \w+>) (.+), ptr (%[^\s,]+)")


def prefetching(text: str) -> str:
    """The text of an optimised module, in which the kernel asks early for what it loads as vectors.

    The processor foresees what is next in an array by itself, but later, and not of many arrays at a time.
    """
    lines, count = [], 0
    for line, kind, found in _accesses(text):
        if kind == "load":
            for past in range(0, _size(found[1]), LINE):
                count += 1
                lines.append(f"  %ahead.{count} = getelementptr i8, ptr {found[2]}, i64 {AHEAD + past}")
                lines.append(f"  call void @llvm.prefetch.p0(ptr %ahead.{count}, i32 0, i32 3, i32 1)")
        lines.append(line)
    if count:
        lines.append("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    return "\n".join(lines)


def build(bitcode: bytes, arrays: Collection[int]) -> bytes:
    """An optimised kernel with streaming stores to some of its arrays, by their places, linked; it gives the same bits.

    A streaming store must be aligned, and be of a whole line. Whether it is, is asked at each, which a store to memory
    hides, so that nothing is asked of where outputs, ranges, and rows begin.
    """
    import llvmlite.binding as llvm

    machine = host()
    module = llvm.parse_assembly(_streaming(str(llvm.parse_bitcode(bitcode)), arrays))
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options()))
    return bytes(machine.emit_object(module))


def _streaming(text: str, arrays: Collection[int]) -> str:
    """The module's text, with functions that are called instead of the kernel's stores of vectors to these arrays.

    What is on the stack is read at once: for that there is a copy of `WHOLE` as it was.
    """
    whole, edge = (_definition(text, name) for name in (WHOLE, EDGE))
    if whole:
        kept = f"{WHOLE}_kept"
        text = text.replace(edge, edge.replace(f"@{WHOLE}(", f"@{kept}("))
        text = "\n".join([text, whole.replace(f"@{WHOLE}(", f"@{kept}(")])
    lines: list[str] = []
    kinds: dict[str, str] = {}
    names = [name for at, name in enumerate(_PARAMETER.findall(_head(text, KERNEL))) if at in arrays]
    group = ""
    for line, kind, found in _accesses(text, names):
        if kind == "define":
            group = " ".join(re.findall(r"#\d+", line))
        elif kind == "store":
            name = kinds.setdefault(found[1], f"@past.{len(kinds)}")
            line = f"  call void {name}({found[1]} {found[2]}, ptr {found[3]})"
        lines.append(line)
    for vector, name in kinds.items():
        lines.append(_STREAM.format(name=name, kind=vector, group=group, align=LINE, last=LINE - 1))
    return "\n".join(lines)


def _definition(text: str, function: str) -> str:
    """The definition of a function; empty if it is not there."""
    found = re.search(rf"^define [^\n]*@{function}\(.*?^}}$", text, re.MULTILINE | re.DOTALL)
    return found[0] if found else ""


def _head(text: str, function: str) -> str:
    """The line that begins the definition of a function; empty if it is not there."""
    return _definition(text, function).partition("\n")[0]


def _accesses(text: str, arrays: Collection[str] | None = None) -> Iterator[tuple[str, str, Any]]:
    """Each line of a module, and what it is in the loop over elements: "define", or a "load" or "store" of a long
    vector of an array, of all or of those with these names, with the match of its pattern."""
    head = _head(text, WHOLE) or _head(text, KERNEL)
    pointers: set[str] = set()  # to arrays, or to somewhere in them
    for line in text.splitlines():
        kind, found = "", None
        if line.startswith("define "):
            pointers.clear()
            if line == head:
                pointers.update(name for name in _PARAMETER.findall(line) if arrays is None or name in arrays)
                kind = "define"
        elif pointers:
            if (found := _OFFSET.match(line)) and found[2] in pointers:
                pointers.add(found[1])
            elif (found := _STORE.match(line)) and found[3] in pointers and _size(found[1]) >= LINE:
                kind = "store"
            elif (found := _LOAD.match(line)) and found[2] in pointers and _size(found[1]) >= _SHORTEST:
                kind = "load"
        yield line, kind, found


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
