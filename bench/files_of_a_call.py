"""How many files of the package a call passes through, and how often it moves from one file to another.

    python bench/files_of_a_call.py          # a cold call, with an empty kernel cache, and a warm one
    python bench/files_of_a_call.py --list   # also the files, with the number of function entries in each

A call passes through a file if it enters a function, a class body or a module of it. It moves if the next entry is in
another file than the last one. Entries in other packages do not count.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["Passage", "follow"]


@dataclass
class Passage:
    """The way of a call through a package.

    Attributes
    ----------
    entries : Counter
        How often each file was entered, by its path from the package's folder, in the order of the first entries.
    moves : int
        How often the next entry was in another file.
    """

    entries: Counter[str] = field(default_factory=Counter)
    moves: int = 0


def follow(call: Callable[[], object], package: str | Path) -> Passage:
    """Make a call and count the entries into files below the folder `package`, in this thread."""
    root = os.path.join(package, "")
    passage, last = Passage(), ""

    def enter(frame: FrameType, event: str, _: Any) -> None:
        nonlocal last
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(root):
            passage.entries[file.removeprefix(root)] += 1
            passage.moves += last not in ("", file)
            last = file

    sys.setprofile(enter)
    try:
        call()
    finally:
        sys.setprofile(None)
    return passage


def cell_update_call() -> tuple[Callable[[], object], Path]:
    """A call of the HM-LSTM cell update, value and Jacobian on 4 by 4 arrays, and the package's folder."""
    import numpy as np

    import dualbcast
    from bench.paper.models import cell_update

    function = dualbcast.differentiable_broadcast(backend="cpu")(cell_update)
    gates = np.random.default_rng(0).standard_normal((4, 4, 4), np.float32)
    z, zb = np.float32([0, 1, 0, 1])[:, None], np.float32([0, 0, 1, 1])[:, None]
    return lambda: function.value_and_jacobian(*gates, z, zb, wrt=("c", "f", "i", "g")), Path(dualbcast.__file__).parent


def main() -> None:
    """Print the figures of a cold call and of a warm one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the files with their entries")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        os.environ["DUALBCAST_CACHE_DIR"] = empty
        call, package = cell_update_call()
        cold = follow(call, package)
        call()
        warm = follow(call, package)
    for name, passage in (("cold", cold), ("warm", warm)):
        print(f"{name}: {len(passage.entries)} files, {passage.moves:,} moves between files")
        if given.list:
            for file, count in passage.entries.items():
                print(f"  {count:7,}  {file}")


if __name__ == "__main__":
    main()
