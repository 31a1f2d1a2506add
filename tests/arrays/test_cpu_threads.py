"""Launches on the CPU: ranges over threads cover all, give the same bits, and survive errors and forks."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest
from cpu_kernels import DOUBLE, cell_arguments, cell_run, compiled, source_of

from dualbcast import differentiable_broadcast, get_num_threads, num_threads, set_num_threads
from dualbcast.errors import ArgumentError, BackendError, KernelCancelled
from dualbcast.runtime.cpu import kernel as cpu_kernel
from dualbcast.runtime.cpu import policy, thread_pool


@pytest.fixture(autouse=True, scope="module")
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


class Recorder(cpu_kernel.CpuKernel):
    """Machine code that calls back: it takes its time, and notes which thread ran which range."""

    def __init__(self, rank: int = 1, seconds: float = 2e-3, fail_at: int | None = None) -> None:
        self.spec = SimpleNamespace(element="recorder", layout=SimpleNamespace(rank=rank), outputs=())
        self.seconds, self.fail_at = seconds, fail_at
        self.calls: list[tuple[int, int, int]] = []
        integers = 2 + rank + len(POINTERS)
        self._code = ctypes.CFUNCTYPE(ctypes.c_int32, *[ctypes.c_int64] * integers)(self.note)
        self._address = ctypes.cast(self._code, ctypes.c_void_p).value
        self.pace = policy.Pace(policy.FEW // len(POINTERS))
        self.polls = False

    def goes_past_the_cache(self, _total):
        return False

    def note(self, start, stop, *rest) -> int:
        assert rest[-2:] == POINTERS
        self.calls.append((start, stop, threading.get_ident()))
        if self.seconds:
            time.sleep(self.seconds)
        return 7 if self.fail_at is not None and start <= self.fail_at < stop else 0

    def covered(self) -> list[int]:
        return [index for start, stop, _ in sorted(self.calls) for index in range(start, stop)]


POINTERS = (1 << 46, 5)


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch):
    monkeypatch.setattr(policy, "FEW", 2048)  # a launch thinks of threads from 1024 elements on
    monkeypatch.setattr(thread_pool, "_MAX_POOLS", 100)
    monkeypatch.setattr(thread_pool, "MAX_THREADS", 100)  # as on a machine with many processors


@pytest.fixture
def no_pools(monkeypatch):
    """There are no threads yet."""
    monkeypatch.setattr(thread_pool, "_every", [])


def test_ranges_cover_all_and_threads_share_them():
    for ints in ((10_000,), (100, 100), (10, 1000)):
        recorder = Recorder(len(ints), seconds=0.02)  # the other thread may start late
        cpu_kernel.launch(recorder, 10_000, ints, POINTERS, threads=4)
        assert recorder.covered() == list(range(10_000))
        assert len({thread for *_, thread in recorder.calls}) >= 2
        assert all(start % ints[-1] % 256 == 0 for start, *_ in recorder.calls)


@pytest.mark.parametrize("total", [0, 1, 1023, 1024, 1025, 1281, 2047])
def test_every_total_is_covered(total):
    recorder = Recorder(seconds=1e-4)
    cpu_kernel.launch(recorder, total, (total,), POINTERS, threads=3)
    assert recorder.covered() == list(range(total))


def test_little_work_stays_on_this_thread(monkeypatch):
    monkeypatch.setattr(policy, "THREAD_NS", 10**10)  # ten seconds: however busy the machine is, this is less
    recorder = Recorder(seconds=0)
    recorder.pace.learn(1.0)
    cpu_kernel.launch(recorder, 2000, (2000,), POINTERS, threads=8)
    assert {thread for *_, thread in recorder.calls} == {threading.get_ident()}
    one = Recorder()
    cpu_kernel.launch(one, 2000, (2000,), POINTERS, threads=1)
    assert one.calls == [(0, 2000, threading.get_ident())]


@pytest.mark.parametrize("fail_at", [0, 700, 5000, 9999])
def test_a_failure_of_any_range_is_raised_after_the_others_end(fail_at):
    recorder = Recorder(fail_at=fail_at)
    with pytest.raises(KernelCancelled):
        cpu_kernel.launch(recorder, 10_000, (10_000,), POINTERS, threads=3)
    calls = len(recorder.calls)
    time.sleep(0.01)
    assert len(recorder.calls) == calls
    # The pool still works.
    recorder = Recorder()
    cpu_kernel.launch(recorder, 10_000, (10_000,), POINTERS, threads=3)
    assert recorder.covered() == list(range(10_000))


def test_concurrent_callers():
    recorders = [Recorder() for _ in range(8)]
    callers = [
        threading.Thread(target=cpu_kernel.launch, args=(recorder, 5000, (5000,), POINTERS, 3))
        for recorder in recorders
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(30)
    assert all(recorder.covered() == list(range(5000)) for recorder in recorders)


@pytest.mark.usefixtures("no_pools")
def test_a_thread_that_falls_asleep_just_before_a_launch_is_woken():
    """The launch had begun when it still watched, and its processor, or this one, was elsewhere for a while."""
    cpu_kernel.launch(Recorder(), 10_000, (10_000,), POINTERS, threads=2)
    (own,) = thread_pool._every
    post = own._post

    def late(*work):
        until = time.monotonic() + 30
        while not own._asleep and time.monotonic() < until:
            time.sleep(1e-3)
        assert own._asleep
        return post(*work)

    own._post = late
    recorder = Recorder()
    cpu_kernel.launch(recorder, 10_000, (10_000,), POINTERS, threads=2)
    assert recorder.covered() == list(range(10_000))
    assert len({thread for *_, thread in recorder.calls}) == 2


@pytest.mark.usefixtures("no_pools")
def test_there_are_no_more_threads_than_processors(monkeypatch):
    monkeypatch.setattr(thread_pool, "MAX_THREADS", 3)
    recorder = Recorder()
    cpu_kernel.launch(recorder, 100_000, (100_000,), POINTERS, threads=1000)
    assert recorder.covered() == list(range(100_000))
    (own,) = thread_pool._every
    assert own._threads == 2
    assert len({thread for *_, thread in recorder.calls}) <= 3


@pytest.mark.usefixtures("no_pools")
def test_threads_that_the_system_refuses_are_done_without(monkeypatch):
    start, allowed = threading.Thread.start, 1

    def refuse(thread):
        nonlocal allowed
        if not allowed:
            raise RuntimeError("can't start new thread")
        allowed -= 1
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        recorder = Recorder()
        cpu_kernel.launch(recorder, 10_000, (10_000,), POINTERS, threads=4)
        assert recorder.covered() == list(range(10_000))
        (own,) = thread_pool._every
        assert own._threads == 1
    # They may be had later.
    cpu_kernel.launch(recorder, 10_000, (10_000,), POINTERS, threads=4)
    assert own._threads == 3


@pytest.mark.parametrize("shape", [(700, 1000), (3, 200_001), (100_000, 7)])
def test_the_number_of_threads_does_not_change_a_bit(monkeypatch, shape):
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    monkeypatch.setattr(policy, "RANGE_NS", 1)
    arguments = cell_arguments(*shape)
    alone = cell_run(arguments)
    for count in (2, 3, 7):
        np.testing.assert_array_equal(cell_run(arguments, count).view(np.uint32), alone.view(np.uint32))


@pytest.fixture
def unset(monkeypatch):
    """Nothing has been said of threads."""
    monkeypatch.delenv("DUALBCAST_NUM_THREADS", raising=False)
    yield
    set_num_threads(None)


@pytest.mark.usefixtures("unset")
def test_the_environment_sets_the_number_of_threads(monkeypatch):
    assert get_num_threads() == len(os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "3")
    assert get_num_threads() == 3
    for wrong in ("0", "-1", "many", "1.5"):
        monkeypatch.setenv("DUALBCAST_NUM_THREADS", wrong)
        with pytest.raises(BackendError, match="DUALBCAST_NUM_THREADS"):
            get_num_threads()
    for nothing in ("", " "):
        monkeypatch.setenv("DUALBCAST_NUM_THREADS", nothing)
        assert get_num_threads() == policy.allowed_cpus()


@pytest.mark.usefixtures("unset")
def test_what_is_said_closest_to_a_launch_counts(monkeypatch):
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "3")
    set_num_threads(np.int64(5))
    assert get_num_threads() == 5
    with num_threads(7):
        assert get_num_threads() == 7
        with num_threads(1):
            assert get_num_threads() == 1
            found: list[int] = []
            other = threading.Thread(target=lambda: found.append(get_num_threads()))
            other.start()
            other.join()
            assert found == [5]
        assert get_num_threads() == 7
        with pytest.raises(ZeroDivisionError), num_threads(2):
            raise ZeroDivisionError
        assert get_num_threads() == 7
    assert get_num_threads() == 5
    set_num_threads(None)
    assert get_num_threads() == 3


@pytest.mark.usefixtures("unset")
@pytest.mark.parametrize("wrong", [0, -1, 1.0, "2", True, None])
def test_a_number_of_threads_is_a_positive_integer(wrong):
    with pytest.raises(ArgumentError, match="the number of threads is a positive integer"), num_threads(wrong):
        pass
    if wrong is not None:
        with pytest.raises(ArgumentError, match="positive integer"):
            set_num_threads(wrong)


@pytest.mark.usefixtures("unset")
def test_a_launch_uses_no_more_threads_than_was_said():
    for count in (1, 2, 4):
        used = []
        while len(used) < 5 or (count > 1 and max(used) == 1 and len(used) < 100):  # a thread may come too late
            recorder = Recorder()
            with num_threads(count):
                cpu_kernel.launch(recorder, 20_000, (20_000,), POINTERS)
            assert recorder.covered() == list(range(20_000))
            used.append(len({thread for *_, thread in recorder.calls}))
        assert max(used) <= count
        assert (max(used) > 1) == (count > 1)


@pytest.mark.parametrize("pause", [0.0, 2e-4, 5e-2])
def test_helpers_that_watch_and_helpers_that_sleep(pause):
    recorder, asleep, helped = Recorder(seconds=5e-4), [], 0
    for _ in range(12):
        recorder.calls.clear()
        cpu_kernel.launch(recorder, 5000, (5000,), POINTERS, threads=2)
        assert recorder.covered() == list(range(5000))
        helped += len({thread for *_, thread in recorder.calls}) > 1
        time.sleep(pause)
        began = time.monotonic()  # on a busy machine a thread that watches is a while about it
        while pause > 1e-2 and not any(each._asleep for each in thread_pool._every) and time.monotonic() < began + 30:
            time.sleep(1e-2)
        asleep.append(any(each._asleep for each in thread_pool._every))
    assert helped > 0
    assert all(asleep) or pause < 5e-2


def test_a_pace_is_measured_and_used():
    recorder = Recorder(seconds=1e-3)
    cpu_kernel.launch(recorder, 20_000, (20_000,), POINTERS, threads=2)
    assert recorder.pace.element > 1e6 * len(recorder.calls) / 20_000 / 2
    recorder.calls.clear()
    cpu_kernel.launch(recorder, 20_000, (20_000,), POINTERS, threads=2)
    assert len(recorder.calls) == 8
    assert recorder.covered() == list(range(20_000))
    recorder.pace.learn(0.1)
    recorder.calls.clear()
    cpu_kernel.launch(recorder, 20_000, (20_000,), POINTERS, threads=2)
    assert recorder.calls == [(0, 20_000, threading.get_ident())]


@pytest.mark.parametrize(
    ("threads", "pieces", "count"), [(2, 1.5, 2), (2, 2, 2), (2, 3, 2), (2, 5, 4), (2, 99, 8), (3, 7, 6), (4, 3, 3)]
)
def test_there_are_as_many_pieces_for_each_thread(monkeypatch, threads, pieces, count):
    monkeypatch.setattr(thread_pool, "is_watched", lambda: True)
    recorder = Recorder(seconds=0)
    recorder.pace.learn(pieces * policy.RANGE_NS / 100_000)
    cpu_kernel.launch(recorder, 100_000, (100_000,), POINTERS, threads)
    assert len(recorder.calls) == count
    assert recorder.covered() == list(range(100_000))


@pytest.mark.parametrize(
    ("work", "watched", "pause", "shared"),
    [
        (0.9, True, 0, False),
        (1.1, True, 1e9, True),
        (1.1, False, 1e9, False),
        (7.9, False, 1e9, False),
        (8.1, False, 1e9, True),
        (1.1, False, 0, True),
        (0.9, False, 0, False),
    ],
)
def test_a_thread_is_woken_for_much_work_and_between_launches_without_pauses(monkeypatch, work, watched, pause, shared):
    """`work` in that of which a thread that watches is given some."""
    monkeypatch.setattr(policy, "THREAD_NS", 10**9)  # seconds, so that those of a busy machine do not matter
    monkeypatch.setattr(thread_pool, "is_watched", lambda: watched)
    monkeypatch.setattr(policy, "_last_end", time.perf_counter_ns() - 100 * pause)
    recorder = Recorder(seconds=0)
    recorder.pace.learn(work * 1e9 / 10_000)
    cpu_kernel.launch(recorder, 10_000, (10_000,), POINTERS, threads=2)
    assert (len(recorder.calls) > 1) == shared


@pytest.mark.usefixtures("no_pools")
def test_who_watches_is_counted():
    assert not thread_pool.is_watched()
    cpu_kernel.launch(Recorder(), 10_000, (10_000,), POINTERS, threads=3)
    (own,) = thread_pool._every
    until = time.monotonic() + 30
    while len(own._asleep) < 2 and time.monotonic() < until:
        time.sleep(1e-3)
    time.sleep(1e-2)  # what a thread looks once more
    assert own.watchers.value == 0
    assert not thread_pool.is_watched()
    while not thread_pool.is_watched() and time.monotonic() < until:
        if len(own._asleep) == 2:  # on a busy machine it may have looked, and slept again, unseen
            own._asleep.pop().release()
    assert time.monotonic() < until


def test_few_elements_that_take_long_are_shared_from_the_second_time_on():
    recorder = Recorder(seconds=1e-3)
    recorder.pace.short = 700
    cpu_kernel.launch(recorder, 512, (512,), POINTERS, threads=2)
    assert recorder.pace.element == math.inf  # the first time says little
    cpu_kernel.launch(recorder, 512, (512,), POINTERS, threads=2)
    assert recorder.pace.element > 1e6 / 512
    assert [call[:2] for call in recorder.calls] == [(0, 512)] * 2
    recorder.calls.clear()
    cpu_kernel.launch(recorder, 512, (512,), POINTERS, threads=2)
    assert sorted(call[:2] for call in recorder.calls) == [(0, 256), (256, 512)]


def test_few_elements_that_take_long_are_shared_on_the_short_way():
    @differentiable_broadcast
    def thousands_of_sines(x):
        for _ in range(3000):
            x = math.sin(x) + 1e-3
        return x

    def kernels():
        return [
            kernel for kernel in cpu_kernel._kernels.values() if kernel.spec.element.startswith("thousands_of_sines")
        ]

    x = np.linspace(0.1, 1, 1024)
    first = thousands_of_sines(x)
    (kernel,) = kernels()
    assert kernel.pace.element == math.inf
    for _ in range(3):
        np.testing.assert_array_equal(thousands_of_sines(x), first)
    assert kernel.pace.element * 1024 > policy.THREAD_NS
    assert kernel.pace.short < 1024
    ran = []
    share = thread_pool.share

    def noted(work, threads):
        ran.append((work.count, threads))
        return share(work, threads)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(thread_pool, "share", noted)
        with num_threads(2):
            np.testing.assert_array_equal(thousands_of_sines(x), first)
    assert ran == [(4, 2)]


def test_the_pace_is_what_the_caller_alone_would_take():
    """A thread that did not come did nothing: the launch took as long as by one."""
    recorder = Recorder(seconds=0)
    work = recorder.ranges(recorder._address, range(0, 9000, 1000), (8000,), POINTERS)
    assert thread_pool.run(work, threads=1) == 1.0
    recorder.calls.clear()
    faster = thread_pool.run(work, threads=2)
    own = sum(thread == threading.get_ident() for *_, thread in recorder.calls)
    assert faster == 8 / max(1, own)


def test_the_lock_of_the_interpreter_is_released():
    source = source_of("out[k] = lgamma(x[k])", "float64", {"x": "float64"}, {"out": "float64"})
    kernel = compiled(source)
    x = np.random.default_rng(0).uniform(1, 50, 3_000_000)
    out, ended, ticks = np.empty_like(x), threading.Event(), []

    def tick() -> None:
        while not ended.is_set():
            ticks.append(time.perf_counter())
            time.sleep(1e-3)

    def ticks_during_a_call() -> int:
        start = time.perf_counter()
        kernel(0, x.size, (x.size,), (x.ctypes.data, out.ctypes.data))
        stop = time.perf_counter()
        return sum(start < moment < stop for moment in ticks)

    ticker = threading.Thread(target=tick)
    ticker.start()
    # On a busy machine the other thread may not have a processor during a call; without the lock it never ticks thrice.
    released = any(ticks_during_a_call() >= 3 for _ in range(100))
    ended.set()
    ticker.join()
    assert released


FORK = """
import os, sys
import numpy as np
from dualbcast.codegen.program import KernelProgram
from dualbcast.ir.nodes import *
from dualbcast.kernel_spec import KernelSpec, Layout
from dualbcast.runtime.cpu import kernel as cpu, policy, thread_pool as pool
from dualbcast.runtime.cpu.kernel import launch
policy.THREAD_NS = 0
kernel = cpu.compile_kernel(eval(sys.argv[1]), False)
x = np.linspace(-2, 2, 1_000_000)
def check():
    out = np.zeros_like(x)
    launch(kernel, x.size, (x.size,), (x.ctypes.data, out.ctypes.data), 2)
    np.testing.assert_allclose(out, x + np.tanh(x), rtol=1e-15)
    assert pool._every
check()
child = os.fork()
if child == 0:
    assert not pool._every
    check()
    os._exit(0)
check()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_launches_work_after_a_fork():
    command = [sys.executable, "-W", "ignore", "-c", FORK, DOUBLE.program.identity]
    subprocess.run(command, check=True, timeout=60)
