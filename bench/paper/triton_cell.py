"""The HM-LSTM cell update's partials in Triton, `where` for `if`, as PyTorch's Inductor writes such kernels.

Triton compiles to PTX without a GPU. This module is imported only where Triton is installed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import triton
import triton.language as tl
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

from dualbcast.counting.launch import Launch, address_of, placed

__all__ = ["where_launch"]

_BLOCK, _WARPS = 512, 4  # of a program: four elements a thread, in one access


@triton.jit  # type: ignore[untyped-decorator]
def hm_lstm_where(c, f, i, g, z, zb, out_dc, out_df, out_di, out_dg, columns, count, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]  # noqa: N803
    """The partials in c, f, i and g, with control by row."""
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = x < count
    row = x // columns
    flush = tl.load(z + row, inside, eviction_policy="evict_last") == 1.0
    copy = tl.load(zb + row, inside, eviction_policy="evict_last") == 0.0
    a, s, t = (
        tl.sigmoid(tl.load(f + x, inside)),
        tl.sigmoid(tl.load(i + x, inside)),
        libdevice.tanh(tl.load(g + x, inside)),
    )
    cs = tl.load(c + x, inside)
    idle = copy & (flush == 0)
    tl.store(out_dc + x, tl.where(flush, 0.0, tl.where(copy, 1.0, a)), inside)
    tl.store(out_df + x, tl.where(flush | copy, 0.0, cs * (a * (1.0 - a))), inside)
    tl.store(out_di + x, tl.where(idle, 0.0, t * (s * (1.0 - s))), inside)
    tl.store(out_dg + x, tl.where(idle, 0.0, s * (1.0 - t * t)), inside)


def where_launch(name: str, arrays: Sequence[NDArray[Any]], cc: tuple[int, int]) -> Launch:
    """The launch for c, f, i, g, z and zb, whose partials are the last four arrays."""
    pointers = ("c", "f", "i", "g", "z", "zb", "out_dc", "out_df", "out_di", "out_dg")
    signature = dict.fromkeys(pointers, "*fp32") | {"columns": "i32", "count": "i32", "BLOCK": "constexpr"}
    aligned = {(at,): [["tt.divisibility", 16]] for at in range(len(signature) - 1)}
    source = ASTSource(hm_lstm_where, signature, {"BLOCK": _BLOCK}, aligned)
    compiled = triton.compile(source, target=GPUTarget("cuda", 10 * cc[0] + cc[1], 32), options={"num_warps": _WARPS})
    places = placed((*arrays, *(np.empty_like(arrays[0]) for _ in range(4))))
    numbers = (
        np.int32(arrays[0].shape[1]),
        np.int32(arrays[0].size),
        np.uint64(0),
        np.uint64(0),
    )  # and two work spaces
    return Launch(
        name,
        compiled.asm["ptx"],
        compiled.metadata.name,
        (-(-arrays[0].size // _BLOCK), 1, 1),
        (32 * _WARPS, 1, 1),
        tuple(map(address_of, places)),  # first here
        tuple(number.tobytes() for number in numbers),
        places,
        0,
        _BLOCK // (32 * _WARPS),
    )
