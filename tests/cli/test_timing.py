"""Timing: calls that take turns, sets of arrays that no cache holds, and a GPU that must not wait for the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fake_cupy import Event, cupy  # noqa: F401  # a fixture

from bench.paper.timing import Rotation
from dualbcast.cli import measure

pytestmark = pytest.mark.usefixtures("small_copy")


def test_a_rotation_takes_turns_and_frees_before_it_allocates() -> None:
    alive: list[int] = []
    held: list[Any] = []

    def call(number: int) -> Any:
        alive.append(sum(one is not None for one in held[0].results))
        return number

    rotation = Rotation([lambda number=number: call(number) for number in range(3)])
    held.append(rotation)
    assert rotation.call_each() == [0, 1, 2]
    rotation()
    rotation()
    assert alive == [0, 1, 2, 2, 2], "the result that is replaced is gone before the call"


def test_copies_are_as_many_as_the_cache_needs() -> None:
    device = measure.HostDevice()
    device.cache_bytes = 1 << 20
    array = np.zeros(1 << 16, np.float32)  # 256 KiB, and as much written
    sets = measure.copies(device, [array], array.nbytes)
    assert len(sets) == 8, "4 MiB in all"
    assert sets[0][0] is array
    assert len({one[0].__array_interface__["data"][0] for one in sets}) == 8
    assert len(measure.copies(device, [array], 1 << 30)) == 1


@pytest.mark.usefixtures("cupy")
def test_a_gpu_that_overtakes_the_host_gets_more_to_do_first(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    monkeypatch.setattr(measure.CudaDevice, "_copy", lambda _: copied.append(len(copied)))

    def copies(late: int) -> tuple[int, bool]:
        """How many are made for three samples, after the one that warms up, and whether the device waited."""
        copied.clear()
        Event.asked, Event.late = 0, late
        timing = measure.CudaDevice().time(lambda: None, 2, 0)
        return len(copied), timing.waited

    assert copies(late=0) == (4, False), "one before each"
    assert copies(late=3) == (1 + 2 + 4 + 8 + 3 * 8, False)
    most = measure._MAX_LEADING_COPIES
    assert copies(late=1 << 40) == (2 * most - 1 + 3 * most, True)


@pytest.mark.usefixtures("cupy")
def test_the_time_is_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now[0]

    def copy(_: Any) -> None:
        now[0] += 0.01  # of which the events say nothing

    monkeypatch.setattr(measure, "time", Clock)
    monkeypatch.setattr(measure.CudaDevice, "_copy", copy)
    assert measure.CudaDevice().time(lambda: None, 5, 0.195).samples == 20
    assert measure.CudaDevice().time(lambda: None, 30, 0.195).samples == 30
