"""Threads, processes and forks at once: right results, no deadlock, and a cache that survives being killed."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from dualbcast import differentiable_broadcast, disk_cache
from dualbcast.runtime.cpu import kernel as cpu_kernel

PROGRAM = Path(__file__).parents[1] / "oracles" / "concurrent_calls.py"
# Of a program that is expected to take a few seconds; it then shows where its threads are.
PATIENCE = 600


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def program(tmp_path: Path, text: str, *arguments: str) -> list[str]:
    """The command that runs a program, which has a file so that functions in it have their text."""
    path = tmp_path / "program.py"
    path.write_text(f"import faulthandler\nfaulthandler.dump_traceback_later({PATIENCE}, exit=True)\n" + text)
    return [sys.executable, "-W", "ignore", str(path), *arguments]


def run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE + 60, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def entries_are_whole(folder: Path) -> bool:
    names = [path.name for path in folder.iterdir()]
    return all(name.endswith(".bin") and disk_cache._read(folder / name, name[:-4]) is not None for name in names)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("threads", [8])
def test_threads_that_call_functions_at_once(threads):
    out = run([sys.executable, str(PROGRAM), str(threads), "1000", str(PATIENCE)])
    assert out == f"{threads} threads, 1000 calls each: all right\n"


RACER = """
import math, sys, time
import numpy as np
from dualbcast import differentiable_broadcast
from dualbcast.runtime.cpu import kernel as cpu
def first(x):
    return x * math.exp(-x)
def second(x, y):
    return math.sin(x) * y
def third(x):
    return x if x > 1.0 else x * x * x
x = np.linspace(-1, 3, 1001)
made = []
build = cpu._build
cpu._build = lambda *source: made.append(source) or build(*source)
time.sleep(max(0.0, float(sys.argv[1]) - time.time()))
for function, arguments, value, slope in (
    (first, (x,), x * np.exp(-x), (1 - x) * np.exp(-x)),
    (second, (x, x[::-1].copy()), np.sin(x) * x[::-1], np.cos(x) * x[::-1]),
    (third, (x,), np.where(x > 1, x, x**3), np.where(x > 1, 1, 3 * x**2)),
):
    got, jacobian = differentiable_broadcast(function).value_and_jacobian(*arguments)
    np.testing.assert_allclose(got, value, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(jacobian["x"], slope, rtol=1e-13, atol=1e-15)
print(len(made))
"""


def test_processes_that_race_for_an_empty_cache(tmp_path, folder):
    import time

    command = program(tmp_path, RACER, str(time.time() + 1.5))
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outs = [racer.communicate(timeout=PATIENCE)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert sum(map(int, outs)) >= 3
    assert len(list(folder.iterdir())) == 6  # a product and a kernel of each
    assert entries_are_whole(folder)
    assert run(command) == "0\n"  # a third compiles nothing


# Forks children that write to the cache, and kills each at a moment of its own, late enough to have begun.
KILLER = """
import os, random, signal, sys, time
from dualbcast import disk_cache as cache
draw = random.Random(0)
payloads = {cache.key(str(n)): bytes([n]) * 3_000_000 for n in range(5)}
def write():
    while True:
        for key, payload in payloads.items():
            content = cache._MAGIC + cache._checksum(key, payload) + payload
            cache._write(cache.directory() / "kernels" / f"{key}.bin", content)
torn = 0
for child in range(1000):
    if child >= 60 and torn:
        break
    pid = os.fork()
    if pid == 0:
        write()
    time.sleep(draw.uniform(0.0, 0.02))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    # Whatever has its final name is whole.
    for key, payload in payloads.items():
        path = cache.directory() / "kernels" / f"{key}.bin"
        if path.exists():
            assert cache._read(path, key) == payload, child
    torn += sum(".bin." in path.name for path in (cache.directory() / "kernels").glob(".*"))
for key, payload in payloads.items():
    assert cache.fetch(key, lambda: payload) == payload
assert torn  # some were killed in the middle of writing
cache.clear()
assert not list((cache.directory() / "kernels").iterdir())
"""


@pytest.mark.usefixtures("folder")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_killed_in_the_middle_of_writing(tmp_path):
    run(program(tmp_path, KILLER))


def cubed(x):
    return x * x * x


def test_a_damaged_kernel_is_compiled_anew(folder, monkeypatch):
    x = np.linspace(-2, 2, 101)
    made = []
    build = cpu_kernel._build
    monkeypatch.setattr(cpu_kernel, "_build", lambda *source: made.append(source) or build(*source))

    def check() -> None:
        monkeypatch.setattr(cpu_kernel, "_kernels", {})  # as in a new process
        np.testing.assert_allclose(differentiable_broadcast(cubed)(x), x**3, rtol=1e-15)

    check()
    paths = list(folder.iterdir())
    assert len(paths) == 2  # of the product and of its kernel
    whole = max((path.read_bytes() for path in paths), key=len)
    draw = np.random.default_rng(0)
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    damaged = [whole[: draw.integers(len(whole))] for _ in range(4)]
    damaged += [bytes(flipped), draw.bytes(len(whole)), b"", whole + b"\0"]
    for times, content in enumerate(damaged, start=2):
        for path in paths:
            path.write_bytes(content)
        check()
        assert len(made) == times
        assert entries_are_whole(folder)
        check()
        assert len(made) == times


FORKER = """
import math, os, signal, sys, threading
import numpy as np
from dualbcast import differentiable_broadcast, num_threads
from dualbcast.runtime.cpu import policy
policy.THREAD_NS, policy.RANGE_NS = 0, 1
@differentiable_broadcast
def known(x):
    return x * math.sin(x)
@differentiable_broadcast
def new(x):
    return x + math.exp(-x * x)
x = np.linspace(-3, 3, 100_000)
def check(function, right):
    with num_threads(3):
        value, jacobian = function.value_and_jacobian(x)
    np.testing.assert_allclose(value, right, rtol=1e-13, atol=1e-14)
def busy():
    while not done.is_set():
        check(known, x * np.sin(x))
done = threading.Event()
check(known, x * np.sin(x))
threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for child in range(15):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # the watchdog of faulthandler does not survive a fork
        try:
            check(known, x * np.sin(x))
            check(new, x + np.exp(-x * x))  # lowered and compiled, or loaded, in the child
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, child
done.set()
for thread in threads:
    thread.join(60)
    assert not thread.is_alive()
"""


@pytest.mark.usefixtures("folder")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_forks_while_other_threads_run_kernels(tmp_path):
    run(program(tmp_path, textwrap.dedent(FORKER)))
