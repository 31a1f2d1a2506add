"""The collector of cycles waits while the compiler works, and only then."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from dualbcast import CompileError, differentiable_broadcast
from dualbcast.program.products import collection_postponed


class Cycle:
    def __init__(self) -> None:
        self.own = self


def is_collected() -> bool:
    """Whether garbage is collected now, as soon as much is made."""
    before = sum(generation["collections"] for generation in gc.get_stats())
    for _ in range(5000):
        Cycle()
    return sum(generation["collections"] for generation in gc.get_stats()) > before


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    assert is_collected()
    usual = gc.get_threshold()
    yield
    gc.enable()
    gc.set_threshold(*usual)


@collection_postponed()
def work(depth: int) -> bool:
    """Whether anything is collected at the bottom."""
    return work(depth - 1) if depth else is_collected()


@pytest.mark.parametrize("depth", [0, 2])
def test_it_waits_and_goes_on(depth: int) -> None:
    usual = gc.get_threshold()
    assert not work(depth)
    assert is_collected()
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_it_goes_on_after_an_error(error: type[BaseException]) -> None:
    @collection_postponed()
    def fail() -> None:
        raise error("no")

    with pytest.raises(error, match="no"):
        fail()
    assert is_collected()


def test_it_goes_on_after_blocks_of_several_threads() -> None:
    entered, left = threading.Event(), threading.Event()

    @collection_postponed()
    def first() -> None:
        assert entered.wait(60)

    @collection_postponed()
    def second() -> None:
        entered.set()
        assert left.wait(60)

    usual = gc.get_threshold()
    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    threads[0].join()
    left.set()
    threads[1].join()
    assert is_collected()
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("threshold", [None, 123])
def test_what_is_said_meanwhile_holds(threshold: int | None) -> None:
    @collection_postponed()
    def compile_something() -> None:
        if threshold is None:
            gc.disable()
        else:
            gc.set_threshold(threshold)

    compile_something()
    assert gc.isenabled() == (threshold is not None)
    assert threshold is None or gc.get_threshold()[0] == threshold


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_child_of_a_fork_does_not_wait_for_threads_that_it_has_not() -> None:
    began, end = threading.Event(), threading.Event()

    @collection_postponed()
    def compile_something() -> None:
        began.set()
        assert end.wait(60)

    thread = threading.Thread(target=compile_something)
    thread.start()
    assert began.wait(60)
    child = os.fork()
    if child == 0:
        os._exit(0 if is_collected() else 1)
    _, status = os.waitpid(child, 0)
    end.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
    assert is_collected()


@pytest.mark.usefixtures("nothing_kept")
def test_a_compilation_leaves_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    usual, say = gc.get_threshold(), gc.set_threshold
    monkeypatch.setattr(gc, "set_threshold", lambda *given: (waited.append(given[0]), say(*given))[1])
    assert differentiable_broadcast(lambda x, y: x * y + y / x)(0.5, 2.0) == 5.0
    assert len(waited) == 6  # lowered, made a product, made a kernel
    assert gc.get_threshold() == usual
    with pytest.raises(CompileError):
        differentiable_broadcast(lambda x: {x: 1})(1.0)
    assert len(waited) == 8
    assert gc.get_threshold() == usual
    assert max(waited[::2]) == min(waited[::2]) > 10**9
