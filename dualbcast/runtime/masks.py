"""Loops over rows in vectors: after LLVM has made them under masks, a copy without for vectors of which no element is
missing."""

from __future__ import annotations

import re

from dualbcast.runtime.lowering import ROW, WHOLE

__all__ = ["without_masks"]

# Which elements of a vector are before the end of the row, as LLVM's vectoriser finds it out.
_MASK = re.compile(r"^  (%\S+) = icmp ule <(\d+) x i64> %vec\.iv\S*, %broadcast\.splat\S*$", re.MULTILINE)
_DECLARED = re.compile(rf"^declare [^\n]*@{WHOLE}\([^\n]*\n", re.MULTILINE)


def without_masks(text: str) -> str:
    """The text of an optimised module in which `WHOLE` is `ROW` for whole vectors, of which it computes the same bits.

    What is computed under a mask costs two instructions for one at loads, a mask at each turn, and cannot be streamed.
    LLVM makes both from one loop in three fifths of the time that it takes for loops of vectors, of shorter vectors,
    and of single elements, which it would make by itself; and no element of a short row is computed alone.
    """
    found = re.search(rf"^define [^\n]*@{ROW}\(.*?^}}\n", text, re.MULTILINE | re.DOTALL)
    if found is None:
        return text
    row = found[0].replace("define ", "define internal ", 1)
    before, after = (_DECLARED.sub("", part) for part in (text[: found.start()], text[found.end() :]))
    masks = "|".join(re.escape(mask[1]) for mask in _MASK.finditer(row))
    if not masks:  # It is not made of vectors.
        return "".join([before, row, after]).replace(f"@{WHOLE}(", f"@{ROW}(")
    whole = row.replace(f"@{ROW}(", f"@{WHOLE}(", 1)
    load = rf"= (?:tail )?call (<[^>]+>) @llvm\.masked\.load\S*\(ptr (align \d+) (\S+), <[^>]+> (?:{masks}), .*"
    store = (
        rf"(?:tail )?call void @llvm\.masked\.store\S*\((<[^>]+>) (.+), ptr (align \d+) (\S+), <[^>]+> (?:{masks})\)"
    )
    whole = re.sub(load, r"= load \1, ptr \3, \2", whole)
    whole = re.sub(store, r"store \1 \2, ptr \4, \3", whole)
    # Other uses are left; of this LLVM knows the result.
    whole = _MASK.sub(r"  \1 = icmp eq <\2 x i64> zeroinitializer, zeroinitializer", whole)
    return "".join([before, row, "\n", whole, after])
