"""The collector of cycles waits while the compiler works, and only then."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from dualbcast import CompileError, differentiable_broadcast
from dualbcast.garbage import collected_later


@pytest.fixture(autouse=True)
def enabled() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


@collected_later
def work(depth: int) -> bool:
    """Whether anything is collected at the bottom."""
    return work(depth - 1) if depth else gc.isenabled()


@pytest.mark.parametrize("depth", [0, 2])
def test_it_waits_and_goes_on(depth: int) -> None:
    assert not work(depth)
    assert gc.isenabled()


def test_it_goes_on_after_an_error() -> None:
    @collected_later
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert gc.isenabled()


def test_where_it_was_off_it_stays_so() -> None:
    gc.disable()
    assert not work(1)
    assert not gc.isenabled()


@pytest.mark.usefixtures("nothing_kept")
def test_a_compilation_leaves_it_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[bool] = []
    disable = gc.disable
    monkeypatch.setattr(gc, "disable", lambda: (waited.append(True), disable())[1])
    assert differentiable_broadcast(lambda x, y: x * y + y / x)(0.5, 2.0) == 5.0
    assert len(waited) == 3  # lowered, made a product, made a kernel
    assert gc.isenabled()
    with pytest.raises(CompileError):
        differentiable_broadcast(lambda x: {x: 1})(1.0)
    assert len(waited) == 4
    assert gc.isenabled()
