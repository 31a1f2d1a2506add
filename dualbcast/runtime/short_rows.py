"""Short rows, as of points with three coordinates each: run as one row, of which inputs that repeat along rows, or lie
otherwise, are laid out piece by piece on the stack. By itself each row would cost a kernel more than its elements do.
"""

from __future__ import annotations

from functools import cache as once

from dualbcast.runtime.native import compiled

__all__ = ["LONGEST", "ROWS", "joining"]

# The most elements of a row that is laid out.
LONGEST = 64
# Rows that are laid out at a time are a multiple of this, so that pieces end where vectors do.
ROWS = 64
# Elements that are laid out at a time, unless the rows are more; and that are written at once, some of them too many.
_PIECE, _LANES = 2048, 8


@once
def joining(
    integers: int, pointers: int, joined: tuple[int, ...], itemsizes: tuple[int, ...], sums: tuple[tuple[int, int], ...]
) -> int:
    """The address of a loop over a panel of short rows around kernels of a signature.

    It is a function of what that of `packing.gathering` is of; the panel's rows follow one another. Pointers of sums
    are to a float64 for each row.

    Parameters
    ----------
    integers, pointers : int
        How many sizes and strides, and how many pointers, the kernels take.
    joined : tuple of int
        Which pointers are of inputs to be laid out.
    itemsizes : tuple of int
        The bytes of an element of each of these.
    sums : tuple of (int, int)
        Which pointers are of outputs whose rows are added up, and the bytes of a term: 4 or 8.
    """
    own = [f"i64 %n{k}" for k in range(integers)]
    given = [f"ptr %x{k}" for k in range(pointers)]
    steps = [f"i64 %{way}{k}" for k in range(len(joined)) for way in ("across", "along")]
    bounds = ["i64 %start", "i64 %step", "i64 %rows", "i64 %columns"]
    called = list(given)
    for k, position in enumerate(joined):
        called[position] = f"ptr %moved{k}"
    for position, _ in sums:
        called[position] = f"ptr %terms{position}"
    most = max(_PIECE, ROWS * LONGEST) + _LANES
    lines = [
        *(_spread(size) for size in sorted(set(itemsizes))),
        *(_add(size) for size in sorted({size for _, size in sums})),
        f"define i32 @loop({', '.join(['ptr %kernel', *bounds, *steps, *own, *given])}) {{",
        "entry:",
        *(f"  %t{k} = alloca [{most * size} x i8], align 64" for k, size in enumerate(itemsizes)),
        *(f"  %u{position} = alloca [{most * size} x i8], align 64" for position, size in sums),
        f"  %fitting = udiv i64 {_PIECE}, %columns",
        f"  %rounded = and i64 %fitting, -{ROWS}",
        "  %few = icmp eq i64 %rounded, 0",
        f"  %most = select i1 %few, i64 {ROWS}, i64 %rounded",
        "  br label %piece",
        "piece:",
        "  %row = phi i64 [ 0, %entry ], [ %beyond, %piece ]",
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
            f"  %o{k} = mul i64 %row, %across{k}",
            f"  %s{k} = getelementptr i8, ptr %x{position}, i64 %o{k}",
            f"  call void @spread{size}(ptr %t{k}, ptr %s{k}, i64 %count, i64 %columns, i64 %across{k}, i64 %along{k})",
            f"  %b{k} = mul i64 %at, -{size}",
            f"  %moved{k} = getelementptr i8, ptr %t{k}, i64 %b{k}",
        ]
    for position, size in sums:
        lines += [
            f"  %c{position} = mul i64 %at, -{size}",
            f"  %terms{position} = getelementptr i8, ptr %u{position}, i64 %c{position}",
        ]
    lines.append(f"  call i32 %kernel({', '.join(['i64 %at', 'i64 %end', *own, *called])})")
    for position, size in sums:
        lines += [
            f"  %y{position} = getelementptr double, ptr %x{position}, i64 %row",
            f"  call void @add{size}(ptr %y{position}, ptr %u{position}, i64 %count, i64 %columns)",
        ]
    lines += [
        "  %more = icmp slt i64 %beyond, %rows",
        "  br i1 %more, label %piece, label %done",
        "done:",
        "  ret i32 0",
        "}",
    ]
    return compiled("\n".join(lines), "loop", optimise=True)


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


def _add(size: int) -> str:
    """Add up rows of terms; of float64 with what rounding takes, by Knuth's two-sum."""
    if size == 4:
        step = """\
  %term = load float, ptr %p, align 4
  %wide = fpext float %term to double
  %new = fadd double %sum, %wide
  %lost = fadd double %rest, 0.0"""
    else:
        step = """\
  %term = load double, ptr %p, align 8
  %new = fadd double %sum, %term
  %part = fsub double %new, %sum
  %kept = fsub double %new, %part
  %of.sum = fsub double %sum, %kept
  %of.term = fsub double %term, %part
  %error = fadd double %of.sum, %of.term
  %lost = fadd double %rest, %error"""
    return f"""\
define private void @add{size}(ptr noalias %to, ptr noalias %from, i64 %rows, i64 %columns) {{
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
  %o = mul i64 %at, {size}
  %p = getelementptr i8, ptr %from, i64 %o
{step}
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
}}"""
