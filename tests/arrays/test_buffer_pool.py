"""The pool of memory for large results: what is given back is used again, and what any view still needs is not."""

from __future__ import annotations

import copy
import ctypes
import gc
import io
import itertools
import math
import mmap
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualbcast import differentiable_broadcast, graph, memory
from dualbcast.errors import ArgumentError, BackendError
from dualbcast.runtime.buffer_pool import MIN_ARRAY_BYTES, MIN_CALL_BYTES, POOL, Pool, size_class
from dualbcast.runtime.cpu import thread_pool

F4, F8 = np.dtype(np.float32), np.dtype(np.float64)
N = 1 << 18
X = np.linspace(-1.0, 1.0, N)


@differentiable_broadcast
def double(x):
    return x + x


@differentiable_broadcast
def product(x, y):
    return x * y


@pytest.fixture(autouse=True)
def _empty_pool() -> Iterator[None]:
    gc.collect()
    memory.clear()
    yield
    gc.collect()
    memory.clear()


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def block(array: Any) -> int:
    """The page that an array begins in, which its block has for itself."""
    return address(array) // mmap.PAGESIZE


def test_the_memory_of_a_result_is_used_again() -> None:
    y = double(X)
    first = block(y)
    del y
    assert memory.info().kept == N * 8
    y = double(X)
    assert block(y) == first
    np.testing.assert_array_equal(y, X * 2)
    assert memory.info().kept == 0
    # Another shape, another dtype, and a size that is a little smaller have it too.
    del y
    y = double(X[: N - 1000])
    assert block(y) == first
    del y
    y = double(X.astype(np.float32).repeat(2).reshape(512, -1))
    assert block(y) == first


def test_a_result_that_lives_has_its_memory_for_itself() -> None:
    results = [double(X) for _ in range(8)]
    assert len({block(y) for y in results}) == 8
    starts = sorted(map(address, results))
    assert all(b - a >= N * 8 for a, b in itertools.pairwise(starts))


def torch_tensor(y: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(y)


def torch_view_of_view(y: Any) -> Any:
    return pytest.importorskip("torch").from_numpy(y)[5:].view(-1, 1).numpy().T


KEEPERS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda y: y[5:9],
    "element view": lambda y: y[3:4].reshape(()),
    "transposed": lambda y: y.reshape(2, -1).T,
    "other dtype": lambda y: y.view(np.uint8)[::3],
    "subclass": lambda y: y.view(np.recarray),
    "view of a view of a view": lambda y: y[1:][1:].reshape(1, -1)[:, ::2],
    "real part": lambda y: y.view(np.complex128).real,
    "broadcast": lambda y: np.broadcast_to(y[:1], (3, 1)),
    "as_strided": lambda y: np.lib.stride_tricks.as_strided(y, (2, 2), (8, 8)),
    "masked": lambda y: np.ma.array(y, copy=False),
    "iterator": lambda y: y.flat,
    "nditer": lambda y: np.nditer(y),
    "memoryview": memoryview,
    "its buffer": lambda y: y.data,
    "part of a memoryview": lambda y: memoryview(y).cast("B")[8:16],
    "frombuffer": lambda y: np.frombuffer(y, np.uint8),
    "ctypes from_buffer": lambda y: (ctypes.c_double * 4).from_buffer(y),
    "ctypes attribute": lambda y: y.ctypes,
    "ctypes pointer": lambda y: y.ctypes.data_as(ctypes.POINTER(ctypes.c_double)),
    "as_ctypes": lambda y: np.ctypeslib.as_ctypes(y),
    "PickleBuffer": pickle.PickleBuffer,
    "dlpack capsule": lambda y: y.__dlpack__(),
    "from_dlpack": np.from_dlpack,
    "torch": torch_tensor,
    "torch and back": torch_view_of_view,
    "base": lambda y: y.base,
    "view of base": lambda y: np.frombuffer(y.base, np.uint8)[16:],
    "in a container": lambda y: {"y": [y]},
    "in an object array": lambda y: np.array([y, None], dtype=object),
    "closure": lambda y: lambda: y,
    "thread": lambda y: threading.Timer(1e6, print, (y,)),
    "deep cycle": lambda y: (cycle := [y], cycle.append(cycle))[0],
}


@pytest.mark.parametrize("keep", KEEPERS.values(), ids=KEEPERS.keys())
def test_memory_is_not_used_again_while_anything_refers_to_it(keep: Callable[[Any], Any]) -> None:
    y = double(X)
    y.fill(7.0)
    place, where = block(y), address(y)
    kept = keep(y)
    del y
    gc.collect()
    others = [double(X) for _ in range(3)]
    assert place not in map(block, others)
    assert set((ctypes.c_double * N).from_address(where)) == {7.0}
    # It is `kept` that has held the memory.
    del kept, others
    gc.collect()
    assert place in [block(y) for y in [double(X) for _ in range(4)]]


def test_memory_in_garbage_comes_back_when_it_is_collected() -> None:
    gc.disable()
    try:
        cycle: list[Any] = [double(X)]
        cycle.append(cycle)
        place = block(cycle[0])
        del cycle
        assert block(double(X)) != place
        gc.collect()
        assert place in [block(y) for y in [double(X) for _ in range(2)]]
    finally:
        gc.enable()


def test_results_are_arrays_like_any_other() -> None:
    torch = pytest.importorskip("torch")
    y = double(X)
    assert type(y) is np.ndarray and y.flags.writeable and y.flags.c_contiguous and y.flags.aligned
    y += 1
    expected = 2 * X + 1
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(y)), expected)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(y, 5)), expected)
    np.testing.assert_array_equal(copy.deepcopy(y), expected)
    file = io.BytesIO()
    np.save(file, y)
    file.seek(0)
    np.testing.assert_array_equal(np.load(file), expected)
    np.testing.assert_array_equal(torch.from_numpy(y).add(1).numpy(), expected + 1)
    assert y.copy().flags.owndata
    assert np.shares_memory(y, y[::2]) and not np.shares_memory(y, double(X))
    with pytest.raises(ValueError, match="own its data"):
        y.resize(3)


@pytest.mark.parametrize("size", [MIN_CALL_BYTES // 8, 100_001, 1 << 18, 600_001])
def test_alignment(size: int) -> None:
    places = [address(y) for y in [double(np.ones(size)) for _ in range(5)]]
    assert all(place % 64 == 0 for place in places)
    if size * 8 >= 1 << 21:
        assert all(place % (1 << 21) < 4096 for place in places)
    assert len({place % 4096 for place in places}) == 5


def test_the_order_of_inputs_is_kept() -> None:
    x = np.arange(24.0 * 20_000).reshape(4, 6, 20_000).transpose(2, 0, 1)
    for _ in range(2):
        y = double(x)
        assert y.strides == x.strides
        np.testing.assert_array_equal(y, 2 * x)
        del y
    z = double(X.reshape(2, 512, -1).transpose(0, 2, 1))
    assert z.strides == X.reshape(2, 512, -1).transpose(0, 2, 1).strides


def test_small_and_empty_results_have_their_own() -> None:
    before = memory.info()
    small = double(np.ones(MIN_CALL_BYTES // 8 - 1))
    assert small.flags.owndata
    assert double(np.ones((0, 1 << 20))).shape == (0, 1 << 20)
    assert memory.info() == before


def test_outputs_that_are_small_but_many_are_from_the_pool() -> None:
    x = np.ones(MIN_ARRAY_BYTES // 8)
    many = differentiable_broadcast(lambda x, y, z, u: x * y * z * u)
    before = memory.info().used
    value, jacobian = many.value_and_jacobian(x, x, x, x)
    assert memory.info().used - before == 5 * MIN_ARRAY_BYTES
    assert len({block(y) for y in (value, *[jacobian[at] for at in range(4)])}) == 5
    del value, jacobian
    smaller = many.value_and_jacobian(*[x[1:]] * 4)
    assert smaller[0].flags.owndata and memory.info().used == before


def test_outputs_of_a_call_begin_at_different_places_of_their_pages() -> None:
    """Whatever has been used in between, and in whatever order it came back."""
    x, choose, kept = np.ones(1 << 15), random.Random(2), []
    for _ in range(30):
        value, jacobian = product.value_and_jacobian(x, x)
        places = {address(y) % mmap.PAGESIZE for y in (value, jacobian["x"], jacobian["y"])}
        assert len(places) == 3
        kept += [value, jacobian["x"], jacobian["y"], double(x)]
        del value, jacobian
        choose.shuffle(kept)
        del kept[8:]
    arrays = POOL.empties((1 << 15,), [F8] * 64)
    assert len({address(y) % mmap.PAGESIZE for y in arrays}) == 64


def test_each_output_has_memory_of_its_own() -> None:
    x, y = X + 2, X - 2
    before = memory.info().used
    value, jacobian = product.value_and_jacobian(x, y)
    assert memory.info().used - before == 3 * N * 8
    del jacobian
    assert memory.info().used - before == N * 8
    np.testing.assert_array_equal(value, x * y)


def test_what_was_in_the_memory_does_not_matter() -> None:
    """Sums begin at zero, whatever their accumulators' memory was used for."""
    x = np.random.default_rng(0).standard_normal((64, 30_000))
    y = x[0]
    found = []
    for poison in (0.0, np.nan, 1e300):
        dirty = [POOL.empty((size,), F8) for size in (16_384, 30_000, 60_000, 64 * 30_000, 40 * 30_000) * 4]
        for array in dirty:
            array.fill(poison)
        del dirty, array
        value, pullback = product.vjp(x, y)
        found.append((value, *pullback(x)))
        np.testing.assert_allclose(found[-1][2], (x * x).sum(axis=0), rtol=1e-13)
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("error", [KeyboardInterrupt, BackendError, MemoryError])
def test_a_call_that_fails_gives_its_memory_back(monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error("in the middle of a launch")

    double(X)
    before = memory.info().used
    with monkeypatch.context() as patch:
        patch.setattr(thread_pool, "run", fail)
        with pytest.raises(error, match="in the middle"):
            double(X)
    gc.collect()
    assert memory.info().used == before
    assert memory.info().kept == N * 8


def test_a_graph_uses_the_memory_of_the_last_step() -> None:
    def loss(w: Any) -> Any:
        return (np.tanh(w * X) ** 2).sum()

    places = set()
    w = X[::-1].copy()
    for _ in range(6):
        gradient = graph.grad(loss)(w)
        places.add(block(gradient))
        del gradient
    assert len(places) <= 3
    t = np.tanh(w * X)
    np.testing.assert_allclose(graph.grad(loss)(w), 2 * t * (1 - t * t) * X, rtol=1e-12)


# ---- the pool itself -------------------------------------------------------------------------------------------------


def test_no_more_than_the_limit_is_kept() -> None:
    pool = Pool(limit=10 << 20)
    arrays = [pool.empty((1 << 20,), np.dtype(np.uint8)) for _ in range(30)]
    assert (pool.used, pool.kept) == (30 << 20, 0)
    del arrays
    assert (pool.used, pool.kept) == (0, 10 << 20)
    pool.limit = 3 << 20
    assert pool.kept == 3 << 20
    # What is larger than the limit comes from NumPy, and is never kept.
    large = pool.empty((4 << 20,), np.dtype(np.uint8))
    assert large.flags.owndata
    pool.limit = 0
    assert pool.kept == 0
    assert pool.empty((1 << 20,), np.dtype(np.uint8)).flags.owndata


def test_what_came_back_first_is_dropped_first() -> None:
    pool = Pool(limit=5 << 20)
    sizes = [3 << 20, 1 << 20, 2 << 20]
    arrays = {size: pool.empty((size,), np.dtype(np.uint8)) for size in sizes}
    places = {size: block(array) for size, array in arrays.items()}
    for size in sizes:
        del arrays[size]
    del size
    # The first of them, 3 MiB, was over the limit when the last came.
    assert pool.kept == 3 << 20
    again = [pool.empty((size,), np.dtype(np.uint8)) for size in (1 << 20, 2 << 20)]
    assert [block(array) for array in again] == [places[1 << 20], places[2 << 20]]
    assert pool.kept == 0


def test_clear_leaves_what_is_in_use() -> None:
    pool = Pool(limit=1 << 30)
    a, b = pool.empty((N,), F8), pool.empty((N,), F8)
    a.fill(3.0)
    del b
    assert pool.kept == N * 8
    pool.clear()
    assert (pool.used, pool.kept) == (N * 8, 0)
    assert (a == 3.0).all()
    del a
    assert (pool.used, pool.kept) == (0, N * 8)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc")
def test_cleared_memory_goes_back_to_the_system() -> None:
    def mapped() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    pool = Pool(limit=1 << 30)
    array = pool.empty((128 << 20,), np.dtype(np.uint8))
    array.fill(1)
    del array
    before = mapped()
    pool.clear()
    assert before - mapped() > 100 << 20


@given(st.integers(MIN_ARRAY_BYTES, 1 << 45))
def test_size_classes(nbytes: int) -> None:
    size = size_class(nbytes)
    assert nbytes <= size < nbytes * 1.13 + 4096
    assert size % 4096 == 0
    assert size_class(size) == size
    assert size_class(nbytes + 1) >= size
    assert len({size_class(nbytes + step * nbytes // 64) for step in range(64)}) <= 17


def test_the_limit_is_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALBCAST_POOL_BYTES", "1000000")
    assert Pool().limit == 1_000_000
    for wrong in ("-1", "1.5", "much", "1G"):
        monkeypatch.setenv("DUALBCAST_POOL_BYTES", wrong)
        with pytest.raises(BackendError, match="DUALBCAST_POOL_BYTES must be a number of bytes"):
            Pool().empty((N,), F8)
    monkeypatch.setenv("DUALBCAST_POOL_BYTES", "")
    usual = Pool().limit
    monkeypatch.delenv("DUALBCAST_POOL_BYTES")
    assert usual == Pool().limit
    assert 1 << 24 < Pool().limit < 1 << 50
    for bad in (-1, 1.5, "1", None, True):
        with pytest.raises(ArgumentError, match="number of bytes"):
            memory.set_limit(bad)  # type: ignore[arg-type]


def test_where_the_system_has_no_block_numpy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from dualbcast.runtime import buffer_pool as module

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no memory")

    pool = Pool(limit=1 << 30)
    pool.empty((N,), F8)
    assert pool.kept == N * 8
    monkeypatch.setattr(module.mmap, "mmap", refuse)
    other = pool.empty((2 * N,), F8)
    assert other.flags.owndata and other.shape == (2 * N,)
    assert pool.kept == 0  # so that there may be enough for it
    with pytest.raises(MemoryError):
        pool.empty((1 << 58,), np.dtype(np.uint8))


def hammer(pool: Pool, seed: int, handed: list[Any], errors: list[str], rounds: int) -> None:
    """Take arrays, fill them with what nobody else writes, and look whether that is still there when they go."""
    choose = random.Random(seed)
    mine: list[tuple[Any, float]] = []
    for turn in range(rounds):
        array = pool.empty(
            (choose.choice([MIN_CALL_BYTES // 8, MIN_CALL_BYTES // 8 + 3, MIN_CALL_BYTES // 4, MIN_CALL_BYTES // 2]),),
            F8,
        )
        mark = seed * 1e6 + turn
        array.fill(mark)
        mine.append((array, mark))
        cycle: list[Any] = [array[3:]]
        cycle.append(cycle)  # so that the garbage collector gives blocks back, in the middle of anything
        del array, cycle
        if choose.random() < 0.3:
            handed.append(mine.pop(choose.randrange(len(mine))))
        if choose.random() < 0.3 and handed:
            try:
                mine.append(handed.pop())
            except IndexError:
                continue
        if len(mine) > 6:
            array, mark = mine.pop(choose.randrange(len(mine)))
            if array.min() != mark or array.max() != mark:
                errors.append(f"thread {seed}, turn {turn}")
            del array
        if turn % 50 == 7:
            pool.clear()


def test_threads_never_share_a_block() -> None:
    pool = Pool(limit=2 << 20)
    errors: list[str] = []
    handed: list[Any] = []
    interval, threshold = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(20, 2, 2)
    try:
        threads = [threading.Thread(target=hammer, args=(pool, seed, handed, errors, 400)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*threshold)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []
    for array, mark in handed:
        assert array.min() == mark == array.max()
    del array
    handed.clear()
    gc.collect()
    assert pool.used == 0
    assert 0 < pool.kept <= 2 << 20


def test_the_hammer_finds_a_block_given_twice() -> None:
    class Faulty(Pool):
        def _new(self, shelf: Any) -> Any:
            block = super()._new(shelf)
            shelf.waiting.append(block)
            return block

    pool, errors = Faulty(limit=2 << 20), []
    hammer(pool, 1, [], errors, 400)
    assert errors


FORK = """
import os, sys
import numpy as np
from dualbcast.runtime.buffer_pool import POOL
DTYPE = np.dtype(np.float64)
first = POOL.empty((1 << 19,), DTYPE)
first.fill(1.0)
lent = POOL.empty((1 << 19,), DTYPE)
lent.fill(2.0)
place = first.ctypes.data // 4096
del first
ready, go = os.pipe(), os.pipe()
child = os.fork()
if child == 0:
    status = 1
    try:
        again = POOL.empty((1 << 19,), DTYPE)
        assert again.ctypes.data // 4096 == place
        again.fill(3.0)
        lent.fill(4.0)
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        assert (again == 3.0).all() and (lent == 4.0).all()
        del again, lent
        assert POOL.used == 0
        status = 0
    finally:
        os._exit(status)
again = POOL.empty((1 << 19,), DTYPE)
assert again.ctypes.data // 4096 == place
again.fill(5.0)
os.read(ready[0], 1)
assert (again == 5.0).all() and (lent == 2.0).all()
os.write(go[1], b"x")
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_after_a_fork_child_and_parent_have_their_own() -> None:
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


EXIT = """
import threading, time
import numpy as np
from dualbcast import differentiable_broadcast, memory
@differentiable_broadcast(backend="cpu")
def f(x):
    return x + x
kept = [f(np.ones(1 << 18)) for _ in range(5)]
del kept[2]
cycle = [f(np.ones(1 << 18))]
cycle.append(cycle)
memory.module_attribute = f(np.ones(1 << 18))
class Late:
    def __init__(self): self.array = f(np.ones(1 << 18))
    def __del__(self): del self.array; memory.clear()
late = Late(); late.me = late
memory.set_limit(1 << 21)
def work():
    while True:
        f(np.ones(1 << 18))
threading.Thread(target=work, daemon=True).start()
time.sleep(0.05)
print("done")
"""


def test_the_interpreter_ends_quietly(tmp_path: Any) -> None:
    script = tmp_path / "script.py"
    script.write_text(EXIT)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_memory_of_results_is_bounded_over_many_sizes() -> None:
    before = memory.info().limit
    memory.set_limit(8 << 20)
    try:
        for size in range(20_000, 400_000, 7_919):
            y = double(np.full(size, 1.5))
            assert math.isclose(y[-1], 3.0)
            assert memory.info().kept <= 8 << 20
    finally:
        memory.set_limit(before)
