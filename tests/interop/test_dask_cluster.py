"""Calls on Dask arrays in the processes of a cluster: kernels come from disk, a worker is killed, memory is short."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualbcast import differentiable_broadcast

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


@differentiable_broadcast
def wave(x, frequency, limit):
    """A branch, a loop that ends when the data say so, and two outputs."""
    y = math.sin(frequency * x)
    if y > limit:
        return y * y, x
    z = x
    while abs(z) > limit:
        z = 0.5 * z * frequency
    return z + y, z * y


@contextmanager
def client_of(workers: int, **options: Any) -> Iterator[Any]:
    with (
        dask.config.set({"distributed.worker.daemon": True}),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, **options
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def has_compiler() -> bool:
    """Whether this process has compiled a kernel."""
    return "dualbcast.codegen.llvm.build" in sys.modules


def has_called() -> bool:
    """Whether this process has a kernel."""
    kernel = sys.modules.get("dualbcast.runtime.cpu.kernel")
    return kernel is not None and bool(kernel._kernels)


def sums(x: Any, frequency: Any) -> tuple[list[Any], list[Any]]:
    """What is computed of Dask's arrays, and the same of NumPy's."""
    whole = np.asarray(x)
    (y, z), (slope,) = wave.value_and_vjp((x, frequency, 0.5), (1.0, 2.0), wrt="frequency")
    jacobian = wave.jacobian(whole, frequency, 0.5)
    wanted = wave(whole, frequency, 0.5)
    summed = (jacobian[0, "frequency"] + 2 * jacobian[1, "frequency"]).sum(axis=0)
    return [y, z.sum(), slope], [wanted[0], wanted[1].sum(), summed]


def test_the_disk_cache_serves_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUALBCAST_CACHE_DIR", str(tmp_path))
    x = da.from_array(np.random.default_rng(0).normal(size=(40, 30)), chunks=(10, 30))
    lazy, wanted = sums(x, np.linspace(0.1, 0.9, 30))
    for is_first in (True, False):
        with client_of(1) as client:
            for found, expected in zip(dask.compute(*lazy), wanted, strict=True):
                np.testing.assert_allclose(found, expected, rtol=1e-12)
            assert set(client.run(has_called).values()) == {True}
            # The second process loads what the first one has stored.
            assert set(client.run(has_compiler).values()) == {is_first}


def slow(block: np.ndarray, folder: str) -> np.ndarray:
    """A chunk that takes its time, and leaves a file."""
    (Path(folder) / f"{os.getpid()}-{uuid.uuid4()}").touch()
    time.sleep(0.1)
    return block


def test_the_result_is_right_when_a_worker_is_killed(tmp_path: Path) -> None:
    whole = np.random.default_rng(1).normal(size=(400, 30))
    x = da.from_array(whole, chunks=(10, 30))
    frequency = np.linspace(0.1, 0.9, 30)
    _, wanted = sums(x, frequency)
    x = x.map_blocks(slow, str(tmp_path), dtype=x.dtype, meta=x._meta)
    (y, z), (slope,) = wave.value_and_vjp((x, frequency, 0.5), (1.0, 2.0), wrt="frequency")
    with client_of(2) as client:
        workers = set(client.run(os.getpid).values())
        futures = client.compute([y, z.sum(), slope])
        while len(list(tmp_path.iterdir())) < 16:
            time.sleep(0.01)
        assert not any(future.done() for future in futures)
        killed = min(workers)
        os.kill(killed, signal.SIGKILL)
        results = client.gather(futures)
        readers = {int(path.name.partition("-")[0]) for path in tmp_path.iterdir()}
        assert killed in readers and killed not in client.run(os.getpid).values()
    # Chunks that were lost with the worker were read again.
    assert len(list(tmp_path.iterdir())) > 40
    for found, expected in zip(results, wanted, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-12)


PERIOD = 1_000_000


def periodic(block: np.ndarray) -> np.ndarray:
    """Numbers from 0 to 1, for indices."""
    return (block % PERIOD) / PERIOD


def peak() -> int:
    """The most bytes of memory that this process has had.

    The kernel's ``VmHWM`` begins with the program; ``ru_maxrss`` would count the process that started it too.
    """
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def test_an_array_larger_than_memory() -> None:
    periods, limit = 600, 10**9
    x = da.arange(periods * PERIOD, chunks=4 * PERIOD, dtype=np.int64).map_blocks(periodic, dtype=float)
    assert x.nbytes > 4 * limit
    weight = np.array(1.5)
    value, (slope,) = curve.value_and_vjp((x, weight), 1.0, wrt="weight")
    with client_of(1, memory_limit=limit) as client:
        total, gradient = dask.compute(value.sum(), slope)
        assert max(client.run(peak).values()) < limit
    once = periodic(np.arange(PERIOD))
    high, low = once > 0.25, once <= 0.25
    terms = np.where(high, 1.5 * 1.5 * once, np.exp(-1.5 * once))
    slopes = np.where(high, 2 * 1.5 * once, -once * np.exp(-1.5 * once))
    assert low.any() and high.any()
    assert total == pytest.approx(periods * math.fsum(terms), rel=1e-12)
    assert gradient == pytest.approx(periods * math.fsum(slopes), rel=1e-12)


@differentiable_broadcast
def curve(x, weight):
    if x > 0.25:
        return weight * weight * x
    return math.exp(-weight * x)
