"""Where the lanes of a warp that take different branches meet again: the immediate post-dominators of blocks."""

from __future__ import annotations

from collections.abc import Sequence

END = -1  # where a function returns


def joins(successors: Sequence[Sequence[int]]) -> list[int]:
    """For each block of a function the first block that every way from it to the end passes, or END.

    Parameters
    ----------
    successors : sequence of sequences of int
        The blocks that may follow each block, by their numbers, or END.

    Examples
    --------
    Block 0 goes to 1 or to 2, and both go to 3, which returns.

    >>> joins([[1, 2], [3], [3], [END]])
    [3, 3, 3, -1]

    A loop of block 1, which block 2 follows:

    >>> joins([[1], [1, 2], [END]])
    [1, 2, -1]
    """
    everything = (1 << len(successors)) - 1
    # The blocks that every way from a block to the end passes, itself among them, as bits.
    passed = [everything] * len(successors)
    changed = True
    while changed:
        changed = False
        for block in reversed(range(len(successors))):
            common = everything
            for after in successors[block]:
                common &= 0 if after == END else passed[after]
            common |= 1 << block
            changed |= common != passed[block]
            passed[block] = common
    found = []
    for block in range(len(successors)):
        others = [other for other in range(len(successors)) if other != block and passed[block] >> other & 1]
        # The nearest is the one from which all the others are still to come. From an endless loop there is no way.
        nearest = [other for other in others if all(passed[other] >> each & 1 for each in others)]
        found.append(nearest[0] if len(nearest) == 1 else END)
    return found
