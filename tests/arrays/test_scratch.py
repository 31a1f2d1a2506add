"""What loops around kernels work in: on stacks of any size, however many inputs there are, and by several at a time."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from dualbcast import differentiable_broadcast
from dualbcast.runtime.cpu import policy
from dualbcast.runtime.cpu.pieces import _MOST_TILE_BYTES, Packing

# What is done once in the main thread, where it is compiled, and then in a thread, and in those of the pool.
SMALL_STACKS = """
import sys
import threading
import numpy as np
from dualbcast import differentiable_broadcast

@differentiable_broadcast
def total(*xs):
    s = 0.0
    for x in xs:
        s = s + x
    return s

@differentiable_broadcast
def squares(x, *ws):
    s = 0.0
    for w in ws:
        s = s + w * (w + x)
    return s

random = np.random.default_rng(0)
many = [random.integers(-99, 99, (300, 600)).astype(float) for _ in range(64)]
few = random.integers(-99, 99, (2, 500, 400)).astype(float)
rows = random.integers(-99, 99, (64, 20_000, 3)).astype(float)
x, cotangent = random.integers(-9, 9, (2, 40_000, 3)).astype(float)
ws = list(random.integers(-9, 9, (16, 3)).astype(float))
wide, other = random.integers(-9, 9, (2, 30, 2000)).astype(float)
numbers = list(random.integers(-9, 9, (64, 1, 1)).astype(float))

def transposed():
    found = total(*[np.ascontiguousarray(each.T).T for each in many[1:]], many[0])
    np.testing.assert_array_equal(found, sum(many))
    np.testing.assert_array_equal(total(few[0].T.copy().T, few[1]), few[0] + few[1])

def short_rows():
    ends = [each[:, :1] for each in rows[1:]]
    np.testing.assert_array_equal(total(rows[0], *ends), rows[0] + sum(ends))

def short_sums():
    slopes = squares.value_and_vjp((x, *ws), cotangent)[1]
    np.testing.assert_array_equal(slopes[0], cotangent * sum(ws))
    for w, slope in zip(ws, slopes[1:]):
        np.testing.assert_array_equal(slope, (cotangent * (2 * w + x)).sum(0))

def sums():
    slopes = squares.value_and_vjp((wide, *numbers), other)[1]
    for number, slope in zip(numbers, slopes[1:]):
        np.testing.assert_array_equal(slope, (other * (2 * number + wide)).sum(keepdims=True))

threading.stack_size(int(sys.argv[1]))
for name in sys.argv[2:]:
    work = globals()[name]
    work()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(name)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="stacks of 32 KiB")
@pytest.mark.parametrize(
    ("stack", "works"), [(1 << 15, ["transposed", "short_rows", "short_sums"]), (1 << 16, ["sums"])]
)
def test_small_stacks_are_enough(stack: int, works: list[str], tmp_path: Path) -> None:
    """In a process of its own, which would end without a word."""
    script = tmp_path / "small_stacks.py"
    script.write_text(SMALL_STACKS)
    command = [sys.executable, script, str(stack), *works]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout.split()) == (0, works), run.stderr


@pytest.mark.parametrize("count", [1, 4, 5, 17, 64])
@pytest.mark.parametrize("sizes", [(3000, 4000), (12_000_000,)])
def test_tiles_of_many_inputs_are_smaller(sizes: tuple[int, ...], count: int) -> None:
    steps = (4000, 1)[-len(sizes) :]
    strides = (1, 3000) if len(sizes) == 2 else (2,)
    found = Packing.of(tuple(range(count)), sizes, steps, (strides,) * count, (8,) * count)
    assert found is not None
    assert found.most * found.columns * 8 * count <= _MOST_TILE_BYTES
    assert found.wide % found.columns == 0


def test_callers_at_a_time_do_not_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads that launch, each with several that help, and more pieces than threads."""
    monkeypatch.setattr(policy, "THREAD_NS", 0)
    monkeypatch.setenv("DUALBCAST_NUM_THREADS", "5")

    @differentiable_broadcast
    def joint(x, y):
        return x * y - x

    def work(seed: int) -> None:
        x, y = np.random.default_rng(seed).standard_normal((2, 200, 300))
        for _ in range(50):
            wrong.append(not np.array_equal(joint(np.asfortranarray(x), y), x * y - x))

    wrong: list[bool] = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [False] * 200
