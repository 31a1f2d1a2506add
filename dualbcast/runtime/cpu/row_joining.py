"""Short rows, as of points with three coordinates each: run as one row, of which inputs that repeat along rows, or lie
otherwise, are laid out piece by piece. By itself each row would cost a kernel more than its elements do.
So sums are added up there, too, of terms that the kernel hands over as if they were outputs.
"""

from __future__ import annotations

from functools import cache as once

from dualbcast.runtime.cpu import scratch
from dualbcast.runtime.cpu.loader import compiled
from dualbcast.runtime.cpu.scratch import Loop

__all__ = ["ROWS", "SHORT", "joining"]

# The most elements of a row that is short.
SHORT = 32
# Rows that are laid out at a time are a multiple of this, so that pieces end where vectors do.
ROWS = 64
# Elements that are laid out at a time, unless the rows are more; and that are written at once, some of them too many.
_PIECE, _LANES = 2048, 8


@once
def joining(
    integers: int,
    pointers: int,
    joined: tuple[int, ...],
    itemsizes: tuple[int, ...],
    sums: tuple[tuple[int, str, int], ...],
) -> Loop:
    """A loop over a panel of short rows around kernels of a signature.

    It is a function of what that of `packing.gathering` is of, but that rows follow one another: in place of `step` it
    takes the number of rows of a plane, and before the bytes from row to row those from plane to plane. Pointers of
    sums are to the panel's own, float64; where terms are float64 there are more at the end, to what rounding takes.

    Parameters
    ----------
    integers, pointers : int
        How many sizes and strides, and how many pointers, the kernels take.
    joined : tuple of int
        Which pointers are of inputs to be laid out.
    itemsizes : tuple of int
        The bytes of an element of each of these.
    sums : tuple of (int, str, int)
        Which pointers are of sums, whether these are over "rows", "columns" or "all", and the bytes of a term: 4 or 8.
    """
    own = [f"i64 %n{k}" for k in range(integers)]
    given = [f"ptr %x{k}" for k in range(pointers)]
    rests = [f"ptr %rest{position}" for position, _, size in sums if size == 8]
    steps = [f"i64 %{way}{k}" for k in range(len(joined)) for way in ("over", "across", "along")]
    bounds = ["i64 %start", "i64 %plane", "i64 %rows", "i64 %columns"]
    head = ["ptr %kernel", *bounds, *steps, *own, *given, *rests, *scratch.PARAMETERS]
    called = list(given)
    for k, position in enumerate(joined):
        called[position] = f"ptr %moved{k}"
    for position, _, _ in sums:
        called[position] = f"ptr %terms{position}"
    most = max(_PIECE, ROWS * SHORT) + _LANES
    sizes = [(f"%t{k}", most * size) for k, size in enumerate(itemsizes)]
    for position, over, size in sums:
        sizes.append((f"%u{position}", most * size))
        if over != "columns":
            sizes.append((f"%sum{position}", 2 * SHORT * 8))
    taking, room = scratch.take(sizes)
    lines = [
        scratch.FUNCTIONS,
        "declare i64 @llvm.umin.i64(i64, i64)",
        *(_spread(size) + _lay(size) for size in sorted(set(itemsizes))),
        *(_add_columns(size) + _add_rows(size) + _finish(size) for size in sorted({size for *_, size in sums})),
        f"define i32 @loop({', '.join(head)}) {{",
        "entry:",
        *taking,
    ]
    for position, over, _ in sums:
        if over != "columns":
            lines.append(f"  store [{2 * SHORT} x double] zeroinitializer, ptr %sum{position}")
    lines += [
        f"  %fitting = udiv i64 {_PIECE}, %columns",
        f"  %rounded = and i64 %fitting, -{ROWS}",
        "  %few = icmp eq i64 %rounded, 0",
        f"  %most = select i1 %few, i64 {ROWS}, i64 %rounded",
        "  br label %piece",
        "piece:",
        "  %row = phi i64 [ 0, %entry ], [ %beyond, %ran ]",
        "  %beyond = add i64 %row, %most",
        "  %left = sub i64 %rows, %row",
        "  %whole = icmp sge i64 %left, %most",
        "  %count = select i1 %whole, i64 %most, i64 %left",
        "  %before = mul i64 %row, %columns",
        "  %at = add i64 %start, %before",
        "  %elements = mul i64 %count, %columns",
        "  %end = add i64 %at, %elements",
    ]
    for k, (position, size) in enumerate(zip(joined, itemsizes, strict=True)):
        lines += [
            f"  call void @lay{size}(ptr %t{k}, ptr %x{position}, i64 %row, i64 %count, i64 %columns, i64 %plane,"
            f" i64 %over{k}, i64 %across{k}, i64 %along{k})",
            f"  %b{k} = mul i64 %at, -{size}",
            f"  %moved{k} = getelementptr i8, ptr %t{k}, i64 %b{k}",
        ]
    for position, _, size in sums:
        lines += [
            f"  %c{position} = mul i64 %at, -{size}",
            f"  %terms{position} = getelementptr i8, ptr %u{position}, i64 %c{position}",
        ]
    lines += [
        f"  %status = call i32 %kernel({', '.join(['i64 %at', 'i64 %end', *own, *called])})",
        "  %stopped = icmp ne i32 %status, 0",
        "  br i1 %stopped, label %done, label %ran",
        "ran:",
    ]
    for position, over, size in sums:
        if over == "columns":
            lines.append(f"  %y{position} = getelementptr double, ptr %x{position}, i64 %row")
        way, to = ("columns", f"%y{position}") if over == "columns" else ("rows", f"%sum{position}")
        lines.append(f"  call void @add.{way}{size}(ptr {to}, ptr %u{position}, i64 %count, i64 %columns)")
    lines += [
        "  %more = icmp slt i64 %beyond, %rows",
        "  br i1 %more, label %piece, label %done",
        "done:",
    ]
    for position, over, size in sums:
        if over != "columns":
            rest = f"ptr %rest{position}" if size == 8 else "ptr null"
            every = f"i1 {'true' if over == 'all' else 'false'}"
            lines.append(
                f"  call void @finish{size}(ptr %x{position}, {rest}, ptr %sum{position}, i64 %columns, {every})"
            )
    return Loop(compiled("\n".join([*lines, scratch.GIVE, "  ret i32 %status", "}"]), "loop", optimise=True), room)


def _lay(size: int) -> str:
    """Lay out rows from one on, plane by plane."""
    return f"""
define private void @lay{size}(
  ptr %to, ptr %from, i64 %row, i64 %count, i64 %columns, i64 %plane, i64 %over, i64 %across, i64 %along
) {{
entry:
  br label %next
next:
  %done = phi i64 [ 0, %entry ], [ %after, %next ]
  %at = add i64 %row, %done
  %above = udiv i64 %at, %plane
  %down = urem i64 %at, %plane
  %below = sub i64 %plane, %down
  %left = sub i64 %count, %done
  %rows = call i64 @llvm.umin.i64(i64 %below, i64 %left)
  %o = mul i64 %above, %over
  %a = mul i64 %down, %across
  %oa = add i64 %o, %a
  %p = getelementptr i8, ptr %from, i64 %oa
  %e = mul i64 %done, %columns
  %b = mul i64 %e, {size}
  %q = getelementptr i8, ptr %to, i64 %b
  call void @spread{size}(ptr %q, ptr %p, i64 %rows, i64 %columns, i64 %across, i64 %along)
  %after = add i64 %done, %rows
  %more = icmp ult i64 %after, %count
  br i1 %more, label %next, label %end
end:
  ret void
}}
"""


def _spread(size: int) -> str:
    """Lay out rows one after the other, some columns of all of them at a time, the last ones first: those are written
    with more beyond the row's end, which what comes then writes over."""
    number, vector, wide = f"i{8 * size}", f"<{_LANES} x i{8 * size}>", f"<{_LANES} x i64>"
    places = ", ".join(f"i64 {lane}" for lane in range(_LANES))
    everywhere = f"<{_LANES} x i32> zeroinitializer"
    same = f"""\
  %x = load {number}, ptr %same.p, align {size}
  %x0 = insertelement {vector} poison, {number} %x, i64 0
  %same.v = shufflevector {vector} %x0, {vector} poison, {everywhere}"""
    close = f"""\
  %s = getelementptr {number}, ptr %close.p, i64 %close.c
  %close.v = call {vector} @llvm.masked.load.v{_LANES}{number}.p0(
    ptr %s, i32 {size}, <{_LANES} x i1> %mask, {vector} zeroinitializer
  )"""
    mask = f"""\
  %left = sub i64 %columns, %close.c
  %l0 = insertelement {wide} poison, i64 %left, i64 0
  %ls = shufflevector {wide} %l0, {wide} poison, {everywhere}
  %mask = icmp ugt {wide} %ls, <{places}>"""
    return f"""\
declare {vector} @llvm.masked.load.v{_LANES}{number}.p0(ptr, i32, <{_LANES} x i1>, {vector})
define private void @spread{size}(
  ptr noalias %to, ptr noalias %from, i64 %rows, i64 %columns, i64 %across, i64 %along
) {{
entry:
  %less = sub i64 %columns, 1
  %last = and i64 %less, -{_LANES}
  switch i64 %along, label %apart [ i64 0, label %same  i64 {size}, label %close ]
{_columns("same", number, vector, size, "", same)}
{_columns("close", number, vector, size, mask, close)}
apart:
  %i = phi i64 [ 0, %entry ], [ %inext, %aparted ]
  %io = mul i64 %i, %across
  %p = getelementptr i8, ptr %from, i64 %io
  %ir = mul i64 %i, %columns
  %q = getelementptr {number}, ptr %to, i64 %ir
  br label %column
column:
  %a = phi i64 [ 0, %apart ], [ %anext, %column ]
  %ao = mul i64 %a, %along
  %ap = getelementptr i8, ptr %p, i64 %ao
  %y = load {number}, ptr %ap, align {size}
  %aq = getelementptr {number}, ptr %q, i64 %a
  store {number} %y, ptr %aq, align {size}
  %anext = add i64 %a, 1
  %amore = icmp ult i64 %anext, %columns
  br i1 %amore, label %column, label %aparted
aparted:
  %inext = add i64 %i, 1
  %imore = icmp ult i64 %inext, %rows
  br i1 %imore, label %apart, label %done
done:
  ret void
}}"""


def _columns(way: str, number: str, vector: str, size: int, before: str, value: str) -> str:
    """Loops over columns from the last ones on, and rows: the blocks of a way to read what is written there."""
    return f"""\
{way}:
  %{way}.c = phi i64 [ %last, %entry ], [ %{way}.less, %{way}.done ]
{before}
  br label %{way}.row
{way}.row:
  %{way}.i = phi i64 [ 0, %{way} ], [ %{way}.next, %{way}.row ]
  %{way}.o = mul i64 %{way}.i, %across
  %{way}.p = getelementptr i8, ptr %from, i64 %{way}.o
{value}
  %{way}.r = mul i64 %{way}.i, %columns
  %{way}.e = add i64 %{way}.r, %{way}.c
  %{way}.q = getelementptr {number}, ptr %to, i64 %{way}.e
  store {vector} %{way}.v, ptr %{way}.q, align {size}
  %{way}.next = add i64 %{way}.i, 1
  %{way}.more = icmp ult i64 %{way}.next, %rows
  br i1 %{way}.more, label %{way}.row, label %{way}.done
{way}.done:
  %{way}.less = sub i64 %{way}.c, {_LANES}
  %{way}.end = icmp eq i64 %{way}.c, 0
  br i1 %{way}.end, label %done, label %{way}"""


def _two_sum(size: int, kind: str, vector: str = "") -> str:
    """`new` and `lost` of `sum`, `rest` and `term`: of float64 what rounding takes is kept, by Knuth's two-sum."""
    if size == 4:
        return f"""\
  %term = fpext {vector or "float"} %read to {kind}
  %new = fadd {kind} %sum, %term
  %lost = freeze {kind} %rest"""
    return f"""\
  %new = fadd {kind} %sum, %read
  %part = fsub {kind} %new, %sum
  %kept = fsub {kind} %new, %part
  %of.sum = fsub {kind} %sum, %kept
  %of.term = fsub {kind} %read, %part
  %error = fadd {kind} %of.sum, %of.term
  %lost = fadd {kind} %rest, %error"""


def _add_columns(size: int) -> str:
    """The sum of each row of terms, what rounding took from it included."""
    number = "float" if size == 4 else "double"
    return f"""\
define private void @add.columns{size}(ptr noalias %to, ptr noalias %from, i64 %rows, i64 %columns) {{
entry:
  br label %row
row:
  %i = phi i64 [ 0, %entry ], [ %inext, %rowed ]
  %first = mul i64 %i, %columns
  br label %column
column:
  %j = phi i64 [ 0, %row ], [ %jnext, %column ]
  %sum = phi double [ 0.0, %row ], [ %new, %column ]
  %rest = phi double [ 0.0, %row ], [ %lost, %column ]
  %at = add i64 %first, %j
  %p = getelementptr {number}, ptr %from, i64 %at
  %read = load {number}, ptr %p, align {size}
{_two_sum(size, "double")}
  %jnext = add i64 %j, 1
  %jmore = icmp ult i64 %jnext, %columns
  br i1 %jmore, label %column, label %rowed
rowed:
  %whole = fadd double %new, %lost
  %zero = fsub double %lost, %lost
  %finite = fcmp oeq double %zero, 0.0
  %result = select i1 %finite, double %whole, double %new
  %q = getelementptr double, ptr %to, i64 %i
  store double %result, ptr %q, align 8
  %inext = add i64 %i, 1
  %imore = icmp ult i64 %inext, %rows
  br i1 %imore, label %row, label %done
done:
  ret void
}}
"""


def _add_rows(size: int) -> str:
    """Add rows of terms to sums, which are followed by what rounding took; beyond the columns they mean nothing."""
    number = "float" if size == 4 else "double"
    vector, wide = f"<{_LANES} x {number}>", f"<{_LANES} x double>"
    return f"""\
define private void @add.rows{size}(ptr noalias %to, ptr noalias %from, i64 %rows, i64 %columns) {{
entry:
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %jnext, %columned ]
  %q = getelementptr double, ptr %to, i64 %j
  %r = getelementptr [{SHORT} x double], ptr %q, i64 1
  %sum0 = load {wide}, ptr %q, align 8
  %rest0 = load {wide}, ptr %r, align 8
  br label %row
row:
  %i = phi i64 [ 0, %column ], [ %inext, %row ]
  %sum = phi {wide} [ %sum0, %column ], [ %new, %row ]
  %rest = phi {wide} [ %rest0, %column ], [ %lost, %row ]
  %first = mul i64 %i, %columns
  %at = add i64 %first, %j
  %p = getelementptr {number}, ptr %from, i64 %at
  %read = load {vector}, ptr %p, align {size}
{_two_sum(size, wide, vector)}
  %inext = add i64 %i, 1
  %imore = icmp ult i64 %inext, %rows
  br i1 %imore, label %row, label %columned
columned:
  store {wide} %new, ptr %q, align 8
  store {wide} %lost, ptr %r, align 8
  %jnext = add i64 %j, {_LANES}
  %jmore = icmp ult i64 %jnext, %columns
  br i1 %jmore, label %column, label %done
done:
  ret void
}}
"""


def _finish(size: int) -> str:
    """Store the sums of columns, or the sum of these."""
    keeps = (
        ""
        if size == 4
        else """\
  %b = getelementptr double, ptr %rests, i64 %to
  store double %kept.rest, ptr %b, align 8"""
    )
    return f"""\
define private void @finish{size}(ptr noalias %sums, ptr noalias %rests, ptr noalias %from, i64 %columns, i1 %all) {{
entry:
  br label %column
column:
  %j = phi i64 [ 0, %entry ], [ %jnext, %column ]
  %before = phi double [ 0.0, %entry ], [ %kept, %column ]
  %rest.before = phi double [ 0.0, %entry ], [ %kept.rest, %column ]
  %sum = select i1 %all, double %before, double 0.0
  %rest.sum = select i1 %all, double %rest.before, double 0.0
  %q = getelementptr double, ptr %from, i64 %j
  %r = getelementptr [{SHORT} x double], ptr %q, i64 1
  %term = load double, ptr %q, align 8
  %rest.term = load double, ptr %r, align 8
  %kept = fadd double %sum, %term
  %part = fsub double %kept, %sum
  %whole = fsub double %kept, %part
  %of.sum = fsub double %sum, %whole
  %of.term = fsub double %term, %part
  %error = fadd double %of.sum, %of.term
  %rest = fadd double %rest.sum, %rest.term
  %kept.rest = fadd double %rest, %error
  %to = select i1 %all, i64 0, i64 %j
  %a = getelementptr double, ptr %sums, i64 %to
  store double %kept, ptr %a, align 8
{keeps}
  %jnext = add i64 %j, 1
  %jmore = icmp ult i64 %jnext, %columns
  br i1 %jmore, label %column, label %done
done:
  ret void
}}
"""
