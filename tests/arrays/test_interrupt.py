"""Kernels that never end are stopped by signals and by `cancel`, and whatever is called next is right."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kernel_parser import parsed

from dualbcast import IterationError, KernelCancelled, cancel, differentiable_broadcast, num_threads
from dualbcast.codegen.llvm import polling
from dualbcast.ir.nodes import For, Stmt
from dualbcast.ir.traversal import known_iterations
from dualbcast.runtime.cpu import interrupt, thread_pool

# Of a program that takes a few seconds.
PATIENCE = 300
# The promise is a second. A machine that others use may let a thread wait for longer than that.
SOON = 1.0

PROGRAM = """
import faulthandler, math, os, signal, sys, threading, time
faulthandler.dump_traceback_later({patience}, exit=True)
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
import numpy as np
import dualbcast
from dualbcast import differentiable_broadcast
from dualbcast.runtime.cpu import kernel as cpu

@differentiable_broadcast
def endless(x):
    u = x
    while u > 0:
        u = u + x * math.sin(u) * 0.0
    return 2 * u

METHODS = {{
    "value": lambda x: endless(x),
    "value_and_jacobian": lambda x: endless.value_and_jacobian(x)[0],
    "vjp": lambda x: endless.vjp(x)[1](np.ones_like(x))[0],
}}
RIGHT = {{"value": -2.0, "value_and_jacobian": -2.0, "vjp": 2.0}}

def in_a_kernel():
    # Whether the main thread is in machine code: its uppermost frame has stayed where it is, in the runtime.
    main = threading.main_thread().ident
    frame = sys._current_frames()[main]
    waiting = "_run_range", "_launch", "run", "share", "__call__"
    return "runtime" in frame.f_code.co_filename and frame.f_code.co_name in waiting

def interrupted(call, times=1):
    sent = []
    def send():
        deadline = time.monotonic() + 60
        steady = 0
        while steady < 20 and time.monotonic() < deadline:
            steady = steady + 1 if in_a_kernel() else 0
            time.sleep(0.01)
        for _ in range(times):
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3 * (times > 1))
    sender = threading.Thread(target=send)
    sender.start()
    try:
        call()
    except KeyboardInterrupt:
        took = time.monotonic() - sent[-1]
        sender.join()
        return took
    raise SystemExit("the call came back")
"""


def run(text: str, *arguments: str) -> list[str]:
    """The lines that a program prints which begins as `PROGRAM` does."""
    whole = PROGRAM.format(patience=PATIENCE) + text
    path = Path(os.environ["PYTEST_PROGRAM"])
    path.write_text(whole)
    command = [sys.executable, "-W", "ignore", str(path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE + 60, check=False)
    assert done.returncode == 0, (done.stdout[-2000:], done.stderr[-4000:])
    assert "Exception ignored" not in done.stderr
    return done.stdout.splitlines()


@pytest.fixture(autouse=True)
def _file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program has a file, so that functions in it have their text."""
    monkeypatch.setenv("PYTEST_PROGRAM", str(tmp_path / "program.py"))


CTRL_C = """
dtype, count, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dualbcast.set_num_threads(threads)
good = np.full(count, -1.0, dtype)
bad = good.copy()
bad[count // 2] = 1.0
for method, call in METHODS.items():
    # The first call of all, and then those that follow a route.
    for turn in range(3):
        print(interrupted(lambda: call(bad)))
        found = call(good)
        assert found.dtype == dtype and np.all(found == RIGHT[method]), (method, turn, found)
"""


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("count", "threads"),
    [(4, 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in ((4, 2), (100_000, 1))), (100_000, 2)],
)
def test_ctrl_c_ends_a_kernel_within_a_second_and_calls_work_afterwards(dtype: str, count: int, threads: int) -> None:
    took = [float(line) for line in run(CTRL_C, dtype, str(count), str(threads))]
    assert len(took) == 9
    assert max(took) < SOON, took


LAYOUTS = """
dualbcast.set_num_threads(2)

@differentiable_broadcast
def both(x, y):
    u = x
    while u > 0:
        u = u + y * math.sin(u) * 0.0
    return 2 * u + y

def check(shape, *others, back=False):
    x = np.full(shape, -1.0)
    x = x.T if "T" in others else x
    y = np.zeros(x.shape)
    if "row" in others:
        y = np.zeros(y.shape[-1])
    call = lambda x: both.vjp(x, y)[1](np.ones(x.shape)) if back else both(x, y)
    bad = x.copy("K")
    bad[tuple(n // 2 for n in bad.shape)] = 1.0
    for x_now in (bad, bad):
        print(interrupted(lambda: call(x_now)))
        found = call(x)
        if back:
            assert np.all(found[0] == 2.0) and found[1].shape == y.shape and found[1].sum() == x.size, found
        else:
            assert np.all(found == -2.0)

check((300, 400))
check((300, 400), "T")  # packed
check((5000, 3), "row")  # short rows, joined
check((300, 400), "row", back=True)  # sums
check((5000, 3), "row", back=True)
"""


def test_the_ways_of_arrays_that_lie_otherwise() -> None:
    took = [float(line) for line in run(LAYOUTS)]
    assert len(took) == 10
    assert max(took) < SOON, took


HANDLERS = """
x = np.full(4, -1.0)
bad = np.array([-1.0, 1.0, -1.0, -1.0])
endless(x)
seen = []
# One that raises something else is heard, and one that does not lets the kernel go on.
class Late(Exception):
    pass
def late(*_):
    seen.append(float(endless(x)[0]))  # a kernel inside the poll of another one
    raise Late("late")
signal.signal(signal.SIGALRM, late)
signal.setitimer(signal.ITIMER_REAL, 0.3)
try:
    endless(bad)
except Late as error:
    assert error.args == ("late",)
    names = [frame.name for frame in __import__("traceback").extract_tb(error.__traceback__)]
    assert "late" in names and names[0] == "<module>", names
assert seen == [-2.0]
times = []
signal.signal(signal.SIGALRM, lambda *_: times.append(time.monotonic()))
signal.setitimer(signal.ITIMER_REAL, 0.3, 0.1)
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
try:
    endless(bad)
except KeyboardInterrupt:
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(times) >= 4, times
# A kernel that ends comes to its end.
@differentiable_broadcast
def long(x):
    s = 0.0
    i = 0
    while i < 400_000_000:
        s += x
        i += 1
    return s
signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
before = len(times)
assert float(long(1.0)) == 4e8
signal.setitimer(signal.ITIMER_REAL, 0)
assert len(times) > before
print("done")
"""


@pytest.mark.skipif(not hasattr(__import__("signal"), "setitimer"), reason="there are no timers on this system")
def test_a_handler_decides() -> None:
    assert run(HANDLERS) == ["done"]


WAITING = """
# All that is endless is a helper's: the calling thread waits for it.
dualbcast.set_num_threads(2)
x = np.full(200_000, -1.0)
@differentiable_broadcast
def one_side(x, late):
    u = x
    while u > 0:
        u = u + late * math.sin(u) * 0.0
    return 2 * u
one_side(x, 0.0)
# Of several pieces with an endless element the calling thread has some, a helper others; of one, either has it.
for where in (0, 100_000, 199_999):
    bad = x.copy()
    bad[where] = 1.0
    for _ in range(4):
        one_side(x, 0.0)
        print(interrupted(lambda: one_side(bad, 0.0)))
        assert np.all(one_side(x, 0.0) == -2.0)
# And the pool is no one's.
from dualbcast.runtime.cpu import thread_pool as pool
assert all(not each.owner.value for each in pool._every)
"""


def test_who_waits_for_helpers_is_interrupted() -> None:
    took = [float(line) for line in run(WAITING)]
    assert len(took) == 12
    assert max(took) < SOON, took


DAEMON = """
import dualbcast
good = np.full(4, -1.0)
endless(good)
for _ in range(8):
    threading.Thread(target=lambda: endless(-good), daemon=True).start()
time.sleep({delay})
print("over", flush=True)
"""


@pytest.mark.parametrize("delay", [0.1, 0.14, 0.18, 0.5])
def test_a_process_ends_while_threads_of_no_account_are_in_a_kernel(delay: float) -> None:
    """They ask now and then whether to go on, and then there is no interpreter that could answer."""
    assert run(DAEMON.format(delay=delay)) == ["over"]


@differentiable_broadcast
def endless(x: float) -> float:
    u = x
    while u > 0:
        u = u + x * 0.0
    return 2 * u


@pytest.mark.parametrize("count", [4, 100_000])
@pytest.mark.parametrize("by_ident", [True, False])
@pytest.mark.parametrize("threads", [1, 2])
def test_cancel_ends_the_kernels_of_other_threads(count: int, by_ident: bool, threads: int) -> None:
    good = np.full(count, -1.0)
    bad = good.copy()
    bad[count // 3] = 1.0
    np.testing.assert_array_equal(endless(good), -2.0)
    found: list[Any] = []

    def work() -> None:
        with num_threads(threads):
            for _ in range(2):
                try:
                    endless(bad)
                except KernelCancelled as error:
                    found.append(error)
                found.append(endless(good))

    thread = threading.Thread(target=work)
    thread.start()
    for turn in range(2):
        began = time.monotonic()
        while len(found) < 2 * turn + 2 and time.monotonic() < began + 30:
            time.sleep(0.1)
            if len(found) < 2 * turn + 1:
                cancel(thread.ident if by_ident else None)
    thread.join(30)
    assert not thread.is_alive()
    assert [isinstance(each, KernelCancelled) for each in found] == [True, False, True, False]
    assert all(np.all(each == -2.0) for each in found[1::2])
    assert "cancel" in str(found[0])
    # What was cancelled before a launch began does not concern it.
    cancel()
    np.testing.assert_array_equal(endless(good), -2.0)
    assert threading.get_ident() not in interrupt.cancelled


def test_cancel_leaves_others_alone() -> None:
    bad, ended = np.array([1.0]), dict[str, Any]()

    def work(name: str) -> None:
        try:
            endless(bad)
        except KernelCancelled as error:
            ended[name] = error

    endless(-bad)
    threads = {name: threading.Thread(target=work, args=(name,)) for name in ("one", "other")}
    for thread in threads.values():
        thread.start()
    time.sleep(0.3)
    for name, thread in threads.items():
        assert name not in ended
        while thread.is_alive():
            cancel(thread.ident)
            thread.join(0.3)
        assert name in ended


def test_what_a_pool_has_left_after_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt at any call that a launch makes leaves a pool that the next launch can have."""
    x = np.full(300_000, -1.0)
    with num_threads(2):
        for _ in range(3):
            endless(x)
        assert thread_pool._every
        own = thread_pool._every[0]
        steps = ("_post", "_finish")
        for step in steps:
            for late in (False, True):
                inner = getattr(own, step)

                def interrupted(*given: Any, inner: Any = inner, late: bool = late) -> Any:
                    if late:
                        inner(*given)
                    monkeypatch.undo()
                    raise KeyboardInterrupt

                if step == "_finish" and not late:
                    continue  # no bytecode is between the two, where a signal could come
                monkeypatch.setattr(own, step, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    pool_run(own)
                monkeypatch.undo()
                assert own.owner.value == 0
        np.testing.assert_array_equal(endless(x), -2.0)


def pool_run(own: thread_pool.Pool) -> int:
    """A launch of ten pieces of nothing much."""
    import ctypes
    from array import array

    kind = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)
    code = kind(lambda _: 0)
    arguments = array("q", range(10))
    address = ctypes.cast(code, ctypes.c_void_p).value or 0
    return own.run(next(thread_pool._tokens), address, arguments.buffer_info()[0], 1, 0, 10, 1)


# --- which loops poll ------------------------------------------------------------------------------------------------


def loop_of(text: str) -> Stmt:
    """The last statement of a function of x and n."""
    body = f"x = x_[0]\nn = n_[0]\ngoing = x > x\n{text}\nout[0] = x"
    return parsed(body, "float64", {"x_": "float64", "n_": "int64"}, {"out": "float64"})[0].body[-2]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("for i in range(7): pass", 7),
        ("for i in range(2, 9): pass", 7),
        ("for i in range(2, 9, 3): pass", 3),
        ("for i in range(9, 2, -3): pass", 3),
        ("for i in range(9, 2): pass", 0),
        ("for i in range(-5, 5): pass", 10),
        ("for i in range(0, 9223372036854775807): pass", 2**63 - 1),
        ("for i in range(n): pass", None),
        ("for i in range(0, n, 2): pass", None),
    ],
)
def test_iterations_that_are_known(text: str, count: int | None) -> None:
    loop = loop_of(text)
    assert isinstance(loop, For)
    assert known_iterations(loop) == count


def test_short_loops_do_not_poll() -> None:
    assert polling.may_take_long(loop_of("while going: x = x + x"))
    assert polling.may_take_long(loop_of("for i in range(n): x = x + x"))
    assert polling.may_take_long(loop_of("for i in range(1000000): x = x + x"))
    assert not polling.may_take_long(loop_of("for i in range(100): x = x + x"))
    nested = "for i in range(300):\n    for j in range(300):\n        x = x + x"
    assert polling.may_take_long(loop_of(nested))


def test_kernels_without_such_loops_have_no_such_code() -> None:
    def short(x: float) -> float:
        for _ in range(50):
            x = x * 0.5 + 1.0
        return x

    def long(x: float) -> float:
        while x > 1.0:
            x = x * x - 0.5 * x
        return x

    for function, polls in ((short, False), (long, True)):
        for product in ("value", "value_and_jacobian", "vjp"):
            text = differentiable_broadcast(function).inspect_llvm(np.float64, product=product)
            assert ("@dualbcast_poll" in text) == polls


# --- max_iterations --------------------------------------------------------------------------------------------------


def newton(a: float, u: float) -> float:
    while True:
        step = (u * u - a) / (2 * u)
        u = u - step
        if abs(step) < 1e-13 * abs(u):
            break
    return u


PRODUCTS = {
    "value": lambda f, *x: f(*x),
    "jacobian": lambda f, *x: f.jacobian(*x)["a"],
    "value_and_jacobian": lambda f, *x: f.value_and_jacobian(*x)[1]["a"],
    "hessian": lambda f, *x: f.hessian(*x)["a", "a"],
    "partial": lambda f, *x: f.partial("a")(*x),
    "jvp": lambda f, *x: f.jvp(x, tuple(map(np.ones_like, x)))[1],
    "vjp": lambda f, *x: f.vjp(*x)[1](np.ones(np.broadcast_shapes(*map(np.shape, x))))[0],
}
A = np.array([[1.0, 2.0, 9.0], [3.0, 4.0, 2.25]])


@pytest.mark.parametrize("backend", ["cpu", "python"])
@pytest.mark.parametrize("product", PRODUCTS)
def test_the_first_element_is_named_and_the_others_are_right(product: str, backend: Any) -> None:
    f = differentiable_broadcast(backend=backend, max_iterations=40)(newton)
    free = differentiable_broadcast(backend=backend)(newton)
    made, u = PRODUCTS[product], np.ones_like(A)
    expected = made(free, A, u)
    for _ in range(3):
        np.testing.assert_array_equal(made(f, A, u), expected)
    bad = A.copy()
    bad[1, 0] = bad[1, 2] = -2.0  # There is no root.
    for _ in range(3):
        with pytest.raises(IterationError) as found:
            made(f, bad, u)
        assert found.value.index == (1, 0)
        assert found.value.count == 2
        assert found.value.filename == __file__
        assert found.value.lineno == newton.__code__.co_firstlineno + 1
        assert "    while True:" in str(found.value)
        assert "^" in str(found.value)
        assert "max_iterations=40 for the element at index (1, 0), and for 1 more" in str(found.value)
    np.testing.assert_array_equal(made(f, A, u), expected)


@pytest.mark.parametrize("count", [1, 7, 100_000])
@pytest.mark.parametrize("order", ["C", "F", "gaps", "broadcast"])
def test_the_index_is_in_the_broadcast_shape_however_arrays_lie(count: int, order: str) -> None:
    f = differentiable_broadcast(max_iterations=60)(newton)
    a = np.full((3, count), 4.0)
    a[1, count // 2] = a[2, 0] = -1.0
    u = np.ones((1, count)) if order == "broadcast" else np.ones((3, count))
    if order == "F":
        a, u = np.asfortranarray(a), np.asfortranarray(u)
    elif order == "gaps":
        a = np.repeat(a, 2, axis=1)[:, ::2]
    for product in (f, f.value_and_jacobian, lambda a, u: f.vjp(a, u)[1](np.ones((3, count)))):
        for threads in (1, 2):
            with num_threads(threads), pytest.raises(IterationError) as found:
                product(a, u)
            assert found.value.index == (1, count // 2)
            assert found.value.count == 2


def test_exactly_as_many_iterations_are_not_too_many() -> None:
    @differentiable_broadcast(max_iterations=5)
    def turns(x: float, n: int) -> float:
        for _ in range(n):
            x = x * 2.0
        return x

    @differentiable_broadcast(max_iterations=5)
    def tests(x: float, n: int) -> float:
        i = 0
        while i < n:
            x = x * 2.0
            i += 1
        return x

    for f in (turns, tests):
        np.testing.assert_array_equal(f(1.0, np.arange(6)), 2.0 ** np.arange(6))
        with pytest.raises(IterationError) as found:
            f(1.0, np.arange(9))
        assert found.value.index == (6,)
        assert found.value.count == 3
        with pytest.raises(IterationError, match="for these numbers"):
            f(1.0, 6)
        assert f(1.0, 5) == 32.0


def test_loops_inside_loops_count_each_time_anew_and_the_first_is_named() -> None:
    @differentiable_broadcast(max_iterations=10)
    def f(x: float, n: int, m: int) -> float:
        for _ in range(n):
            for _ in range(m):
                x = x + 1.0
                if x > 1000.0:
                    break
        k = 0
        while k < n + m:
            k += 1
        return x + k

    n, m = np.arange(1, 12)[:, None], np.arange(1, 12)
    good = f(0.0, n[:5], m[:5])
    np.testing.assert_array_equal(good, n[:5] * m[:5] + n[:5] + m[:5])
    first = f.__wrapped__.__code__.co_firstlineno + 2
    for given, index, line in (
        ((0.0, 3, 11), (), first + 1),  # the inner loop; the one after it would take too many, too
        ((0.0, 11, 3), (), first),
        ((0.0, 3, np.array([3, 9])), (1,), first + 6),
    ):
        with pytest.raises(IterationError) as found:
            f(*given)
        assert (found.value.index, found.value.lineno) == (index, line)


def test_loops_that_are_known_to_be_short_take_no_output() -> None:
    @differentiable_broadcast(max_iterations=50)
    def f(x: float) -> float:
        for _ in range(50):
            x = x * 0.5 + 1.0
        return x

    assert "reached" not in f.inspect_source(np.float64)
    assert "reached" in differentiable_broadcast(max_iterations=49)(f).inspect_source(np.float64)
    with pytest.raises(IterationError):
        differentiable_broadcast(max_iterations=49)(f)(np.ones(3))
    assert f(2.0) == 2.0


def test_out_is_written_to_and_what_is_wrong_with_it_is_said() -> None:
    f = differentiable_broadcast(max_iterations=60)(newton)
    out = np.empty_like(A)
    for _ in range(3):
        assert f(A, 1.0, out=out) is out
        np.testing.assert_array_equal(out, differentiable_broadcast(newton)(A, 1.0))
    value, jacobian = f.value_and_jacobian(A, 1.0)
    again, also = f.value_and_jacobian(A, 1.0, out=(value, jacobian))
    assert again is value
    np.testing.assert_allclose(also["a"], 0.5 / np.sqrt(A), rtol=1e-12)
    with pytest.raises(IterationError):
        f(-A, 1.0, out=out)
    assert f(4.0, 1.0) == 2.0
    assert np.ndim(f(4.0, 1.0)) == 0
    assert f(np.empty((0, 3)), 1.0).shape == (0, 3)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "many"])
def test_a_bound_is_a_positive_integer(wrong: Any) -> None:
    with pytest.raises(TypeError, match="max_iterations"):
        differentiable_broadcast(max_iterations=wrong)(newton)


def test_graphs_have_the_bound_of_the_functions_in_them() -> None:
    from dualbcast import graph

    f = differentiable_broadcast(max_iterations=60)(newton)

    def loss(a: Any) -> Any:
        return (f(a * 1.0, 1.0) * 2.0).sum()

    np.testing.assert_allclose(graph.grad(loss)(A), 1 / np.sqrt(A), rtol=1e-12)
    bad = A.copy()
    bad[0, 2] = -1.0
    for n in (1, 2000):
        with pytest.raises(IterationError) as found:
            graph.grad(loss)(np.repeat(bad, n, axis=0))
        assert found.value.index == (0, 2)
    np.testing.assert_allclose(graph.grad(loss)(A), 1 / np.sqrt(A), rtol=1e-12)
