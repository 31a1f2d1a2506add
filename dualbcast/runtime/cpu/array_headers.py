"""Machine code that reads how arrays lie: a call of many small ones would else spend most of its time on that."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dualbcast.runtime.cpu.loader import compiled

__all__ = ["HEADER", "ITEMS", "Readers", "readers"]

# Where a NumPy array has the address of its data: by NumPy's stable C ABI that comes first after the object's header,
# whose last word is the type.
HEADER = object.__basicsize__
# Where the items of a tuple begin; how many there are comes first after the header.
ITEMS = tuple.__basicsize__
# After that come the number of dimensions, the addresses of lengths and of strides, the base, the dtype.
_DIMENSIONS, _LENGTHS, _STRIDES, _DTYPE = HEADER + 8, HEADER + 16, HEADER + 24, HEADER + 40
# Words that there may be, which are on the stack: the forms of eighty matrices.
_ROOM = 500


class Readers(NamedTuple):
    """Functions of a tuple that give 64-bit integers; none where it is no tuple, or there would be too many.

    Attributes
    ----------
    describe : callable
        The forms of all values: the address of a number's type; or that of an array's dtype, the number of dimensions,
        and for each its length and its stride. None where there is a value of another kind. So descriptions are equal
        where forms are, if those types and dtypes never end.
    locate : callable
        Where the data of each array begins. All must be NumPy's, and may be of derived classes.
    """

    describe: Callable[[object], bytes]
    locate: Callable[[object], bytes]


def readers(array: type, dtypes: Sequence[object], numbers: Sequence[type]) -> Readers:
    """Compile them.

    Parameters
    ----------
    array : type
        NumPy's array.
    dtypes, numbers : sequence
        The dtypes of arrays, and the types of numbers, that are described; those that are likely first.
    """
    objects: dict[str, Sequence[object]] = {"tuple": [tuple], "array": [array], "number": numbers, "known": dtypes}
    # Addresses are of this process only.
    elsewhere = {f"{kind}.{at}": id(thing) for kind, things in objects.items() for at, thing in enumerate(things)}
    elsewhere["write"] = ctypes.cast(ctypes.pythonapi.PyBytes_FromStringAndSize, ctypes.c_void_p).value or 0
    text = _TEXT.format(
        numbers=_cases("number", len(numbers), "%type"),
        dtypes=_cases("known", len(dtypes), "%dtype"),
        declared="\n".join(f"@{name} = external global i8" for name in elsewhere),
        room=_ROOM,
        type=HEADER - 8,
        size=HEADER,
        items=ITEMS,
        data=HEADER,
        dimensions=_DIMENSIONS,
        lengths=_LENGTHS,
        strides=_STRIDES,
        dtype=_DTYPE,
    )
    # With the GIL: nobody changes the arrays meanwhile.
    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)
    return Readers(*[prototype(compiled(text, name, elsewhere=tuple(elsewhere.items()))) for name in Readers._fields])


def _cases(label: str, count: int, value: str) -> str:
    """A block that goes to `label` if the value is the address of one of so many objects, and else to `other`."""
    lines = [f"  br label %{label}.is0"]
    for at in range(count):
        lines += [
            f"{label}.is{at}:",
            f"  %{label}.same{at} = icmp eq i64 {value}, ptrtoint (ptr @{label}.{at} to i64)",
            f"  br i1 %{label}.same{at}, label %{label}, label %{label}.is{at + 1}",
        ]
    return "\n".join([*lines, f"{label}.is{count}:", "  br label %other"])


_TEXT = """\
{declared}
define ptr @describe(ptr %values) {{
entry:
  %words = alloca [{room} x i64]
  %kind.at = getelementptr i8, ptr %values, i64 {type}
  %kind = load i64, ptr %kind.at
  %is.tuple = icmp eq i64 %kind, ptrtoint (ptr @tuple.0 to i64)
  br i1 %is.tuple, label %begin, label %other
begin:
  %size.at = getelementptr i8, ptr %values, i64 {size}
  %size = load i64, ptr %size.at
  %items = getelementptr i8, ptr %values, i64 {items}
  br label %next
next:
  %at = phi i64 [ 0, %begin ], [ %after, %number ], [ %after, %dimension ]
  %used = phi i64 [ 0, %begin ], [ %used.number, %number ], [ %used.array, %dimension ]
  %more = icmp ult i64 %at, %size
  br i1 %more, label %value, label %end
value:
  %item.at = getelementptr i64, ptr %items, i64 %at
  %item = load ptr, ptr %item.at
  %after = add i64 %at, 1
  %type.at = getelementptr i8, ptr %item, i64 {type}
  %type = load i64, ptr %type.at
  %used.number = add i64 %used, 1
  %first = getelementptr i64, ptr %words, i64 %used
  %full = icmp uge i64 %used, {room}
  br i1 %full, label %other, label %look
look:
  store i64 %type, ptr %first
  %is.array = icmp eq i64 %type, ptrtoint (ptr @array.0 to i64)
  br i1 %is.array, label %array, label %scalar
scalar:
{numbers}
number:
  br label %next
array:
  %dtype.at = getelementptr i8, ptr %item, i64 {dtype}
  %dtype = load i64, ptr %dtype.at
{dtypes}
known:
  %rank.at = getelementptr i8, ptr %item, i64 {dimensions}
  %rank.32 = load i32, ptr %rank.at
  %rank = zext i32 %rank.32 to i64
  %twice = shl i64 %rank, 1
  %used.head = add i64 %used, 2
  %used.array = add i64 %used.head, %twice
  %much = icmp ugt i64 %used.array, {room}
  br i1 %much, label %other, label %array.begin
array.begin:
  store i64 %dtype, ptr %first
  %second = getelementptr i64, ptr %first, i64 1
  store i64 %rank, ptr %second
  %lengths.at = getelementptr i8, ptr %item, i64 {lengths}
  %lengths = load ptr, ptr %lengths.at
  %strides.at = getelementptr i8, ptr %item, i64 {strides}
  %strides = load ptr, ptr %strides.at
  br label %dimension
dimension:
  %k = phi i64 [ 0, %array.begin ], [ %k.after, %write ]
  %place = phi ptr [ %second, %array.begin ], [ %stride.to, %write ]
  %some = icmp ult i64 %k, %rank
  br i1 %some, label %write, label %next
write:
  %k.after = add i64 %k, 1
  %length.at = getelementptr i64, ptr %lengths, i64 %k
  %length = load i64, ptr %length.at
  %length.to = getelementptr i64, ptr %place, i64 1
  store i64 %length, ptr %length.to
  %stride.at = getelementptr i64, ptr %strides, i64 %k
  %stride = load i64, ptr %stride.at
  %stride.to = getelementptr i64, ptr %place, i64 2
  store i64 %stride, ptr %stride.to
  br label %dimension
end:
  %bytes = shl i64 %used, 3
  br label %finish
other:
  br label %finish
finish:
  %many = phi i64 [ %bytes, %end ], [ 0, %other ]
  %made = call ptr @write(ptr %words, i64 %many)
  ret ptr %made
}}

define ptr @locate(ptr %values) {{
entry:
  %words = alloca [{room} x i64]
  %kind.at = getelementptr i8, ptr %values, i64 {type}
  %kind = load i64, ptr %kind.at
  %size.at = getelementptr i8, ptr %values, i64 {size}
  %size = load i64, ptr %size.at
  %is.tuple = icmp eq i64 %kind, ptrtoint (ptr @tuple.0 to i64)
  %fits = icmp ule i64 %size, {room}
  %good = and i1 %is.tuple, %fits
  %count = select i1 %good, i64 %size, i64 0
  %items = getelementptr i8, ptr %values, i64 {items}
  br label %next
next:
  %at = phi i64 [ 0, %entry ], [ %after, %value ]
  %more = icmp ult i64 %at, %count
  br i1 %more, label %value, label %end
value:
  %after = add i64 %at, 1
  %item.at = getelementptr i64, ptr %items, i64 %at
  %item = load ptr, ptr %item.at
  %data.at = getelementptr i8, ptr %item, i64 {data}
  %data = load i64, ptr %data.at
  %to = getelementptr i64, ptr %words, i64 %at
  store i64 %data, ptr %to
  br label %next
end:
  %bytes = shl i64 %count, 3
  %made = call ptr @write(ptr %words, i64 %bytes)
  ret ptr %made
}}
"""
