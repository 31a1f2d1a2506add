"""Random modules, compiled and plain: see `replay_fuzzer.py`."""

from __future__ import annotations

import collections

import pytest
import replay_fuzzer
from suites import sampled


@pytest.mark.parametrize("first", sampled(range(0, 200, 25), 8))
def test_replays_give_what_the_plain_graph_gives(first: int) -> None:
    tally = collections.Counter[str]()
    for seed in range(first, first + 25):
        replay_fuzzer.examine(seed, tally)
    # Most calls raise no error, and many are replayed.
    assert tally["replayed"] > 50
    assert tally["errors"] < 0.2 * tally["calls"]


def test_all_bugs_can_be_planted() -> None:
    from pathlib import Path

    import dualbcast

    graph = Path(dualbcast.__file__).parent / "graph"
    for file, right, _ in replay_fuzzer.PLANTED.values():
        assert (graph / file).read_text(encoding="utf-8").count(right) == 1, right
